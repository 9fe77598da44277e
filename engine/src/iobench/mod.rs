//! `bmoe-engine iobench`: what the disk can do when nobody computes.
//!
//! It reads with the engine's own lanes, on the same submit path and into an arena like the engine's, so
//! that its rate can be held against a run's `device_read_bytes / io_active_ns`.

mod source;
mod table;

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bmoe_trace::config::IoEngine;
use bmoe_trace::record::{DirectIo, IoEngineUsed};
use sha2::{Digest, Sha256};

pub use self::source::SourceOptions;
use self::source::{Pieces, Source};
pub use self::table::{Report, Row};
use crate::error::EngineError;
use crate::flash::arena::Arena;
use crate::flash::file::SliceFiles;
use crate::flash::lanes::{LaneOptions, MAX_LANES};
use crate::flash::queue::ReadError;
use crate::flash::read_loop::{Piece, ReadLoop, Stretch};

/// Pieces of each repeat that are compared with a buffered read.
const CHECKED_PIECES: usize = 4;

/// What to measure.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// What to read.
    pub source: SourceOptions,
    /// Numbers of lanes.
    pub lanes: Vec<u32>,
    /// Engines.
    pub engines: Vec<IoEngine>,
    /// Bypass the page cache.
    pub odirect: bool,
    /// Time for each combination of size, lanes and engine, shared out over the repeats.
    pub time: Duration,
    /// Repeats, in turns with those of the other combinations.
    pub repeats: u32,
}

/// One combination and what was measured of it so far.
struct Cell {
    size: usize,
    lanes: u32,
    engine: IoEngine,
    stretches: Vec<Stretch>,
}

