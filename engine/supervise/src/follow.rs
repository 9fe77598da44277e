//! Prints what a supervised run appends, until it is over.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bmoe_trace::supervised::{Followed, LINES_FILE, Offsets, SAMPLES_FILE, Status};

use crate::{SuperviseError, process, status};

/// How often the files are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How often there is a sign of life when nothing is new.
const SIGN_OF_LIFE: Duration = Duration::from_millis(300);
/// Far more than any line of the protocol; one that is longer isn't of it.
const LINE_BYTES: usize = 1 << 20;

/// Prints from `from` on: lines of the engine as they are, samples, and where it stands; ends with the
/// status once that is final.
///
/// # Errors
/// The files can't be read, or nobody takes what is printed.
pub fn follow(folder: &Path, from: Offsets, out: &mut dyn Write) -> Result<(), SuperviseError> {
    let printed = |e| SuperviseError::io("print", Path::new("standard output"))(e);
    let mut lines = Tail::new(folder.join(LINES_FILE), from.lines);
    let mut samples = Tail::new(folder.join(SAMPLES_FILE), from.samples);
    let mut last_sign = Instant::now();
    loop {
        // Before the files: what is final now has written all that it ever will.
        let state = state(folder)?;
        let over = state.is_final();
        let mut new = false;
        lines.read(over, &mut |line| {
            new = true;
            if line.starts_with(b"BMOE_") { put(out, b"", line) } else { Ok(()) }
        })?;
        samples.read(over, &mut |line| {
            new = true;
            put(out, b"BMOE_SAMPLE ", line)
        })?;
        if new || over || last_sign.elapsed() >= SIGN_OF_LIFE {
            let at = Offsets { lines: lines.offset, samples: samples.offset };
            writeln!(out, "{}", Followed::At(at)).map_err(printed)?;
            last_sign = Instant::now();
        }
        if over {
            writeln!(out, "{}", Followed::Status(state)).map_err(printed)?;
        }
        out.flush().map_err(printed)?;
        if over {
            return Ok(());
        }
        std::thread::sleep(TICK);
    }
}

/// How the run stands, the end of its supervisor included.
///
/// # Errors
/// The status can't be read.
pub fn state(folder: &Path) -> Result<Status, SuperviseError> {
    let Some(Status::Running(supervisor)) = status::read(folder)? else {
        return Ok(status::read(folder)?.unwrap_or(Status::Absent));
    };
    if process::is_alive(&supervisor) {
        return Ok(Status::Running(supervisor));
    }
    // It may have written its last word between the two looks.
    match status::read(folder)? {
        Some(Status::Running(supervisor)) => Ok(Status::Lost { supervisor }),
        other => Ok(other.unwrap_or(Status::Absent)),
    }
}

fn put(out: &mut dyn Write, tag: &[u8], line: &[u8]) -> io::Result<()> {
    out.write_all(tag)?;
    out.write_all(line)?;
    out.write_all(b"\n")
}

/// A file that grows.
struct Tail {
    path: PathBuf,
    file: Option<File>,
    /// Bytes that were handed over, or passed over.
    offset: u64,
    /// What comes behind them and is no whole line yet.
    rest: Vec<u8>,
    /// The line that is going on is too long to be of the protocol.
    passing_over: bool,
}

impl Tail {
    fn new(path: PathBuf, offset: u64) -> Self {
        Self { path, file: None, offset, rest: Vec::new(), passing_over: false }
    }

    /// Hands over the whole lines that are new. `last` = nothing will come any more.
    fn read(
        &mut self,
        last: bool,
        on_line: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), SuperviseError> {
        if self.file.is_none() {
            let mut file = match File::open(&self.path) {
                Ok(file) => file,
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(e) => return Err(SuperviseError::io("open", &self.path)(e)),
            };
            file.seek(SeekFrom::Start(self.offset))
                .map_err(SuperviseError::io("read", &self.path))?;
            self.file = Some(file);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut piece = vec![0; 64 << 10];
        loop {
            let n = file.read(&mut piece).map_err(SuperviseError::io("read", &self.path))?;
            if n == 0 {
                break;
            }
            self.rest.extend_from_slice(&piece[..n]);
            let mut begin = 0;
            while let Some(length) = self.rest[begin..].iter().position(|b| *b == b'\n') {
                let line = &self.rest[begin..begin + length];
                if !std::mem::take(&mut self.passing_over) {
                    on_line(line).map_err(SuperviseError::io("print", &self.path))?;
                }
                begin += length + 1;
            }
            self.rest.drain(..begin);
            self.offset += begin as u64;
            if self.rest.len() > LINE_BYTES {
                self.passing_over = true;
                self.offset += self.rest.len() as u64;
                self.rest.clear();
            }
        }
        if last && !self.rest.is_empty() {
            // The end of a line that an engine was killed in: nobody can read it.
            self.offset += self.rest.len() as u64;
            self.rest.clear();
        }
        Ok(())
    }
}
