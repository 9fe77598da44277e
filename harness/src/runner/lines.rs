//! Lines of any origin, in bounded memory.

use std::io::{self, BufRead, Read};

/// Far more than any line of the protocol; one that is longer isn't of it.
pub(crate) const LINE_BYTES: usize = 1 << 20;

/// Reads the next line that has at most `limit` bytes, end included, and passes over longer ones; `false`
/// at the end.
pub(crate) fn read_line(
    reader: &mut impl BufRead,
    line: &mut Vec<u8>,
    limit: usize,
) -> io::Result<bool> {
    loop {
        line.clear();
        let n = reader.by_ref().take(limit as u64).read_until(b'\n', line)?;
        if n < limit || line.ends_with(b"\n") {
            return Ok(n > 0);
        }
        reader.skip_until(b'\n')?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_passed_over_and_the_next_is_whole() {
        let mut reader = &b"one\n1234567\n12345678\nlong long long\n\ntwo"[..];
        let (mut line, mut lines) = (Vec::new(), Vec::new());
        while read_line(&mut reader, &mut line, 8).unwrap() {
            lines.push(String::from_utf8(line.clone()).unwrap());
        }
        assert_eq!(lines, ["one\n", "1234567\n", "\n", "two"]);
    }
}
