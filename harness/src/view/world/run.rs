//! One run: what each of its steps cost, what it wrote, how the device was.

use bmoe_analysis::data::{BudgetRow, TokenRow};
use bmoe_trace::record::ModelShape;
use bmoe_trace::supervised::Sample;

use super::RouteLog;
use crate::view::wrap::char_boundary;

/// How long a step counts whose time nobody recorded, for playing.
const UNTIMED_NS: u64 = 100_000_000;

/// Which attempt of a matrix a run is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunKey {
    /// The cell's id; empty outside a matrix.
    pub cell: String,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Attempt at it, from 1.
    pub attempt: u32,
}

/// What one decode step cost. `None` = not measured or not recorded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    /// The whole step.
    pub wall_ns: Option<u64>,
    /// The graph computed.
    pub compute_ns: Option<u64>,
    /// Blocked on reads; when they overlap with computation, the stall.
    pub io_wait_ns: Option<u64>,
    /// Cache management.
    pub mgmt_ns: Option<u64>,
    /// Residual.
    pub other_ns: Option<u64>,
    /// Summed busy time of the read lanes.
    pub lane_busy_ns: Option<u64>,
    /// Expert bytes wanted from storage, those read ahead included.
    pub read_bytes: Option<u64>,
    /// Distinct experts found in the cache.
    pub hits: Option<u64>,
    /// Distinct experts read.
    pub misses: Option<u64>,
    /// Hits over look-ups since the start of the run, 0 to 1.
    pub cumulative_hit_rate: Option<f64>,
    /// Major page faults.
    pub major_faults: Option<u64>,
    /// Expert bytes in the cache after the step.
    pub cache_resident_bytes: Option<u64>,
    /// The cache's budget after the step.
    pub cache_budget_bytes: Option<u64>,
    /// Resident memory after the step.
    pub rss_bytes: Option<u64>,
    /// `MemAvailable` after the step.
    pub mem_available_bytes: Option<u64>,
}

impl From<&TokenRow> for Step {
    fn from(row: &TokenRow) -> Self {
        Self {
            wall_ns: Some(row.wall_ns),
            compute_ns: Some(row.compute_ns),
            io_wait_ns: row.io_wait_ns,
            mgmt_ns: row.mgmt_ns,
            other_ns: Some(row.other_ns),
            lane_busy_ns: row.lane_busy_ns,
            read_bytes: row.expert_read_bytes.map(|b| b + row.speculated_bytes.unwrap_or(0)),
            hits: row.hits,
            misses: row.misses,
            cumulative_hit_rate: row.cumulative_hit_rate,
            major_faults: Some(row.major_faults),
            cache_resident_bytes: Some(row.cache_resident_bytes).filter(|b| *b > 0),
            cache_budget_bytes: row.cache_budget_bytes.filter(|b| *b > 0),
            rss_bytes: Some(row.rss_bytes).filter(|b| *b > 0),
            mem_available_bytes: row.mem_available_bytes,
        }
    }
}

/// Everything known of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunData {
    /// Which attempt it is.
    pub key: RunKey,
    /// The name for people: the cell's, with the repetition.
    pub name: String,
    /// The model's name within the matrix.
    pub model: String,
    /// `run_id` of its trace.
    pub run_id: Option<String>,
    /// `stream`, `mmap` or `resident`; empty = not known.
    pub mode: String,
    /// Reads overlap with computation: waiting for them is a stall.
    pub overlap: bool,
    /// Read lanes.
    pub lanes: Option<u32>,
    /// Which experts stay in the cache, when there is one.
    pub policy: Option<String>,
    /// Tokens asked for.
    pub n_predict: Option<u32>,
    /// The model's shape.
    pub shape: Option<ModelShape>,
    /// From the start of the process to a usable context.
    pub load_ns: Option<u64>,
    /// Tokens of the prompt.
    pub prompt_tokens: Option<u32>,
    /// Time of the prompt.
    pub prefill_ns: Option<u64>,
    /// From the start of the process to the first token.
    pub first_token_ns: Option<u64>,
    /// The cache's budget when the model was loaded.
    pub cache_budget_bytes: Option<u64>,
    /// Changes of the cache's budget.
    pub budgets: Vec<BudgetRow>,
    /// How the device was, about once a second; `elapsed_ms` counts from the start of the process.
    pub samples: Vec<Sample>,
    /// Which experts were used.
    pub routes: RouteLog,
    /// Nothing more will come.
    pub over: bool,
    /// What went wrong, in one line.
    pub trouble: Option<String>,
    pub(in crate::view) steps: Vec<Step>,
    pub(in crate::view) ends_ns: Vec<u64>,
    pub(in crate::view) text: String,
    pub(in crate::view) text_ends: Vec<usize>,
    pub(in crate::view) untimed: bool,
}

impl RunData {
    /// The decode steps.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// When each step ended, since the first one began.
    #[must_use]
    pub fn ends_ns(&self) -> &[u64] {
        &self.ends_ns
    }

    /// The time of all steps.
    #[must_use]
    pub fn decode_ns(&self) -> u64 {
        self.ends_ns.last().copied().unwrap_or(0)
    }

    /// Whether times are made up for playing, because nobody recorded them.
    #[must_use]
    pub fn untimed(&self) -> bool {
        self.untimed
    }

    /// Adds a step.
    pub fn push(&mut self, step: Step) {
        self.untimed |= step.wall_ns.is_none();
        // Of no length at all it could not be seen alone.
        let length = step.wall_ns.unwrap_or(UNTIMED_NS).max(1);
        self.ends_ns.push(self.decode_ns().saturating_add(length));
        self.steps.push(step);
    }

    /// Puts what is known better in the place of what a step was thought to cost; its time stays.
    pub fn refine(&mut self, index: usize, step: Step) {
        if let Some(known) = self.steps.get_mut(index) {
            *known = step;
        }
    }

    /// Adds what a step wrote.
    pub fn write(&mut self, text: &str) {
        self.text.push_str(text);
        self.text_ends.push(self.text.len());
    }

    /// Puts another text in the place of everything that was written: it turned out to be something else.
    pub fn rewrite(&mut self, text: &str) {
        self.text = text.to_owned();
        let len = self.text.len();
        self.text_ends.iter_mut().for_each(|end| *end = (*end).min(len));
        self.text_ends.push(len);
        let text = &self.text;
        for end in &mut self.text_ends {
            *end = char_boundary(text, *end);
        }
    }

    /// The text, when it is known only as a whole.
    pub fn set_text(&mut self, text: String) {
        self.text = text;
        self.text_ends.clear();
    }

    /// What had been written after so many steps, and whether that is known: otherwise it is all of the text.
    #[must_use]
    pub fn text(&self, tokens: usize) -> (&str, bool) {
        match (self.text_ends.is_empty(), tokens) {
            (true, _) => (&self.text, self.text.is_empty()),
            (false, 0) => ("", true),
            (false, tokens) => {
                let end = self.text_ends.get(tokens - 1).or(self.text_ends.last());
                (&self.text[..end.copied().unwrap_or(0)], true)
            }
        }
    }

    /// The last sample at or before a time since the start of the process.
    #[must_use]
    pub fn sample_at(&self, elapsed_ms: u64) -> Option<&Sample> {
        let behind = self.samples.partition_point(|s| s.elapsed_ms <= elapsed_ms);
        self.samples[..behind].last()
    }

    /// The sample that belongs to a time of decoding.
    #[must_use]
    pub fn sample_of(&self, at_ns: u64) -> Option<&Sample> {
        self.sample_at(self.first_token_ns.unwrap_or(0).saturating_add(at_ns) / 1_000_000)
    }
}
