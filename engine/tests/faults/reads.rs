//! Reads that fail or come in pieces, and files that change under them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bmoe_engine::flash::fault::{Fault, Faults};
use bmoe_engine::run::{RecordSink, RunOptions};
use bmoe_engine::{EngineError, generate};
use bmoe_trace::config::IoEngine;
use bmoe_trace::record::{IoEngineUsed, Outcome, Record};
use bmoe_trace::{CacheBudget, Mode, RunConfig};

use super::{common, within_limit};

const EIO: i32 = 5;
const EINTR: i32 = 4;
const EAGAIN: i32 = 11;

/// Does something when the first two tokens are done.
struct AfterToken2(Box<dyn FnMut() + Send>);

impl RecordSink for AfterToken2 {
    fn record(&mut self, record: &Record) -> Result<(), EngineError> {
        if matches!(record, Record::Token(t) if t.step == 2) {
            (self.0)();
        }
        Ok(())
    }
}

fn model(folder: &Path) -> PathBuf {
    common::model(folder, &common::tiny("qwen3moe"), "m", None)
}

/// Tokens of a run without faults, and the hash of its logits.
fn reference(model: &Path, base: &RunConfig) -> (Vec<i32>, Option<String>) {
    let config = RunConfig { mode: Mode::Resident, model: model.to_owned(), ..base.clone() };
    let (end, records) = common::run(&config).unwrap();
    (tokens(&records), end.logits_sha256)
}

fn tokens(records: &common::Records) -> Vec<i32> {
    records.tokens().iter().map(|t| t.token).collect()
}

/// Every way in which slices are read: overlap, engine, O_DIRECT.
fn ways() -> impl Iterator<Item = (bool, IoEngine, bool)> {
    [true, false].into_iter().flat_map(|overlap| {
        [IoEngine::Pread, IoEngine::Uring].into_iter().flat_map(move |engine| {
            [true, false].into_iter().map(move |odirect| (overlap, engine, odirect))
        })
    })
}

#[test]
fn short_interrupted_and_refused_reads_change_nothing() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = model(folder.path());
    let prompt = common::prompt(30);
    let base = RunConfig { prompt, n_predict: 8, ..common::config(&model, Mode::Stream) };
    let expected = reference(&model, &base);
    for (overlap, io_engine, odirect) in ways() {
        for cache_mib in [0, 2] {
            let cache_mib = CacheBudget::Mib(cache_mib);
            let config = RunConfig { overlap, io_engine, odirect, cache_mib, ..base.clone() };
            let attempts = Arc::new(AtomicU64::new(0));
            let counter = Arc::clone(&attempts);
            let faults =
                Faults::new(move |attempt| match counter.fetch_add(1, Ordering::Relaxed) % 5 {
                    0 => Some(Fault::Error(EINTR)),
                    1 | 2 => Some(Fault::Short(if odirect { 4096 } else { attempt.bytes / 2 + 1 })),
                    3 => Some(Fault::Error(EAGAIN)),
                    _ => None,
                });
            let options = RunOptions { poison: true, faults, ..RunOptions::default() };
            let what = format!("overlap {overlap}, {io_engine}, O_DIRECT {odirect}");
            let (got, hash, reads) = within_limit(&what, move || {
                let mut records = common::Records::default();
                let end = generate(&config, &options, &mut [&mut records]).unwrap();
                let reads: u64 = records.tokens().iter().map(|t| t.cost.reads).sum();
                (tokens(&records), end.logits_sha256, reads)
            });
            assert_eq!((got, hash), expected, "{what}");
            assert!(attempts.load(Ordering::Relaxed) > 2 * reads && reads > 0, "{what}");
        }
    }
}

