//! Cells compared with each other.

use bmoe_analysis::compare::{Arm, Judged, Metric, Outcome, Pairs, compare, pair, pair_by, table};
use bmoe_analysis::measured::Measured;
use bmoe_analysis::result_set::{CellRecord, Verdict};
use bmoe_analysis::tells;
use bmoe_trace::{Mode, Record};

use crate::folder::{Folder, cell};
use crate::synthetic::{SHAPE, records, trace_bytes};

/// Adds a repetition whose decode steps take `factor` times as long as they would.
fn add_slowed(folder: &mut Folder, cell: &CellRecord, repetition: u32, factor: f64) {
    let run_id = format!("{}-r{repetition}", cell.id);
    let mut records = records(&run_id, SHAPE, &cell.config, 32, u64::from(repetition));
    for record in &mut records {
        if let Record::Token(token) = record {
            token.cost.wall_ns = (token.cost.wall_ns as f64 * factor) as u64;
            token.cost.compute_ns = (token.cost.compute_ns as f64 * factor) as u64;
        }
    }
    let record = CellRecord { repetition, run_id: Some(run_id), ..cell.clone() };
    folder.add(record, Some(&trace_bytes(&records)));
}

/// Two caches with four repetitions, one with two and a throttled one, all with the cache off aside.
fn folder() -> Folder {
    let mut folder = Folder::new();
    let small = cell("s1", "stream, cache 120 MiB, 4 lanes", Mode::Stream, 120, 4);
    let large = cell("s2", "stream, cache 320 MiB, 4 lanes", Mode::Stream, 320, 4);
    let few = cell("s3", "stream, cache 480 MiB, 4 lanes", Mode::Stream, 480, 4);
    for repetition in 0..4 {
        add_slowed(&mut folder, &small, repetition, 1.0 + 0.01 * f64::from(repetition));
        add_slowed(&mut folder, &large, repetition, 1.0 + 0.02 * f64::from(repetition));
    }
    add_slowed(&mut folder, &few, 0, 1.0);
    add_slowed(&mut folder, &few, 1, 1.0);
    let throttled = CellRecord {
        repetition: 2,
        verdict: Verdict::Throttled,
        reason: Some("clock limit 1800000 kHz, 2800000 kHz at entry".into()),
        ..few
    };
    folder.add(throttled, None);
    folder
}

fn arms(measured: &Measured) -> Vec<Arm<'_>> {
    measured.cells().into_iter().map(|cell| Arm::new(measured, cell, 0)).collect()
}

#[test]
fn differences_are_told_with_their_intervals_and_what_can_not_be_decided() {
    let folder = folder();
    let measured = Measured::read(folder.path()).unwrap();
    let Pairs { pairs, alone } = pair_by(arms(&measured), "cache_mib").unwrap();
    assert!(alone.is_empty());
    let compared = compare(&pairs, Metric::TokS);
    insta::assert_snapshot!(table(&compared));
    // The pair with few runs has no p; the other one is the only comparison.
    let [faster, few] = &compared[..] else { panic!("{compared:?}") };
    assert_eq!((faster.outcome, faster.comparisons), (Outcome::Better, 1));
    assert!((faster.p.unwrap() - 2.0 / 70.0).abs() < 1e-12 && faster.paired);
    assert_eq!((few.outcome, few.p), (Outcome::Undecided, None));
    assert_eq!(few.b.unused.len(), 1);
    assert_eq!(faster.judge(5.0), Judged::Within);
    assert_eq!(few.judge(5.0), Judged::Undecided);
    insta::assert_snapshot!(serde_json::to_string_pretty(few).unwrap());
}

