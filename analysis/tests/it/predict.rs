//! Guesses and changes of the routes.

use bmoe_analysis::device_model::DeviceModel;
use bmoe_analysis::routes::predict::{Predict, PredictOptions, Predictor};
use bmoe_analysis::routes::whatif::{Change, WhatIf, WhatIfOptions};
use bmoe_cache::PolicyKind;

use crate::traces::{qwen3, toy};

#[test]
fn every_predictor_on_the_toy_trace() {
    let device = DeviceModel::new(0.004, 1000.0, 0.0);
    let options = PredictOptions { device, ..PredictOptions::default() };
    let predict = Predict::of(&toy(), &options).unwrap();
    insta::assert_snapshot!(predict.table().terminal(0));
    let cached = PredictOptions { cache: Some((PolicyKind::Lru, 10 << 20)), ..options };
    insta::assert_snapshot!(Predict::of(&toy(), &cached).unwrap().table().terminal(0));
}

/// Figures of the published trace that others published: random 4.7 %, previous token 38.0 %, the run's own hottest
/// 37.6 %, the prompt's hottest 17.9 %.
#[test]
fn published_trace() {
    let Some(trace) = qwen3() else { return };
    let predict = Predict::of(&trace, &PredictOptions::default()).unwrap();
    let percent =
        |share: Option<f64>| share.map(|s| format!("{:.1}", s * 100.0)).unwrap_or_default();
    let found = |p: Predictor| percent(predict.row(p, 6).unwrap().found);
    assert_eq!(found(Predictor::Random), "4.7");
    assert_eq!(found(Predictor::PreviousToken), "38.0");
    assert_eq!(found(Predictor::HotRun), "37.6");
    assert_eq!(found(Predictor::HotPrompt), "17.9");
    // The published co-occurrence, 49.7 % on itself and 29.0 % held out, comes without its definition. Ours finds more,
    // and flatters itself as much when it is scored on what it was fitted on.
    assert_eq!(found(Predictor::CooccurrenceRun), "70.2");
    let held_out = |p: Predictor| percent(predict.row(p, 6).unwrap().found_held_out);
    assert_eq!(held_out(Predictor::CooccurrenceFitted), "52.1");
    assert_eq!((predict.tokens, predict.fitted_tokens, predict.held_out_tokens), (127, 64, 64));
    eprintln!("{}", predict.table().terminal(0));
}

#[test]
fn every_change_of_the_toy_trace() {
    let options = WhatIfOptions { policy: PolicyKind::Lru, budget_bytes: 10 << 20 };
    insta::assert_snapshot!(WhatIf::of(&toy(), &options).unwrap().table().terminal(0));
}

#[test]
fn changes_of_the_published_trace() {
    let Some(trace) = qwen3() else { return };
    let without = WhatIfOptions { policy: PolicyKind::Lru, budget_bytes: 0 };
    let whatif = WhatIf::of(&trace, &without).unwrap();
    // Without a cache the bytes are the share of the experts, and the least heavy ones go first.
    for row in &whatif.rows {
        if let Change::Fewer { experts } = row.change {
            assert!((row.saved.unwrap() - (1.0 - experts as f64 / 6.0)).abs() < 1e-9);
            assert!(row.weight_lost.unwrap() < 1.0 - experts as f64 / 6.0);
        }
    }
    // With one the recorded routes read what the published replay reads: 80.287 % of the decode look-ups hit.
    let cached = WhatIfOptions { budget_bytes: 4000 << 20, ..without };
    let whatif = WhatIf::of(&trace, &cached).unwrap();
    assert_eq!(format!("{:.3}", whatif.rows[0].hits.unwrap() * 100.0), "80.287");
    let reads: Vec<f64> = whatif.rows.iter().map(|row| row.read_bytes).collect();
    assert!(reads[0] > reads[1] && reads[1] > reads[2], "{reads:?}");
    eprintln!("{}", whatif.table().terminal(0));
}
