//! What the engine's tests share: tiny models, runs of them, and their records.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bmoe_engine::run::{RecordSink, RunOptions};
use bmoe_engine::{EngineError, generate};
use bmoe_synth::{Shape, WriteOptions, write_model};
use bmoe_trace::record::{LoadRecord, PrefillRecord, Record, RouteRecord, RunEnd, TokenRecord};
use bmoe_trace::{Mode, RunConfig};

/// Runs with more than one thread have the machine to themselves: ggml's threads spin, and two such runs
/// on two cores would take far longer than twice.
pub enum Place {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

static PLACES: RwLock<()> = RwLock::new(());

/// A place for runs with so many threads.
pub fn place(threads: u32) -> Place {
    if threads == 1 {
        Place::Shared(PLACES.read().unwrap_or_else(PoisonError::into_inner))
    } else {
        Place::Alone(PLACES.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A folder on the disk that the project is on (a tmpfs has no O_DIRECT), removed at the end.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Writes a model; returns its first file.
pub fn model(folder: &Path, shape: &Shape, name: &str, split: Option<u32>) -> PathBuf {
    let path = folder.join(format!("{name}.gguf"));
    let options = WriteOptions { split, seed: 1, ..WriteOptions::new(path) };
    write_model(shape, &options, &mut |_| {}).unwrap().files.swap_remove(0)
}

/// A tiny shape.
pub fn tiny(arch: &str) -> Shape {
    Shape::builtin(&format!("tiny-{arch}")).unwrap()
}

/// A prompt of exactly `tokens` tokens: characters that no merge of the tokenizer joins.
pub fn prompt(tokens: usize) -> String {
    (0..tokens).map(|i| char::from(b"%&()*+/<=>@"[i * i % 11])).collect()
}

/// Every record of a run.
#[derive(Debug, Default)]
pub struct Records(pub Vec<Record>);

impl RecordSink for Records {
    fn record(&mut self, record: &Record) -> Result<(), EngineError> {
        self.0.push(record.clone());
        Ok(())
    }

    fn wants_routes(&self) -> bool {
        true
    }
}

impl Records {
    pub fn load(&self) -> &LoadRecord {
        self.0.iter().find_map(|r| if let Record::Load(l) = r { Some(l) } else { None }).unwrap()
    }

    pub fn prefill(&self) -> &PrefillRecord {
        self.0.iter().find_map(|r| if let Record::Prefill(p) = r { Some(p) } else { None }).unwrap()
    }

    pub fn tokens(&self) -> Vec<&TokenRecord> {
        self.0
            .iter()
            .filter_map(|r| if let Record::Token(t) = r { Some(t) } else { None })
            .collect()
    }

    pub fn routes(&self) -> Vec<&RouteRecord> {
        self.0
            .iter()
            .filter_map(|r| if let Record::Route(t) = r { Some(t) } else { None })
            .collect()
    }
}

/// Runs a configuration with freed memory poisoned.
pub fn run(config: &RunConfig) -> Result<(RunEnd, Records), EngineError> {
    let mut records = Records::default();
    let options = RunOptions { poison: true, ..RunOptions::default() };
    let end = generate(config, &options, &mut [&mut records])?;
    Ok((end, records))
}

/// A short run that hashes its logits.
pub fn config(model: &Path, mode: Mode) -> RunConfig {
    RunConfig {
        model: model.to_owned(),
        mode,
        prompt: prompt(7),
        n_predict: 32,
        threads: 1,
        ctx_tokens: 256,
        hash_logits: true,
        force_cache: true,
        ..RunConfig::default()
    }
}

/// Gives a model another chat template, no longer than its own.
pub fn set_template(model: &Path, template: &str) {
    let mut bytes = std::fs::read(model).unwrap();
    let start: &[u8] = b"{% for message in messages %}";
    let at = bytes.windows(start.len()).position(|w| w == start).unwrap();
    let length = u64::from_le_bytes(bytes[at - 8..at].try_into().unwrap()) as usize;
    // A comment fills the room that is left.
    let padding = length.checked_sub(template.len() + 4).expect("the template fits");
    let padded = format!("{template}{{#{:padding$}#}}", "");
    bytes[at..at + length].copy_from_slice(padded.as_bytes());
    std::fs::write(model, bytes).unwrap();
}

/// A template that knows a switch for thinking, and drops the thoughts of earlier answers.
pub const THINKING: &str = "{%for m in messages%}<|im_start|>{{m.role}}\n{{m.content}}<|im_end|>\n\
    {%endfor%}{%if add_generation_prompt%}<|im_start|>assistant\n\
    {%if enable_thinking==false%}<think>\n\n</think>\n\n{%endif%}{%endif%}";
