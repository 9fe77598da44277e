//! The steps of a tune that run something: a probe, the disk, matrices.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use bmoe_analysis::cells::Figures;
use bmoe_analysis::journal::{Journal, read_environment};
use bmoe_analysis::measured::Measured;
use bmoe_analysis::result_set::Verdict;
use bmoe_analysis::routes::RouteTrace;

use crate::atomic;
use crate::cmd::run::{Measurement, measure, place_engine};
use crate::error::Error;
use crate::results;
use crate::runner::{Exit, Interrupt};
use crate::target::{self, Command, Target};
use crate::tune::candidates::DeviceFigures;
use crate::tune::disk::{Bench, Disk, LANES};
use crate::tune::log::{self, Entry};
use crate::tune::{Request, matrices};

const MIB: u64 = 1 << 20;
/// What the engine needs beside dense weights and cache: KV cache, compute buffers, the program.
const MARGIN_MIB: u64 = 300;
/// Seconds of each combination of the disk's measurement.
const DISK_S: f64 = 0.5;
/// What measuring the disk may take.
const DISK_LIMIT: Duration = Duration::from_secs(300);

/// A tune's folder.
pub(super) struct Place<'a> {
    pub(super) folder: &'a Path,
    pub(super) request: &'a Request,
}

impl<'a> Place<'a> {
    /// Makes the folder, or takes one that a tune has begun.
    pub(super) fn open(folder: &'a Path, request: &'a Request) -> Result<Self, Error> {
        let path = folder.join("tune.json");
        if !path.exists() {
            results::check_free(folder)?;
            fs::create_dir_all(folder).map_err(Error::io("make", folder))?;
            let json = serde_json::to_vec_pretty(request)
                .map_err(|e| Error::io("write", &path)(e.into()))?;
            atomic::write(&path, &json).map_err(Error::io("write", &path))?;
        }
        Ok(Self { folder, request })
    }

    pub(super) fn log(&self) -> Result<Vec<Entry>, Error> {
        log::read(self.folder).map_err(Error::io("read", &self.folder.join(log::FILE)))
    }

    pub(super) fn append(&self, entry: &Entry) -> Result<(), Error> {
        log::append(self.folder, entry).map_err(Error::io("write", &self.folder.join(log::FILE)))
    }

    /// Runs a matrix in a folder of its own; what that has already is not run again. Cells that are not valid are no
    /// failure of the tune.
    pub(super) fn measure(&self, name: &str, matrix: &str) -> Result<(), Error> {
        let measurement = Measurement {
            matrix,
            file: &self.folder.join(format!("{name}.toml")),
            out: &self.folder.join(name),
            target: &self.request.target,
            engine: self.request.engine.as_deref(),
            models: &self.request.models,
        };
        match measure(&measurement) {
            Err(Error::NotAllValid { .. }) => Ok(()),
            other => other,
        }
    }

    /// The first runs.
    pub(super) fn probe(&self) -> Result<(), Error> {
        if log::is_done(&self.log()?, "probe") {
            return Ok(());
        }
        let begun = Instant::now();
        let threads = self.threads()?;
        self.measure("probe", &matrices::probe(self.request, &threads))?;
        let records = Journal::read(&self.folder.join("probe"))?.records;
        if let Some(first) = records.first()
            && records.iter().all(|record| record.verdict != Verdict::Valid)
        {
            let reason = first.reason.as_deref().unwrap_or("it gave no reason");
            return Err(Error::Engine(format!(
                "no run of the probe is valid: {}: {reason}",
                first.verdict.words()
            )));
        }
        self.append(&Entry::Done {
            step: "probe".to_owned(),
            seconds: begun.elapsed().as_secs_f64(),
        })
    }

    fn target(&self) -> Result<Box<dyn Target>, Error> {
        let name = self.request.target.parse();
        let name = name.map_err(|e: target::UnknownTarget| Error::Refused(e.to_string()))?;
        target::open(&name, false)
    }

