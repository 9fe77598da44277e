//! A device fitted from a measured folder of this repository, and what it says of the same run.

use std::path::{Path, PathBuf};

use bmoe_analysis::data::DataReader;
use bmoe_analysis::device_model::fit;
use bmoe_analysis::routes::load;
use bmoe_analysis::simulate::{Accesses, Budget, Rules, Simulator};
use bmoe_analysis::stats::Rates;

use crate::traces::ONLY_EXPERTS;

const CELL: &str = "qwen3-30b-a3b-12layers: stream, cache 1500 MiB, 4 lanes";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../results/half-memory")
}

/// The published folder of the streaming run: hit rates and bytes come out exactly, the rate about right.
#[test]
fn a_fitted_device_estimates_the_run_that_it_was_fitted_from() {
    let reader = DataReader::new(&folder());
    let (run_id, row) = (reader.runs().unwrap().into_iter())
        .find(|(_, row)| row.cell_name.as_deref().is_some_and(|name| CELL.ends_with(name)))
        .unwrap();
    let tokens = &reader.tokens().unwrap()[&run_id];
    let (_, name) = CELL.split_once(": ").unwrap();
    let mut source = folder().into_os_string();
    source.push(format!(":{name}"));
    let trace = load(Path::new(&source), ONLY_EXPERTS).unwrap();
    let accesses = Accesses::new(&trace, Rules::ENGINE);
    let budget = Budget::Bytes(row.cache_budget_bytes.unwrap());
    let lru = Simulator::new(&accesses).run("lru".parse().unwrap(), budget).unwrap();
    let measured: Vec<u64> = tokens.iter().map(|t| t.expert_read_bytes.unwrap()).collect();
    assert_eq!(lru.step_bytes.as_ref(), Some(&measured));
    assert_eq!(lru.decode.hits, tokens.iter().map(|t| t.hits.unwrap()).sum::<u64>());
    assert_eq!(Some(lru.prefill.misses), row.prefill_misses);

    let fitted = fit(&folder(), Some(CELL)).unwrap();
    assert_eq!((fitted.cell.as_str(), fitted.steps), (CELL, 288));
    let all = reader.tokens().unwrap();
    let rate = Rates::from_wall_ns(all[&run_id].iter().map(|t| t.wall_ns)).unwrap().mean;
    let estimate = lru.tok_s(&fitted.model).unwrap();
    assert!((estimate / rate - 1.0).abs() < 0.1, "{estimate}, measured {rate}, {fitted:?}");
}

#[test]
fn which_cell_is_meant_must_be_said() {
    let error = fit(&folder(), None).unwrap_err().to_string();
    assert!(error.contains("--fit-cell") && error.contains(CELL), "{error}");
    let error = fit(&folder(), Some("mmap")).unwrap_err().to_string();
    assert!(error.contains("no cell 'mmap' reads experts"), "{error}");
    let error = fit(Path::new("nowhere"), None).unwrap_err().to_string();
    assert!(error.contains("nowhere"), "{error}");
}
