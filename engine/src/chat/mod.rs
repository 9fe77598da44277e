//! Conversations: how they are written for a model, and how its answers are read.
//!
//! * [`template`]: the model's own chat template, and whether it can switch thinking off.
//! * [`answer`]: thoughts and answer, told apart in what the model generates.

pub mod answer;
mod marks;
mod python;
pub mod template;

pub use answer::{Delta, Splitter};
pub use template::{ChatTemplate, Message, Rendered, Role, ThinkControl};
