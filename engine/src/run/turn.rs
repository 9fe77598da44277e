//! One request: what of the text is kept, prefill, decode, and their records.

use std::ops::ControlFlow;
use std::time::Instant;

use bmoe_trace::record::{PrefillRecord, Record, TokenRecord, TurnRecord};
use sha2::{Digest, Sha256};

use super::engine::Engine;
use super::meter::Meter;
use super::process::{memory, rss};
use super::recorder::hex;
use super::request::{Finish, GeneratedToken, Prefix, TurnReport};
use super::sinks::Event;
use super::text::TextStream;
use crate::chat::{Delta, Splitter};
use crate::error::EngineError;

/// The text of a request.
pub(super) enum Prompt {
    /// What comes behind the text so far.
    Next(String),
    /// All of the text, from its beginning.
    Whole {
        /// The text.
        text: String,
        /// Bytes of it that later prompts begin with, too.
        conversation_bytes: usize,
    },
    /// As many tokens as the replayed trace's prompt has; which ones decides nothing that is measured.
    Replayed(u32),
}

/// What a turn works on.
pub(super) struct TurnInput<'a> {
    pub(super) id: &'a str,
    pub(super) prompt: Prompt,
    /// Forget all text so far.
    pub(super) fresh: bool,
    pub(super) n_predict: u32,
    pub(super) splitter: Splitter,
    /// One of several turns: it is recorded as one, and generates as much as fits the context.
    pub(super) session: bool,
}

/// How a request's text goes on from what the context holds.
struct Plan {
    /// Tokens that stay.
    keep: usize,
    prefix: Prefix,
    /// Tokens to compute.
    tokens: Vec<i32>,
    /// The first of them was put there by the tokenizer and is no part of the text.
    bare_first: bool,
    /// So many of them are computed first, to copy the running state behind them: later prompts begin like
    /// that, too. 0 = all at once.
    first: usize,
    /// Decode steps.
    steps: u32,
    /// Why they are fewer than were asked for, when they are.
    clipped: Option<Finish>,
}

/// What a turn adds up.
struct Running {
    splitter: Splitter,
    stream: TextStream,
    hash: Option<Sha256>,
    prompt_tokens: u32,
    tokens: u32,
    decode_ns: u64,
}

