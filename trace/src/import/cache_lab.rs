//! `moe-cache-lab.routing-jsonl` version 1: a metadata line, then one `routing_selection` line for each token and
//! layer: the prompt's layer by layer, then the generated ones token by token.
//!
//! The format is a closed contract: fields that it does not have are refused, and nothing is sorted or repaired.

use std::io::Read;

use serde::Deserialize;
use serde_json::Value;

use super::chunk::RouteChunk;
use super::error::{ImportError, Result, quoted};
use super::json_lines::JsonLines;
use super::keys::Keys;
use super::order::{Disorder, HIGHEST_EXPERT, LayersSeen, MOST_SLOTS, Order, TokenOfLayer};
use super::{CHUNK_ROWS, ImportedLayer, RouteHeader};
use crate::record::Phase;

const FORMAT: &str = "moe-cache-lab.routing-jsonl";

/// What a line behind the first should be.
const EXPECTED: &str =
    "a routing_selection record with phase, token_position, layer and selected_experts";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Selection {
    record_type: String,
    phase: PhaseName,
    token_position: u32,
    layer: u32,
    selected_experts: Vec<u32>,
    #[serde(default)]
    selected_probabilities: Option<Vec<f32>>,
    #[serde(default, rename = "token_id")]
    _token_id: Option<u64>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PhaseName {
    Prompt,
    Generated,
}

/// Reads a file line by line.
#[derive(Debug)]
pub(super) struct CacheLabRows<R> {
    lines: JsonLines<R>,
    header: RouteHeader,
    top_k: Option<u32>,
    layers: LayersSeen,
    order: Order,
    /// The highest position of the prompt.
    prompt_reached: Option<u32>,
    last: Option<TokenOfLayer>,
}

impl<R: Read> CacheLabRows<R> {
    /// Reads the metadata line.
    pub(super) fn open(input: R) -> Result<Self> {
        let mut lines = JsonLines::new(input);
        let expected = "a metadata record";
        let Some((number, metadata)) = lines.next(expected)? else {
            return Err(ImportError::line(1, "the end of the file", expected));
        };
        let (header, top_k) = header(number, &metadata)?;
        Ok(Self {
            lines,
            header,
            top_k,
            layers: LayersSeen::default(),
            order: Order::new(Vec::new()),
            prompt_reached: None,
            last: None,
        })
    }

    pub(super) fn header(&self) -> &RouteHeader {
        &self.header
    }

    pub(super) fn notes(&self) -> Vec<String> {
        self.lines.note().into_iter().chain(self.order.notes()).collect()
    }

    pub(super) fn next(&mut self) -> Result<Option<RouteChunk>> {
        let mut rows = RouteChunk::default();
        while rows.len() < CHUNK_ROWS
            && let Some((number, selection)) = self.lines.next(EXPECTED)?
        {
            self.add(number, &selection, &mut rows)?;
        }
        if self.lines.at_end() {
            let layer = |index| ImportedLayer { index, expert_bytes: None };
            self.header.layers = self.layers.all().map(layer).collect();
        }
        Ok((!rows.is_empty()).then_some(rows))
    }

    fn add(&mut self, line: u64, selection: &Selection, rows: &mut RouteChunk) -> Result<()> {
        if selection.record_type != "routing_selection" {
            let found = &selection.record_type;
            return Err(ImportError::key(line, "record_type", found, "routing_selection"));
        }
        let token = TokenOfLayer {
            turn: 0,
            phase: match selection.phase {
                PhaseName::Prompt => Phase::Prefill,
                PhaseName::Generated => Phase::Decode,
            },
            layer: selection.layer,
            position: selection.token_position,
        };
        self.check_order(line, token)?;
        let experts = &selection.selected_experts;
        let width = u32::try_from(experts.len()).unwrap_or(u32::MAX);
        let top_k = *self.top_k.get_or_insert(width);
        self.header.top_k = top_k;
        if width != top_k || width == 0 || width > MOST_SLOTS {
            let found = format!("{width} experts");
            return Err(ImportError::key(
                line,
                "selected_experts",
                found,
                format!("{} experts", top_k.max(1)),
            ));
        }
        let place = self.order.next(token).map_err(|disorder| {
            let expected = disorder.expected(token);
            match disorder {
                Disorder::Phase => ImportError::key(line, "phase", "prompt", expected),
                Disorder::Lost(lost) if lost.is_of_layer() => {
                    ImportError::key(line, "layer", token.layer, expected)
                }
                _ => ImportError::key(line, "token_position", token.position, expected),
            }
        })?;
        let weights = selection.selected_probabilities.as_deref().unwrap_or_default();
        if !weights.is_empty() && weights.len() != experts.len() {
            let found = format!("{} probabilities", weights.len());
            let expected = format!("none, or one for each of the {width} experts");
            return Err(ImportError::key(line, "selected_probabilities", found, expected));
        }
        for (slot, expert) in (0_u32..).zip(experts) {
            self.check_expert(line, slot, *expert, &experts[..slot as usize])?;
            let weight = weights.get(slot as usize).copied();
            if let Some(wrong) = weight.filter(|w| !(0.0..=1.0).contains(w)) {
                let key = format!("selected_probabilities[{slot}]");
                return Err(ImportError::key(line, &key, wrong, "a probability, 0 to 1"));
            }
            rows.push_plain(place, token, slot, *expert, weight.unwrap_or(f32::NAN));
        }
        Ok(())
    }

    fn check_order(&mut self, line: u64, token: TokenOfLayer) -> Result<()> {
        if self.layers.note(token.layer) == Err(()) {
            return Err(ImportError::key(line, "layer", token.layer, self.layers.expected()));
        }
        match token.phase {
            Phase::Prefill => {
                if let Some(last) =
                    self.last.filter(|l| l.phase == Phase::Prefill && l.layer > token.layer)
                {
                    let expected = format!(
                        "layer {} or a later one: a prompt stands layer by layer",
                        last.layer
                    );
                    return Err(ImportError::key(line, "layer", token.layer, expected));
                }
                self.prompt_reached = self.prompt_reached.max(Some(token.position));
            }
            Phase::Decode => {
                if let Some(reached) =
                    self.prompt_reached.filter(|reached| token.position <= *reached)
                {
                    let expected = format!("more than {reached}, the prompt's last");
                    return Err(ImportError::key(line, "token_position", token.position, expected));
                }
                let before = self.last.filter(|l| l.phase == Phase::Decode);
                if let Some(last) =
                    before.filter(|l| (l.position, l.layer) >= (token.position, token.layer))
                {
                    let found = format!("{} in layer {}", token.position, token.layer);
                    let expected = format!(
                        "what follows position {} in layer {}: generated tokens stand one after the other",
                        last.position, last.layer
                    );
                    return Err(ImportError::key(line, "token_position", found, expected));
                }
            }
        }
        self.last = Some(token);
        Ok(())
    }

    fn check_expert(&mut self, line: u64, slot: u32, expert: u32, before: &[u32]) -> Result<()> {
        let known = self.header.n_expert_known;
        let highest = if known { self.header.n_expert.saturating_sub(1) } else { HIGHEST_EXPERT };
        if expert > highest || before.contains(&expert) {
            let key = format!("selected_experts[{slot}]");
            return Err(ImportError::key(
                line,
                &key,
                expert,
                format!("an expert, 0 to {highest}, each once"),
            ));
        }
        if !known {
            self.header.n_expert = self.header.n_expert.max(expert + 1);
        }
        Ok(())
    }
}

/// What the metadata say, and the top-k when they say that.
fn header(
    line: u64,
    metadata: &serde_json::Map<String, Value>,
) -> Result<(RouteHeader, Option<u32>)> {
    let word = |key: &str| metadata.get(key).and_then(Value::as_str);
    if word("record_type") != Some("metadata") || word("format") != Some(FORMAT) {
        let found = word("record_type").unwrap_or("no record_type");
        let expected = format!("the metadata record of {FORMAT}");
        return Err(ImportError::line(line, quoted(found.as_bytes()), expected));
    }
    let version = metadata.get("format_version").unwrap_or(&Value::Null);
    if version.as_u64() != Some(1) {
        return Err(ImportError::Version {
            line,
            format: FORMAT,
            found: version.to_string(),
            expected: "1",
        });
    }
    let number = |key: &str| -> Result<Option<u32>> {
        match metadata.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                let number =
                    value.as_u64().filter(|n| (1..=u64::from(HIGHEST_EXPERT) + 1).contains(n));
                let expected = format!("a number, 1 to {}, or null", HIGHEST_EXPERT + 1);
                let number = number.ok_or_else(|| ImportError::key(line, key, value, expected))?;
                Ok(u32::try_from(number).ok())
            }
        }
    };
    let (n_expert, top_k) = (number("num_experts")?, number("experts_per_token")?);
    let mut keys = Keys::default();
    for (key, value) in metadata.iter().filter(|(_, value)| !value.is_null()) {
        keys.push(key, value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    }
    let header = RouteHeader {
        model: word("model_id").map(str::to_owned),
        n_expert: n_expert.unwrap_or(0),
        n_expert_known: n_expert.is_some(),
        top_k: top_k.unwrap_or(0),
        keys,
        ..RouteHeader::default()
    };
    Ok((header, top_k))
}
