//! What a session is asked for: one JSON object a line on standard input, as in the published protocol
//! (see [`crate::line`] for the answers).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::Think;

/// One line of a session's standard input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "lowercase")]
pub enum Command {
    /// Answer a prompt.
    Generate(Generate),
    /// End the request that is running, and those that wait.
    Cancel,
    /// Do what was asked for so far, then end.
    Close,
}

/// `{"cmd":"generate", ...}`
///
/// An unknown field is an error, by name: a setting that silently does nothing misleads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generate {
    /// A name for the answer's lines: a number or a text.
    #[serde(default, deserialize_with = "name")]
    pub id: Value,
    /// The user's next message, or (without a chat template) the text to go on from.
    pub prompt: String,
    /// Most tokens to generate; the session's own number when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_predict: Option<u32>,
    /// Whether to think: true or false; what the session was started with when it is left out.
    #[serde(default, with = "think", skip_serializing_if = "Option::is_none")]
    pub think: Option<Think>,
    /// True starts a new conversation, false continues the one there is.
    #[serde(default)]
    pub clear_kv: bool,
}

/// What lists and objects would name, nobody could tell apart at a glance.
fn name<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Array(_) | Value::Object(_) => Err(serde::de::Error::custom(
            "`id` is a list or an object; expected a number or a text",
        )),
        name => Ok(name),
    }
}

/// `think` as the protocol has it: true, false or nothing. The names of [`Think`] are read, too.
mod think {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::config::Think;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Switch {
        On(bool),
        Named(Think),
    }

    pub(super) fn serialize<S: Serializer>(
        think: &Option<Think>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match think {
            None | Some(Think::Default) => serializer.serialize_none(),
            Some(think) => serializer.serialize_bool(*think == Think::On),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Think>, D::Error> {
        Ok(Option::<Switch>::deserialize(deserializer)?.map(|switch| match switch {
            Switch::On(true) => Think::On,
            Switch::On(false) => Think::Off,
            Switch::Named(think) => think,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_published() {
        let line = r#"{"cmd":"generate","id":7,"prompt":"Hi","n_predict":64,"think":false,"clear_kv":true}"#;
        let command: Command = serde_json::from_str(line).unwrap();
        let Command::Generate(generate) = &command else { panic!("{command:?}") };
        assert_eq!(generate.id, Value::from(7));
        assert_eq!((generate.n_predict, generate.think), (Some(64), Some(Think::Off)));
        assert!(generate.clear_kv);
        assert_eq!(serde_json::to_string(&command).unwrap(), line);
        let short = serde_json::from_str(r#"{"cmd":"generate","prompt":"","think":null}"#).unwrap();
        let Command::Generate(short) = short else { panic!("{short:?}") };
        assert_eq!((short.id, short.think, short.clear_kv), (Value::Null, None, false));
        let named = r#"{"cmd":"generate","prompt":"","think":"on"}"#;
        let Ok(Command::Generate(named)) = serde_json::from_str(named) else { panic!("{named}") };
        assert_eq!(named.think, Some(Think::On));
        assert_eq!(
            serde_json::from_str::<Command>(r#"{"cmd":"cancel"}"#).unwrap(),
            Command::Cancel
        );
        assert_eq!(serde_json::from_str::<Command>(r#"{"cmd":"close"}"#).unwrap(), Command::Close);
        assert!(serde_json::from_str::<Command>(r#"{"cmd":"stop"}"#).is_err());
        let listed = serde_json::from_str::<Command>(r#"{"cmd":"generate","id":[1],"prompt":"a"}"#);
        assert!(listed.unwrap_err().to_string().starts_with("`id` is a list"));
    }
}
