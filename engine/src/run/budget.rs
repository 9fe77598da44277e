//! How large the expert cache may be.

use bmoe_trace::RunConfig;
use bmoe_trace::config::{CacheBudget, DenseWeights};

use super::available::Available;
use super::governor::Limits;
use crate::error::EngineError;
use crate::flash::layout::ExpertLayout;
use crate::flash::memory::MemoryPlan;
use crate::llama::gguf::ModelInfo;

/// The budget that was given; 0 when the engine chooses it.
pub(super) fn fixed_bytes(config: &RunConfig) -> u64 {
    config.cache_mib.mib().unwrap_or(0).saturating_mul(1 << 20)
}

/// Checks a budget that was given against the model's shape and the experts per token in effect.
///
/// # Errors
/// It can't hold one token's experts. Between two uses of an expert a token uses all the others, so a
/// cache by recency of such a size costs its memory and never has a hit.
pub(super) fn check(config: &RunConfig, experts: &ExpertLayout) -> Result<(), EngineError> {
    let top_k = config.n_expert_used;
    if matches!(config.cache_mib, CacheBudget::OFF | CacheBudget::Auto) {
        return Ok(());
    }
    let budget = fixed_bytes(config);
    let of_a_layer = experts.top_k_bytes(top_k);
    if budget < of_a_layer {
        let least = if config.force_cache { of_a_layer } else { experts.token_demand_bytes(top_k) };
        return Err(EngineError::Config(format!(
            "--cache-mb {} is too small: one token's {top_k} experts of the largest layer take {:.1} MiB; \
             give --cache-mb {} or more, or 0 for no cache",
            config.cache_mib,
            mib(of_a_layer),
            whole_mib(least),
        )));
    }
    if config.force_cache {
        return Ok(());
    }
    check_working_set(budget, &format!("--cache-mb {}", config.cache_mib), top_k, experts)
}

/// Checks a budget against one token's whole working set; `what` names it.
fn check_working_set(
    budget: u64,
    what: &str,
    top_k: u32,
    experts: &ExpertLayout,
) -> Result<(), EngineError> {
    let demand = experts.token_demand_bytes(top_k);
    if budget >= demand {
        return Ok(());
    }
    Err(EngineError::Config(format!(
        "{what} can't hold one token's experts: {top_k} of {} in each of {} layers take {:.1} MiB, and LRU \
         would hit 0 %; give --cache-mb {}, 0 for no cache, or --force-cache",
        experts.n_expert,
        experts.layers.len(),
        mib(demand),
        whole_mib(demand),
    )))
}

/// Memory that an engine-chosen cache leaves alone, of so much in all: a twentieth, at least 32 MiB and at
/// most 1 GiB.
///
/// It is for what the process takes later (logits, records, page tables: 1/512 of the cache without huge
/// pages), for what other programs take between two looks, and for the error of `MemAvailable`, which is an
/// estimate. A system or group that is filled to the brim reclaims all the time, and that costs more than the
/// last few experts save.
pub(super) fn reserve_bytes(total_bytes: u64) -> u64 {
    (total_bytes / 20).clamp(32 << 20, 1 << 30)
}

/// What a running process will take without asking again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claims {
    /// Memory that the context has reserved and not touched yet.
    pub(super) untouched_bytes: u64,
    /// Dense weights in a map: they look as if they could be had, but are needed with every token.
    pub(super) mapped_bytes: u64,
}

impl Claims {
    pub(super) fn new(config: &RunConfig, info: &ModelInfo, untouched_bytes: u64) -> Self {
        let mapped = config.dense_weights != DenseWeights::Anon;
        Self { untouched_bytes, mapped_bytes: if mapped { info.dense_bytes } else { 0 } }
    }
}

