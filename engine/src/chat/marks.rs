//! How families of models mark their thoughts.

/// How a family of models marks its thoughts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marks {
    /// Between two marks, in front of the answer.
    Tags {
        /// Begins the thoughts.
        open: &'static str,
        /// Ends them.
        close: &'static str,
    },
    /// Messages on named channels (gpt-oss): `<|channel|>analysis<|message|>...<|end|>`, then
    /// `<|start|>assistant<|channel|>final<|message|>...`.
    Channels,
}

/// Pairs of marks that families use; the first is everybody else's.
const TAGS: [(&str, &str); 5] = [
    ("<think>", "</think>"),
    ("<|channel>thought", "<channel|>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
];

const CHANNEL: &str = "<|channel|>";
pub(super) const MESSAGE: &str = "<|message|>";
/// What stands between the messages of channels.
pub(super) const CHANNEL_MARKS: [&str; 7] =
    [CHANNEL, MESSAGE, "<|end|>", "<|start|>", "<|return|>", "<|call|>", "<|constrain|>"];

impl Marks {
    /// The marks that a chat template speaks of.
    pub(super) fn of(template: &str) -> Self {
        if template.contains(CHANNEL) {
            return Self::Channels;
        }
        let (open, close) = TAGS
            .into_iter()
            .find(|(open, close)| template.contains(open) && template.contains(close))
            .or_else(|| TAGS.into_iter().find(|(_, close)| template.contains(close)))
            .unwrap_or(TAGS[0]);
        Self::Tags { open, close }
    }

    /// Whether a chat template speaks of them at all.
    pub(super) fn are_in(self, template: &str) -> bool {
        match self {
            Self::Tags { open, close } => template.contains(open) || template.contains(close),
            Self::Channels => true,
        }
    }

    /// What comes behind a prompt to have the model answer at once.
    pub(super) fn without_thoughts(self, prompt: &str) -> String {
        match self {
            Self::Channels => format!("{CHANNEL}final{MESSAGE}"),
            Self::Tags { open, close } if prompt.trim_end().ends_with(open) => {
                let line = if prompt.ends_with(char::is_whitespace) { "" } else { "\n" };
                format!("{line}\n{close}\n\n")
            }
            Self::Tags { open, close } => format!("{open}\n\n{close}\n\n"),
        }
    }

    /// Whether a mark that isn't text matters.
    pub(super) fn concerns(self, mark: &str) -> bool {
        match self {
            Self::Tags { open, close } => open.contains(mark) || close.contains(mark),
            Self::Channels => CHANNEL_MARKS.contains(&mark),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answering_at_once() {
        let think = Marks::Tags { open: "<think>", close: "</think>" };
        assert_eq!(think.without_thoughts("assistant\n"), "<think>\n\n</think>\n\n");
        assert_eq!(think.without_thoughts("assistant\n<think>\n"), "\n</think>\n\n");
        assert_eq!(think.without_thoughts("assistant\n<think>"), "\n\n</think>\n\n");
        assert_eq!(Marks::Channels.without_thoughts("a"), "<|channel|>final<|message|>");
    }
}
