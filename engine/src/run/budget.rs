//! How large the expert cache may be.

use bmoe_trace::RunConfig;

use crate::error::EngineError;
use crate::flash::layout::ExpertLayout;

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
    if !config.cache_mib.is_on() || config.cache_mib.mib().is_none() {
        return Ok(());
    }
    let budget = fixed_bytes(config);
    let of_a_layer = experts.top_k_bytes(top_k);
    if budget < of_a_layer {
        return Err(EngineError::Config(format!(
            "--cache-mb {} is too small: one token's {top_k} experts of the largest layer take {:.1} MiB; \
             give --cache-mb {} or more, or 0 for no cache",
            config.cache_mib,
            mib(of_a_layer),
            whole_mib(experts.token_demand_bytes(top_k)),
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
    fn one_layer_is_the_limit_that_nothing_overrides() {
        let error = check(&config(21, 8, true), &experts()).unwrap_err().to_string();
        assert!(
            error.contains("--cache-mb 21 is too small") && error.contains("21.9 MiB"),
            "{error}"
        );
    }
}
