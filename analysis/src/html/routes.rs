//! Routes as the page's script reads them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bmoe_trace::record::{Phase, Residency};
use serde::Serialize;

use crate::routes::RouteTrace;
use crate::routes::tokens::{Phases, TokenRoute, TokenRoutes};

/// Cells of the matrix, times experts, that one run may fill; some 5000 tokens of 48 layers with 8 experts, in 13 MB.
const MOST_OF_A_RUN: usize = 2_000_000;
/// The same for all runs of a page.
const MOST_OF_A_PAGE: usize = 4_000_000;
/// Stands for a weight that is not known.
const NO_WEIGHT: u32 = 0;
/// The highest weight.
const FULL_WEIGHT: u32 = 65_535;

/// The runs of a page.
#[derive(Debug)]
pub(crate) struct Runs {
    most_of_a_run: usize,
    most_of_a_page: usize,
    used: usize,
    embedded: Vec<Embedded>,
    notes: Vec<String>,
    /// Names of runs that found no more room.
    left_out: Vec<String>,
}

/// A run in the page.
#[derive(Debug, Serialize)]
pub(super) struct Embedded {
    name: String,
    /// A [`Matrix`] that can stand in a script element.
    json: String,
}

/// What one run did, step by step and layer by layer. Columns have an entry for each (step, layer, place in the router's
/// order); where there is nothing the expert is `n_expert`.
#[derive(Debug, Serialize)]
struct Matrix {
    /// Indices of the MoE layers in the model.
    layers: Vec<u32>,
    n_expert: u32,
    top_k: usize,
    /// For each step 1 = generated, 0 = prompt.
    decode: Packed,
    /// For each step its absolute position.
    position: Packed,
    expert: Packed,
    /// 0 = not known, else 1 + weight / `weight_scale` × 65534.
    weight: Option<Packed>,
    weight_scale: f32,
    /// 0 = read, 1 = in the cache, 2 = there because it was read ahead, 3 = nothing.
    residency: Option<Packed>,
    /// Places in `byte_values`.
    bytes: Option<Packed>,
    byte_values: Vec<u64>,
}

/// Little-endian unsigned numbers of one width.
#[derive(Debug, Serialize)]
struct Packed {
    /// Bytes of one number: 1, 2 or 4.
    width: usize,
    base64: String,
}

impl Packed {
    fn new(numbers: &[u32]) -> Self {
        let width = match numbers.iter().max().copied().unwrap_or(0) {
            0..=0xff => 1,
            0x100..=0xffff => 2,
            _ => 4,
        };
        let bytes: Vec<u8> =
            numbers.iter().flat_map(|n| n.to_le_bytes().into_iter().take(width)).collect();
        Self { width, base64: BASE64_STANDARD.encode(bytes) }
    }
}

impl Default for Runs {
    fn default() -> Self {
        Self {
            most_of_a_run: MOST_OF_A_RUN,
            most_of_a_page: MOST_OF_A_PAGE,
            used: 0,
            embedded: Vec::new(),
            notes: Vec::new(),
            left_out: Vec::new(),
        }
    }
}

impl Runs {
    /// Whether a further run can still find room.
    pub(crate) fn full(&self) -> bool {
        self.used >= self.most_of_a_page
    }

    /// Whether there is nothing to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.embedded.is_empty()
    }

    /// Names a run that is not shown.
    pub(crate) fn leave_out(&mut self, name: String) {
        self.left_out.push(name);
    }

    /// Adds a run, or so much of it as there is room for: without the prompt, and then from its start.
    pub(crate) fn add(&mut self, name: String, trace: &RouteTrace) {
        let tokens = TokenRoutes::new(trace);
        let top_k = trace.events().map(|event| event.top_k()).max().unwrap_or(0);
        let per_step = trace.layers.len() * top_k;
        let room = self.most_of_a_run.min(self.most_of_a_page.saturating_sub(self.used));
        let all = steps(&tokens, Phases::All);
        let mut shown = all.clone();
        if shown.len() * per_step > room {
            shown = steps(&tokens, Phases::Decode);
            shown.truncate(room / per_step.max(1));
        }
        if shown.is_empty() {
            return self.leave_out(name);
        }
        if shown.len() < all.len() {
            self.notes.push(format!(
                "{name}: {} of {} tokens are here; `bmoe routes matrix` shows all of them.",
                shown.len(),
                all.len()
            ));
        }
        self.used += shown.len() * per_step;
        let matrix = Matrix::new(trace, &tokens, &shown, top_k);
        // Nothing in a script element may look like its end.
        let json = serde_json::to_string(&matrix).unwrap_or_default().replace('<', "\\u003c");
        self.embedded.push(Embedded { name, json });
    }

    pub(super) fn embedded(&self) -> &[Embedded] {
        &self.embedded
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        if !self.left_out.is_empty() {
            notes.push(format!(
                "Left out, since the page would grow too large: {}. `bmoe routes matrix` shows them.",
                self.left_out.join("; ")
            ));
        }
        notes
    }
}

