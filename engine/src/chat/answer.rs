//! Thoughts and answer, told apart while the model generates.

use super::marks::{CHANNEL_MARKS, MESSAGE, Marks};

/// What came to the thoughts and the answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delta {
    /// To the thoughts.
    pub reasoning: String,
    /// To the answer.
    pub text: String,
    /// Both are all that there is so far and replace what came before: a mark showed that what had
    /// looked like the answer were thoughts.
    pub reset: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing but blanks came: thoughts or the answer may begin.
    Start,
    /// Within the thoughts.
    Thoughts,
    /// Within the answer, and no thoughts were marked: they may turn out to have been some.
    UnmarkedAnswer,
    /// Within the answer.
    Answer,
    /// Between two messages; with the channel's name as far as it has come.
    Header,
}

/// Tells thoughts and answer apart, as the text comes.
#[derive(Debug, Clone)]
pub struct Splitter {
    /// `None`: there are no thoughts, all is the answer.
    marks: Option<Marks>,
    state: State,
    /// Text that may be the beginning of a mark, or blanks that may belong to none of the two.
    pending: String,
    channel: String,
    reasoning: String,
    text: String,
}

impl Splitter {
    /// For a raw prompt: everything is the answer.
    #[must_use]
    pub fn raw() -> Self {
        Self::new(None, State::Answer)
    }

    /// For what comes behind a prompt that a chat template wrote.
    pub(super) fn behind(prompt: &str, marks: Marks) -> Self {
        let end = prompt.trim_end();
        let state = match marks {
            Marks::Tags { open, .. } if end.ends_with(open) => State::Thoughts,
            Marks::Tags { close, .. } if end.ends_with(close) => State::Answer,
            Marks::Tags { .. } => State::Start,
            Marks::Channels if end.ends_with("final<|message|>") => State::Answer,
            Marks::Channels if end.ends_with(MESSAGE) => State::Thoughts,
            Marks::Channels => State::Header,
        };
        Self::new(Some(marks), state)
    }

    fn new(marks: Option<Marks>, state: State) -> Self {
        Self {
            marks,
            state,
            pending: String::new(),
            channel: String::new(),
            reasoning: String::new(),
            text: String::new(),
        }
    }

    /// The thoughts so far.
    #[must_use]
    pub fn reasoning(&self) -> &str {
        &self.reasoning
    }

    /// The answer so far.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Takes generated text.
    pub fn push(&mut self, text: &str) -> Delta {
        let mut delta = Delta::default();
        self.pending.push_str(text);
        match self.marks {
            None => {
                let all = std::mem::take(&mut self.pending);
                self.add_text(&all, &mut delta);
            }
            Some(Marks::Tags { open, close }) => while self.step_tags(open, close, &mut delta) {},
            Some(Marks::Channels) => while self.step_channels(&mut delta) {},
        }
        delta
    }

    /// Takes a token that is a mark for the model, by its name. What has no meaning here is left out.
    pub fn push_mark(&mut self, name: &str) -> Delta {
        if self.marks.is_some_and(|marks| marks.concerns(name)) {
            self.push(name)
        } else {
            Delta::default()
        }
    }

    /// The end: what was held back belongs where it stands.
    pub fn finish(&mut self) -> Delta {
        let mut delta = Delta::default();
        let rest = std::mem::take(&mut self.pending);
        match self.state {
            State::Thoughts => self.add_reasoning(rest.trim_end(), &mut delta),
            State::Header => {}
            State::Start | State::UnmarkedAnswer | State::Answer => {
                self.add_text(&rest, &mut delta)
            }
        }
        delta
    }

    fn add_text(&mut self, text: &str, delta: &mut Delta) {
        self.text.push_str(text);
        delta.text.push_str(text);
    }

    fn add_reasoning(&mut self, text: &str, delta: &mut Delta) {
        self.reasoning.push_str(text);
        delta.reasoning.push_str(text);
    }

    /// Takes `bytes` of what is pending.
    fn take(&mut self, bytes: usize) -> String {
        self.pending.drain(..bytes).collect()
    }

