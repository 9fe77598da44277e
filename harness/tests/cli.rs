//! The `bmoe` program itself, with a script in the engine's place.

mod common;

use std::fs;
use std::path::Path;

use bmoe_analysis::result_set::Verdict;
use bmoe_trace::RunConfig;
use common::place::{MATRIX, Place, RUN, alive, stderr, stdout, until};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn a_matrix_leaves_a_result_folder_with_a_report() {
    let place = Place::new("succeed");
    let output = place.bmoe(&RUN);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let records = place.journal();
    assert_eq!(records.len(), 4);
    assert!(records.iter().all(|r| r.verdict == Verdict::Valid), "{records:?}");
    for file in ["matrix.toml", "environment.json", "report.md", "data/runs.parquet"] {
        assert!(place.at("out").join(file).exists(), "{file}");
    }
    assert_eq!(fs::read_to_string(place.at("out/matrix.toml")).unwrap(), MATRIX);
    let environment = fs::read_to_string(place.at("out/environment.json")).unwrap();
    assert!(environment.contains("\"engine_version\": \"fake-engine 1\""), "{environment}");
    let run = place.at("out/runs").join(format!("{}-r0-a1", records[1].id));
    let config = RunConfig::load(&run.join("run.toml")).unwrap();
    assert_eq!(config, records[1].config);
    assert!(stdout(&output).contains("out/report.md"), "{}", stdout(&output));

    let again = place.bmoe(&["report", "out"]);
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    let refused = place.bmoe(&RUN);
    assert_eq!(refused.status.code(), Some(3));
    insta::assert_snapshot!(stderr(&refused), @"error: the folder out holds results already; `bmoe report out` renders them, another --out keeps both");
}

#[test]
fn cells_that_are_not_valid_are_kept_and_change_the_exit_code() {
    let place = Place::new(
        "case $(grep cache_mib \"$config\") in *16) succeed wrong;; *8) cat \"$here/refused.lines\"; \
         exit 3;; esac; succeed",
    );
    let output = place.bmoe(&RUN);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    let time = regex::Regex::new(r"\b[0-9.]+ s\b").unwrap();
    insta::assert_snapshot!(time.replace_all(&stderr(&output), "[time]"));
    let verdicts: Vec<_> = place.journal().iter().map(|r| r.verdict).collect();
    assert_eq!(verdicts, [Verdict::Valid, Verdict::Valid, Verdict::Failed, Verdict::WrongText]);
    let report = fs::read_to_string(place.at("out/report.md")).unwrap();
    assert!(report.contains("cache too small"), "{report}");
}

#[test]
fn an_engine_that_hangs_is_ended_and_one_that_is_killed_is_told_apart() {
    let place =
        Place::new("case $(grep mode \"$config\") in *mmap*) exec sleep 100;; esac; kill -9 $$");
    let text = MATRIX.replace("timeout_s = 60", "timeout_s = 1").replace("[0, 8, 16]", "[0]");
    fs::write(place.at("m.toml"), text).unwrap();
    let output = place.bmoe(&RUN);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    let verdicts: Vec<_> = place.journal().iter().map(|r| (r.verdict, r.exit_code)).collect();
    assert_eq!(verdicts, [(Verdict::TimedOut, None), (Verdict::Killed, None)]);
}

#[test]
fn ctrl_c_stops_the_engine_and_renders_what_there_is() {
    let place = Place::new(
        "case $(grep mode \"$config\") in *mmap*) succeed;; esac; echo $$ >\"$here/pid.part\"; \
         mv \"$here/pid.part\" \"$here/pid\"; exec sleep 100",
    );
    let child = place.command(&RUN).spawn().unwrap();
    until("the second engine starts", || place.at("pid").exists());
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let verdicts: Vec<_> = place.journal().iter().map(|r| r.verdict).collect();
    assert_eq!(verdicts, [Verdict::Valid, Verdict::Interrupted]);
    let engine: i32 = fs::read_to_string(place.at("pid")).unwrap().trim().parse().unwrap();
    assert!(!alive(engine));
    assert!(place.at("out/report.md").exists());
    assert!(stderr(&output).contains("error: interrupted by SIGINT; 2 runs were not started"));
}

