//! The files of a result folder: `environment.json`, and `runs.jsonl` with one line for everything measured.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::BenchError;

/// Name of the file that says what was measured, on what.
pub const ENVIRONMENT: &str = "environment.json";
/// Name of the file with the measurements.
pub const RUNS: &str = "runs.jsonl";

/// What was measured, on what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of these files.
    pub version: u32,
    /// When it began, RFC 3339.
    pub started: String,
    /// What `bmoe-engine --version` says.
    pub engine: String,
    /// Commit of the sources, with `-dirty` when they were changed.
    pub commit: String,
    /// SHA-256 of the engine's binary: a later part of the same results is refused with another one.
    pub engine_sha256: String,
    /// The machine.
    pub machine: MachineFacts,
    /// The model.
    pub model: ModelFacts,
    /// The settings.
    pub settings: Settings,
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// Name of the processor.
    pub cpu: String,
    /// Cores.
    pub cores: usize,
    /// Memory.
    pub mem_total_mib: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Block device below the model.
    pub disk: String,
    /// Its readahead as it was found.
    pub read_ahead_kib: u64,
    /// Mode of transparent huge pages.
    pub huge_pages: String,
}

/// The model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelFacts {
    /// Its shape's name.
    pub shape: String,
    /// Layers.
    pub layers: u32,
    /// Its file's name.
    pub file: String,
    /// Its size.
    pub file_bytes: u64,
    /// Bytes outside the experts.
    pub dense_bytes: u64,
    /// Bytes of all experts.
    pub expert_bytes: u64,
    /// Distinct slices: bytes of one, and how many of them one token reads at most.
    pub slices: Vec<SliceFacts>,
}

/// Slices of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceFacts {
    /// Bytes of one slice.
    pub bytes: u64,
    /// How many of them one token uses.
    pub per_token: u64,
}

/// The settings of a benchmark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Tokens to generate.
    pub tokens: u32,
    /// Repeats of what is timed.
    pub repeats: u32,
    /// The cache of those contenders that have one of middle size.
    pub cache_mib: u64,
    /// The memory limit of those contenders that have one.
    pub limit_mib: u64,
    /// Compute threads.
    pub threads: u32,
    /// Read lanes.
    pub lanes: u32,
    /// Shape.
    pub shape: String,
    /// Layers.
    pub layers: u32,
}

/// One line of [`RUNS`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Which contender (or check) it is; see `contender.rs`.
    pub name: String,
    /// Which repeat, from 0.
    pub round: u32,
    /// When it began, RFC 3339.
    pub started: String,
    /// What else the machine did.
    pub noise: Noise,
    /// What was measured; `None` with `failure`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub run: Option<Run>,
    /// What the disk can do.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ceiling: Option<Vec<Ceiling>>,
    /// Why there are no figures.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<String>,
}

/// What else the machine did during a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// One-minute load average before.
    pub load_before: f64,
    /// And after.
    pub load_after: f64,
    /// Time of user code of other processes, in cores (1 = one core all the time).
    pub others_cores: f64,
    /// Time that the hypervisor gave to others, as a share of all cores' time.
    pub steal_share: f64,
}

impl Noise {
    /// Whether somebody else worked: more than a twentieth of a core, or stolen time above 1 %.
    #[must_use]
    pub fn others_at_work(&self) -> bool {
        self.others_cores > 0.05 || self.steal_share > 0.01
    }
}

/// What one run of the engine measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The text that it generated.
    pub text: String,
    /// Hash of all logits, when they were hashed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub logits_sha256: Option<String>,
    /// From the start of the process to a context that can compute.
    pub load_ns: u64,
    /// Part of it in reads of dense weights.
    pub dense_read_ns: u64,
    /// Bytes of them.
    pub dense_read_bytes: u64,
    /// Expert bytes read while loading.
    pub load_expert_bytes: u64,
    /// Cache.
    pub cache_budget_bytes: u64,
    /// Memory for the experts in use.
    pub event_room_bytes: u64,
    /// Whether reads bypassed the page cache.
    pub direct_io: String,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Time of the prompt.
    pub prefill_ns: u64,
    /// Part of it in which the graph waited for reads.
    pub prefill_wait_ns: u64,
    /// Expert bytes that it read.
    pub prefill_read_bytes: u64,
    /// From the start of the process to the first token.
    pub first_token_ns: u64,
    /// Highest resident memory.
    pub peak_rss_bytes: u64,
    /// Highest use of the control group, page cache included; 0 without one.
    pub peak_group_bytes: u64,
    /// Every decode step; empty where the engine recorded nothing.
    pub steps: Steps,
    /// Parts of every decode step; empty unless they were recorded.
    #[serde(skip_serializing_if = "Parts::is_empty", default)]
    pub parts: Parts,
    /// Times between the arrivals of the tokens' texts, for runs without records.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub arrivals_ns: Vec<u64>,
}