    /// Gives the thoughts what can't be a mark or blanks at their end.
    fn give_thoughts(&mut self, marks: &[&str], delta: &mut Delta) {
        if self.reasoning.is_empty() {
            self.pending = self.pending.trim_start().to_owned();
        }
        let sure = self.pending.len() - held_back(&self.pending, marks);
        let sure = self.pending[..sure].trim_end().len();
        let thoughts = self.take(sure);
        self.add_reasoning(&thoughts, delta);
    }

    /// Gives the answer what can't be a mark.
    fn give_answer(&mut self, marks: &[&str], delta: &mut Delta) {
        let sure = self.pending.len() - held_back(&self.pending, marks);
        let answer = self.take(sure);
        self.add_text(&answer, delta);
    }

    /// One step of the two marks' way; false when more text is needed.
    fn step_tags(&mut self, open: &str, close: &str, delta: &mut Delta) -> bool {
        match self.state {
            State::Start => {
                let begun = self.pending.trim_start();
                if let Some(rest) = begun.strip_prefix(open) {
                    self.pending = rest.to_owned();
                    self.state = State::Thoughts;
                } else if open.starts_with(begun) {
                    return false;
                } else {
                    self.state = State::UnmarkedAnswer;
                }
                true
            }
            State::Thoughts => {
                let Some(at) = self.pending.find(close) else {
                    self.give_thoughts(&[close], delta);
                    return false;
                };
                let thoughts = self.take(at + close.len());
                let thoughts = thoughts[..at].trim_end();
                let thoughts =
                    if self.reasoning.is_empty() { thoughts.trim_start() } else { thoughts };
                self.add_reasoning(thoughts, delta);
                self.state = State::Answer;
                true
            }
            State::UnmarkedAnswer => {
                let Some(at) = self.pending.find(close) else {
                    self.give_answer(&[close], delta);
                    return false;
                };
                let last = self.take(at + close.len());
                let thoughts = std::mem::take(&mut self.text) + &last[..at];
                thoughts.trim().clone_into(&mut self.reasoning);
                *delta =
                    Delta { reasoning: self.reasoning.clone(), text: String::new(), reset: true };
                self.state = State::Answer;
                true
            }
            State::Answer | State::Header => {
                // Thoughts and answer are set apart by empty lines that belong to neither.
                if self.text.is_empty() {
                    self.pending = self.pending.trim_start().to_owned();
                }
                self.give_answer(&[], delta);
                false
            }
        }
    }

    /// One step of the channels' way; false when more text is needed.
    fn step_channels(&mut self, delta: &mut Delta) -> bool {
        let next =
            CHANNEL_MARKS.iter().filter_map(|mark| Some((self.pending.find(mark)?, *mark))).min();
        let Some((at, mark)) = next else {
            match self.state {
                State::Thoughts => self.give_thoughts(&CHANNEL_MARKS, delta),
                State::Header => {
                    let sure = self.pending.len() - held_back(&self.pending, &CHANNEL_MARKS);
                    let name = self.take(sure);
                    self.channel.push_str(&name);
                }
                State::Start | State::UnmarkedAnswer | State::Answer => {
                    self.give_answer(&CHANNEL_MARKS, delta);
                }
            }
            return false;
        };
        let before = self.take(at + mark.len());
        let before = &before[..at];
        match self.state {
            State::Thoughts => self.add_reasoning(before.trim_end(), delta),
            State::Header => self.channel.push_str(before),
            State::Start | State::UnmarkedAnswer | State::Answer => self.add_text(before, delta),
        }
        if mark == MESSAGE {
            // Without a channel (a role only) it is an answer; `commentary` is for tools, not for people.
            let name = self.channel.trim();
            let answer = name.starts_with("final") || name.is_empty();
            self.state = if answer { State::Answer } else { State::Thoughts };
            if !answer && !self.reasoning.is_empty() {
                self.add_reasoning("\n", delta);
            }
        } else {
            // The role stands between start and channel; only the channel's name matters.
            self.state = State::Header;
        }
        self.channel.clear();
        true
    }
}

