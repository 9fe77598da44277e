//! The tally at any token of a run, at little cost.

use super::tally::Tally;
use crate::view::world::RunData;

/// Copies that are kept to start again from.
const COPIES: usize = 48;
/// Tokens from one copy to the next, at first; twice as many whenever there are too many copies.
const SPACING: usize = 64;

/// What a history was made of; another one needs another history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Of {
    run: usize,
    layers: usize,
    n_expert: u32,
    prompt: usize,
    budget: Option<u64>,
    streams: bool,
}

impl Of {
    fn new(index: usize, run: &RunData) -> Self {
        let trace = run.routes.trace();
        Self {
            run: index,
            layers: trace.layers.len(),
            n_expert: trace.n_expert,
            prompt: run.routes.prompt().len(),
            budget: run.cache_budget_bytes,
            streams: run.mode == "stream",
        }
    }
}

/// The tally, and copies of earlier ones: going on costs the tokens in between, going back at most those since
/// the copy before.
#[derive(Debug, Default)]
pub struct History {
    of: Option<Of>,
    now: Option<Tally>,
    copies: Vec<Tally>,
    spacing: usize,
}

impl History {
    /// The tally after `tokens` tokens of the run, or on the way to it: no more than about `look_ups` look-ups are
    /// made. Returns whether it is there.
    pub fn go(&mut self, index: usize, run: &RunData, tokens: usize, look_ups: u64) -> bool {
        let of = Some(Of::new(index, run));
        if self.of != of {
            *self = Self { of, now: None, copies: Vec::new(), spacing: SPACING };
        }
        if run.routes.is_empty() {
            self.now = None;
            return true;
        }
        // Of a run that goes on, the last token may still be on its way through the layers.
        let whole = run.routes.tokens() - usize::from(!run.over && run.routes.tokens() > 0);
        let tokens = tokens.min(whole);
        let behind = self.copies.partition_point(|copy| copy.tokens() <= tokens);
        let copy = self.copies[..behind].last();
        let reached = |tally: &Tally| tally.tokens() <= tokens;
        let from_copy = match (self.now.as_ref().filter(|now| reached(now)), copy) {
            (Some(now), Some(copy)) => copy.tokens() > now.tokens(),
            (now, _) => now.is_none(),
        };
        if from_copy {
            self.now = copy.cloned();
        }
        let now = self.now.get_or_insert_with(|| Tally::new(run));
        let last = now.looked_up().saturating_add(look_ups);
        while now.tokens() < tokens && now.looked_up() < last {
            let due = self.copies.last().map_or(0, |copy| copy.tokens() + self.spacing);
            if now.tokens() >= due {
                self.copies.push(now.clone());
                if self.copies.len() > COPIES {
                    self.spacing *= 2;
                    let mut index = 0;
                    self.copies.retain(|_| {
                        index += 1;
                        index % 2 == 1
                    });
                }
            }
            now.advance(run);
        }
        now.tokens() == tokens
    }

