//! The binary trace file.
//!
//! ```text
//! file  = magic "BMOETRC\n"  version:u32le  frame*
//! frame = length:u32le  crc32(payload):u32le  payload      (payload = bincode of one Record)
//! ```
//!
//! Frames are only ever appended, so a file cut off at any byte (`kill -9`, full disk, pulled cable)
//! loses its last frame and nothing else; the reader says so instead of guessing. A damaged frame that
//! is not the last one is an error: nothing behind it can be trusted.

mod earlier;

use std::io::{self, Read, Write};

use crate::record::Record;

/// First bytes of every trace file.
pub const MAGIC: [u8; 8] = *b"BMOETRC\n";

/// Version of the layout of [`Record`]. A change to any record raises it. The version before is read, too.
pub const VERSION: u32 = 3;

/// Longest frame that a reader accepts. The largest real one (a route record of 4096 tokens at top-32)
/// takes under 2 MiB; anything longer is damage.
const MAX_FRAME_BYTES: u32 = 64 << 20;

fn bincode_config() -> impl bincode::config::Config {
    bincode::config::standard()
}

/// A trace that can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The storage failed while reading.
    #[error("cannot read the trace: {0}")]
    Read(#[source] io::Error),
    /// The storage failed while writing. What the system said, alone: the caller knows the file.
    #[error(transparent)]
    Write(io::Error),
    /// Another kind of file.
    #[error("not a bmoe trace (it does not start with \"BMOETRC\")")]
    NotATrace,
    /// Written by another version.
    #[error(
        "trace version {found} is not one that this program reads ({}, {VERSION})",
        earlier::VERSION
    )]
    Version {
        /// What the file says.
        found: u32,
    },
    /// A frame in the middle is damaged.
    #[error("the trace is damaged at byte {offset} (frame {frame}): {what}")]
    Damaged {
        /// Where the frame starts.
        offset: u64,
        /// Its number, from 0.
        frame: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A record that can't be encoded.
    #[error("cannot encode a trace record: {0}")]
    Encode(String),
}

/// Appends frames. Each record reaches the writer in one `write_all`.
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    out: W,
    frame: Vec<u8>,
}

impl<W: Write> TraceWriter<W> {
    /// Starts a trace: writes the magic and the version.
    ///
    /// # Errors
    /// The writer failed.
    pub fn new(mut out: W) -> Result<Self, CodecError> {
        out.write_all(&MAGIC).map_err(CodecError::Write)?;
        out.write_all(&VERSION.to_le_bytes()).map_err(CodecError::Write)?;
        Ok(Self { out, frame: Vec::with_capacity(4096) })
    }

    /// Appends one record.
    ///
    /// # Errors
    /// The writer failed.
    pub fn write(&mut self, record: &Record) -> Result<(), CodecError> {
        self.frame.clear();
        self.frame.extend_from_slice(&[0; 8]);
        bincode::serde::encode_into_std_write(record, &mut self.frame, bincode_config())
            .map_err(|e| CodecError::Encode(e.to_string()))?;
        let payload = &self.frame[8..];
        let length = u32::try_from(payload.len())
            .ok()
            .filter(|l| *l <= MAX_FRAME_BYTES)
            .ok_or_else(|| CodecError::Encode(format!("{} bytes in one record", payload.len())))?;
        let crc = crc32fast::hash(payload);
        self.frame[..4].copy_from_slice(&length.to_le_bytes());
        self.frame[4..8].copy_from_slice(&crc.to_le_bytes());
        self.out.write_all(&self.frame).map_err(CodecError::Write)
    }

    /// Hands everything written so far to the operating system.
    ///
    /// # Errors
    /// The writer failed.
    pub fn flush(&mut self) -> Result<(), CodecError> {
        self.out.flush().map_err(CodecError::Write)
    }

    /// The writer underneath.
    pub fn into_inner(self) -> W {
        self.out
    }
}

/// How the frames of a trace came to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// The file ends where a frame ends.
    Whole,
    /// The last frame is cut off or was never completed; it was left out.
    Truncated {
        /// Bytes left out.
        lost_bytes: u64,
    },
}

