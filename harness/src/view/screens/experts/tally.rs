//! What is known of every expert after so many tokens.

use bmoe_analysis::routes::RouteEvent;
use bmoe_cache::{Cache, EntrySizes, PolicyKind};
use bmoe_trace::record::{Phase, Residency};

use crate::view::world::RunData;

/// Tokens after which a use counts half, when uses decay.
pub const HALF_LIFE: f32 = 32.0;

/// One expert of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Use {
    /// Generated tokens that used it.
    pub count: u32,
    /// Times that it had to be read for them.
    pub misses: u32,
    /// The last generated token that used it, from 1; 0 = none did.
    pub last: u32,
    /// Decayed count as of `last`.
    decayed: f32,
    /// It had to be read for the token `last`.
    missed: bool,
    /// Whether the last event that asked for it found it in memory, as that event says.
    found: Option<bool>,
}

/// Where it is known from what is in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Nothing says it.
    Nothing,
    /// The cache was replayed: policy and budget are known.
    Replayed(PolicyKind),
    /// Only what each use found was recorded: an expert counts as resident when its last use found it there.
    AtUse,
    /// There is no cache: every use is a read.
    NoCache,
}

/// Counts and residency of all experts after some tokens. Grows token by token; a copy of it is a place to
/// start again from.
#[derive(Debug, Clone)]
pub struct Tally {
    tokens: usize,
    n_expert: usize,
    uses: Vec<Use>,
    cache: Option<Cache>,
    known: Known,
    /// Changes of the budget that have been made.
    budgets: usize,
    looked_up: u64,
    /// Look-ups of which both the record and the replay tell, and those where they say the same.
    compared: (u64, u64),
    /// Distinct experts of the event at hand.
    distinct: Vec<u16>,
}

impl Tally {
    /// Of a run, before its first generated token: the prompt has gone through the cache and is not counted.
    #[must_use]
    pub fn new(run: &RunData) -> Self {
        let trace = run.routes.trace();
        let n_expert = trace.n_expert as usize;
        let measured =
            run.routes.prompt().chain(run.routes.token(0)).any(|e| !e.residency.is_empty());
        let policy = run.policy.as_ref().and_then(|name| name.parse::<PolicyKind>().ok());
        let budget = run.cache_budget_bytes.filter(|_| trace.has_sizes());
        let (known, cache) = match policy.zip(budget) {
            Some((policy, budget)) => {
                let bytes: Vec<u64> = trace.layers.iter().map(|l| l.expert_bytes).collect();
                let sizes = EntrySizes::new(&bytes, trace.n_expert);
                let policy_of = policy.build(&sizes, 0);
                (Known::Replayed(policy), Some(Cache::new(sizes, budget, policy_of)))
            }
            None if run.mode == "stream" && run.policy.is_none() => (Known::NoCache, None),
            None if measured => (Known::AtUse, None),
            None => (Known::Nothing, None),
        };
        let mut tally = Self {
            tokens: 0,
            n_expert,
            uses: vec![Use::default(); trace.layers.len() * n_expert],
            cache,
            known,
            budgets: 0,
            looked_up: 0,
            compared: (0, 0),
            distinct: Vec::new(),
        };
        for event in run.routes.prompt() {
            tally.event(&event, 0);
        }
        tally
    }

    /// Adds the next token of the run.
    pub fn advance(&mut self, run: &RunData) {
        if let Some(cache) = &mut self.cache {
            let due = |row: &&bmoe_analysis::data::BudgetRow| row.step as usize <= self.tokens;
            for row in run.budgets[self.budgets.min(run.budgets.len())..].iter().take_while(due) {
                cache.set_budget(row.to_bytes);
                self.budgets += 1;
            }
        }
        let number = u32::try_from(self.tokens + 1).unwrap_or(u32::MAX);
        for event in run.routes.token(self.tokens) {
            self.event(&event, number);
        }
        self.tokens += 1;
    }