/// Runs until a planned EIO; returns what was recorded before it.
fn fails(
    config: RunConfig,
    fault_from: impl Fn() -> bool + Send + Sync + 'static,
    mut meddler: AfterToken2,
    what: &str,
) -> common::Records {
    let faults = Faults::new(move |_| fault_from().then_some(Fault::Error(EIO)));
    let (records, error) = within_limit(what, move || {
        let mut records = common::Records::default();
        let options = RunOptions { poison: true, faults, ..RunOptions::default() };
        let error = generate(&config, &options, &mut [&mut records, &mut meddler]).unwrap_err();
        (records, error)
    });
    assert_eq!(error.exit_code(), 4, "{what}: {error}");
    let message = error.to_string();
    for part in ["m.gguf", "offset", "Input/output error", "the run ends here"] {
        assert!(message.contains(part), "{what}: {message}");
    }
    let Some(Record::End(end)) = records.0.last() else { panic!("{what}: no last record") };
    assert_eq!(end.outcome, Outcome::Failed { message }, "{what}");
    assert_eq!(end.tokens as usize, records.tokens().len(), "{what}");
    records
}

#[test]
fn an_error_in_prefill_ends_the_run() {
    let folder = common::folder();
    let model = model(folder.path());
    // With 2 threads a slice may be missed by one while the other waits at a barrier. 200 tokens without a
    // cache are computed in rounds.
    for (threads, at, prompt_tokens) in [(1, 0, 7), (1, 1, 200), (1, 60, 200), (2, 40, 200)] {
        let _place = common::place(threads);
        for (overlap, io_engine, odirect) in ways().filter(|way| threads == 1 || way.2) {
            let config = RunConfig {
                threads,
                overlap,
                io_engine,
                odirect,
                prompt: common::prompt(prompt_tokens),
                ..common::config(&model, Mode::Stream)
            };
            let attempts = AtomicUsize::new(0);
            let what =
                format!("{threads} threads, read {at}, overlap {overlap}, {io_engine}, {odirect}");
            let this_one = move || attempts.fetch_add(1, Ordering::Relaxed) == at;
            let records = fails(config, this_one, AfterToken2(Box::new(|| {})), &what);
            assert!(!records.0.iter().any(|r| matches!(r, Record::Prefill(_))), "{what}");
            assert!(records.tokens().is_empty(), "{what}");
        }
    }
}

#[test]
fn an_error_in_decode_ends_the_run_with_the_tokens_before_it() {
    let folder = common::folder();
    let model = model(folder.path());
    let base = RunConfig { n_predict: 8, ..common::config(&model, Mode::Stream) };
    let (expected, _) = {
        let _place = common::place(1);
        reference(&model, &base)
    };
    // Speculative reads fail, too, before or instead of those that a layer waits for.
    for (threads, cache_mib, prefetch_layers) in [(1, 0, 0), (1, 2, 0), (1, 2, 2), (2, 0, 0)] {
        let _place = common::place(threads);
        for (overlap, io_engine, odirect) in ways().filter(|way| threads == 1 || way.2) {
            let cache_mib = CacheBudget::Mib(cache_mib);
            let config = RunConfig {
                threads,
                overlap,
                io_engine,
                odirect,
                cache_mib,
                prefetch_layers,
                ..base.clone()
            };
            let broken = Arc::new(AtomicBool::new(false));
            let disk = Arc::clone(&broken);
            let breaks = AfterToken2(Box::new(move || broken.store(true, Ordering::SeqCst)));
            let what = format!("{threads} threads, overlap {overlap}, {io_engine}, {odirect}");
            let records = fails(config, move || disk.load(Ordering::SeqCst), breaks, &what);
            let got = tokens(&records);
            assert!(got.len() >= 2 && got.len() < 8, "{what}: {got:?}");
            assert_eq!(got, expected[..got.len()], "{what}");
        }
    }
}

#[test]
fn a_file_that_is_cut_off_meanwhile_ends_the_run() {
    for (threads, overlap, io_engine, odirect, cache) in [
        (1, true, IoEngine::Pread, true, 0),
        (1, false, IoEngine::Pread, false, 0),
        (1, true, IoEngine::Uring, true, 0),
        (1, false, IoEngine::Uring, false, 1),
        (2, true, IoEngine::Pread, false, 1),
    ] {
        let _place = common::place(threads);
        let folder = common::folder();
        let model = model(folder.path());
        let cache_mib = CacheBudget::Mib(cache);
        let base = common::config(&model, Mode::Stream);
        let config = RunConfig { threads, overlap, io_engine, odirect, cache_mib, ..base };
        let cut = AfterToken2(Box::new(move || {
            File::options().write(true).open(&model).unwrap().set_len(1 << 20).unwrap();
        }));
        let (records, error) = within_limit("a file cut off", move || {
            let (mut records, mut cut) = (common::Records::default(), cut);
            let error = generate(&config, &RunOptions::default(), &mut [&mut records, &mut cut])
                .unwrap_err();
            (records, error)
        });
        assert_eq!(error.exit_code(), 4);
        let message = error.to_string();
        for part in ["m.gguf", "offset", "bytes early"] {
            assert!(message.contains(part), "{message}");
        }
        let Some(Record::End(end)) = records.0.last() else { panic!("no last record") };
        assert_eq!(end.outcome, Outcome::Failed { message });
        assert!((2..32).contains(&end.tokens));
    }
}