/// Reads frames one at a time; memory is bounded by the largest frame.
#[derive(Debug)]
pub struct TraceReader<R: Read> {
    input: R,
    version: u32,
    payload: Vec<u8>,
    offset: u64,
    frame: u64,
    tail: Option<Tail>,
}

impl<R: Read> TraceReader<R> {
    /// Opens a trace.
    ///
    /// # Errors
    /// The reader failed, the file is no trace, or it is of another version.
    pub fn new(mut input: R) -> Result<Self, CodecError> {
        let mut head = [0; 12];
        if fill(&mut input, &mut head)? < head.len() || head[..8] != MAGIC {
            return Err(CodecError::NotATrace);
        }
        let found = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        if found != VERSION && found != earlier::VERSION {
            return Err(CodecError::Version { found });
        }
        Ok(Self { input, version: found, payload: Vec::new(), offset: 12, frame: 0, tail: None })
    }

    /// How the file ended; `None` before the last record was read.
    #[must_use]
    pub fn tail(&self) -> Option<Tail> {
        self.tail
    }

    /// The next record; `None` at the end (then [`Self::tail`] says how it ended).
    ///
    /// # Errors
    /// The reader failed, or a frame that isn't the last one is damaged.
    pub fn read(&mut self) -> Result<Option<Record>, CodecError> {
        if self.tail.is_some() {
            return Ok(None);
        }
        let mut head = [0; 8];
        let got = fill(&mut self.input, &mut head)?;
        if got < head.len() {
            return Ok(self.end(got as u64));
        }
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let crc = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        if length > MAX_FRAME_BYTES {
            return Err(self.damaged("its length is impossible"));
        }
        self.payload.resize(length as usize, 0);
        let got = fill(&mut self.input, &mut self.payload)?;
        if got < self.payload.len() {
            // A record that was cut off has no part with its checksum: one that has is whole, and its length is not.
            if has_prefix_with(&self.payload[..got], crc) {
                return Err(self.damaged("its length is wrong: a shorter record has its checksum"));
            }
            return Ok(self.end(8 + got as u64));
        }
        if crc32fast::hash(&self.payload) != crc {
            // A torn last frame can have its full length with a hole in it; one further byte in the
            // file proves that it is not the last.
            if fill(&mut self.input, &mut [0])? == 0 {
                return Ok(self.end(8 + u64::from(length)));
            }
            return Err(self.damaged("its checksum does not match"));
        }
        let (record, used) =
            self.decode().map_err(|_| self.damaged("it is not a record of the trace's version"))?;
        if used != self.payload.len() {
            return Err(self.damaged("bytes are left over behind its record"));
        }
        self.offset += 8 + u64::from(length);
        self.frame += 1;
        Ok(Some(record))
    }

    fn decode(&self) -> Result<(Record, usize), bincode::error::DecodeError> {
        // What ran is the first variant, so its payload begins with a zero.
        if self.version == earlier::VERSION && self.payload.first() == Some(&0) {
            let (record, used) = bincode::serde::decode_from_slice::<earlier::Earlier, _>(
                &self.payload,
                bincode_config(),
            )?;
            return Ok((record.into(), used));
        }
        bincode::serde::decode_from_slice(&self.payload, bincode_config())
    }

    fn end(&mut self, lost_bytes: u64) -> Option<Record> {
        self.tail =
            Some(if lost_bytes == 0 { Tail::Whole } else { Tail::Truncated { lost_bytes } });
        None
    }

    fn damaged(&self, what: &'static str) -> CodecError {
        CodecError::Damaged { offset: self.offset, frame: self.frame, what }
    }
}

/// Whether the first so many bytes have a checksum. Looks at no more than records are long.
fn has_prefix_with(bytes: &[u8], crc: u32) -> bool {
    const LONGEST: usize = 4 << 20;
    let mut hasher = crc32fast::Hasher::new();
    bytes.iter().take(LONGEST).any(|byte| {
        hasher.update(&[*byte]);
        hasher.clone().finalize() == crc
    })
}

