//! A model's own chat template.

use std::collections::BTreeMap;

use bmoe_trace::config::Think;
use minijinja::value::Serde;
use minijinja::{Environment, Value, context};
use serde::Serialize;

use super::answer::Splitter;
use super::marks::Marks;
use super::python;

/// Who says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What.
    pub content: String,
    /// The model's thoughts in front of it; most templates leave them out of later prompts.
    #[serde(rename = "reasoning_content", skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
}

impl Message {
    /// A message of the user.
    #[must_use]
    pub fn user(content: impl Into<String>) -> Self {
        Self { role: Role::User, content: content.into(), reasoning: None }
    }
}

/// How thinking is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkControl {
    /// The template has a switch.
    Template,
    /// The model thinks, but its template has no switch: empty thoughts are put in front of the answer.
    Prefill,
    /// The model's template says nothing of thoughts.
    None,
}

impl ThinkControl {
    /// The name in the published protocol (`think_ctl`).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Template => "template",
            Self::Prefill => "prefill",
            Self::None => "none",
        }
    }
}

/// A template that can't be used, or that failed on a conversation.
#[derive(Debug, thiserror::Error)]
#[error("the model's chat template {what}: {source}; a raw prompt works without it")]
pub struct TemplateError {
    what: &'static str,
    source: minijinja::Error,
}

/// A conversation as the model reads it, up to where its answer begins.
#[derive(Debug, Clone)]
pub struct Rendered {
    /// The text.
    pub text: String,
    /// Bytes of it that are the conversation's own, without what asks for the answer: later prompts begin
    /// with them, unless the template rewrites them.
    pub conversation_bytes: usize,
    /// Reads what comes behind it.
    pub splitter: Splitter,
}

/// A model's chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
    marks: Marks,
    control: ThinkControl,
}

/// The one template of an environment, as messages name it.
const NAME: &str = "chat_template";

impl ChatTemplate {
    /// Takes the text of a template, and the names of the tokens that begin and end a text.
    ///
    /// # Errors
    /// It is no template, or it fails on the shortest conversation.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        let mut environment = python::environment();
        environment
            .add_template_owned(NAME, python::without_generation_tags(source))
            .map_err(|source| TemplateError { what: "can't be read", source })?;
        let marks = Marks::of(source);
        let mut template = Self {
            environment,
            bos: bos.to_owned(),
            eos: eos.to_owned(),
            marks,
            control: ThinkControl::None,
        };
        let hello = [Message::user("Hello")];
        template.fill(&hello, Think::Default, true)?;
        let with = |think| template.fill(&hello, think, true).ok();
        let switch = with(Think::On) != with(Think::Off);
        template.control = match marks {
            // The effort that these templates know is not a switch: the model thinks all the same.
            Marks::Channels => ThinkControl::Prefill,
            Marks::Tags { .. } if switch => ThinkControl::Template,
            Marks::Tags { .. } if marks.are_in(source) => ThinkControl::Prefill,
            Marks::Tags { .. } => ThinkControl::None,
        };
        Ok(template)
    }

    /// How thinking is switched off.
    #[must_use]
    pub fn think_control(&self) -> ThinkControl {
        self.control
    }

    /// Writes a conversation that the model is to continue.
    ///
    /// # Errors
    /// The template fails, by itself or by refusing the conversation.
    pub fn render(&self, messages: &[Message], think: Think) -> Result<Rendered, TemplateError> {
        let mut text = self.fill(messages, think, true)?;
        // Templates that fail without a question to answer just don't tell.
        let conversation = self.fill(messages, think, false).unwrap_or_default();
        let conversation_bytes = common_bytes(&text, &conversation);
        if think == Think::Off && self.control == ThinkControl::Prefill {
            text += &self.marks.without_thoughts(&text);
        }
        let splitter = Splitter::behind(&text, self.marks);
        Ok(Rendered { text, conversation_bytes, splitter })
    }

    fn fill(
        &self,
        messages: &[Message],
        think: Think,
        answer: bool,
    ) -> Result<String, TemplateError> {
        let failed = |source| TemplateError { what: "failed", source };
        // A template that is told nothing does what its authors meant it to do.
        let (thinking, effort) = match think {
            Think::Default => (Value::UNDEFINED, Value::UNDEFINED),
            Think::On => (Value::from(true), Value::UNDEFINED),
            Think::Off => (Value::from(false), Value::from("low")),
        };
        let conversation = context! {
            messages => Serde(messages),
            add_generation_prompt => answer,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
            // As their callers pass them: there, but nothing.
            tools => (),
            documents => (),
        };
        let switches: BTreeMap<&str, Value> = [
            ("enable_thinking", thinking.clone()),
            ("thinking", thinking),
            ("reasoning_effort", effort),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_undefined())
        .collect();
        self.environment
            .get_template(NAME)
            .and_then(|template| {
                template.render(context! { ..Value::from(switches), ..conversation })
            })
            .map_err(failed)
    }
}

/// Length of what two texts begin with, whole characters only.
fn common_bytes(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum()
}