#[test]
fn a_bound_is_broken_when_the_whole_interval_is_beyond_it() {
    let folder = folder();
    let measured = Measured::read(folder.path()).unwrap();
    let arms = arms(&measured);
    let worse = compare(&[(arms[1].clone(), arms[0].clone())], Metric::TokS);
    assert_eq!(worse[0].outcome, Outcome::Worse);
    let high = worse[0].high_pct.unwrap();
    assert!(high < -5.0);
    assert_eq!(worse[0].judge(5.0), Judged::Worse);
    assert_eq!(worse[0].judge(-high), Judged::Within, "its mildest end is no more than the bound");
    // Less is better of MiB per token: the small cache reads more.
    let mib = compare(&[(arms[1].clone(), arms[0].clone())], Metric::MibToken);
    assert_eq!((mib[0].judge(5.0), mib[0].difference_pct.unwrap() > 0.0), (Judged::Worse, true));
    assert!(mib[0].sentence.contains("up in MiB per token"), "{}", mib[0].sentence);
}

#[test]
fn the_same_cell_twice_shows_no_difference_and_many_pairs_need_more_runs() {
    let folder = folder();
    let measured = Measured::read(folder.path()).unwrap();
    let arms = arms(&measured);
    let same = compare(&[(arms[0].clone(), arms[0].clone())], Metric::P5TokS);
    assert_eq!(same[0].outcome, Outcome::NoneVisible);
    assert!(same[0].sentence.starts_with("no difference larger than "), "{}", same[0].sentence);
    let mut nothing = arms[1].clone();
    nothing.runs.clear();
    assert_eq!(
        compare(&[(arms[0].clone(), nothing)], Metric::TokS)[0].sentence,
        "can't decide: B hasn't a valid run that measured tok/s."
    );
    let pairs = vec![(arms[0].clone(), arms[1].clone()); 6];
    let many = compare(&pairs, Metric::TokS);
    assert_eq!((many[0].outcome, many[0].comparisons), (Outcome::Undecided, 6));
    assert!(
        many[0].sentence.ends_with(
            "but among 6 comparisons the p of 4 and 4 runs can't fall below 0.17; 5 runs an arm needed."
        ),
        "{}",
        many[0].sentence
    );
}

#[test]
fn sides_are_paired_by_content_then_by_name() {
    let (first, second) = (folder(), {
        let mut folder = Folder::new();
        let renamed = cell("x9", "stream, cache 120 MiB, 4 lanes", Mode::Stream, 120, 4);
        add_slowed(&mut folder, &renamed, 0, 1.0);
        let same = cell("s2", "of another name", Mode::Stream, 320, 4);
        add_slowed(&mut folder, &same, 0, 1.0);
        folder
    });
    let (a, b) = (Measured::read(first.path()).unwrap(), Measured::read(second.path()).unwrap());
    let paired = pair(arms(&a), arms(&b));
    let ids: Vec<_> = paired.pairs.iter().map(|(a, b)| (a.cell.id, b.cell.id)).collect();
    assert_eq!(ids, [("s2", "s2"), ("s1", "x9")]);
    assert_eq!(paired.alone.iter().map(|a| a.cell.id).collect::<Vec<_>>(), ["s3"]);
    // Two single cells are a pair whatever they are.
    let one = pair(arms(&a)[..1].to_vec(), arms(&b)[1..].to_vec());
    assert_eq!((one.pairs.len(), one.alone.len()), (1, 0));
}

#[test]
fn axes_that_do_not_fit_are_refused() {
    let folder = folder();
    let measured = Measured::read(folder.path()).unwrap();
    let unknown = pair_by(arms(&measured), "cache").unwrap_err();
    assert!(unknown.starts_with("`cache` is not a setting; expected one of "), "{unknown}");
    let alike = pair_by(arms(&measured), "overlap").unwrap_err();
    assert_eq!(alike, "no two of the cells differ in `overlap` alone");
}

#[test]
fn tells_are_found_in_a_folder() {
    let mut folder = Folder::new();
    for (id, top_k, factor) in [("k6", 6, 1.0), ("k4", 4, 1.4)] {
        let mut cell = cell(id, &format!("stream, top-{top_k}"), Mode::Stream, 120, 4);
        cell.config.n_expert_used = top_k;
        add_slowed(&mut folder, &cell, 0, factor);
    }
    let found = tells::of_folder(&Measured::read(folder.path()).unwrap());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].tell, &*found[0].id), (tells::Tell::ComputeRises, "k4"));
}