/// Chooses the budget: what is available, less the reserve, the claims and the event room, between floor and
/// ceiling (which wins, should the floor be above it), and no more than all experts.
///
/// # Errors
/// The floor isn't there, or can't hold one token's experts.
pub(super) fn choose(
    config: &RunConfig,
    experts: &ExpertLayout,
    available: &Available,
    claims: Claims,
) -> Result<(MemoryPlan, Limits), EngineError> {
    let top_k = config.n_expert_used;
    let reserve = reserve_bytes(available.total_bytes);
    let taken = reserve + claims.untouched_bytes + claims.mapped_bytes;
    let room = available.bytes.saturating_sub(taken);
    let ceiling = match config.cache_ceil_mib {
        0 => experts.total_bytes(),
        mib => mib.saturating_mul(1 << 20).min(experts.total_bytes()),
    };
    let floor = config.cache_floor_mib.saturating_mul(1 << 20).min(ceiling);
    let there = MemoryPlan::within(experts, room, top_k);
    let plan = MemoryPlan::new(experts, there.budget_bytes.min(ceiling), top_k);
    if plan.budget_bytes < floor || plan.total_bytes() > room {
        return Err(EngineError::Config(format!(
            "--cache-mb auto finds {:.0} MiB of {:.0} MiB available ({}); less {:.0} MiB in reserve, {:.0} MiB \
             for buffers, {:.0} MiB for mapped weights and {:.0} MiB for the experts in use, {:.0} MiB are left \
             for the cache, below --cache-floor-mb {}; give a smaller floor, or free memory",
            mib(available.bytes),
            mib(available.total_bytes),
            available.source,
            mib(reserve),
            mib(claims.untouched_bytes),
            mib(claims.mapped_bytes),
            mib(there.event_room_bytes),
            mib(there.budget_bytes.min(room.saturating_sub(there.event_room_bytes))),
            whole_mib(floor),
        )));
    }
    let mut lowest = floor.max(experts.top_k_bytes(top_k));
    if !config.force_cache {
        let what = format!("--cache-mb auto: {:.0} MiB", mib(plan.budget_bytes));
        check_working_set(plan.budget_bytes, &what, top_k, experts)?;
        lowest = lowest.max(experts.token_demand_bytes(top_k));
    }
    let limits = Limits {
        reserve_bytes: reserve,
        mapped_bytes: claims.mapped_bytes,
        lowest_bytes: lowest.min(plan.budget_bytes),
        highest_bytes: plan.budget_bytes,
    };
    Ok((plan, limits))
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn whole_mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

#[cfg(test)]
mod tests {
    use bmoe_trace::CacheBudget;

    use super::*;
    use crate::flash::layout::{ExpertTensor, LayerLayout, Projection};

    /// 48 layers of 128 experts of 2.737 MiB: Qwen3-30B-A3B in one type.
    fn experts() -> ExpertLayout {
        let tensor = ExpertTensor {
            name: String::new(),
            projection: Projection::Down,
            file: 0,
            offset: 0,
            slice_bytes: 2_869_925,
        };
        let layers = (0..48).map(|layer| LayerLayout { layer, tensors: vec![tensor.clone()] });
        ExpertLayout { files: Vec::new(), n_expert: 128, layers: layers.collect() }
    }

    fn config(mib: u64, n_expert_used: u32, force_cache: bool) -> RunConfig {
        let cache_mib = CacheBudget::Mib(mib);
        RunConfig { cache_mib, n_expert_used, force_cache, ..RunConfig::default() }
    }

    #[test]
    fn a_budget_below_one_token_is_refused_with_the_figure() {
        let error = check(&config(300, 8, false), &experts()).unwrap_err().to_string();
        assert_eq!(
            error,
            "--cache-mb 300 can't hold one token's experts: 8 of 128 in each of 48 layers take 1051.0 MiB, \
             and LRU would hit 0 %; give --cache-mb 1051, 0 for no cache, or --force-cache"
        );
        assert!(check(&config(1051, 8, false), &experts()).is_ok());
        assert!(check(&config(300, 8, true), &experts()).is_ok());
        assert!(check(&config(0, 8, false), &experts()).is_ok());
        // Fewer experts per token need less.
        assert!(check(&config(300, 2, false), &experts()).is_ok());
        assert!(check(&config(262, 2, false), &experts()).is_err());
    }

    #[test]
    fn auto_takes_what_is_there_less_what_others_need() {
        let experts = experts();
        let available = |mib: u64| Available {
            bytes: mib << 20,
            total_bytes: 8192 << 20,
            source: "the system".into(),
        };
        let claims = |untouched: u64, mapped: u64| Claims {
            untouched_bytes: untouched << 20,
            mapped_bytes: mapped << 20,
        };
        let config = |floor, ceil, force_cache| RunConfig {
            cache_mib: CacheBudget::Auto,
            cache_floor_mib: floor,
            cache_ceil_mib: ceil,
            n_expert_used: 8,
            force_cache,
            ..RunConfig::default()
        };
        let choose =
            |config: &RunConfig, mib, claims| choose(config, &experts, &available(mib), claims);
        let (plan, limits) = choose(&config(1536, 0, false), 5000, claims(300, 600)).unwrap();
        let reserve = (8192 << 20) / 20;
        assert!(plan.total_bytes() <= (4100 << 20) - reserve);
        assert!(plan.total_bytes() > (4100 << 20) - reserve - (8 << 20), "{plan:?}");
        assert_eq!(plan.budget_bytes % (1 << 20), 0);
        assert_eq!(limits.lowest_bytes, 1536 << 20);
        assert_eq!((limits.highest_bytes, limits.reserve_bytes), (plan.budget_bytes, reserve));

        // The ceiling wins over the default floor; the whole set is the most that is of use.
        let (plan, limits) = choose(&config(1536, 1200, false), 5000, claims(0, 0)).unwrap();
        assert_eq!((plan.budget_bytes, limits.lowest_bytes), (1200 << 20, 1200 << 20));
        let (plan, _) = choose(&config(1536, 0, false), 40_000, claims(0, 0)).unwrap();
        assert_eq!(plan.budget_bytes, experts.total_bytes());

        let error = choose(&config(1536, 0, false), 2000, claims(100, 0)).unwrap_err().to_string();
        for part in [
            "2000 MiB of 8192",
            "the system",
            "410 MiB in reserve",
            "100 MiB for buffers",
            "floor-mb 1536",
        ] {
            assert!(error.contains(part), "no {part:?} in {error}");
        }
        let error = choose(&config(100, 0, false), 1400, claims(0, 0)).unwrap_err().to_string();
        assert!(error.contains("auto: 9") && error.contains("--force-cache"), "{error}");
        let (_, limits) = choose(&config(100, 0, true), 1400, claims(0, 0)).unwrap();
        assert_eq!(limits.lowest_bytes, 100 << 20);
        assert!(choose(&config(0, 0, true), 10, claims(0, 0)).is_err());
    }

    #[test]
    fn one_layer_is_the_limit_that_nothing_overrides() {
        let error = check(&config(21, 8, true), &experts()).unwrap_err().to_string();
        assert!(
            error.contains("--cache-mb 21 is too small") && error.contains("21.9 MiB"),
            "{error}"
        );
    }
}