#[test]
fn groups_are_compared_on_the_terminal_and_in_the_report() {
    let place = Place::new("succeed");
    let group = "\n[[group]]\nname = \"caches\"\nbaseline = { mode = \"stream\", cache_mib = 0 }\n\
                 members = { mode = \"stream\" }\n";
    fs::write(place.at("m.toml"), format!("{}{group}", common::place::MATRIX)).unwrap();
    let output = place.bmoe(&RUN);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("caches: "), "{}", stdout(&output));
    let report = || fs::read_to_string(place.at("out/report.md")).unwrap();
    let (_, section) =
        report().split_once("## Group: caches").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let rows: Vec<&str> =
        section.lines().skip(4).take_while(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), 2, "{section}");
    for (row, mib) in rows.iter().zip([8, 16]) {
        assert!(
            row.starts_with(&format!(
                "| stream, cache {mib} MiB, 1 lane | stream, cache off, 1 lane |"
            )),
            "{row}"
        );
        // One run each decides nothing.
        assert!(row.contains("| 1 against 1 |") && row.ends_with("| can't decide |"), "{row}");
    }
    // The report alone does the same.
    let first = report();
    assert_eq!(place.bmoe(&["report", "out"]).status.code(), Some(0));
    assert_eq!(report(), first);
}

#[test]
fn dry_runs_and_lists_run_nothing() {
    let place = Place::new("touch \"$here/ran\"");
    let mut args = RUN.to_vec();
    args.extend(["--filter", "cache (8|16)", "--dry-run"]);
    let dry = place.bmoe(&args);
    assert_eq!(dry.status.code(), Some(0), "{}", stderr(&dry));
    let list = place.bmoe(&["run", "m.toml", "--list"]);
    insta::assert_snapshot!(format!("{}---\n{}", stdout(&dry), stdout(&list)));
    assert!(!place.at("ran").exists() && !place.at("out").exists());
}

#[test]
fn refusals_name_the_next_step() {
    let place = Place::new("succeed");
    let mut told = Vec::new();
    fs::create_dir(place.at("full")).unwrap();
    fs::write(place.at("full/file"), "").unwrap();
    fs::write(place.at("no-model.toml"), MATRIX.replace("a.gguf", "b.gguf")).unwrap();
    let synthetic = MATRIX.replace("path = \"a.gguf\"", "synth = { shape = \"tiny-qwen3moe\" }");
    let many = synthetic.replace("n_predict", "n_expert_used = 999\nn_predict");
    fs::write(place.at("many-experts.toml"), many).unwrap();
    let cold = MATRIX.replace("n_predict", "warm_profile = \"hot.json\"\nn_predict");
    fs::write(place.at("no-profile.toml"), cold).unwrap();
    for args in [
        &["run", "missing.toml"][..],
        &["run", "m.toml", "--engine", "nowhere"],
        &["run", "m.toml", "--engine", "./engine", "--filter", "nothing"],
        &["run", "m.toml", "--engine", "./engine", "--filter", "("],
        &["run", "m.toml", "--engine", "./engine", "--out", "full"],
        &["run", "no-model.toml", "--engine", "./engine", "--out", "out"],
        &["run", "many-experts.toml", "--engine", "./engine", "--dry-run"],
        &["run", "no-profile.toml", "--engine", "./engine", "--dry-run"],
        &["report", "full"],
        &["synth", "--shape", "qwen4"],
        &["synth", "--shape", "tiny-qwen3moe", "--layers", "0"],
        &["synth", "--shape", "tiny-qwen3moe", "-o", "x-00001-of-00003.gguf"],
        &["synth", "--shape", "tiny-qwen3moe", "-o", "x-00001-of-00003.gguf", "--dry-run"],
    ] {
        let output = place.bmoe(args);
        let code = output.status.code().unwrap();
        told.push(format!("$ bmoe {}\n{}[{code}]", args.join(" "), stderr(&output)));
    }
    insta::assert_snapshot!(told.join("\n\n"));
    assert!(!place.at("out").exists());
}

