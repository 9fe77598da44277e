//! A recorded route trace, as the experts that a run must use.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::Path;

use bmoe_trace::RunConfig;
use bmoe_trace::import::{self, Import, RouteChunk, RouteHeader};
use bmoe_trace::record::Phase;

use crate::error::EngineError;
use crate::llama::forced::ForcedRoutes;
use crate::llama::gguf::ModelInfo;

/// What a run replays.
#[derive(Debug, Clone)]
pub(super) struct Replay {
    pub(super) routes: std::sync::Arc<ForcedRoutes>,
    /// Tokens of the prompt.
    pub(super) prompt_tokens: u32,
    /// Decode steps that the trace has, as far as they were wanted.
    pub(super) steps: u32,
    /// The trace has no more of them.
    pub(super) at_end: bool,
}

/// Reads the trace that a configuration names, if it does, and checks that it fits the model.
///
/// # Errors
/// It can't be read, has no routes, or is of another shape.
pub(super) fn load(config: &RunConfig, info: &ModelInfo) -> Result<Option<Replay>, EngineError> {
    let Some(path) = &config.replay_routes else { return Ok(None) };
    let refuse =
        |why: String| EngineError::Config(format!("--replay-routes {}: {why}", path.display()));
    if config.chat {
        return Err(refuse(
            "a replayed run's prompt is only as many tokens as the trace's, so it has no chat; leave --chat out"
                .into(),
        ));
    }
    let rows = Rows::read(path, config.n_predict).map_err(refuse)?;
    let places = rows.places(config, info).map_err(refuse)?;
    let replay = rows.replay(config, info, &places).map_err(refuse)?;
    for warning in rows.warnings(config, info, &places) {
        let _ = writeln!(std::io::stderr(), "warning: --replay-routes: {warning}");
    }
    Ok(Some(replay))
}

/// A layer's tokens, in file order, and the experts of each.
#[derive(Default)]
struct LayerRows {
    positions: Vec<u32>,
    experts: Vec<u16>,
}

/// What is kept of a trace: experts, and where they belong.
#[derive(Default)]
struct Rows {
    header: RouteHeader,
    layers: BTreeMap<u32, LayerRows>,
    prefill: BTreeSet<u32>,
    decode: BTreeSet<u32>,
    /// Micro-batches of the prompt.
    prefill_ubatches: BTreeSet<u32>,
    top_k: u32,
    /// Some decode steps were not wanted.
    more: bool,
}

impl Rows {
    fn read(path: &Path, n_predict: u32) -> Result<Self, String> {
        let file = File::open(path).map_err(|e| {
            format!("cannot open it: {e}; give a route trace (--route-trace or --trace writes one)")
        })?;
        let mut reader = match import::open(BufReader::new(file)).map_err(|e| e.to_string())? {
            Import::Routes(reader) => reader,
            Import::Log(_) | Import::Device(_) => {
                return Err(
                    "it has no routes; give a route trace (docs/formats.md lists the formats)"
                        .into(),
                );
            }
        };
        let mut rows = Self::default();
        while let Some(chunk) = reader.next().map_err(|e| e.to_string())? {
            rows.add(&chunk, n_predict)?;
        }
        for note in reader.notes() {
            let _ = writeln!(std::io::stderr(), "warning: --replay-routes: {note}");
        }
        rows.header = reader.header().clone();
        if rows.layers.is_empty() {
            return Err("it has no rows; record one with --route-trace or --trace".into());
        }
        Ok(rows)
    }

    fn add(&mut self, chunk: &RouteChunk, n_predict: u32) -> Result<(), String> {
        let token_of = |row: usize| (chunk.turn[row], chunk.layer[row], chunk.position[row]);
        let mut start = 0;
        while start < chunk.len() {
            let (turn, layer, position) = token_of(start);
            let end = (start..chunk.len()).find(|row| token_of(*row) != (turn, layer, position));
            let end = end.unwrap_or(chunk.len());
            if turn != chunk.turn[0] || turn > 0 {
                return Err(format!(
                    "it has several turns (turn {turn} at token {position}); a replay is of one prompt and its \
                     answer: give the trace of a run with one turn"
                ));
            }
            let slots = (end - start) as u32;
            if self.top_k == 0 {
                self.top_k = slots;
            } else if slots != self.top_k {
                return Err(format!(
                    "token {position} has {slots} experts in layer {layer} and others {}; give a trace with one \
                     top-k",
                    self.top_k
                ));
            }
            if self.wanted(chunk.phase[start], position, n_predict) {
                if chunk.phase[start] == Phase::Prefill {
                    self.prefill_ubatches.insert(chunk.ubatch[start]);
                }
                let mut experts = Vec::with_capacity(slots as usize);
                for expert in &chunk.expert[start..end] {
                    let expert = u16::try_from(*expert)
                        .map_err(|_| format!("expert {expert} is beyond the highest, 65535"))?;
                    if experts.contains(&expert) {
                        return Err(format!(
                            "token {position} has expert {expert} twice in layer {layer}; a router never chooses \
                             one twice"
                        ));
                    }
                    experts.push(expert);
                }
                let rows = self.layers.entry(layer).or_default();
                rows.positions.push(position);
                rows.experts.extend(experts);
            }
            start = end;
        }
        Ok(())
    }

    /// Takes note of a token; false when it is behind the last one that the run generates.
    fn wanted(&mut self, phase: Phase, position: u32, n_predict: u32) -> bool {
        if phase == Phase::Prefill {
            self.prefill.insert(position);
            return true;
        }
        // Without a prompt the first token becomes one.
        let first = self.decode.first().copied().unwrap_or(position);
        let steps = n_predict + u32::from(self.prefill.is_empty());
        if u64::from(position) >= u64::from(first) + u64::from(steps) {
            self.more = true;
            return false;
        }
        self.decode.insert(position);
        true
    }

