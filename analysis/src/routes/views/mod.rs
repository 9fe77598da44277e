//! What can be asked of a route trace. Each view is a pure function from a trace to a typed table; `docs/routes.md`
//! defines every figure.

mod bytes;
mod cache;
mod coactivation;
mod entropy;
mod hot;
mod loops;
mod matrix;
mod overlap;
mod phases;
mod reuse;
mod workset;

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

pub use bytes::{ByteStep, Bytes};
pub use cache::{Cache, CacheRow};
pub use coactivation::{Coactivation, Focus, Link, Pair};
pub use entropy::{Entropy, LayerEntropy};
pub use hot::{Hot, HotLayer};
pub use loops::{LagRepeats, Loops};
pub use matrix::{Matrix, MatrixCell, MatrixStep};
pub use overlap::{LayerOverlap, MOST_LAG, Overlap};
pub use phases::{Drift, LayerPhases};
pub use reuse::{Bin, Reuse};
pub use workset::{BudgetFit, Growth, Window, Workset};

use super::RouteTrace;
use super::tokens::Phases;
use crate::tabular::Table;

/// A question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum View {
    /// [`Matrix`]
    Matrix,
    /// [`Hot`]
    Hot,
    /// [`Reuse`]
    Reuse,
    /// [`Overlap`]
    Overlap,
    /// [`Workset`]
    Workset,
    /// [`Cache`]
    Cache,
    /// [`Entropy`]
    Entropy,
    /// [`Bytes`]
    Bytes,
    /// [`Coactivation`]
    Coactivation,
    /// [`Drift`]
    Phases,
    /// [`Loops`]
    Loops,
}

impl View {
    /// All of them, in the order of lists.
    pub const ALL: [Self; 11] = [
        Self::Matrix,
        Self::Hot,
        Self::Reuse,
        Self::Overlap,
        Self::Workset,
        Self::Cache,
        Self::Entropy,
        Self::Bytes,
        Self::Coactivation,
        Self::Phases,
        Self::Loops,
    ];

    /// Its name on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Matrix => "matrix",
            Self::Hot => "hot",
            Self::Reuse => "reuse",
            Self::Overlap => "overlap",
            Self::Workset => "workset",
            Self::Cache => "cache",
            Self::Entropy => "entropy",
            Self::Bytes => "bytes",
            Self::Coactivation => "coactivation",
            Self::Phases => "phases",
            Self::Loops => "loops",
        }
    }

    /// What it shows, in a line.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Matrix => "every step in every layer: its experts, those repeated marked",
            Self::Hot => "concentration: how few experts do most of a layer's work",
            Self::Reuse => "distance since an expert's last use, in tokens and in bytes",
            Self::Overlap => "experts shared with the token 1 to 16 steps back",
            Self::Workset => "distinct experts and MiB against tokens, and against a budget",
            Self::Cache => "where the experts of the recorded run came from",
            Self::Entropy => "how evenly the layer routes, and how evenly the router weighs",
            Self::Bytes => "expert bytes that each step needed, read and used first",
            Self::Coactivation => "experts that come together, in a layer and from layer to layer",
            Self::Phases => "prompt against generated text, and drift over the text",
            Self::Loops => "repetition that would flatter a cache",
        }
    }

    /// Asks.
    ///
    /// # Errors
    /// The trace lacks what the question needs.
    pub fn of(self, trace: &RouteTrace, selection: &Selection) -> Result<Shown, ViewError> {
        let asked = Asked::new(trace, selection)?;
        Ok(match self {
            Self::Matrix => Shown::Matrix(Matrix::of(&asked)),
            Self::Hot => Shown::Hot(Hot::of(&asked)),
            Self::Reuse => Shown::Reuse(Reuse::of(&asked)),
            Self::Overlap => Shown::Overlap(Overlap::of(&asked)),
            Self::Workset => Shown::Workset(Workset::of(&asked)),
            Self::Cache => Shown::Cache(Cache::of(&asked)?),
            Self::Entropy => Shown::Entropy(Entropy::of(&asked)),
            Self::Bytes => Shown::Bytes(Bytes::of(&asked)?),
            Self::Coactivation => Shown::Coactivation(Coactivation::of(&asked)),
            Self::Phases => Shown::Phases(Drift::of(&asked)),
            Self::Loops => Shown::Loops(Loops::of(&asked)),
        })
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for View {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|view| view.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|view| view.name()).collect();
            format!("unknown view '{name}'; choose one of {}", names.join(", "))
        })
    }
}