#[test]
fn synth_keeps_what_is_there_and_replaces_nothing_unasked() {
    let place = Place::new("");
    let synth = |more: &[&str]| {
        let mut args = vec!["synth", "--shape", "tiny-qwen3moe", "--out", "m.gguf"];
        args.extend(more);
        let output = place.bmoe(&args);
        (output.status.code().unwrap(), stdout(&output), stderr(&output))
    };
    let (code, dry, err) = synth(&["--dry-run"]);
    assert_eq!(code, 0, "{err}");
    assert!(dry.starts_with("would write m.gguf: ") && !place.at("m.gguf").exists(), "{dry}");
    let (code, wrote, err) = synth(&[]);
    assert!(code == 0 && wrote.starts_with("wrote m.gguf: "), "{wrote}{err}");
    let bytes = fs::read(place.at("m.gguf")).unwrap();
    let (code, kept, _) = synth(&[]);
    assert_eq!((code, kept.trim()), (0, "kept, since the same model is there: m.gguf"));
    let (code, _, err) = synth(&["--seed", "7"]);
    assert!(code == 3 && err.contains("m.gguf exists"), "{err}");
    assert_eq!(fs::read(place.at("m.gguf")).unwrap(), bytes);
    let (code, _, _) = synth(&["--seed", "7", "--force"]);
    assert_eq!(code, 0);
    assert_ne!(fs::read(place.at("m.gguf")).unwrap(), bytes);

    fs::write(place.at("m.gguf"), "somebody's own").unwrap();
    let (code, _, err) = synth(&[]);
    assert!(code == 3 && err.contains("not made by `bmoe synth`"), "{err}");
    let (code, split, _) = synth(&["--split", "2"]);
    assert!(code == 0 && split.contains("m-00002-of-00002.gguf"), "{split}");
    let (code, kept, _) = synth(&["--split", "2"]);
    assert!(code == 0 && kept.starts_with("kept"), "{kept}");
}

#[test]
fn an_interrupted_synth_leaves_no_file() {
    let place = Place::new("");
    fs::create_dir(place.at("models")).unwrap();
    let child = place.command(&["synth", "--shape", "quickstart"]).spawn().unwrap();
    let part = place.at("models/quickstart.gguf.part");
    until("the model is begun", || part.exists());
    // Somebody else's attempt at the same file neither waits nor disturbs.
    let other = place.bmoe(&[
        "synth",
        "--shape",
        "quickstart",
        "--seed",
        "7",
        "--out",
        "models/quickstart.gguf",
    ]);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(
        stderr(&output)
            .ends_with("interrupted by SIGINT; nothing is left of models/quickstart.gguf\n")
    );
    assert_eq!(other.status.code(), Some(3), "{}", stderr(&other));
    assert!(stderr(&other).contains("is being written by another process"), "{}", stderr(&other));
    assert_eq!(fs::read_dir(place.at("models")).unwrap().count(), 0);
}

