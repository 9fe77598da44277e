//! What a person sees of a chat.

use std::io::{self, Write};
use std::path::Path;

use bmoe_trace::line::{Done, Progress, Ready};

use super::talk::Talk;
use crate::error::Error;

/// Where a chat is shown.
#[derive(Debug)]
pub struct Screen<W> {
    out: W,
    /// A person types: there are prompts.
    prompts: bool,
    /// Thoughts are dim.
    colour: bool,
    part: Part,
}

/// What of an answer was shown last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Nothing,
    Thoughts,
    Answer,
}

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

impl<W: Write> Screen<W> {
    /// Whether a person types.
    #[must_use]
    pub fn prompts(&self) -> bool {
        self.prompts
    }

    /// `prompts`: a person types. `colour`: the terminal has some.
    pub fn new(out: W, prompts: bool, colour: bool) -> Self {
        Self { out, prompts, colour, part: Part::Nothing }
    }

    fn write(&mut self, text: &str) -> Result<(), Error> {
        self.out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush())
            .map_err(|error: io::Error| Error::io("write to", Path::new("standard output"))(error))
    }

    /// The model is loaded.
    pub(super) fn begin(&mut self, ready: &Ready) -> Result<(), Error> {
        if !self.prompts {
            return Ok(());
        }
        self.note(&format!(
            "{}, loaded in {:.1} s; /help says what can be done",
            ready.arch, ready.load_s
        ))
    }

    /// Something that is no part of the conversation.
    pub(super) fn note(&mut self, text: &str) -> Result<(), Error> {
        let _ = writeln!(io::stderr(), "{text}");
        Ok(())
    }

    pub(super) fn prompt(&mut self) -> Result<(), Error> {
        if self.prompts { self.write("> ") } else { Ok(()) }
    }

    /// The end of input: the shell's prompt is to begin a line.
    pub(super) fn end(&mut self) -> Result<(), Error> {
        if self.prompts { self.write("\n") } else { Ok(()) }
    }

    /// What came with a token; thoughts only if they are wanted.
    pub(super) fn delta(&mut self, progress: &Progress, thoughts: bool) -> Result<(), Error> {
        if progress.reset != 0 {
            // What is on the screen stays there; what it was is said.
            let was =
                if self.part == Part::Answer { "\n(so far, these were thoughts)\n\n" } else { "" };
            self.part = Part::Answer;
            return self.write(&format!("{was}{}", progress.delta_text));
        }
        if !progress.delta_reasoning.is_empty() && thoughts {
            let begin = match self.part {
                Part::Thoughts => "",
                Part::Nothing | Part::Answer if self.colour => DIM,
                Part::Nothing | Part::Answer => "[thinking] ",
            };
            self.part = Part::Thoughts;
            self.write(&format!("{begin}{}", progress.delta_reasoning))?;
        }
        if !progress.delta_text.is_empty() {
            self.end_thoughts()?;
            self.part = Part::Answer;
            self.write(&progress.delta_text)?;
        }
        Ok(())
    }

    fn end_thoughts(&mut self) -> Result<(), Error> {
        if self.part == Part::Thoughts {
            let plain = if self.colour { PLAIN } else { "" };
            self.write(&format!("{plain}\n\n"))?;
        }
        Ok(())
    }

    /// The end of an answer.
    pub(super) fn done(&mut self, done: &Done) -> Result<(), Error> {
        if self.part == Part::Thoughts && self.colour {
            self.write(PLAIN)?;
        }
        self.part = Part::Nothing;
        self.write("\n")?;
        match Talk::cut_off(&done.finish) {
            Some(said) => self.note(said),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(reasoning: &str, text: &str, reset: u8) -> Progress {
        Progress {
            step: 1,
            steps: 9,
            wall_ms: 1.0,
            io_ms: -1.0,
            compute_ms: 1.0,
            mgmt_ms: -1.0,
            stall_ms: 0.0,
            read_mb: -1.0,
            cache_hit_pct: -1.0,
            majflt: 0,
            cpu_ms: 1.0,
            dense_resident_frac: -1.0,
            delta_reasoning: reasoning.to_owned(),
            delta_text: text.to_owned(),
            reset,
            io_wait_ms: -1.0,
            lane_busy_ms: -1.0,
            other_ms: 0.0,
        }
    }

    fn shown(colour: bool, thoughts: bool, deltas: &[(&str, &str, u8)]) -> String {
        let mut screen = Screen::new(Vec::new(), false, colour);
        for (reasoning, text, reset) in deltas {
            screen.delta(&progress(reasoning, text, *reset), thoughts).unwrap();
        }
        screen.done(&Done { finish: "stop".to_owned(), ..Done::default() }).unwrap();
        String::from_utf8(screen.out).unwrap()
    }

    #[test]
    fn thoughts_are_shown_apart_or_not_at_all() {
        let deltas = [("let", "", 0), (" me see", "", 0), ("", "Yes", 0), ("", ".", 0)];
        assert_eq!(shown(true, true, &deltas), "\x1b[2mlet me see\x1b[0m\n\nYes.\n");
        assert_eq!(shown(false, true, &deltas), "[thinking] let me see\n\nYes.\n");
        assert_eq!(shown(true, false, &deltas), "Yes.\n");
        assert_eq!(shown(true, true, &deltas[..1]), "\x1b[2mlet\x1b[0m\n");
    }

    #[test]
    fn what_turns_out_to_be_thoughts_is_said() {
        let deltas = [("", "hm", 0), ("hm", "Yes", 1)];
        assert_eq!(shown(false, true, &deltas), "hm\n(so far, these were thoughts)\n\nYes\n");
    }
}