/// A step that is shown: its number in the run, whether it is generated, its position.
type Step = (usize, bool, u32);

fn steps(tokens: &TokenRoutes<'_>, phases: Phases) -> Vec<Step> {
    let mut of_step: Vec<Option<Step>> = vec![None; tokens.steps];
    for token in tokens.layers.iter().flatten().filter(|token| phases.has(token.phase)) {
        of_step[token.step] = Some((token.step, token.phase == Phase::Decode, token.position));
    }
    of_step.into_iter().flatten().collect()
}

impl Matrix {
    fn new(trace: &RouteTrace, tokens: &TokenRoutes<'_>, shown: &[Step], top_k: usize) -> Self {
        let (n_layer, n_expert) = (trace.layers.len(), trace.n_expert);
        let mut row_of = vec![None; tokens.steps];
        shown.iter().enumerate().for_each(|(row, (step, ..))| row_of[*step] = Some(row));
        let cells = shown.len() * n_layer * top_k;
        let placed = || {
            tokens.layers.iter().enumerate().flat_map(|(layer, of_layer)| {
                let row_of = &row_of;
                of_layer.iter().filter_map(move |token| {
                    Some(((row_of[token.step]? * n_layer + layer) * top_k, token))
                })
            })
        };
        let column = |nothing: u32, of: &mut dyn FnMut(&TokenRoute<'_>, usize) -> Option<u32>| {
            let (mut column, mut known) = (vec![nothing; cells], false);
            for (from, token) in placed() {
                for place in 0..token.experts.len() {
                    if let Some(value) = of(token, place) {
                        column[from + place] = value;
                        known = true;
                    }
                }
            }
            known.then(|| Packed::new(&column))
        };
        let weights = placed().flat_map(|(_, token)| token.weights).copied();
        let weight_scale = weights.filter(|w| w.is_finite()).fold(f32::MIN_POSITIVE, f32::max);
        let steps = f64::from(FULL_WEIGHT - 1);
        let mut byte_values: Vec<u64> =
            placed().flat_map(|(_, token)| token.read_bytes).copied().collect();
        byte_values.sort_unstable();
        byte_values.dedup();
        Self {
            layers: trace.layers.iter().map(|layer| layer.index).collect(),
            n_expert,
            top_k,
            decode: Packed::new(&shown.iter().map(|s| u32::from(s.1)).collect::<Vec<_>>()),
            position: Packed::new(&shown.iter().map(|s| s.2).collect::<Vec<_>>()),
            expert: column(n_expert, &mut |t, i| t.experts.get(i).map(|e| u32::from(*e)))
                .unwrap_or_else(|| Packed::new(&[])),
            weight: column(NO_WEIGHT, &mut |t, i| {
                let weight = t.weights.get(i).filter(|w| w.is_finite())?;
                let share = f64::from(weight / weight_scale).clamp(0.0, 1.0);
                Some(1 + (share * steps).round() as u32)
            }),
            weight_scale,
            residency: column(3, &mut |t, i| {
                t.residency.get(i).map(|residency| match residency {
                    Residency::Miss => 0,
                    Residency::Hit => 1,
                    Residency::PrefetchHit => 2,
                })
            }),
            bytes: column(0, &mut |t, i| {
                let place = byte_values.binary_search(t.read_bytes.get(i)?).ok()?;
                u32::try_from(place).ok()
            }),
            byte_values,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::{RouteEvent, RouteLayer};

    fn unpacked(packed: &Packed) -> Vec<u32> {
        let bytes = BASE64_STANDARD.decode(&packed.base64).unwrap();
        let number = |b: &[u8]| b.iter().rev().fold(0, |n, byte| n << 8 | u32::from(*byte));
        bytes.chunks(packed.width).map(number).collect()
    }

    #[test]
    fn numbers_take_as_many_bytes_as_the_largest_needs() {
        for (numbers, width) in
            [(vec![0, 255], 1), (vec![256, 3], 2), (vec![65_536], 4), (vec![], 1)]
        {
            let packed = Packed::new(&numbers);
            assert_eq!((packed.width, unpacked(&packed)), (width, numbers));
        }
    }

    #[test]
    fn a_layer_that_computes_fewer_tokens_leaves_cells_empty() {
        let layers = [3, 7].map(|index| RouteLayer { index, expert_bytes: 9 });
        let mut trace = RouteTrace::new("t".into(), String::new(), layers.to_vec(), 300);
        let mut push = |phase, layer, positions: &[u32], experts: &[u16], weights: &[f32]| {
            let residency = vec![Residency::Hit; experts.len()];
            let read_bytes = vec![u64::from(positions[0]) << 30; experts.len()];
            let event = RouteEvent {
                phase,
                layer,
                positions,
                experts,
                weights,
                residency: &residency,
                read_bytes: &read_bytes,
                ..RouteEvent::default()
            };
            trace.push(&event).unwrap();
        };
        push(Phase::Prefill, 0, &[0, 1], &[299, 2], &[0.5, f32::NAN]);
        push(Phase::Prefill, 1, &[1], &[4], &[0.25]);
        push(Phase::Decode, 0, &[2], &[5], &[0.0]);
        push(Phase::Decode, 1, &[2], &[6], &[0.5]);
        let tokens = TokenRoutes::new(&trace);
        let matrix = Matrix::new(&trace, &tokens, &steps(&tokens, Phases::All), 1);
        assert_eq!(matrix.layers, [3, 7]);
        assert_eq!(unpacked(&matrix.expert), [299, 300, 2, 4, 5, 6]);
        assert_eq!(unpacked(&matrix.decode), [0, 0, 1]);
        assert_eq!(unpacked(&matrix.position), [0, 1, 2]);
        assert_eq!(unpacked(matrix.weight.as_ref().unwrap()), [65_535, 0, 0, 32_768, 1, 65_535]);
        assert_eq!(unpacked(matrix.residency.as_ref().unwrap()), [1, 3, 1, 1, 1, 1]);
        let bytes = unpacked(matrix.bytes.as_ref().unwrap());
        let values: Vec<u64> =
            bytes.iter().map(|b| matrix.byte_values[*b as usize] >> 30).collect();
        assert_eq!(values, [0, 0, 0, 1, 2, 2]);
    }

    #[test]
    fn what_finds_no_room_is_named() {
        let mut trace = RouteTrace::new("t".into(), String::new(), vec![RouteLayer::default()], 4);
        let (positions, experts): (Vec<u32>, Vec<u16>) = (0..900).map(|i| (i, 1)).unzip();
        for phase in [Phase::Prefill, Phase::Decode] {
            let experts =
                if phase == Phase::Prefill { experts.repeat(2) } else { experts.repeat(1) };
            let event = RouteEvent {
                phase,
                positions: &positions,
                experts: &experts,
                ..RouteEvent::default()
            };
            trace.push(&event).unwrap();
        }
        let mut runs = Runs { most_of_a_run: 2000, most_of_a_page: 4000, ..Runs::default() };
        for name in ["a", "b", "c"] {
            runs.add(name.into(), &trace);
        }
        // Two places for each: those of the prompt decide.
        assert_eq!(runs.embedded.len(), 3);
        assert!(runs.full());
        assert_eq!(
            runs.notes()[0],
            "a: 900 of 1800 tokens are here; `bmoe routes matrix` shows all of them."
        );
        runs.add("d".into(), &trace);
        assert!(runs.notes().last().unwrap().starts_with("Left out, since the page"));
    }
}