#[test]
fn endless_lines_of_an_engine_are_passed_over() {
    let place = Place::new("head -c 3000000 /dev/zero; echo; succeed");
    let output = place.bmoe(&RUN);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn an_engine_that_is_asked_to_stop_by_somebody_else_counts_as_killed() {
    let place = Place::new("exit 143");
    let output = place.bmoe(&RUN);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(
        place.journal().iter().all(|r| r.verdict == Verdict::Killed && r.exit_code == Some(143))
    );
}

#[test]
fn imports_are_rendered_and_damaged_files_leave_nothing() {
    let place = Place::new("");
    let log = "step,steps,wall_ms,io_ms,compute_ms,read_bytes,cache_hit_pct,stall_ms\n\
               1,2,100.000,60.000,40.000,2097152,12.50,0.000\n2,2,300.000,180.000,120.000,1048576,25.99,0.000\n\
               # summary tokens=2\n";
    fs::create_dir(place.at("logs")).unwrap();
    fs::write(place.at("logs/phone.csv"), log).unwrap();
    fs::write(place.at("logs/phone.metrics"), "peak_rss_kb=1024\n").unwrap();
    fs::write(place.at("logs/todo.txt"), "measure again\n").unwrap();
    let imported = place.bmoe(&["import", "logs", "--out", "in"]);
    let reported = place.bmoe(&["report", "in"]);
    fs::write(place.at("bad.csv"), log.replace("300.000", "3OO.000")).unwrap();
    let refused = [
        place.bmoe(&["import", "bad.csv", "--out", "other"]),
        place.bmoe(&["import", "logs/phone.csv", "--out", "in"]),
        place.bmoe(&["import", "nothing.csv", "--out", "other"]),
        place.bmoe(&["import", "m.toml", "--out", "other"]),
        place.bmoe(&["report", "in", "--warmup-tokens", "2"]),
    ];
    let mut all = format!("{}{}{}", stderr(&imported), stdout(&imported), stdout(&reported));
    for output in &refused {
        all += &format!("exit code {}: {}", output.status.code().unwrap(), stderr(output));
    }
    assert!(!place.at("other").exists());
    insta::assert_snapshot!(all);
    // What somebody else has put there is not removed.
    fs::write(place.at("in/data/mine.txt"), "mine\n").unwrap();
    let refused = place.bmoe(&["import", "logs", "--out", "in", "--force"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(
        stderr(&refused).contains("in holds in/data/mine.txt, which no import made"),
        "{}",
        stderr(&refused)
    );
    fs::remove_file(place.at("in/data/mine.txt")).unwrap();
    assert!(place.bmoe(&["import", "logs", "--out", "in", "--force"]).status.success());
    // A log's metrics that are none are told.
    fs::write(place.at("logs/phone.metrics"), "\x01\x02 no metrics\n").unwrap();
    let imported = place.bmoe(&["import", "logs/phone.csv", "--out", "again"]);
    assert!(imported.status.success());
    assert!(
        stderr(&imported).contains(
            "logs/phone.metrics is passed over: it has a log's name, and holds no device metrics"
        ),
        "{}",
        stderr(&imported)
    );
    // Two logs of one stem are two runs with names of their own.
    fs::create_dir(place.at("logs/more")).unwrap();
    fs::copy(place.at("logs/phone.csv"), place.at("logs/more/phone.csv")).unwrap();
    fs::copy(place.at("logs/phone.csv"), place.at("logs/more/phone.log")).unwrap();
    let three = [
        "import",
        "logs/phone.csv",
        "logs/more/phone.csv",
        "logs/more/phone.log",
        "--out",
        "three",
    ];
    let three = stdout(&place.bmoe(&three));
    let names: Vec<_> =
        three.lines().filter_map(|line| line.split_once(": ")).map(|(name, _)| name).collect();
    assert_eq!(names, ["logs/phone", "more/phone", "more/phone (phone.log)"]);
}

#[test]
fn help_is_what_people_read() {
    let place = Place::new("");
    let mut all = String::new();
    for command in [
        "", "synth", "run", "view", "report", "compare", "import", "simulate", "devices", "doctor",
        "clean", "refine", "tune",
    ] {
        let args: Vec<&str> = [command, "--help"].into_iter().filter(|a| !a.is_empty()).collect();
        all += &format!("$ bmoe {}\n{}\n", args.join(" "), stdout(&place.bmoe(&args)));
    }
    insta::assert_snapshot!(all);
    let completions = stdout(&place.bmoe(&["completions", "bash"]));
    assert!(completions.contains("--dry-run") && completions.contains("synth"), "{completions}");
    let root: &Path = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert!(root.join("../docs/matrices.md").exists(), "--help names it");
}

#[test]
fn every_command_has_a_manual_page() {
    let place = Place::new("");
    let output = place.bmoe(&["man", "--out", "man"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let page = |name: &str| fs::read_to_string(place.at("man").join(name)).unwrap();
    assert!(page("bmoe.1").contains("bmoe\\-run(1)"), "{}", page("bmoe.1"));
    assert!(page("bmoe-run.1").contains("\\-\\-dry\\-run"), "{}", page("bmoe-run.1"));
    let help = stdout(&place.bmoe(&["--help"]));
    let commands = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let names = commands.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    for name in names.filter(|name| !name.is_empty() && *name != "help") {
        assert!(page(&format!("bmoe-{name}.1")).contains("SYNOPSIS"), "{name}");
    }
}
