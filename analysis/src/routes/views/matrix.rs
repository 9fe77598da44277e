//! Every step in every layer.

use bmoe_trace::record::{Phase, Residency};
use serde::Serialize;

use super::Asked;
use crate::routes::tokens::TokenRoutes;
use crate::tabular::{Column, Table, Value};

/// Every step in every layer: which experts, and which of them the step before used too.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Matrix {
    /// Experts per layer.
    pub n_expert: u32,
    /// Experts per token.
    pub top_k: usize,
    /// The layers looked at, by the model's numbers.
    pub layers: Vec<u32>,
    /// The steps, in order.
    pub steps: Vec<MatrixStep>,
}

/// One token.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MatrixStep {
    /// Number of the token in the run, from 0.
    pub step: usize,
    /// Prefill or decode.
    #[serde(serialize_with = "phase_name")]
    pub phase: Phase,
    /// Absolute position.
    pub position: u32,
    /// Beside [`Matrix::layers`]; `None` where the layer did not compute this token.
    pub layers: Vec<Option<MatrixCell>>,
}

/// One token in one layer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MatrixCell {
    /// Experts in the router's order.
    pub experts: Vec<u16>,
    /// Beside them: the layer's step before, of whatever phase, used it too.
    pub repeated: Vec<bool>,
    /// Beside them: the router's weights; empty = not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<f32>,
    /// Beside them: where each was; empty = not known.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "residency_names")]
    pub residency: Vec<Residency>,
    /// Beside them: bytes read because of it; empty = not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_bytes: Vec<u64>,
}

impl MatrixCell {
    /// How many of its experts the step before used too.
    #[must_use]
    pub fn repeats(&self) -> usize {
        self.repeated.iter().filter(|r| **r).count()
    }
}

/// `prefill` or `decode`.
pub(super) const fn phase_str(phase: Phase) -> &'static str {
    match phase {
        Phase::Prefill => "prefill",
        Phase::Decode => "decode",
    }
}

fn phase_name<S: serde::Serializer>(phase: &Phase, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(phase_str(*phase))
}

const fn residency_str(residency: Residency) -> &'static str {
    match residency {
        Residency::Miss => "miss",
        Residency::Hit => "hit",
        Residency::PrefetchHit => "prefetch_hit",
    }
}

fn residency_names<S: serde::Serializer>(all: &[Residency], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(all.iter().map(|r| residency_str(*r)))
}

impl Matrix {
    pub(super) fn of(asked: &Asked<'_>) -> Self {
        let tokens = TokenRoutes::new(asked.trace);
        let mut steps: Vec<Option<MatrixStep>> = vec![None; tokens.steps];
        let mut top_k = 0;
        for (column, layer) in asked.layers.iter().enumerate() {
            let mut before: &[u16] = &[];
            for token in &tokens.layers[*layer] {
                let last = std::mem::replace(&mut before, token.experts);
                if !asked.phases.has(token.phase) {
                    continue;
                }
                top_k = top_k.max(token.experts.len());
                let step = steps[token.step].get_or_insert_with(|| MatrixStep {
                    step: token.step,
                    phase: token.phase,
                    position: token.position,
                    layers: vec![None; asked.layers.len()],
                });
                step.layers[column] = Some(MatrixCell {
                    experts: token.experts.to_vec(),
                    repeated: token.experts.iter().map(|e| last.contains(e)).collect(),
                    weights: token.weights.to_vec(),
                    residency: token.residency.to_vec(),
                    read_bytes: token.read_bytes.to_vec(),
                });
            }
        }
        Self {
            n_expert: asked.trace.n_expert,
            top_k,
            layers: asked.layers.iter().map(|layer| asked.index(*layer)).collect(),
            steps: steps.into_iter().flatten().collect(),
        }
    }

    fn title(&self) -> String {
        format!(
            "matrix: {} steps x {} layers, top-{} of {}",
            self.steps.len(),
            self.layers.len(),
            self.top_k,
            self.n_expert
        )
    }

    pub(super) fn table(&self) -> Table {
        let list = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>().join(" ");
        let cells = self.steps.iter().flat_map(|step| {
            step.layers
                .iter()
                .zip(&self.layers)
                .filter_map(move |(cell, layer)| Some((step, *layer, cell.as_ref()?)))
        });
        let rows = cells
            .map(|(step, layer, cell)| {
                let marked = cell.experts.iter().zip(&cell.repeated);
                vec![
                    step.step.into(),
                    phase_str(step.phase).into(),
                    step.position.into(),
                    layer.into(),
                    list(&mut cell.experts.iter().map(u16::to_string)).into(),
                    list(&mut marked.filter(|(_, r)| **r).map(|(e, _)| e.to_string())).into(),
                    cell.repeats().into(),
                    list(&mut cell.residency.iter().map(|r| residency_str(*r).to_owned())).into(),
                    if cell.read_bytes.is_empty() {
                        Value::Missing
                    } else {
                        cell.read_bytes.iter().sum::<u64>().into()
                    },
                ]
            })
            .collect();
        Table {
            title: self.title(),
            columns: vec![
                Column::number("step", "step"),
                Column::text("phase", "phase"),
                Column::number("position", "position"),
                Column::number("layer", "layer"),
                Column::text("experts", "experts"),
                Column::text("repeated_experts", "repeated"),
                Column::number("repeats", "repeats"),
                Column::text("residency", "residency"),
                Column::number("read_bytes", "read bytes"),
            ],
            rows,
            notes: Vec::new(),
        }
    }

    /// One line per step: of one layer its experts, those repeated with a star; of several layers how many of each
    /// layer's experts are repeated.
    pub(super) fn terminal(&self, top: usize) -> String {
        let shown = if top == 0 { self.steps.len() } else { top.min(self.steps.len()) };
        let mut out = self.title() + "\n";
        let one = self.layers.len() == 1;
        out += &match (one, self.layers.first(), self.layers.last()) {
            (true, Some(layer), _) => {
                format!("  position  experts of layer {layer} (* = used by the step before, too)\n")
            }
            (false, Some(first), Some(last)) => format!(
                "  position  of each layer's experts, how many the step before used (layer {first} \
                 to {last}; · = none, - = not computed)\n"
            ),
            _ => String::new(),
        };
        for step in &self.steps[..shown] {
            let phase = if step.phase == Phase::Prefill { 'p' } else { ' ' };
            let cells: Vec<String> = step
                .layers
                .iter()
                .map(|cell| match cell {
                    None => "-".to_owned(),
                    Some(cell) if one => {
                        let marked = cell.experts.iter().zip(&cell.repeated);
                        let mark = |(e, r): (&u16, &bool)| {
                            format!("{:>5}", format!("{e}{}", if *r { "*" } else { " " }))
                        };
                        marked.map(mark).collect::<String>()
                    }
                    Some(cell) => match cell.repeats() {
                        0 => "·".to_owned(),
                        n @ 1..=9 => n.to_string(),
                        _ => "+".to_owned(),
                    },
                })
                .collect();
            out += &format!("  {:>7}{phase}  {}\n", step.position, cells.concat().trim_end());
        }
        if shown < self.steps.len() {
            let more = self.steps.len() - shown;
            out += &format!(
                "  … {more} more steps (--top 0 shows all; --csv and --json have experts)\n"
            );
        }
        out
    }
}