/// Reads until the buffer is full or the input ends; returns how many bytes were read.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize, CodecError> {
    let mut got = 0;
    while got < buffer.len() {
        match input.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(CodecError::Read(e)),
        }
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Phase, Residency, RouteRecord};

    fn route(layer: u32) -> Record {
        Record::Route(RouteRecord {
            turn: 0,
            ubatch: 3,
            phase: Phase::Decode,
            layer,
            top_k: 2,
            positions: vec![17],
            experts: vec![5, 250],
            weights: vec![0.75, 0.25],
            distinct: vec![5, 250],
            residency: vec![Residency::Hit, Residency::Miss],
            read_bytes: vec![0, 2_654_208],
            scored: Vec::new(),
            scores: Vec::new(),
        })
    }

    fn trace(records: &[Record]) -> Vec<u8> {
        let mut writer = TraceWriter::new(Vec::new()).unwrap();
        for record in records {
            writer.write(record).unwrap();
        }
        writer.into_inner()
    }

    fn read_all(bytes: &[u8]) -> Result<(Vec<Record>, Tail), CodecError> {
        let mut reader = TraceReader::new(bytes)?;
        let mut records = Vec::new();
        while let Some(record) = reader.read()? {
            records.push(record);
        }
        Ok((records, reader.tail().unwrap()))
    }

    #[test]
    fn records_round_trip() {
        let records = [route(0), route(1)];
        assert_eq!(read_all(&trace(&records)).unwrap(), (records.to_vec(), Tail::Whole));
    }

    #[test]
    fn cut_at_any_byte_loses_only_the_last_record() {
        let whole = trace(&[route(0), route(1), route(2)]);
        let two = trace(&[route(0), route(1)]).len();
        for cut in two + 1..whole.len() {
            let (records, tail) = read_all(&whole[..cut]).unwrap();
            assert_eq!(records, [route(0), route(1)]);
            assert_eq!(tail, Tail::Truncated { lost_bytes: (cut - two) as u64 });
        }
    }

    #[test]
    fn a_flipped_byte_in_the_middle_is_refused_and_in_the_last_frame_drops_it() {
        let whole = trace(&[route(0), route(1)]);
        let first_end = trace(&[route(0)]).len();
        let mut bad = whole.clone();
        bad[first_end - 1] ^= 1;
        let error = read_all(&bad).unwrap_err().to_string();
        assert!(error.contains("byte 12 (frame 0)"), "{error}");
        let mut torn = whole.clone();
        *torn.last_mut().unwrap() ^= 1;
        assert_eq!(read_all(&torn).unwrap().0, [route(0)]);
    }

    #[test]
    fn a_length_that_goes_beyond_the_end_is_told_from_a_file_that_was_cut_off() {
        let whole = trace(&[route(0), route(1), route(2)]);
        let starts = [12, trace(&[route(0)]).len(), trace(&[route(0), route(1)]).len()];
        for (frame, start) in starts.into_iter().enumerate() {
            for bit in 8..24 {
                let mut bad = whole.clone();
                bad[start + bit / 8] ^= 1 << (bit % 8);
                let error = read_all(&bad).unwrap_err().to_string();
                assert!(error.contains(&format!("byte {start} (frame {frame})")), "{error}");
            }
        }
    }

    /// Storage on which nothing works.
    struct Broken;

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("bad sector"))
        }
    }

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn failures_of_the_storage_say_which_way_the_bytes_went() {
        let read = TraceReader::new(Broken).err().unwrap().to_string();
        assert_eq!(read, "cannot read the trace: bad sector");
        let write = TraceWriter::new(Broken).err().unwrap().to_string();
        assert_eq!(write, io::Error::from(io::ErrorKind::StorageFull).to_string());
    }

    #[test]
    fn another_file_and_another_version_are_told_apart() {
        assert!(matches!(read_all(b"step,steps,wall_ms"), Err(CodecError::NotATrace)));
        let mut later = trace(&[]);
        later[8] = 9;
        assert!(matches!(read_all(&later), Err(CodecError::Version { found: 9 })));
    }
}