#[test]
fn a_file_that_is_written_to_meanwhile_spoils_the_run() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = model(folder.path());
    let config = common::config(&model, Mode::Stream);
    let mut write = AfterToken2(Box::new(move || {
        let file = File::options().write(true).open(&model).unwrap();
        file.write_all_at(b"GGUF", 0).unwrap();
    }));
    let error = within_limit("a file written to", move || {
        generate(&config, &RunOptions::default(), &mut [&mut write]).unwrap_err()
    });
    assert!(error.to_string().contains("m.gguf was changed"), "{error}");
    assert_eq!(error.exit_code(), 4);
}

/// Another file under the same name is none of the run's business: it has the old one open.
#[test]
fn a_file_that_is_replaced_meanwhile_changes_nothing() {
    let _place = common::place(1);
    let folder = common::folder();
    let model = model(folder.path());
    let base = common::config(&model, Mode::Stream);
    let expected = reference(&model, &base);
    for io_engine in [IoEngine::Pread, IoEngine::Uring] {
        let config = RunConfig { io_engine, ..base.clone() };
        let (place, copy) = (model.clone(), folder.path().join("kept.gguf"));
        std::fs::copy(&model, &copy).unwrap();
        let mut replace = AfterToken2(Box::new(move || {
            let other = place.with_extension("other");
            std::fs::write(&other, vec![0; 1 << 20]).unwrap();
            std::fs::rename(&other, &place).unwrap();
        }));
        let got = within_limit("a file replaced", move || {
            let mut records = common::Records::default();
            let sinks: &mut [&mut dyn RecordSink] = &mut [&mut records, &mut replace];
            let end = generate(&config, &RunOptions::default(), sinks).unwrap();
            (tokens(&records), end.logits_sha256)
        });
        assert_eq!(got, expected, "{io_engine}");
        std::fs::rename(&copy, &model).unwrap();
    }
}

/// A sandbox that forbids io_uring, as containers' often do.
#[test]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn where_uring_is_forbidden_pread_stands_in() {
    use seccompiler::{SeccompAction, SeccompFilter, apply_filter};

    /// On all architectures.
    const IO_URING_SETUP: i64 = 425;

    let _place = common::place(1);
    let folder = common::folder();
    let model = model(folder.path());
    let base = RunConfig { n_predict: 4, ..common::config(&model, Mode::Stream) };
    let (expected, _) = reference(&model, &base);
    for (errno, hint) in [(1, "forbids it"), (38, "the kernel has none")] {
        let config = RunConfig { io_engine: IoEngine::Uring, ..base.clone() };
        // The filter holds for the thread and those that it starts.
        let records = within_limit("no io_uring", move || {
            let filter = SeccompFilter::new(
                [(IO_URING_SETUP, Vec::new())].into(),
                SeccompAction::Allow,
                SeccompAction::Errno(errno),
                std::env::consts::ARCH.try_into().unwrap(),
            );
            let program: seccompiler::BpfProgram = filter.unwrap().try_into().unwrap();
            if let Err(e) = apply_filter(&program) {
                eprintln!("skipped: no seccomp filter can be set here: {e}");
                return None;
            }
            Some(common::run(&config).unwrap().1)
        });
        let Some(records) = records else { return };
        assert_eq!(tokens(&records), expected);
        let IoEngineUsed::UringUnavailable { reason } = &records.load().io_engine else {
            panic!("{:?}", records.load())
        };
        assert!(reason.contains("io_uring_setup") && reason.contains(hint), "{reason}");
    }
}
