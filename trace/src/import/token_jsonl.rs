//! JSON lines `{"tok": N, "layers": [[expert, …], …]}`: one decoded token a line, its MoE layers in order.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::chunk::RouteChunk;
use super::error::{ImportError, Result};
use super::json_lines::JsonLines;
use super::order::{HIGHEST_EXPERT, HIGHEST_LAYER, MOST_SLOTS, Order, TokenOfLayer};
use super::{CHUNK_ROWS, ImportedLayer, RouteHeader};
use crate::record::Phase;

/// What a line should be.
const EXPECTED: &str = "{\"tok\": position, \"layers\": [[expert, ...], ...]}";

#[derive(Debug, Deserialize)]
struct TokenLine {
    tok: u32,
    layers: Vec<Vec<u32>>,
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

/// Reads a file line by line. Layers have the numbers of their places, since the format has no others.
#[derive(Debug)]
pub(super) struct TokenRows<R> {
    lines: JsonLines<R>,
    header: RouteHeader,
    order: Order,
    others: BTreeSet<String>,
}

impl<R: Read> TokenRows<R> {
    pub(super) fn open(input: R) -> Self {
        Self {
            lines: JsonLines::new(input),
            header: RouteHeader::default(),
            order: Order::new(Vec::new()),
            others: BTreeSet::new(),
        }
    }

    pub(super) fn header(&self) -> &RouteHeader {
        &self.header
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let others = (!self.others.is_empty()).then(|| {
            let names: Vec<&str> = self.others.iter().map(String::as_str).collect();
            format!("keys besides `tok` and `layers` are not imported: {}", names.join(", "))
        });
        self.lines.note().into_iter().chain(others).collect()
    }

    pub(super) fn next(&mut self) -> Result<Option<RouteChunk>> {
        let mut rows = RouteChunk::default();
        while rows.len() < CHUNK_ROWS
            && let Some((number, token)) = self.lines.next(EXPECTED)?
        {
            self.add(number, &token, &mut rows)?;
        }
        Ok((!rows.is_empty()).then_some(rows))
    }

    fn add(&mut self, line: u64, token: &TokenLine, rows: &mut RouteChunk) -> Result<()> {
        self.others.extend(token.others.keys().cloned());
        if self.header.layers.is_empty() {
            let count = token.layers.len();
            if count == 0 || count > HIGHEST_LAYER as usize {
                return Err(ImportError::key(
                    line,
                    "layers",
                    count,
                    "a list of experts for each layer",
                ));
            }
            let layers = (0_u32..).take(count);
            self.header.layers =
                layers.map(|index| ImportedLayer { index, expert_bytes: None }).collect();
            self.header.top_k = u32::try_from(token.layers[0].len()).unwrap_or(u32::MAX);
        }
        let (count, top_k) = (self.header.layers.len(), self.header.top_k as usize);
        if token.layers.len() != count {
            let found = format!("{} layers", token.layers.len());
            return Err(ImportError::line(
                line,
                found,
                format!("{count} layers, as on the first line"),
            ));
        }
        for (layer, experts) in (0_u32..).zip(&token.layers) {
            if experts.len() != top_k || top_k == 0 || top_k > MOST_SLOTS as usize {
                let found = format!("{} experts in layers[{layer}]", experts.len());
                let expected = format!("as many as in the first list, 1 to {MOST_SLOTS}");
                return Err(ImportError::line(line, found, expected));
            }
            let token = TokenOfLayer { turn: 0, phase: Phase::Decode, layer, position: token.tok };
            let place = self.order.next(token).map_err(|disorder| {
                ImportError::key(line, "tok", token.position, disorder.expected(token))
            })?;
            for (slot, expert) in (0_u32..).zip(experts) {
                if *expert > HIGHEST_EXPERT || experts[..slot as usize].contains(expert) {
                    let key = format!("layers[{layer}][{slot}]");
                    let expected = format!("an expert, 0 to {HIGHEST_EXPERT}, each once");
                    return Err(ImportError::key(line, &key, expert, expected));
                }
                self.header.n_expert = self.header.n_expert.max(expert + 1);
                rows.push_plain(place, token, slot, *expert, f32::NAN);
            }
        }
        Ok(())
    }
}
