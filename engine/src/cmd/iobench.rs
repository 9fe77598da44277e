//! `bmoe-engine iobench`

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bmoe_engine::EngineError;
use bmoe_engine::iobench::{BenchOptions, SourceOptions, run};
use bmoe_engine::run::write_whole;
use bmoe_trace::config::IoEngine;
use clap::Args;

use crate::options::one_of;
use crate::outputs::{refuse_model, same_file};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bmoe-engine iobench --from-model model.gguf\n  \
    bmoe-engine iobench --dir /data --sizes 512,1536 --lanes 4 --json ceiling.json\n\n\
    The rate of the slice size and the lanes of a run is what its --io-ceiling takes.")]
pub(crate) struct IoBench {
    /// Read the expert slices of a model, of the sizes that they have
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "sizes", "dir", "scratch_mb"])]
    from_model: Option<PathBuf>,
    /// Read pieces of a file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dir", "scratch_mb"])]
    file: Option<PathBuf>,
    /// Without a model and a file: where to make one, which is removed at the end
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
    /// Its length in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    scratch_mb: u64,
    /// Sizes of the pieces in KiB
    #[arg(
        long,
        value_name = "KIB,...",
        value_delimiter = ',',
        default_value = "256,512,1024,2048"
    )]
    sizes: Vec<u64>,
    /// Numbers of read lanes, 1 to 8
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2,4,8")]
    lanes: Vec<u32>,
    /// How reads are handed to the kernel
    #[arg(long, value_name = "ENGINE,...", value_delimiter = ',', default_value = "pread,uring",
          value_parser = one_of::<IoEngine>(IoEngine::NAMES))]
    io_engine: Vec<IoEngine>,
    /// Read through the page cache, which forgets the file before each repeat
    #[arg(long)]
    no_odirect: bool,
    /// Time for each combination of size, lanes and engine
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// Repeats in that time, in turns with those of the other combinations
    #[arg(long, value_name = "N", default_value_t = 5)]
    repeats: u32,
    /// Write everything that was measured as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl IoBench {
    fn options(&self) -> Result<BenchOptions, EngineError> {
        let time = Duration::try_from_secs_f64(self.seconds).map_err(|e| {
            EngineError::Config(format!("--seconds {} is no time: {e}", self.seconds))
        })?;
        let bytes = |count: u64, unit: u64, option: &str| {
            count.checked_mul(unit).filter(|b| *b > 0).ok_or_else(|| {
                EngineError::Config(format!("{option} {count} is out of range; give at least 1"))
            })
        };
        let sizes = || self.sizes.iter().map(|kib| bytes(*kib, 1 << 10, "--sizes"));
        let source = if let Some(model) = &self.from_model {
            SourceOptions::Model(model.clone())
        } else if let Some(path) = &self.file {
            SourceOptions::File {
                path: path.clone(),
                sizes_bytes: sizes().collect::<Result<_, _>>()?,
            }
        } else {
            SourceOptions::Scratch {
                folder: self.dir.clone(),
                file_bytes: bytes(self.scratch_mb, 1 << 20, "--scratch-mb")?,
                sizes_bytes: sizes().collect::<Result<_, _>>()?,
            }
        };
        Ok(BenchOptions {
            source,
            lanes: self.lanes.clone(),
            engines: self.io_engine.clone(),
            odirect: !self.no_odirect,
            time,
            repeats: self.repeats,
        })
    }

    /// Measures and prints the table.
    ///
    /// # Errors
    /// See [`run`]; or the results can't be written.
    pub(crate) fn run(&self, stop: &AtomicUsize) -> Result<(), EngineError> {
        if let Some(path) = &self.json {
            refuse_model("--json", path)?;
            if self.file.as_ref().is_some_and(|file| same_file(file, path)) {
                return Err(EngineError::Config(format!(
                    "--json {} is the file that is read; give another",
                    path.display()
                )));
            }
        }
        let report = run(&self.options()?, stop, &mut |line| {
            // Progress that nobody can read is no reason to stop.
            let _ = writeln!(std::io::stderr(), "{line}");
        })?;
        if let Some(path) = &self.json {
            let json =
                serde_json::to_string_pretty(&report).expect("a report is plain data") + "\n";
            write_whole(path, json.as_bytes()).map_err(|e| EngineError::Output {
                what: path.display().to_string(),
                message: e.to_string(),
            })?;
        }
        std::io::stdout().write_all(report.table().as_bytes()).map_err(|e| EngineError::Output {
            what: "standard output".into(),
            message: e.to_string(),
        })
    }
}