/// Length of the longest end of `text` that begins one of the marks.
fn held_back(text: &str, marks: &[&str]) -> usize {
    marks
        .iter()
        .flat_map(|mark| mark.char_indices().map(move |(i, _)| &mark[..i]))
        .filter(|begin| text.ends_with(begin))
        .map(str::len)
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits a text that comes in pieces of `n` characters; checks that the deltas add up.
    fn split(mut splitter: Splitter, text: &str, n: usize) -> (String, String, bool) {
        let chars: Vec<char> = text.chars().collect();
        let (mut reasoning, mut answer, mut reset) = (String::new(), String::new(), false);
        let mut add = |delta: Delta| {
            if delta.reset {
                {
                    reasoning.clear();
                    answer.clear();
                }
                reset = true;
            }
            reasoning += &delta.reasoning;
            answer += &delta.text;
        };
        for piece in chars.chunks(n) {
            add(splitter.push(&piece.iter().collect::<String>()));
        }
        add(splitter.finish());
        assert_eq!((reasoning.as_str(), answer.as_str()), (splitter.reasoning(), splitter.text()));
        (reasoning, answer, reset)
    }

    #[track_caller]
    fn check(prompt: &str, marks: Marks, text: &str, reasoning: &str, answer: &str, reset: bool) {
        for n in 1..=text.chars().count().max(1) {
            let split = split(Splitter::behind(prompt, marks), text, n);
            assert_eq!(split, (reasoning.to_owned(), answer.to_owned(), reset), "pieces of {n}");
        }
    }

    const THINK: Marks = Marks::Tags { open: "<think>", close: "</think>" };

    #[test]
    fn tags() {
        let at = "<|im_start|>assistant\n";
        check(at, THINK, "<think>\nhm, 1 < 2\n</think>\n\nYes.\n", "hm, 1 < 2", "Yes.\n", false);
        check(at, THINK, "\n <think></think>ok", "", "ok", false);
        check(at, THINK, "Yes <b>.", "", "Yes <b>.", false);
        check(at, THINK, "<thi", "", "<thi", false);
        check(at, THINK, "<think>cut off", "cut off", "", false);
        check("assistant\n<think>\n", THINK, "so\n\nand\n</think>\nA", "so\n\nand", "A", false);
        // The prompt closed the thoughts already: what looks like a mark is text.
        check("<think>\n\n</think>\n\n", THINK, "a </think> b", "", "a </think> b", false);
    }

    #[test]
    fn thoughts_without_a_beginning_replace_what_was_sent() {
        for n in 1..30 {
            let text = "let me see</think>Done.";
            let (reasoning, answer, reset) = split(Splitter::behind("a\n", THINK), text, n);
            assert_eq!((reasoning.as_str(), answer.as_str(), reset), ("let me see", "Done.", true));
        }
    }

    #[test]
    fn channels() {
        let text = "<|channel|>analysis<|message|>User asks.<|end|><|start|>assistant<|channel|>\
            commentary<|message|>More.<|end|><|start|>assistant<|channel|>final<|message|>Hi <there>";
        check(
            "<|start|>assistant",
            Marks::Channels,
            text,
            "User asks.\nMore.",
            "Hi <there>",
            false,
        );
        let prompt = "<|start|>assistant<|channel|>final<|message|>";
        check(prompt, Marks::Channels, "Hello<|return|>", "", "Hello", false);
        check("<|start|>assistant", Marks::Channels, "<|message|>Hello", "", "Hello", false);
    }

    #[test]
    fn marks_that_are_no_text_come_by_name() {
        let mut splitter = Splitter::behind("<|start|>assistant", Marks::Channels);
        splitter.push_mark("<|channel|>");
        splitter.push("final");
        splitter.push_mark("<|message|>");
        assert_eq!(splitter.push("Hi").text, "Hi");
        assert_eq!(splitter.push_mark("<|other|>"), Delta::default());
        let gemma = Marks::of("{{ '<|channel>thought\\n' }} {{ '<channel|>' }}");
        let mut splitter = Splitter::behind("<|turn>model\n", gemma);
        splitter.push_mark("<|channel>");
        splitter.push("thought\nhm\n");
        splitter.push_mark("<channel|>");
        splitter.push("Yes");
        assert_eq!((splitter.reasoning(), splitter.text()), ("hm", "Yes"));
    }

    #[test]
    fn raw_text_is_left_alone() {
        let text = " <think>x</think>\n\n";
        assert_eq!(split(Splitter::raw(), text, 3), (String::new(), text.to_owned(), false));
    }
}
