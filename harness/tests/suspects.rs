//! Cells that stand out beside the others, and repeating them.

mod common;

use bmoe_analysis::result_set::Verdict;
use bmoe_trace::RunConfig;
use bmoe_trace::record::Record;
use common::place::{Place, RUN, stderr, stdout};

/// Gives the n-th run so many major faults a token.
fn faulting(place: &Place, run: u32, faults: u64) {
    let name = format!("right-{run}");
    let config = RunConfig { model: "a.gguf".into(), ..RunConfig::default() };
    let mut records = common::whole_trace(&name, config, &[1, 2]);
    for record in &mut records {
        if let Record::Token(token) = record {
            token.cost.major_faults = faults;
        }
    }
    common::write_trace(&place.at(&format!("{name}.bin")), &records);
}

#[test]
fn a_cell_that_faults_far_more_is_told_and_repeated() {
    let place = Place::new("succeed");
    // The runs are mmap, then a cache of 0, 8 and 16 MiB.
    for (run, faults) in [(2, 2), (3, 400), (4, 2)] {
        faulting(&place, run, faults);
    }
    let output = place.bmoe(&RUN);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    let journal = place.journal();
    let verdicts: Vec<_> = journal.iter().map(|r| (r.name.as_str(), r.verdict)).collect();
    let suspect = journal[2].name.clone();
    assert!(suspect.contains("8 MiB"), "{verdicts:?}");
    // The run that was valid by itself stays in the record; what was seen beside the others comes behind it.
    assert_eq!(journal.len(), 5, "{verdicts:?}");
    assert_eq!((&journal[4].name, journal[4].verdict), (&suspect, Verdict::Faulting));
    assert_eq!(journal[4].run_id, journal[2].run_id);
    let reason = journal[4].reason.clone().unwrap();
    assert!(reason.contains("had 400.0 major page faults a token"), "{reason}");
    let report = std::fs::read_to_string(place.at("out/report.md")).unwrap();
    assert!(report.contains("faulting") && report.contains(&reason), "{report}");

    // Measured again it does not fault: it was the device.
    faulting(&place, 5, 2);
    let rerun = ["run", "--resume", "out", "--engine", "./engine", "--rerun-suspect"];
    let output = place.bmoe(&rerun);
    assert_eq!(output.status.code(), Some(0), "{}{}", stderr(&output), stdout(&output));
    assert!(stderr(&output).contains("suspect: "), "{}", stderr(&output));
    let again = place.journal().split_off(5);
    let again: Vec<_> = again.iter().map(|r| (&r.name, r.attempt, r.verdict)).collect();
    assert_eq!(again, [(&suspect, 2, Verdict::Valid)]);

    // Nothing is suspect any more.
    let output = place.bmoe(&rerun);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("nothing in the results is suspect"), "{}", stderr(&output));
    assert_eq!(place.journal().len(), 6);
}