    /// The model's MoE layer for each of the trace's, once the shape is known to be the model's.
    fn places(&self, config: &RunConfig, info: &ModelInfo) -> Result<BTreeMap<u32, usize>, String> {
        let (ours, theirs) = (config.n_expert_used, self.top_k);
        if ours != theirs {
            return Err(format!(
                "its tokens use {theirs} experts a layer, this run's {ours}; give --n-expert-used {theirs}"
            ));
        }
        let highest = self.layers.values().flat_map(|l| &l.experts).max().copied().unwrap_or(0);
        if self.header.n_expert_known && self.header.n_expert != info.n_expert {
            return Err(format!(
                "its layers have {} experts, the model's {}; give a trace of a model of the same shape, or make \
                 that model with bmoe synth",
                self.header.n_expert, info.n_expert
            ));
        }
        if u32::from(highest) >= info.n_expert {
            return Err(format!(
                "it names expert {highest}, and the model's layers have {}; give a trace of a model of the same \
                 shape",
                info.n_expert
            ));
        }
        let traced: BTreeSet<u32> =
            self.layers.keys().copied().chain(self.header.layers.iter().map(|l| l.index)).collect();
        let model: Vec<u32> = info.experts.layers.iter().map(|l| l.layer).collect();
        // Some formats number the MoE layers alone.
        let counted = (0..model.len() as u32).collect::<Vec<_>>();
        let traced: Vec<u32> = traced.into_iter().collect();
        if traced != model && traced != counted {
            return Err(format!(
                "it has {} MoE layers ({}), the model {} ({}); give a trace of a model of the same shape, or make \
                 that model with bmoe synth --layers",
                traced.len(),
                range(&traced),
                model.len(),
                range(&model)
            ));
        }
        Ok(traced.into_iter().zip(0..).collect())
    }

    fn replay(
        &self,
        config: &RunConfig,
        info: &ModelInfo,
        places: &BTreeMap<u32, usize>,
    ) -> Result<Replay, String> {
        let all: Vec<u32> = self.prefill.union(&self.decode).copied().collect();
        let first = all[0];
        if let Some((position, _)) =
            all.iter().zip(first..).find(|(found, expected)| *found != expected)
        {
            return Err(format!(
                "its tokens have a gap before token {position}; give a whole trace of one text"
            ));
        }
        // Without a prompt the first token becomes one: something must be computed before the first step.
        let prompt_tokens = (self.prefill.len() as u32).max(1);
        let tokens = all.len() as u32;
        let mut routes = ForcedRoutes::new(info.experts.layers.len(), tokens, self.top_k);
        for (layer, rows) in &self.layers {
            let experts = rows.experts.chunks(self.top_k as usize);
            for (position, experts) in rows.positions.iter().zip(experts) {
                routes.set(places[layer], position - first, experts);
            }
        }
        for (place, layer) in info.experts.layers.iter().enumerate() {
            // The model's last layer computes only what the next token is chosen from.
            let last = layer.layer + 1 == info.n_layer;
            let needed = if last && !config.hash_logits { prompt_tokens - 1 } else { 0 };
            let missing = (needed..tokens).find(|token| routes.experts(place, *token).is_none());
            if let Some(token) = missing {
                let next = if last && token + 1 < prompt_tokens {
                    "--hash-logits computes the whole prompt there, which the recorded run did not; leave it out"
                } else {
                    "give a whole trace"
                };
                return Err(format!(
                    "it has no experts of layer {} for token {}; {next}",
                    layer.layer,
                    token + first
                ));
            }
        }
        Ok(Replay {
            routes: routes.into(),
            prompt_tokens,
            steps: tokens - prompt_tokens,
            at_end: !self.more,
        })
    }

    /// Differences that don't keep the trace from being replayed, but make other hits and misses of it.
    fn warnings(
        &self,
        config: &RunConfig,
        info: &ModelInfo,
        places: &BTreeMap<u32, usize>,
    ) -> Vec<String> {
        let mut warnings = Vec::new();
        let other = self.header.layers.iter().find_map(|layer| {
            let ours = info.experts.layers[*places.get(&layer.index)?].expert_bytes();
            layer
                .expert_bytes
                .filter(|theirs| *theirs != ours)
                .map(|theirs| (layer.index, theirs, ours))
        });
        if let Some((layer, theirs, ours)) = other {
            warnings.push(format!(
                "an expert of layer {layer} had {theirs} bytes when the trace was recorded, here it has {ours}: \
                 the same budget holds another number of experts"
            ));
        }
        let prompt = self.prefill.len() as u32;
        let (theirs, ours) =
            (self.prefill_ubatches.len() as u32, prompt.div_ceil(config.ubatch_tokens));
        if prompt > 0 && theirs != ours {
            warnings.push(format!(
                "the prompt of {prompt} tokens was recorded in {theirs} micro-batches and is replayed in {ours} \
                 (--ubatch {}): the events of the prompt are others",
                config.ubatch_tokens
            ));
        }
        if config.predict_experts > 0 {
            warnings.push(
                "--predict guesses what the router would choose, which is not what is replayed: its guesses \
                 are no better than chance"
                    .into(),
            );
        }
        warnings
    }
}

fn range(layers: &[u32]) -> String {
    match layers {
        [] => "none".into(),
        [one] => one.to_string(),
        [first, .., last] => format!("{first} to {last}"),
    }
}