    /// An event of the generated token `number` (from 1), or of a prompt.
    fn event(&mut self, event: &RouteEvent<'_>, number: u32) {
        let counted = event.phase == Phase::Decode && number > 0;
        let base = event.layer * self.n_expert;
        let mut distinct = std::mem::take(&mut self.distinct);
        distinct.clear();
        let replayed = self.cache.as_mut().map(|cache| cache.event(event.layer, event.experts));
        for (at, &expert) in event.experts.iter().enumerate() {
            if distinct.contains(&expert) {
                continue;
            }
            distinct.push(expert);
            let recorded = event.residency.get(at).map(|found| *found == Residency::Miss);
            let missed = replayed.map(|event| event.misses.contains(&expert));
            if let (Some(recorded), Some(missed)) = (recorded, missed) {
                self.compared.0 += 1;
                self.compared.1 += u64::from(recorded == missed);
            }
            // What was measured counts for more than what a replay says.
            let missed = recorded.or(missed).unwrap_or(self.known == Known::NoCache);
            let Some(entry) = self.uses.get_mut(base + usize::from(expert)) else { continue };
            entry.found = recorded.map(|missed| !missed);
            if counted {
                entry.decayed = entry.decayed_at(number) + 1.0;
                entry.count += 1;
                entry.misses += u32::from(missed);
                entry.last = number;
                entry.missed = missed;
            }
        }
        self.looked_up += distinct.len() as u64;
        self.distinct = distinct;
    }

    /// Generated tokens that are counted.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Look-ups so far, those of the prompt included: what [`Self::advance`] has cost.
    #[must_use]
    pub fn looked_up(&self) -> u64 {
        self.looked_up
    }

    /// Where residency is known from.
    #[must_use]
    pub fn known(&self) -> Known {
        self.known
    }

    /// Share (0 to 1) of recorded look-ups of which the replay says the same; `None` without both.
    #[must_use]
    pub fn agreement(&self) -> Option<f64> {
        let (compared, same) = self.compared;
        (compared > 0).then(|| same as f64 / compared as f64)
    }

    /// Bytes that the replayed cache holds, and its budget.
    #[must_use]
    pub fn cache_bytes(&self) -> Option<(u64, u64)> {
        self.cache.as_ref().map(|cache| (cache.resident_bytes(), cache.budget_bytes()))
    }

    /// What is known of an expert; the layer counts among those with routes.
    #[must_use]
    pub fn of(&self, layer: usize, expert: usize) -> Use {
        let inside = expert < self.n_expert;
        let entry = inside.then(|| self.uses.get(layer * self.n_expert + expert)).flatten();
        entry.copied().unwrap_or_default()
    }

    /// The decayed count of an expert now.
    #[must_use]
    pub fn decayed(&self, layer: usize, expert: usize) -> f32 {
        let now = u32::try_from(self.tokens).unwrap_or(u32::MAX);
        self.of(layer, expert).decayed_at(now)
    }

    /// Whether the expert had to be read for the last token.
    #[must_use]
    pub fn missed_now(&self, layer: usize, expert: usize) -> bool {
        let entry = self.of(layer, expert);
        entry.missed && entry.last as usize == self.tokens && self.tokens > 0
    }

    /// Whether the expert is in memory; `None` = not known.
    #[must_use]
    pub fn resident(&self, layer: usize, expert: usize) -> Option<bool> {
        match (self.known, &self.cache) {
            (_, Some(cache)) => {
                let key = cache.sizes().key(layer, u16::try_from(expert).ok()?);
                Some(cache.contains(key))
            }
            (Known::NoCache, None) => Some(false),
            (Known::AtUse, None) => self.of(layer, expert).found,
            _ => None,
        }
    }
}

impl Use {
    fn decayed_at(&self, number: u32) -> f32 {
        if self.last == 0 {
            return 0.0;
        }
        self.decayed * (-(number.saturating_sub(self.last) as f32) / HALF_LIFE).exp2()
    }
}
