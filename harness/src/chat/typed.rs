//! What a person can type: messages, commands, and what can be set from one message to the next. Both forms of the
//! chat read it here.

use bmoe_trace::config::Think;

/// What all requests of a chat have in common; it can change between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Most tokens of an answer.
    pub n_predict: u32,
    /// Whether the model is to think.
    pub think: Think,
    /// Whether its thoughts are shown.
    pub thoughts: bool,
}

/// One thing to type, and what it does.
#[derive(Debug, Clone, Copy)]
pub struct Word {
    /// The command, with what belongs behind it.
    pub typed: &'static str,
    /// What it does, in a line.
    pub does: &'static str,
}

/// What can be set between messages.
pub const KNOBS: [Word; 3] = [
    Word { typed: "/think on|off|default", does: "think first, if it can" },
    Word { typed: "/tokens N", does: "most tokens of an answer" },
    Word { typed: "/thoughts on|off", does: "show what the model thinks" },
];

/// What can be done.
pub const COMMANDS: [Word; 4] = [
    Word { typed: "/clear", does: "forget the conversation" },
    Word { typed: "/stats", does: "figures of the last answer" },
    Word { typed: "/help", does: "this" },
    Word { typed: "/quit", does: "leave (or the end of input)" },
];

/// A line that was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Typed {
    /// Blanks.
    Nothing,
    /// For the model.
    Message(String),
    /// Leave.
    Quit,
    /// Forget the conversation.
    Clear,
    /// Figures of the last answer.
    Stats,
    /// What can be typed.
    Help,
    /// Other settings from now on, and what to say about them.
    Set(Settings, String),
    /// No command, or not so: what to say about it.
    Wrong(String),
}

impl Typed {
    /// What a line means, under the settings that hold.
    #[must_use]
    pub fn read(line: &str, settings: Settings) -> Self {
        let trimmed = line.trim();
        if trimmed.is_empty() {
            return Self::Nothing;
        }
        if !trimmed.starts_with('/') {
            return Self::Message(line.to_owned());
        }
        let (command, value) = trimmed.split_once(char::is_whitespace).unwrap_or((trimmed, ""));
        let value = value.trim();
        let set = |settings, said| Self::Set(settings, said);
        let wrong = |knob: &Word| {
            Self::Wrong(format!("{command} {value}: expected {}", knob.typed).replace(" :", ":"))
        };
        match command {
            "/quit" | "/exit" => Self::Quit,
            "/clear" => Self::Clear,
            "/stats" => Self::Stats,
            "/help" => Self::Help,
            "/think" => match value.parse::<Think>() {
                Ok(think) => set(Settings { think, ..settings }, format!("think: {value}")),
                Err(_) => wrong(&KNOBS[0]),
            },
            "/tokens" => match value.parse::<u32>() {
                Ok(n_predict) if n_predict > 0 => set(
                    Settings { n_predict, ..settings },
                    format!("at most {n_predict} tokens an answer"),
                ),
                _ => wrong(&KNOBS[1]),
            },
            "/thoughts" => match value {
                "on" => set(Settings { thoughts: true, ..settings }, "thoughts: shown".to_owned()),
                "off" => {
                    set(Settings { thoughts: false, ..settings }, "thoughts: not shown".to_owned())
                }
                _ => wrong(&KNOBS[2]),
            },
            command => Self::Wrong(format!("{command} is no command; /help lists them")),
        }
    }
}

/// All commands, a line each.
#[must_use]
pub fn help() -> String {
    let mut text = String::new();
    for word in COMMANDS.iter().chain(&KNOBS) {
        text.push_str(&format!("{:<22} {}\n", word.typed, word.does));
    }
    text.push_str("Ctrl-C ends an answer; twice, it leaves.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings { n_predict: 5, think: Think::Default, thoughts: true };

    #[test]
    fn settings_change_one_at_a_time_and_nonsense_is_named() {
        let read = |line| Typed::read(line, SETTINGS);
        let off = Settings { think: Think::Off, ..SETTINGS };
        assert_eq!(read("/think off"), Typed::Set(off, "think: off".into()));
        let more = Settings { n_predict: 70, ..SETTINGS };
        assert_eq!(read(" /tokens  70 "), Typed::Set(more, "at most 70 tokens an answer".into()));
        let hidden = Settings { thoughts: false, ..SETTINGS };
        assert_eq!(read("/thoughts off"), Typed::Set(hidden, "thoughts: not shown".into()));
        for (line, said) in [
            ("/tokens 0", "/tokens 0: expected /tokens N"),
            ("/tokens", "/tokens: expected /tokens N"),
            ("/think maybe", "/think maybe: expected /think on|off|default"),
            ("/dance", "/dance is no command; /help lists them"),
        ] {
            assert_eq!(read(line), Typed::Wrong(said.into()));
        }
        assert_eq!((read(" "), read("/exit")), (Typed::Nothing, Typed::Quit));
        // A message is sent as it was typed.
        assert_eq!(read(" a / b "), Typed::Message(" a / b ".into()));
    }
}
