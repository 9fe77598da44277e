//! `belady-bypass`

use bmoe_cache::EntrySizes;

use super::future::{Future, Residents};
use super::replay::{Outcome, Replay};

/// Belady's MIN that need not keep what it read: after every event the experts whose next use is nearest stay,
/// whether they were in the cache before or came with the event, as many as fit. The others were used from the
/// room of the event and are gone.
///
/// At equal entry sizes no replay within the same budget has fewer misses. It never overshoots.
#[derive(Debug, Clone)]
pub struct BeladyBypass<'a> {
    sizes: EntrySizes,
    /// One, or one per layer.
    pools: Vec<Pool<'a>>,
    /// Number of the event that last used an expert of its layer.
    seen: Vec<u64>,
    now: u64,
}

#[derive(Debug, Clone)]
struct Pool<'a> {
    budget_bytes: u64,
    resident_bytes: u64,
    present: Vec<bool>,
    residents: Residents<'a>,
}

impl<'a> BeladyBypass<'a> {
    /// For a replay of exactly the accesses that the futures were made from: one of all layers, or one for each,
    /// which then owns an equal share of the budget.
    #[must_use]
    pub fn new(sizes: EntrySizes, budget_bytes: u64, futures: &'a [Future]) -> Self {
        let share = budget_bytes / (futures.len() as u64).max(1);
        let pools = futures.iter().map(|future| Pool {
            budget_bytes: share,
            resident_bytes: 0,
            present: vec![false; future.entries()],
            residents: Residents::new(future),
        });
        let seen = vec![0; sizes.n_expert() as usize];
        Self { pools: pools.collect(), seen, now: 0, sizes }
    }
}

impl Replay for BeladyBypass<'_> {
    fn event(&mut self, layer: usize, experts: &[u16]) -> Outcome {
        let entry_bytes = self.sizes.layer_bytes(layer);
        let n_expert = self.sizes.n_expert();
        let whole = self.pools.len() == 1;
        let pool = &mut self.pools[if whole { 0 } else { layer }];
        let first_key = if whole { layer as u32 * n_expert } else { 0 };
        self.now += 1;
        let mut outcome = Outcome::default();
        for &expert in experts {
            let seen = &mut self.seen[usize::from(expert)];
            if std::mem::replace(seen, self.now) == self.now {
                continue;
            }
            let key = first_key + u32::from(expert);
            if std::mem::replace(&mut pool.present[key as usize], true) {
                outcome.hits += 1;
                pool.residents.hit(key);
            } else {
                outcome.misses += 1;
                pool.resident_bytes += entry_bytes;
                pool.residents.insert(key);
            }
        }
        while pool.resident_bytes > pool.budget_bytes
            && let Some(key) = pool.residents.remove_farthest()
        {
            pool.present[key as usize] = false;
            let of = if whole { (key / n_expert) as usize } else { layer };
            pool.resident_bytes -= self.sizes.layer_bytes(of);
            outcome.evictions += 1;
        }
        outcome
    }
}