    /// Numbers of threads worth a look: all cores, all but one, half.
    fn threads(&self) -> Result<Vec<u32>, Error> {
        let target = self.target()?;
        let cores = if target.name() == "local" {
            std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1))
        } else {
            crate::facts::gather(target.as_ref(), None)?.cores
        };
        let mut threads = vec![cores, cores.saturating_sub(1), cores / 2];
        threads.retain(|n| *n > 0);
        threads.dedup();
        Ok(threads)
    }

    /// What the storage does: measured once, kept as `disk.json`.
    pub(super) fn disk(&self) -> Result<Disk, Error> {
        let path = self.folder.join("disk.json");
        if !path.exists() {
            let begun = Instant::now();
            self.measure_disk(&path)?;
            self.append(&Entry::Done {
                step: "disk".to_owned(),
                seconds: begun.elapsed().as_secs_f64(),
            })?;
        }
        let text = fs::read(&path).map_err(Error::io("read", &path))?;
        let bench: Bench = serde_json::from_slice(&text).map_err(|e| {
            Error::Refused(format!("{} is no result of iobench: {e}", path.display()))
        })?;
        if bench.o_direct != "used" {
            eprintln!("note: reads of this storage go through the page cache: {}", bench.o_direct);
        }
        Ok(Disk::of(&bench))
    }

    fn measure_disk(&self, to: &Path) -> Result<(), Error> {
        let target = self.target()?;
        let interrupt = Interrupt::watch().map_err(Error::io("watch signals for", self.folder))?;
        let engine = place_engine(target.as_ref(), self.request.engine.as_deref(), &interrupt)?;
        // Where the probe had it.
        let records = Journal::read(&self.folder.join("probe"))?.records;
        let Some(model) = records.first().map(|record| record.config.model.clone()) else {
            return Err(Error::Engine("the probe left no record".to_owned()));
        };
        let model = if target.name() == "local" {
            std::path::absolute(&model).map_err(Error::io("find", &model))?
        } else {
            model
        };
        let json = target.home().join("tune-disk.json");
        let lanes: Vec<String> = LANES.iter().map(u32::to_string).collect();
        let words: Vec<OsString> = vec![
            engine.into(),
            "iobench".into(),
            "--from-model".into(),
            model.into(),
            "--lanes".into(),
            lanes.join(",").into(),
            "--io-engine".into(),
            "pread".into(),
            "--seconds".into(),
            DISK_S.to_string().into(),
            "--repeats".into(),
            "3".into(),
            "--json".into(),
            json.clone().into(),
        ];
        eprintln!("measuring the storage with the model's expert slices ...");
        let finished = target.exec(&Command::new(words, DISK_LIMIT), &mut |_| {
            if interrupt.signal().is_some() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        if let Some(signal) = interrupt.signal() {
            return Err(Error::Interrupted { signal, what: String::new() });
        }
        if finished.exit != Some(Exit::Code(0)) {
            let said = finished.stderr.lines().last().unwrap_or_default();
            return Err(Error::Engine(format!("the storage could not be measured: {said}")));
        }
        if !target.fetch(&json, to)? {
            return Err(Error::Engine(format!(
                "iobench left no {} on {}",
                json.display(),
                target.name()
            )));
        }
        Ok(())
    }

    /// Computation by threads, rates of reads, memory for the cache.
    pub(super) fn device_figures(
        &self,
        probe: &Measured,
        disk: Disk,
        trace: &RouteTrace,
    ) -> Result<DeviceFigures, Error> {
        let mut compute_s = BTreeMap::new();
        let mut reasons = Vec::new();
        // Of the run without overlap that all threads computed, and of that with it.
        let (mut serial, mut overlapped) = (None, None);
        for cell in probe.cells() {
            let figures = Figures::pooled(&probe.valid_runs(&cell));
            match figures.and_then(|figures| figures.per_token) {
                Some(token) if cell.config.overlap => overlapped = Some(token.wall_s),
                Some(token) => {
                    // All but the reads.
                    let reads_s = token.io_wait_s.unwrap_or(0.0);
                    serial.get_or_insert((token.wall_s - reads_s, reads_s));
                    compute_s.insert(cell.config.threads, token.wall_s - reads_s);
                }
                None => reasons.push(format!("{}: {}", cell.name, cell.verdict(&[]))),
            }
        }
        let overlap = serial.zip(overlapped).map_or(0.0, |((compute_s, reads_s), wall_s)| {
            ((compute_s + reads_s - wall_s) / compute_s.min(reads_s)).clamp(0.0, 1.0)
        });
        if compute_s.is_empty() {
            return Err(Error::Engine(format!("no probe is valid: {}", reasons.join("; "))));
        }
        let dense_mib =
            probe.runs.values().map(|run| run.dense_bytes.div_ceil(MIB)).max().unwrap_or(0);
        let memory_mib = match self.request.memory_mib {
            Some(mib) => mib,
            None => self.available_mib()?,
        };
        let cache_memory_mib = memory_mib.saturating_sub(dense_mib + MARGIN_MIB);
        let token_mib =
            bmoe_analysis::simulate::Accesses::new(trace, bmoe_analysis::simulate::Rules::ENGINE)
                .token_bytes()
                .div_ceil(MIB);
        if cache_memory_mib <= token_mib {
            eprintln!(
                "note: {memory_mib} MiB leave {cache_memory_mib} MiB for a cache, less than one token's experts ({token_mib} MiB): \
                 only runs without one are tried"
            );
        }
        Ok(DeviceFigures { compute_s, overlap, disk, cache_memory_mib })
    }

    /// Memory that the target had available when the probe began, less an eighth for whatever else comes.
    fn available_mib(&self) -> Result<u64, Error> {
        let environment = read_environment(&self.folder.join("probe"))?;
        let available = environment.mem_available_bytes.ok_or_else(|| {
            Error::Refused(format!(
                "{} does not tell how much memory is available; give --memory-mib",
                self.request.target
            ))
        })?;
        let available =
            environment.cgroup_limit_bytes.map_or(available, |limit| limit.min(available));
        Ok((available - available / 8) / MIB)
    }

    /// Whether a memory map can be as fast as memory.
    pub(super) fn fits_into_memory(&self, probe: &Measured) -> bool {
        let file_mib = probe
            .runs
            .values()
            .map(|run| run.model_file_bytes.div_ceil(MIB))
            .max()
            .unwrap_or(u64::MAX);
        let memory_mib = self.request.memory_mib.or_else(|| self.available_mib().ok());
        memory_mib.is_some_and(|memory_mib| file_mib.saturating_add(MARGIN_MIB) < memory_mib)
    }
}
