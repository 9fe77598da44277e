//! What traces answer.

use bmoe_analysis::routes::tokens::Phases;
use bmoe_analysis::routes::views::{Selection, Shown, View, ViewError};
use bmoe_analysis::routes::{RouteEvent, RouteLayer, RouteTrace};

use crate::traces::{qwen3, toy};

#[test]
fn every_view_of_the_toy_trace() {
    let trace = toy();
    for view in View::ALL {
        let shown = view.of(&trace, &Selection::of(Phases::All)).unwrap();
        insta::assert_snapshot!(format!("{view}"), shown.terminal(0));
    }
}

#[test]
fn every_view_of_the_toy_trace_for_programs() {
    let trace = toy();
    let selection = Selection { layer: Some(3), ..Selection::default() };
    let mut text = String::new();
    for view in View::ALL {
        let shown = view.of(&trace, &selection).unwrap();
        let csv = shown.table().csv();
        let columns = csv.lines().next().unwrap().split(',').count();
        assert!(csv.lines().all(|line| line.split(',').count() == columns), "{csv}");
        text += &format!("{view}\n{csv}{}\n\n", serde_json::to_string(&shown).unwrap());
    }
    insta::assert_snapshot!(text);
    insta::assert_snapshot!(View::Matrix.of(&trace, &selection).unwrap().terminal(0));
}

#[test]
fn what_a_trace_lacks_is_said() {
    let trace = toy();
    let none = Selection { layer: Some(2), ..Selection::default() };
    let mut said = vec![View::Hot.of(&trace, &none).unwrap_err().to_string()];
    let layers = vec![RouteLayer { index: 0, expert_bytes: 0 }];
    let mut bare = RouteTrace::new("bare".into(), String::new(), layers, 4);
    bare.push(&RouteEvent { positions: &[0], experts: &[1, 2], ..RouteEvent::default() }).unwrap();
    for view in View::ALL {
        match view.of(&bare, &Selection::default()) {
            Err(ViewError::NoTokens { .. }) => panic!("{view} sees no token"),
            Err(error) => said.push(format!("{view}: {error}")),
            Ok(shown) => assert!(!shown.terminal(0).is_empty()),
        }
    }
    said.push(View::Hot.of(&bare, &Selection::of(Phases::Prefill)).unwrap_err().to_string());
    said.push("nonsense".parse::<View>().unwrap_err());
    insta::assert_snapshot!(said.join("\n"));
}

/// A text that repeats itself every three tokens.
#[test]
fn loops_are_found_and_warned_of() {
    let layers = [0, 1].map(|index| RouteLayer { index, expert_bytes: 1 });
    let mut trace = RouteTrace::new("loop".into(), String::new(), layers.to_vec(), 64);
    for step in 0..40_u16 {
        let same = if step < 10 { step * 6 } else { step % 3 * 5 };
        for layer in 0..2 {
            let experts = [same % 64, (same + 1 + layer) % 64];
            let positions = [u32::from(step)];
            let layer = usize::from(layer);
            let event = RouteEvent {
                layer,
                positions: &positions,
                experts: &experts,
                ..RouteEvent::default()
            };
            trace.push(&event).unwrap();
        }
    }
    let Shown::Loops(loops) = View::Loops.of(&trace, &Selection::default()).unwrap() else {
        panic!()
    };
    assert_eq!((loops.period, loops.longest_run, loops.warning), (Some(3), Some((27, 13)), true));
    let text = Shown::Loops(loops).terminal(3);
    assert!(text.contains("WARNING"), "{text}");
}

/// Figures of the published trace that others published.
#[test]
fn published_trace() {
    let Some(trace) = qwen3() else { return };
    let decode = Selection::default();
    let Shown::Hot(hot) = View::Hot.of(&trace, &decode).unwrap() else { panic!() };
    let touched: Vec<usize> = hot.layers.iter().map(|l| l.touched).collect();
    assert_eq!((hot.tokens, hot.top_k, touched[0]), (128, 6, 107));
    assert_eq!((touched.iter().min(), touched.iter().max()), (Some(&33), Some(&107)));
    assert_eq!(format!("{:.0}", touched.iter().sum::<usize>() as f64 / 48.0), "64");

    let Shown::Overlap(overlap) = View::Overlap.of(&trace, &decode).unwrap() else { panic!() };
    let percent = |share: Option<f64>| format!("{:.1}", share.unwrap() * 100.0);
    assert_eq!(
        (percent(overlap.mean_at(1)), percent(overlap.mean_at(8))),
        ("38.0".into(), "26.7".into())
    );
    assert_eq!(percent(Some(overlap.random)), "4.7");

    let Shown::Workset(workset) = View::Workset.of(&trace, &decode).unwrap() else { panic!() };
    let mib = |bytes: u64| bytes >> 20;
    let all = workset.growth.last().unwrap();
    assert_eq!((mib(all.bytes), mib(workset.bank_bytes)), (8386, 16740));
    // One token's experts of all layers.
    assert_eq!((workset.windows[0].max_experts, mib(workset.windows[0].max_bytes)), (288, 784));

    let Shown::Cache(cache) = View::Cache.of(&trace, &Selection::of(Phases::All)).unwrap() else {
        panic!()
    };
    let sums = cache.rows.iter().filter(|row| row.layer.is_none());
    let (hits, lookups) = sums.fold((0, 0), |(h, l), row| (h + row.hits, l + row.lookups));
    // What the phone printed at the end of the run.
    assert_eq!(format!("{:.1}", 100.0 * hits as f64 / lookups as f64), "74.9");

    let Shown::Loops(loops) = View::Loops.of(&trace, &decode).unwrap() else { panic!() };
    assert!(!loops.warning);
    let Shown::Bytes(bytes) = View::Bytes.of(&trace, &decode).unwrap() else { panic!() };
    assert!(bytes.steps.iter().all(|step| mib(step.demand_bytes) == 784));
}
