//! What is asked of the engine, and how it went.

use bmoe_trace::RunConfig;
use bmoe_trace::config::Think;

/// Something to generate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// A name for the records.
    pub id: String,
    /// The user's message, or (without a chat template) the text to go on from.
    pub prompt: String,
    /// Most tokens to generate.
    pub n_predict: u32,
    /// Whether the model is to think (with a chat template).
    pub think: Think,
    /// Forget the conversation so far.
    pub clear: bool,
}

impl Request {
    /// The one that a run's configuration describes.
    #[must_use]
    pub fn of(config: &RunConfig) -> Self {
        Self {
            id: String::new(),
            prompt: config.prompt.clone(),
            n_predict: config.n_predict,
            think: config.think,
            clear: true,
        }
    }
}

/// One generated token, as a callback sees it.
#[derive(Debug)]
pub struct GeneratedToken<'a> {
    /// Decode step, from 1.
    pub step: u32,
    /// The token.
    pub token: i32,
    /// What came to thoughts and answer with it.
    pub delta: &'a crate::chat::Delta,
    /// What the step cost.
    pub cost: &'a bmoe_trace::record::Cost,
}

/// Why no more tokens came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model ended its text.
    Stop,
    /// As many as were asked for.
    Length,
    /// The context is full.
    Context,
    /// The replayed trace has no more tokens.
    Trace,
    /// The callback said so.
    Callback,
    /// Cancelled; the conversation is as it was before the request.
    Cancelled,
}

impl Finish {
    /// The name in the line protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Context => "context",
            Self::Trace => "trace",
            Self::Callback => "callback",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What became of the tokens of earlier requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefix {
    /// There were none, or they were to be forgotten.
    New,
    /// Kept, as far as the new text begins like the old one.
    Kept,
    /// Kept as far as a copy of the model's running state reaches.
    Checkpoint,
    /// None could be kept: the whole text was computed again.
    Prefilled,
}

impl Prefix {
    /// The name in the line protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Kept => "kept",
            Self::Checkpoint => "checkpoint",
            Self::Prefilled => "prefilled",
        }
    }
}

/// How a request went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnReport {
    /// The request's name.
    pub id: String,
    /// Turn of the session, from 0.
    pub turn: u32,
    /// Why no more tokens came.
    pub finish: Finish,
    /// What became of earlier tokens.
    pub prefix: Prefix,
    /// Tokens that were kept from earlier requests.
    pub reused_tokens: u32,
    /// Tokens of earlier requests that had to go.
    pub removed_tokens: u32,
    /// Prompt tokens that were computed; 0 when the request was cancelled meanwhile.
    pub prompt_tokens: u32,
    /// Decode steps.
    pub tokens: u32,
    /// Sum of the decode steps' wall time.
    pub decode_ns: u64,
    /// Tokens of the whole text at the end.
    pub total_tokens: u32,
    /// The model's thoughts.
    pub reasoning: String,
    /// The answer; without a chat template all of the generated text.
    pub text: String,
    /// SHA-256 of the request's logits (hex), when they are hashed.
    pub logits_sha256: Option<String>,
    /// Highest bytes that the cache held, since the start.
    pub peak_cache_bytes: u64,
    /// Highest bytes by which an event went over that, since the start.
    pub peak_event_bytes: u64,
    /// Highest resident memory of the process.
    pub peak_rss_bytes: u64,
}

impl TurnReport {
    /// Whether it was cancelled.
    #[must_use]
    pub fn cancelled(&self) -> bool {
        self.finish == Finish::Cancelled
    }
}
