use super::*;

fn phone() -> Facts {
    crate::facts::parse(include_str!("../facts/fixtures/phone.txt")).unwrap()
}

fn told(facts: &Facts, plan: &Plan) -> String {
    checks(facts, plan).iter().map(lines).collect()
}

fn found(facts: &Facts, plan: &Plan, name: &str) -> (State, String) {
    let check = checks(facts, plan).into_iter().find(|check| check.name == name).unwrap();
    assert_eq!(check.mend.is_some(), check.state != State::Ok, "{check:?}");
    (check.state, check.found)
}

#[test]
fn a_phone_and_a_virtual_machine_are_told_what_to_mend() {
    let engine = DeviceEngine {
        path: "target/device/arm64-v8a/armv8-a/bmoe-engine".into(),
        variant: Some(PLAIN_ARM64),
        better: Some("armv8.6-a+i8mm"),
    };
    let plan = Plan { engine: Some(Ok(engine)), needed_bytes: 18_556_686_912, ..Plan::default() };
    let rig = crate::facts::parse(include_str!("../facts/fixtures/rig.txt")).unwrap();
    let local = Plan { direct_io: Some(true), read_ahead_kib: Some(4096), ..Plan::default() };
    insta::assert_snapshot!(format!("{}\n{}", told(&phone(), &plan), told(&rig, &local)));
}

#[test]
fn what_a_run_needs_and_does_not_have_is_missing() {
    let bare = Facts {
        free_bytes: Some(300 << 20),
        missing_tools: vec!["flock".to_owned(), "sha256sum".to_owned()],
        writable: false,
        ..phone()
    };
    let plan = Plan {
        engine: Some(Err("no engine for arm64-v8a below x; build it".to_owned())),
        needed_bytes: 100 << 20,
        ..Plan::default()
    };
    let missing: Vec<_> = checks(&bare, &plan)
        .into_iter()
        .filter(|check| check.state == State::Missing)
        .map(|check| (check.name, check.found))
        .collect();
    assert_eq!(
        missing,
        [
            ("engine", "no engine for arm64-v8a below x".to_owned()),
            ("tools", "without sha256sum".to_owned()),
            ("folder", "shell cannot write it".to_owned()),
            ("room", "300.0 MiB free, 356.0 MiB needed".to_owned()),
        ]
    );
}

#[test]
fn a_throttled_device_and_a_plain_cpu_are_warned_of() {
    let hot = Facts { thermal_status: Some(2), ..phone() };
    assert_eq!(found(&hot, &Plan::default(), "heat").0, State::Warning);
    assert_eq!(found(&hot, &Plan::default(), "clocks").0, State::Warning);
    let plain = Facts { cpu_features: [].into(), ..phone() };
    assert_eq!(found(&plain, &Plan::default(), "CPU").0, State::Warning);
    let blind = Facts { zones: vec![], clusters: vec![], ..phone() };
    assert_eq!(found(&blind, &Plan::default(), "temperatures").0, State::Note);
    assert_eq!(found(&blind, &Plan::default(), "clocks").0, State::Note);
}