impl Engine<'_> {
    /// Runs a turn.
    pub(super) fn turn(
        &mut self,
        input: TurnInput<'_>,
        on_token: &mut dyn FnMut(&GeneratedToken<'_>) -> ControlFlow<()>,
    ) -> Result<TurnReport, EngineError> {
        self.check_usable()?;
        if self.replay.is_some() && input.session {
            return Err(EngineError::Request(
                "a replayed trace is one prompt and its answer, no conversation; use bmoe-engine generate".into(),
            ));
        }
        let plan = self.plan(&input)?;
        let result = self.run_plan(&input, &plan, on_token);
        if let Err(error) = &result {
            self.fail(error);
        }
        result
    }

    /// Decides what is kept and what is computed. Changes nothing.
    fn plan(&self, input: &TurnInput<'_>) -> Result<Plan, EngineError> {
        let held = if input.fresh { 0 } else { self.transcript.len() };
        let model = self.context.model();
        let (keep, tokens, bare_first) = match &input.prompt {
            Prompt::Replayed(prompt_tokens) => (0, self.replayed_prompt(*prompt_tokens)?, false),
            Prompt::Next(text) => (held, model.tokenize(text, held == 0)?, false),
            Prompt::Whole { text, .. } => {
                let common = if input.fresh { 0 } else { self.transcript.common(text) };
                let mut keep = self.reachable(common);
                loop {
                    let rest = &text[self.transcript.text_bytes(keep)..];
                    let bos = model.bos_text();
                    let marked = !bos.is_empty() && rest.starts_with(&bos);
                    let tokens = model.tokenize(rest, keep == 0 && !marked)?;
                    // A text that ends where the kept one does has no logits to choose from.
                    if tokens.is_empty() && keep > 0 {
                        keep = self.reachable(keep - 1);
                        continue;
                    }
                    let added = keep == 0
                        && !marked
                        && tokens.first().is_some_and(|t| model.source(*t) == bos.as_bytes());
                    break (keep, tokens, added && !bos.is_empty());
                }
            }
        };
        let (computed, room) = (keep + tokens.len(), self.config.ctx_tokens as usize);
        let wanted = input.n_predict as usize;
        let (asked, end) = match &self.replay {
            Some(replay) if replay.at_end => (wanted.min(replay.steps as usize), Finish::Trace),
            _ => (wanted, Finish::Context),
        };
        if tokens.is_empty() {
            return Err(EngineError::Request("the prompt has no tokens; give a longer one".into()));
        }
        if computed > room || (!input.session && computed + asked > room) {
            let needed = computed + asked.max(1);
            return Err(EngineError::Request(format!(
                "the prompt has {computed} tokens with all that comes before it, and {asked} more are \
                 asked for, but the context holds {room}; give --ctx {needed} or a shorter prompt"
            )));
        }
        let prefix = match (held, keep) {
            (0, _) => Prefix::New,
            (_, 0) => Prefix::Prefilled,
            _ if model.has_recurrent_state() && keep < held => Prefix::Checkpoint,
            _ => Prefix::Kept,
        };
        let first = match input.prompt {
            Prompt::Whole { conversation_bytes, .. }
                if input.session && model.has_recurrent_state() =>
            {
                let sources = tokens.iter().map(|token| model.source(*token).len());
                let bytes = conversation_bytes.saturating_sub(self.transcript.text_bytes(keep));
                match whole_tokens(sources.skip(bare_first.into()), bytes) {
                    0 => 0,
                    tokens => tokens + usize::from(bare_first),
                }
            }
            _ => 0,
        };
        let steps = asked.min(room - computed);
        Ok(Plan {
            keep,
            prefix,
            first: if first < tokens.len() { first } else { 0 },
            tokens,
            bare_first,
            steps: steps as u32,
            clipped: (steps < wanted).then_some(end),
        })
    }

    fn run_plan(
        &mut self,
        input: &TurnInput<'_>,
        plan: &Plan,
        on_token: &mut dyn FnMut(&GeneratedToken<'_>) -> ControlFlow<()>,
    ) -> Result<TurnReport, EngineError> {
        let removed = self.transcript.len() - plan.keep;
        if removed > 0 {
            self.rewind(plan.keep)?;
        }
        let sampler = self.sampler.fork();
        if input.fresh {
            self.sampler.reset();
        }
        let turn = self.turns;
        self.turns += 1;
        let record = TurnRecord {
            turn,
            id: input.id.to_owned(),
            prompt_tokens: (plan.keep + plan.tokens.len()) as u32,
            reused_tokens: plan.keep as u32,
            n_predict: plan.steps,
        };
        if input.session {
            self.recorder.emit(&Record::Turn(record.clone()))?;
            self.save_state()?;
        }
        self.recorder.event(&Event::TurnStarted { turn: &record, steps: plan.steps })?;
        self.context.hook().start_turn(turn);

        let mut running = Running {
            splitter: input.splitter.clone(),
            stream: TextStream::default(),
            hash: self.config.hash_logits.then(Sha256::new),
            prompt_tokens: 0,
            tokens: 0,
            decode_ns: 0,
        };
        let finish = match self.compute(input, plan, &mut running, on_token) {
            Ok(finish) => finish,
            Err(EngineError::Cancelled) => {
                self.canceller().clear();
                self.sampler = sampler;
                self.emit_traces()?;
                self.undo(plan.keep)?;
                Finish::Cancelled
            }
            Err(error) => return Err(error),
        };
        if let Some(store) = self.context.hook().store()
            && let Some(path) = store.lanes().files().changed()
        {
            return Err(EngineError::Changed { path });
        }
        let rest = running.stream.take_rest();
        self.recorder.add_text(&rest);
        let mut delta = running.splitter.push(&rest);
        let last = running.splitter.finish();
        delta.reasoning += &last.reasoning;
        delta.text += &last.text;
        self.recorder.event(&Event::Text(&delta))?;
        let (peak_cache_bytes, peak_event_bytes) = self.peaks();
        let report = TurnReport {
            id: record.id,
            turn,
            finish,
            prefix: plan.prefix,
            reused_tokens: plan.keep as u32,
            removed_tokens: removed as u32,
            prompt_tokens: running.prompt_tokens,
            tokens: running.tokens,
            decode_ns: running.decode_ns,
            total_tokens: self.transcript.len() as u32,
            reasoning: running.splitter.reasoning().to_owned(),
            text: running.splitter.text().to_owned(),
            logits_sha256: running.hash.map(|h| hex(&h.finalize())),
            peak_cache_bytes,
            peak_event_bytes,
            peak_rss_bytes: rss().1,
        };
        self.recorder.event(&Event::TurnEnded(&report))?;
        Ok(report)
    }

    /// Prefill and decode steps.
    fn compute(
        &mut self,
        input: &TurnInput<'_>,
        plan: &Plan,
        running: &mut Running,
        on_token: &mut dyn FnMut(&GeneratedToken<'_>) -> ControlFlow<()>,
    ) -> Result<Finish, EngineError> {
        // Of a session's request nobody waits for the process to start.
        let origin = if input.session { Instant::now() } else { self.started };
        let mut meter = Meter::start();
        self.keep_budget(0)?;
        let ubatches_before = self.context.hook().ubatches();
        let (first, rest) = plan.tokens.split_at(plan.first);
        if !first.is_empty() {
            self.decode(first, running)?;
            self.remember(first, plan.bare_first);
            self.save_state()?;
        }
        self.decode(rest, running)?;
        let mut next = self.sampler.choose(self.context.logits(rest.len() - 1))?;
        self.remember(rest, plan.bare_first && first.is_empty());
        running.prompt_tokens = plan.tokens.len() as u32;
        let time_to_first_token_ns = origin.elapsed().as_nanos() as u64;
        let cost = meter.read(&mut self.context);
        self.emit_traces()?;
        let ubatches = self.context.hook().ubatches() - ubatches_before;
        self.recorder.emit(&Record::Prefill(PrefillRecord {
            prompt_tokens: running.prompt_tokens,
            ubatches,
            cost,
            time_to_first_token_ns,
        }))?;
        if input.session {
            self.save_state()?;
        }

        self.context.hook().start_decode();
        for step in 1..=plan.steps {
            if self.replay.is_none() && self.context.model().ends_text(next) {
                return Ok(Finish::Stop);
            }
            let token = next;
            let position = self.transcript.len() as u32;
            let mut meter = Meter::start();
            self.keep_budget(step - 1)?;
            self.decode(&[token], running)?;
            next = self.sampler.choose(self.context.logits(0))?;
            let delta = self.read_token(token, running);
            self.recorder.event(&Event::Text(&delta))?;
            self.emit_traces()?;
            let cost = meter.read(&mut self.context);
            running.tokens = step;
            running.decode_ns += cost.wall_ns;
            let (hit_rate, cache_resident_bytes, cache_budget_bytes) =
                self.context.hook().store().map_or((f64::NAN, 0, 0), |s| {
                    let hit_rate = s.counts().hit_rate().unwrap_or(f64::NAN);
                    (hit_rate, s.resident_bytes(), s.plan().budget_bytes)
                });
            let (rss_bytes, mut memory) = memory();
            memory.dense_resident_permille = self.dense_resident_permille();
            let record = Record::Token(TokenRecord {
                step,
                position,
                token,
                cost: cost.clone(),
                cumulative_hit_rate: hit_rate,
                cache_resident_bytes,
                cache_budget_bytes,
                rss_bytes,
                memory,
            });
            self.recorder.emit(&record)?;
            let seen = GeneratedToken { step, token, delta: &delta, cost: &cost };
            if on_token(&seen).is_break() {
                return Ok(Finish::Callback);
            }
        }
        // The model may have wanted to end here all the same.
        let ends = self.context.model().ends_text(next);
        Ok(match plan.clipped {
            _ if ends && plan.steps > 0 && self.replay.is_none() => Finish::Stop,
            Some(clipped) => clipped,
            None => Finish::Length,
        })
    }

    /// The configured prompt's tokens, or those of a word, again and again until they are as many as the trace's
    /// prompt has.
    fn replayed_prompt(&self, prompt_tokens: u32) -> Result<Vec<i32>, EngineError> {
        let text = if self.config.prompt.is_empty() { "replay" } else { &self.config.prompt };
        let tokens = self.context.model().tokenize(text, true)?;
        Ok(tokens.into_iter().cycle().take(prompt_tokens as usize).collect())
    }

    /// Adds computed tokens to the transcript.
    fn remember(&mut self, tokens: &[i32], bare_first: bool) {
        for (i, token) in tokens.iter().enumerate() {
            let source = self.context.model().source(*token);
            self.transcript.push(if bare_first && i == 0 { &[] } else { &source });
        }
    }

    /// Computes tokens behind the transcript and hashes their logits.
    fn decode(&mut self, tokens: &[i32], running: &mut Running) -> Result<(), EngineError> {
        let hashing = running.hash.is_some();
        self.context.decode(tokens, self.transcript.len() as u32, hashing)?;
        if let Some(hash) = &mut running.hash {
            let mut bytes = Vec::new();
            for i in 0..tokens.len() {
                bytes.clear();
                bytes.extend(self.context.logits(i).iter().flat_map(|l| l.to_le_bytes()));
                hash.update(&bytes);
                self.recorder.add_logits(&bytes);
            }
        }
        Ok(())
    }

    /// What a computed token adds to the text.
    fn read_token(&mut self, token: i32, running: &mut Running) -> Delta {
        let model = self.context.model();
        let source = model.source(token);
        let delta = if model.is_control(token) {
            running.splitter.push_mark(&String::from_utf8_lossy(&source))
        } else {
            let text = running.stream.push(&model.piece(token));
            self.recorder.add_text(&text);
            running.splitter.push(&text)
        };
        self.transcript.push(&source);
        delta
    }

    fn emit_traces(&mut self) -> Result<(), EngineError> {
        for record in self.context.hook().take_records() {
            self.recorder.emit(&Record::Route(record))?;
        }
        for record in self.context.hook().take_read_records(self.started) {
            self.recorder.emit(&Record::Read(record))?;
        }
        for record in self.context.hook().take_compute_records() {
            self.recorder.emit(&Record::Compute(record))?;
        }
        Ok(())
    }
}

/// How many tokens of these lengths, from the first on, lie within so many bytes.
fn whole_tokens(lengths: impl Iterator<Item = usize>, bytes: usize) -> usize {
    let mut end = 0;
    let within = |length: &usize| {
        end += length;
        end <= bytes
    };
    lengths.take_while(within).count()
}
