//! What a follower prints, in whole portions: whoever loses the connection in the middle of one hears it again.

use bmoe_trace::supervised::{Followed, Offsets};

/// Far more than any line of a follower.
const LINE_BYTES: usize = 2 << 20;

/// Takes a follower's output in pieces of any size.
#[derive(Debug, Default)]
pub(super) struct Feed {
    at: Offsets,
    /// The line that is going on.
    rest: Vec<u8>,
    /// What came since the last mark.
    portion: Vec<Followed>,
}

impl Feed {
    /// How far the portions went that were handed over.
    pub(super) fn offsets(&self) -> Offsets {
        self.at
    }

    /// A new follower begins where the last whole portion ended.
    pub(super) fn reconnected(&mut self) {
        self.rest.clear();
        self.portion.clear();
    }

    /// Hands over the portions that have become whole, and the status.
    pub(super) fn take(&mut self, piece: &[u8], hand_over: &mut dyn FnMut(Followed)) {
        self.rest.extend_from_slice(piece);
        let mut begin = 0;
        while let Some(length) = self.rest[begin..].iter().position(|b| *b == b'\n') {
            let line = String::from_utf8_lossy(&self.rest[begin..begin + length]);
            begin += length + 1;
            match Followed::parse(&line) {
                Some(Followed::At(at)) => {
                    self.at = at;
                    self.portion.drain(..).for_each(&mut *hand_over);
                }
                Some(status @ Followed::Status(_)) => hand_over(status),
                Some(other) => self.portion.push(other),
                None => {}
            }
        }
        self.rest.drain(..begin);
        if self.rest.len() > LINE_BYTES {
            self.rest.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bmoe_trace::supervised::Sample;

    #[test]
    fn nothing_is_heard_twice_and_nothing_is_missed() {
        let sample = |ms| Followed::Sample(Box::new(Sample { unix_ms: ms, ..Sample::default() }));
        let at = |samples| Followed::At(Offsets { lines: 0, samples });
        let text = format!("{}\nnoise\n{}\n{}\n", sample(1), at(10), sample(2));
        let mut feed = Feed::default();
        let mut heard = Vec::new();
        for piece in text.as_bytes().chunks(3) {
            feed.take(piece, &mut |followed| heard.push(followed));
        }
        assert_eq!((heard.as_slice(), feed.offsets().samples), ([sample(1)].as_slice(), 10));
        // Cut off behind the second sample, which comes again.
        feed.reconnected();
        let again = format!("{}\n{}\n", sample(2), at(20));
        feed.take(again.as_bytes(), &mut |followed| heard.push(followed));
        assert_eq!((heard, feed.offsets().samples), (vec![sample(1), sample(2)], 20));
    }
}