/// Columns with an entry for each decode step; see `bmoe_trace::record::Cost`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of the trace's fields")]
pub struct Steps {
    pub wall_ns: Vec<u64>,
    pub compute_ns: Vec<u64>,
    pub io_wait_ns: Vec<u64>,
    pub mgmt_ns: Vec<u64>,
    pub io_active_ns: Vec<u64>,
    pub expert_read_bytes: Vec<u64>,
    pub device_read_bytes: Vec<u64>,
    pub hits: Vec<u64>,
    pub misses: Vec<u64>,
    pub cpu_ns: Vec<u64>,
    pub major_faults: Vec<u64>,
    pub cache_resident_bytes: Vec<u64>,
}

/// Columns with an entry for each decode step, sums over its layers, from the compute and I/O traces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// Attention and all other computing of llama.cpp.
    pub dense_ns: Vec<u64>,
    /// Looking up, choosing, asking for reads (serial: waiting for them too).
    pub fetch_ns: Vec<u64>,
    /// Products with experts.
    pub experts_ns: Vec<u64>,
    /// Waiting inside of them.
    pub stall_ns: Vec<u64>,
    /// The time in which a layer's reads were outstanding, summed over the layers.
    pub io_ns: Vec<u64>,
    /// Sum over the layers of dense + max(experts, I/O).
    pub bound_ns: Vec<u64>,
    /// Sum over the layers of dense + experts + I/O.
    pub serial_ns: Vec<u64>,
}

impl Parts {
    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dense_ns.is_empty()
    }
}

/// What the disk reaches with reads of one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// Bytes of one read.
    pub bytes: u64,
    /// Reads in flight.
    pub lanes: u32,
    /// Median rate.
    pub mib_s: f64,
}

/// A result folder.
#[derive(Debug, Clone)]
pub struct Folder(PathBuf);

impl Folder {
    /// The folder at `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// A file in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// What was measured, on what; `None` when nothing has been yet.
    ///
    /// # Errors
    /// The file is there but can't be used.
    pub fn environment(&self) -> Result<Option<Environment>, BenchError> {
        let path = self.file(ENVIRONMENT);
        match std::fs::read(&path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map(Some).map_err(|e| BenchError::data(&path, e))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(BenchError::io("read", &path)(e)),
        }
    }

    /// Everything that was measured so far. A last line that was cut off is left out.
    ///
    /// # Errors
    /// The file can't be read or has a line that is none of ours.
    pub fn entries(&self) -> Result<Vec<Entry>, BenchError> {
        let path = self.file(RUNS);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(BenchError::io("read", &path)(e)),
        };
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let entry = |(i, line): (usize, &str)| {
            serde_json::from_str(line)
                .map_err(|e| BenchError::data(&path, format!("line {}: {e}", i + 1)))
        };
        whole.lines().enumerate().map(entry).collect()
    }

    /// A file to append measurements to; what is left of a line that was cut off goes.
    ///
    /// # Errors
    /// It can't be opened.
    pub fn append(&self) -> Result<Log, BenchError> {
        let path = self.file(RUNS);
        let error = |e| BenchError::io("write", &path)(e);
        let bytes = std::fs::read(&path).unwrap_or_default();
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(error)?;
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(error)?;
        }
        Ok(Log { path, file })
    }

    /// Writes a file as a whole.
    ///
    /// # Errors
    /// It can't be written.
    pub fn write(&self, name: &str, text: &str) -> Result<(), BenchError> {
        let path = self.file(name);
        let write = || {
            std::fs::create_dir_all(&self.0)?;
            let mut file = tempfile::Builder::new()
                .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
                .tempfile_in(&self.0)?;
            file.write_all(text.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            Ok(())
        };
        write().map_err(BenchError::io("write", &path))
    }
}

/// The growing file of measurements.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// Adds one line, on the disk when this returns.
    ///
    /// # Errors
    /// It can't be written.
    pub fn push(&mut self, entry: &Entry) -> Result<(), BenchError> {
        let mut line = serde_json::to_vec(entry).map_err(|e| BenchError::data(&self.path, e))?;
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        written.map_err(BenchError::io("write", &self.path))
    }
}