/// Which part of a trace is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// A layer of the model; `None` = all.
    pub layer: Option<u32>,
    /// The part of the run.
    pub phases: Phases,
    /// A cache budget to compare with.
    pub budget_bytes: Option<u64>,
}

impl Selection {
    /// Everything of a part of the run.
    #[must_use]
    pub fn of(phases: Phases) -> Self {
        Self { phases, ..Self::default() }
    }

    fn layers(&self, trace: &RouteTrace) -> Result<Vec<usize>, ViewError> {
        let Some(wanted) = self.layer else { return Ok((0..trace.layers.len()).collect()) };
        match trace.layers.iter().position(|layer| layer.index == wanted) {
            Some(place) => Ok(vec![place]),
            None => Err(ViewError::NoLayer {
                layer: wanted,
                first: trace.layers.first().map_or(0, |l| l.index),
                last: trace.layers.last().map_or(0, |l| l.index),
                layers: trace.layers.len(),
            }),
        }
    }
}

/// A trace and the part of it that a view looks at.
struct Asked<'a> {
    trace: &'a RouteTrace,
    /// Indices into the trace's layers.
    layers: Vec<usize>,
    phases: Phases,
    selection: &'a Selection,
}

impl<'a> Asked<'a> {
    fn new(trace: &'a RouteTrace, selection: &'a Selection) -> Result<Self, ViewError> {
        let layers = selection.layers(trace)?;
        let mut phases = trace.events().map(|event| event.phase);
        if !phases.any(|phase| selection.phases.has(phase)) {
            return Err(ViewError::NoTokens { phases: selection.phases });
        }
        Ok(Self { trace, layers, phases: selection.phases, selection })
    }

    /// The model's number of a layer.
    fn index(&self, layer: usize) -> u32 {
        self.trace.layers[layer].index
    }
}

fn tokens_word(phases: Phases) -> &'static str {
    match phases {
        Phases::Decode => "decode tokens",
        Phases::Prefill => "prompt tokens",
        Phases::All => "tokens",
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
#[allow(missing_docs, reason = "each variant is the view of its name")]
pub enum Shown {
    Matrix(Matrix),
    Hot(Hot),
    Reuse(Reuse),
    Overlap(Overlap),
    Workset(Workset),
    Cache(Cache),
    Entropy(Entropy),
    Bytes(Bytes),
    Coactivation(Coactivation),
    Phases(Drift),
    Loops(Loops),
}

impl Shown {
    /// As rows.
    #[must_use]
    pub fn table(&self) -> Table {
        match self {
            Self::Matrix(view) => view.table(),
            Self::Hot(view) => view.table(),
            Self::Reuse(view) => view.table(),
            Self::Overlap(view) => view.table(),
            Self::Workset(view) => view.table(),
            Self::Cache(view) => view.table(),
            Self::Entropy(view) => view.table(),
            Self::Bytes(view) => view.table(),
            Self::Coactivation(view) => view.table(),
            Self::Phases(view) => view.table(),
            Self::Loops(view) => view.table(),
        }
    }

    /// For a terminal: the first `top` rows (0 = all). The matrix has a denser form of its own there.
    #[must_use]
    pub fn terminal(&self, top: usize) -> String {
        match self {
            Self::Matrix(view) => view.terminal(top),
            other => other.table().terminal(top),
        }
    }
}

/// A question that a trace can't answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// It has no such layer.
    #[error("the trace has no MoE layer {layer}; it has {layers} of them, {first} to {last}")]
    NoLayer {
        /// What was asked for.
        layer: u32,
        /// The lowest.
        first: u32,
        /// The highest.
        last: u32,
        /// How many.
        layers: usize,
    },
    /// It has no tokens of that part.
    #[error("the trace has no {}; choose another --phase", tokens_word(*.phases))]
    NoTokens {
        /// The part.
        phases: Phases,
    },
    /// It does not hold what the question is about.
    #[error("the trace does not hold {what}, which this needs ({hint})")]
    NotRecorded {
        /// What is missing.
        what: &'static str,
        /// Where to get it.
        hint: &'static str,
    },
}

/// Bytes are asked of a trace without sizes.
pub(super) const NO_SIZES: ViewError = ViewError::NotRecorded {
    what: "the experts' sizes",
    hint: "give the size of one expert with --expert-mib",
};
