//! Writes a planned model: streamed, from several threads, atomically.

mod claim;
mod direct;
mod pipeline;

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use self::claim::Claim;
use self::direct::DirectWriter;
use crate::fill::Model;
use crate::plan::{self, FilePlan, Plan};
use crate::{Result, Shape, SynthError};

/// What to write where.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// The file to write. For a split model, the files `stem-00001-of-0000n.gguf` beside it.
    pub path: PathBuf,
    /// Seed of all random numbers: the same seed and shape give the same bytes.
    pub seed: u64,
    /// Write only the first so many layers.
    pub layers: Option<u32>,
    /// Spread the model over so many files.
    pub split: Option<u32>,
    /// Threads that make the weights; `None` uses what the process may use. Doesn't change the bytes.
    pub threads: Option<usize>,
    /// Ends the write early once it is true, as the progress callback may make it.
    pub stop: Option<Arc<AtomicBool>>,
}

impl WriteOptions {
    /// Options for one whole file with seed 0.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), seed: 0, layers: None, split: None, threads: None, stop: None }
    }

    fn stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

/// How far a write is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes written so far, over all files.
    pub written_bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
}

/// What was written.
#[derive(Debug, Clone)]
pub struct WriteReport {
    /// The files; load the first one.
    pub files: Vec<PathBuf>,
    /// What tells each of them from one that somebody else puts in its place later.
    pub metadata: Vec<Metadata>,
    /// Size of all files together.
    pub file_bytes: u64,
    /// Bytes of one routed expert, by layer.
    pub expert_bytes: Vec<u64>,
}

/// Writes a model. Memory use is a few MiB per thread, whatever the model's size. Files appear under their
/// names only when all of them are complete and on disk, the first file last.
///
/// # Errors
/// When the shape or options don't fit, somebody else is writing the same files, the file system has too little
/// room, a write fails or is stopped; partial files are removed then.
pub fn write_model(
    shape: &Shape,
    options: &WriteOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<WriteReport> {
    let plan = plan::plan(shape, options.layers, options.split)?;
    let files = plan::file_paths(&options.path, options.split)?;
    let folder = match options.path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    let opened = File::open(folder).map_err(|e| SynthError::io("look at folder", folder, e))?;

    let shape = match options.layers {
        Some(n) => &shape.clone().with_layers(n)?,
        None => shape,
    };
    let model = Model::new(shape, options.seed);
    let parts: Vec<PathBuf> = files.iter().map(|f| part_path(f)).collect();
    // Whoever has the first part has them all: other numbers of files have other names.
    let claim = Claim::new(&parts[0])?;
    let cleanup = RemoveOnDrop(&parts);
    for left_over in &parts[1..] {
        let _ = fs::remove_file(left_over);
    }
    check_space(&opened, folder, plan.file_bytes)?;
    let mut done = Progress { written_bytes: 0, total_bytes: plan.file_bytes };
    for (file, part) in plan.files.iter().zip(&parts) {
        write_file(&model, &plan, file, part, options, &mut done, progress).map_err(|e| {
            match options.stopped() {
                true => SynthError::Stopped { path: options.path.clone() },
                false => SynthError::io("write", part, e),
            }
        })?;
    }
    let metadata =
        parts.iter().map(|p| fs::metadata(p).map_err(|e| SynthError::io("look at", p, e)));
    let metadata = metadata.collect::<Result<Vec<_>>>()?;
    // With its name the first part loses its lock's effect, so it comes last.
    for (part, file) in parts.iter().zip(&files).rev() {
        fs::rename(part, file).map_err(|e| SynthError::io("rename to", file, e))?;
    }
    std::mem::forget(cleanup);
    drop(claim);
    opened.sync_all().map_err(|e| SynthError::io("sync", folder, e))?;
    let (file_bytes, expert_bytes) = (plan.file_bytes, plan.expert_bytes);
    Ok(WriteReport { files, metadata, file_bytes, expert_bytes })
}

fn part_path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

/// Removes partial files when a write ends early.
struct RemoveOnDrop<'a>(&'a [PathBuf]);

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        for path in self.0 {
            // Most often it was never created, and there is nothing better to do about the rest.
            let _ = fs::remove_file(path);
        }
    }
}

fn check_space(opened: &File, folder: &Path, needed_bytes: u64) -> Result<()> {
    let stat = rustix::fs::fstatvfs(opened)
        .map_err(|e| SynthError::io("look at folder", folder, e.into()))?;
    let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
    if needed_bytes > free_bytes {
        return Err(SynthError::Space { path: folder.to_owned(), needed_bytes, free_bytes });
    }
    Ok(())
}

fn write_file(
    model: &Model,
    plan: &Plan,
    file: &FilePlan,
    path: &Path,
    options: &WriteOptions,
    done: &mut Progress,
    progress: &mut dyn FnMut(Progress),
) -> io::Result<()> {
    let mut out = DirectWriter::create(path)?;
    let mut put = |bytes: &[u8]| {
        out.put(bytes)?;
        done.written_bytes += bytes.len() as u64;
        progress(*done);
        if options.stopped() { Err(io::ErrorKind::Other.into()) } else { Ok(()) }
    };
    put(&file.head)?;
    let threads = options
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
        .max(1);
    pipeline::run(model, options.seed, &plan.tensors[file.tensors.clone()], threads, &mut put)?;
    out.finish()
}
