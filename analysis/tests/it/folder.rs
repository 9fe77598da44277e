//! Result folders of synthetic runs.

use std::fs;
use std::path::{Path, PathBuf};

use bmoe_analysis::result_set::{CellRecord, Environment, ModelFile, Verdict};
use bmoe_trace::{CacheBudget, Mode, RunConfig};

use crate::synthetic::{MIB, SHAPE, Shape, records, trace_bytes};

/// A result folder being filled.
pub(crate) struct Folder {
    pub(crate) dir: tempfile::TempDir,
    order: u32,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = Self { dir: tempfile::tempdir().unwrap(), order: 0 };
        fs::write(folder.path().join("matrix.toml"), "name = \"tiny\"\n").unwrap();
        fs::write(folder.path().join("cells.jsonl"), "").unwrap();
        let environment = serde_json::to_string_pretty(&environment()).unwrap();
        fs::write(folder.path().join("environment.json"), environment).unwrap();
        folder
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn trace_path(&self, run_id: &str) -> PathBuf {
        self.path().join("runs").join(run_id).join("trace.bin")
    }

    /// Appends an attempt to the journal, and its trace when it has one.
    pub(crate) fn add(&mut self, mut cell: CellRecord, trace: Option<&[u8]>) -> CellRecord {
        cell.order = self.order;
        self.order += 1;
        if let (Some(trace), Some(run_id)) = (trace, &cell.run_id) {
            let path = self.trace_path(run_id);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, trace).unwrap();
        }
        let journal = self.path().join("cells.jsonl");
        let mut text = fs::read_to_string(&journal).unwrap();
        text.push_str(&serde_json::to_string(&cell).unwrap());
        text.push('\n');
        fs::write(journal, text).unwrap();
        cell
    }

    /// Adds a valid repetition with its trace.
    pub(crate) fn add_run(&mut self, cell: &CellRecord, tokens: u32) -> CellRecord {
        self.add_run_of(SHAPE, cell, tokens)
    }

    /// The same on another shape.
    pub(crate) fn add_run_of(
        &mut self,
        shape: Shape,
        cell: &CellRecord,
        tokens: u32,
    ) -> CellRecord {
        let run_id = format!("{}-r{}", cell.id, cell.repetition);
        let noise = u64::from(cell.repetition);
        let bytes = trace_bytes(&records(&run_id, shape, &cell.config, tokens, noise));
        self.add(CellRecord { run_id: Some(run_id), ..cell.clone() }, Some(&bytes))
    }
}

/// A valid cell without a run.
pub(crate) fn cell(
    id: &str,
    name: &str,
    mode: Mode,
    cache_mib: u64,
    io_threads: u32,
) -> CellRecord {
    CellRecord {
        id: id.into(),
        name: name.into(),
        model: "qwen-tiny".into(),
        repetition: 0,
        attempt: 1,
        order: 0,
        config: RunConfig {
            model: "models/qwen-tiny.gguf".into(),
            mode,
            prompt: "once upon a time".into(),
            n_predict: 48,
            threads: 2,
            cache_mib: CacheBudget::Mib(cache_mib),
            io_threads,
            overlap: false,
            ..RunConfig::default()
        },
        baseline: mode == Mode::Mmap,
        lossless: true,
        verdict: Verdict::Valid,
        reason: None,
        exit_code: Some(0),
        run_id: None,
        started_unix_ms: 1_796_050_800_000,
        wall_s: 3.5,
        load_average: None,
        conditions: None,
    }
}

/// What the tests' machine is said to be.
pub(crate) fn environment() -> Environment {
    Environment {
        cpu: Some("Example CPU @ 2.00GHz".into()),
        cores: Some(2),
        mem_total_bytes: Some(24 << 30),
        mem_available_bytes: Some(20 << 30),
        cgroup_limit_bytes: None,
        kernel: Some("6.1.0".into()),
        os: Some("Debian GNU/Linux 12".into()),
        virtualisation: None,
        disk: Some("vda".into()),
        read_ahead_kib: Some(128),
        file_system: Some("ext4".into()),
        huge_pages: Some("madvise".into()),
        bmoe_commit: Some("0123abc".into()),
        engine_version: Some("bmoe-engine 0.1.0".into()),
        started: Some("2026-12-01T15:00:00Z".into()),
        models: vec![ModelFile {
            name: "qwen-tiny".into(),
            file: "qwen-tiny.gguf".into(),
            file_bytes: 550 * MIB,
            sha256: "ab".repeat(32),
            synth_shape: Some("tiny".into()),
        }],
    }
}

/// A folder with one of everything that a report shows.
pub(crate) fn full_folder() -> Folder {
    let mut folder = Folder::new();
    let baseline = cell("m0", "mmap", Mode::Mmap, 0, 1);
    let off = cell("s0", "stream, cache off, 4 lanes", Mode::Stream, 0, 4);
    let small = cell("s1", "stream, cache 120 MiB, 1 lane", Mode::Stream, 120, 1);
    let large = cell("s2", "stream, cache 320 MiB, 4 lanes", Mode::Stream, 320, 4);
    for repetition in 0..2 {
        for cell in [&baseline, &off, &small, &large] {
            folder.add_run(&CellRecord { repetition, ..cell.clone() }, 48);
        }
    }
    let refused = CellRecord {
        verdict: Verdict::Failed,
        reason: Some("cache_mib = 3 is below one token's top-k | of a layer (4.0 MiB)".into()),
        exit_code: Some(3),
        ..cell("s3", "stream, cache 3 MiB, 4 lanes", Mode::Stream, 3, 4)
    };
    folder.add(refused, None);
    let wrong = CellRecord {
        verdict: Verdict::WrongText,
        reason: Some("its text differs from the baseline's at byte 4".into()),
        ..cell("s4", "stream, cache 200 MiB, 4 lanes", Mode::Stream, 200, 4)
    };
    folder.add_run(&wrong, 48);
    folder
}

/// Copies a picture to the folder named by `BMOE_KEEP_PICTURES`, for looking at it while working on it.
pub(crate) fn keep_picture(name: &str, bytes: &[u8]) {
    if let Some(folder) = std::env::var_os("BMOE_KEEP_PICTURES") {
        fs::create_dir_all(&folder).unwrap();
        fs::write(Path::new(&folder).join(name), bytes).unwrap();
    }
}