/// Measures; `progress` takes one line for each step, `stop` is set to a signal's number to end.
///
/// # Errors
/// A setting is out of range, the source can't be used, a read failed, or it brought other bytes than a
/// buffered one.
pub fn run(
    options: &BenchOptions,
    stop: &AtomicUsize,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, EngineError> {
    check(options)?;
    let mut source = Source::open(&options.source, stop, progress)?;
    let (_, direct_io) = SliceFiles::open(&source.files, options.odirect, &source.probes)?;
    let mut unavailable = None;
    let mut cells = Vec::new();
    for size in 0..source.sizes.len() {
        for &lanes in &options.lanes {
            for &engine in &options.engines {
                cells.push(Cell { size, lanes, engine, stretches: Vec::new() });
            }
        }
    }
    let mut arena = Some(arena(&cells, &source)?);
    let total = cells.len() * options.repeats as usize;
    let mut done = 0;
    for _ in 0..options.repeats {
        for cell in &mut cells {
            done += 1;
            if cell.engine == IoEngine::Uring && unavailable.is_some() {
                continue;
            }
            if let Some(e) = EngineError::interrupted(stop.load(Ordering::Relaxed)) {
                return Err(e);
            }
            let pieces = &mut source.sizes[cell.size];
            let files = SliceFiles::open(&source.files, direct_io == DirectIo::Used, &[])?.0;
            let lane_options = LaneOptions {
                lanes: cell.lanes,
                helpers: 0,
                engine: cell.engine,
                slices: 0,
                record: true,
            };
            let at_hand = arena.take().expect("each repeat gives the arena back");
            let mut read_loop = ReadLoop::new(files, lane_options, pieces.bytes, at_hand)
                .map_err(|source| EngineError::Memory { mib: 0, source })?;
            if let IoEngineUsed::UringUnavailable { reason } = read_loop.engine() {
                progress(&format!("io_uring is not available: {reason}"));
                unavailable = Some(reason.clone());
                arena = Some(read_loop.into_arena());
                continue;
            }
            let buffered = direct_io != DirectIo::Used;
            let time = options.time / options.repeats;
            let stretch = repeat(&mut read_loop, pieces, buffered, time, stop)?;
            compare(&read_loop, &source.files)?;
            progress(&format!(
                "[{done}/{total}] {:.0} KiB, {} lanes, {}: {:.0} MiB/s",
                table::kib(pieces.bytes),
                cell.lanes,
                cell.engine,
                table::mib_s(&stretch)
            ));
            cell.stretches.push(stretch);
            arena = Some(read_loop.into_arena());
        }
    }
    if let Some(e) = EngineError::interrupted(stop.load(Ordering::Relaxed)) {
        return Err(e);
    }
    let rows = cells
        .iter()
        .filter(|cell| !cell.stretches.is_empty())
        .map(|cell| {
            Row::new(source.sizes[cell.size].bytes, cell.lanes, cell.engine, &cell.stretches)
        })
        .collect();
    Ok(Report::new(&options.source, direct_io, unavailable, options, rows))
}

fn check(options: &BenchOptions) -> Result<(), EngineError> {
    if let Some(lanes) = options.lanes.iter().find(|l| !(1..=MAX_LANES).contains(*l)) {
        let message = format!("--lanes {lanes} is out of range: 1 to {MAX_LANES}");
        return Err(EngineError::Config(message));
    }
    if options.repeats == 0 || options.time.is_zero() {
        return Err(EngineError::Config("--repeats and --seconds must be more than 0".into()));
    }
    Ok(())
}

/// Memory for the largest cell, with its pages there: the engine's frames are in use long before most of
/// its reads.
fn arena(cells: &[Cell], source: &Source) -> Result<Arena, EngineError> {
    let bytes = cells
        .iter()
        .map(|cell| ReadLoop::arena_bytes(cell.lanes, source.sizes[cell.size].bytes))
        .max()
        .unwrap_or(0);
    let mut arena =
        Arena::new(bytes).map_err(|source| EngineError::Memory { mib: bytes >> 20, source })?;
    arena.poison(0, arena.bytes());
    Ok(arena)
}

/// Reads for a while. Through the page cache no piece is read twice, since the second time would measure
/// memory.
fn repeat(
    read_loop: &mut ReadLoop,
    pieces: &mut Pieces,
    buffered: bool,
    time: Duration,
    stop: &AtomicUsize,
) -> Result<Stretch, EngineError> {
    if buffered {
        read_loop.drop_cached();
    }
    let start = Instant::now();
    let mut first = true;
    let stretch = read_loop.run(|| {
        let over = start.elapsed() >= time
            || stop.load(Ordering::Relaxed) != 0
            || (buffered && pieces.at_start());
        // At least one piece, however short the time.
        (std::mem::take(&mut first) || !over).then(|| pieces.next())
    })?;
    Ok(stretch)
}

/// Compares some of the pieces that were read with what a buffered read brings.
fn compare(read_loop: &ReadLoop, files: &[std::path::PathBuf]) -> Result<(), EngineError> {
    for (piece, bytes) in read_loop.landed().take(CHECKED_PIECES) {
        let Piece { file, offset, .. } = piece;
        let failed = |message: String| ReadError {
            path: files[file].clone(),
            offset,
            bytes: piece.bytes,
            message,
        };
        let mut expected = vec![0; bytes.len()];
        std::fs::File::open(&files[file])
            .and_then(|f| f.read_exact_at(&mut expected, offset))
            .map_err(|e| failed(format!("for comparison: {e}")))?;
        if Sha256::digest(bytes) != Sha256::digest(&expected) {
            return Err(failed("it brought other bytes than a buffered read".into()).into());
        }
    }
    read_loop.drop_cached();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn other_bytes_than_a_buffered_read_brings_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path: PathBuf = dir.path().join("f");
        std::fs::write(&path, vec![1; 100_000]).unwrap();
        let files = vec![path.clone()];
        let (slice_files, _) = SliceFiles::open(&files, false, &[]).unwrap();
        let engine = IoEngine::Pread;
        let options = LaneOptions { lanes: 1, helpers: 0, engine, slices: 0, record: true };
        let arena = Arena::new(ReadLoop::arena_bytes(1, 5000)).unwrap();
        let mut read_loop = ReadLoop::new(slice_files, options, 5000, arena).unwrap();
        let mut piece = Some(Piece { file: 0, offset: 70_000, bytes: 5000 });
        read_loop.run(|| piece.take()).unwrap();
        compare(&read_loop, &files).unwrap();
        std::fs::write(&path, vec![2; 100_000]).unwrap();
        let error = compare(&read_loop, &files).unwrap_err();
        assert_eq!(error.exit_code(), 4);
        assert!(error.to_string().contains("offset 70000"), "{error}");
    }
}