    /// The tally; `None` without routes.
    #[must_use]
    pub fn tally(&self) -> Option<&Tally> {
        self.now.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use bmoe_analysis::data::BudgetRow;
    use bmoe_analysis::routes::{RouteEvent, RouteLayer, RouteTrace};
    use bmoe_cache::PolicyKind;
    use bmoe_trace::record::{Phase, Residency};

    use super::super::tally::{Known, Use};
    use super::*;
    use crate::view::world::{RouteLog, Step};

    const ALL: u64 = u64::MAX;

    /// Two layers of eight experts of 10 bytes; token n uses n and n + 1, layer 1 the same again.
    fn run(tokens: usize, residency: bool) -> RunData {
        let layer = |index| RouteLayer { index, expert_bytes: 10 };
        let empty = RouteTrace::new("r".into(), "a".into(), vec![layer(0), layer(1)], 8);
        let mut run = RunData { over: true, ..RunData::default() };
        (run.mode, run.policy) = ("stream".into(), Some("lru".into()));
        run.cache_budget_bytes = Some(60);
        run.routes = RouteLog::new(empty);
        for token in 0..=tokens {
            for layer in 0..2 {
                let first = (token % 8) as u16;
                let experts = [first, (first + 1) % 8];
                let found = [Residency::Hit, Residency::Miss];
                let event = RouteEvent {
                    // The first one is the prompt's.
                    phase: if token == 0 { Phase::Prefill } else { Phase::Decode },
                    layer,
                    positions: &[token as u32],
                    experts: &experts,
                    residency: if residency { &found } else { &[] },
                    ..RouteEvent::default()
                };
                run.routes.push(&event).unwrap();
            }
            if token > 0 {
                run.push(Step::default());
            }
        }
        run
    }

    fn state(history: &History) -> Vec<(Use, f32, Option<bool>, bool)> {
        let tally = history.tally().unwrap();
        let each = |layer, expert| {
            let decayed = tally.decayed(layer, expert);
            let resident = tally.resident(layer, expert);
            (tally.of(layer, expert), decayed, resident, tally.missed_now(layer, expert))
        };
        (0..16).map(|at| each(at / 8, at % 8)).collect()
    }

    #[test]
    fn any_place_is_the_same_from_wherever_it_is_come_to() {
        let mut run = run(9000, false);
        for (step, to_bytes) in [(0, 50), (4000, 30), (8000, 60)] {
            let from_bytes = 60;
            let (turn, available_bytes, evicted) = (0, 0, 0);
            run.budgets.push(BudgetRow {
                turn,
                step,
                from_bytes,
                to_bytes,
                available_bytes,
                evicted,
            });
        }
        let mut one = History::default();
        for to in [9000, 17, 4000, 4001, 3999, 8999, 0, 65, 64, 63, 9000] {
            assert!(one.go(0, &run, to, ALL));
            let mut other = History::default();
            assert!(other.go(0, &run, to, ALL));
            assert_eq!(one.tally().unwrap().tokens(), to);
            assert_eq!(state(&one), state(&other), "token {to}");
            assert!(one.copies.len() <= COPIES);
        }
    }

    #[test]
    fn going_far_is_done_in_pieces_and_going_back_costs_no_more_than_a_space() {
        let run = run(9000, false);
        let mut history = History::default();
        let mut pieces = 1;
        while !history.go(0, &run, 9000, 4000) {
            pieces += 1;
        }
        assert_eq!(pieces, 9);
        let before = history.copies.len();
        let spacing = history.spacing as u64;
        // Four look-ups a token.
        assert!(history.go(0, &run, 5000, 4 * spacing), "{spacing}");
        assert_eq!(history.copies.len(), before);
    }

    #[test]
    fn what_was_measured_counts_for_more_than_the_replay_and_is_compared_with_it() {
        let measured = run(3, true);
        let mut history = History::default();
        history.go(0, &measured, 1, ALL);
        let tally = history.tally().unwrap();
        assert_eq!(tally.known(), Known::Replayed(PolicyKind::Lru));
        // Token 1 uses experts 1 and 2, and says: 1 found, 2 read. So does the replay, after a prompt of 0 and 1 that
        // it says had to be read both.
        assert_eq!((tally.missed_now(0, 1), tally.missed_now(0, 2)), (false, true));
        assert_eq!(tally.agreement(), Some(6.0 / 8.0));
        assert_eq!((tally.of(1, 2).count, tally.of(1, 2).misses, tally.of(1, 2).last), (1, 1, 1));
        assert_eq!(tally.of(0, 0).count, 0, "the prompt is not counted");
        assert_eq!((tally.resident(0, 0), tally.resident(0, 7)), (Some(true), Some(false)));
        assert_eq!(tally.cache_bytes(), Some((60, 60)));
    }

    #[test]
    fn without_a_budget_only_what_uses_found_is_known() {
        let mut imported = run(3, true);
        imported.cache_budget_bytes = None;
        let mut history = History::default();
        history.go(0, &imported, 2, ALL);
        let tally = history.tally().unwrap();
        assert_eq!((tally.known(), tally.agreement()), (Known::AtUse, None));
        assert_eq!((tally.resident(0, 2), tally.resident(0, 3)), (Some(true), Some(false)));
        assert_eq!(tally.resident(0, 6), None);
        let mut nothing = run(3, false);
        nothing.cache_budget_bytes = None;
        history.go(1, &nothing, 2, ALL);
        assert_eq!(history.tally().unwrap().known(), Known::Nothing);
        nothing.policy = None;
        history.go(2, &nothing, 2, ALL);
        let tally = history.tally().unwrap();
        assert_eq!((tally.known(), tally.missed_now(0, 2)), (Known::NoCache, true));
    }

    #[test]
    fn the_token_that_is_on_its_way_waits() {
        let mut going = run(3, false);
        going.over = false;
        let mut history = History::default();
        assert!(history.go(0, &going, 3, ALL));
        assert_eq!(history.tally().unwrap().tokens(), 2);
        going.over = true;
        assert!(history.go(0, &going, 3, ALL));
        assert_eq!(history.tally().unwrap().tokens(), 3);
        assert!(history.go(1, &RunData::default(), 3, ALL));
        assert!(history.tally().is_none());
    }

    #[test]
    fn uses_decay_by_half() {
        let run = run(40, false);
        let mut history = History::default();
        // Expert 2 of token 1 and of token 2; then not before token 9.
        history.go(0, &run, 2, ALL);
        let then = history.tally().unwrap().decayed(0, 2);
        history.go(0, &run, 8, ALL);
        let later = history.tally().unwrap().decayed(0, 2);
        let expected = then * (-6.0 / super::super::tally::HALF_LIFE).exp2();
        assert!((later - expected).abs() < 1e-6 && then > 1.9, "{then} {later}");
    }
}
