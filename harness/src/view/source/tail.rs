//! Files that grow while they are read.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use bmoe_trace::Record;
use bmoe_trace::codec::{CodecError, MAGIC, Tail, TraceReader, VERSION};

/// Most that one look takes, so that a long file does not hold the view.
const PORTION_BYTES: u64 = 8 << 20;

/// A file of lines. What is behind the last line end waits for the next look.
#[derive(Debug)]
pub struct LineTail {
    path: PathBuf,
    at: u64,
}

impl LineTail {
    /// From the beginning of a file that need not be there yet.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), at: 0 }
    }

    /// Hands over the whole lines that have come, without their ends; whether any did. Bytes that are no UTF-8
    /// become marks.
    ///
    /// # Errors
    /// The file is there and can't be read.
    pub fn take(&mut self, mut each: impl FnMut(&str)) -> io::Result<bool> {
        let Some((mut file, length)) = grown(&self.path, self.at)? else { return Ok(false) };
        file.seek(SeekFrom::Start(self.at))?;
        let mut bytes = Vec::new();
        file.take((length - self.at).min(PORTION_BYTES)).read_to_end(&mut bytes)?;
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            // A line of that length is none of ours.
            if bytes.len() as u64 == PORTION_BYTES {
                self.at += PORTION_BYTES;
            }
            return Ok(false);
        };
        self.at += end as u64 + 1;
        for line in bytes[..end].split(|byte| *byte == b'\n') {
            each(&String::from_utf8_lossy(line));
        }
        Ok(true)
    }
}

/// The file and its length, when it has more than so many bytes.
fn grown(path: &Path, at: u64) -> io::Result<Option<(File, u64)>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let length = file.metadata()?.len();
    Ok((length > at).then_some((file, length)))
}

/// A binary trace. A record that is not whole yet waits for the next look.
#[derive(Debug)]
pub struct TraceTail {
    path: PathBuf,
    /// End of the last whole record; 0 = not even the head was there.
    at: u64,
    portion: u64,
}

/// What a look at a trace came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Nothing new.
    Nothing,
    /// Records came, and all that are there are read.
    All,
    /// More of it waits for the next look.
    Part,
}

impl TraceTail {
    /// From the beginning of a file that need not be there yet.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), at: 0, portion: PORTION_BYTES }
    }

    /// Hands over the whole records that have come.
    ///
    /// # Errors
    /// The file is there and can't be read, is no trace, or is damaged before its last record.
    pub fn take(&mut self, mut each: impl FnMut(Record)) -> Result<Look, CodecError> {
        let grown = grown(&self.path, self.at.max(11)).map_err(CodecError::Read)?;
        let Some((mut file, length)) = grown else { return Ok(Look::Nothing) };
        let from = self.at.max(12);
        let mut head = [0; 12];
        if self.at == 0 {
            file.read_exact(&mut head).map_err(CodecError::Read)?;
        } else {
            head[..8].copy_from_slice(&MAGIC);
            head[8..].copy_from_slice(&VERSION.to_le_bytes());
        }
        file.seek(SeekFrom::Start(from)).map_err(CodecError::Read)?;
        let portion = (length - from).min(self.portion);
        let body = BufReader::with_capacity(1 << 16, file.take(portion));
        let mut reader = TraceReader::new(head.as_slice().chain(body))?;
        self.at = from;
        let mut any = false;
        while let Some(record) = reader.read()? {
            any = true;
            each(record);
        }
        let lost = match reader.tail() {
            Some(Tail::Truncated { lost_bytes }) => lost_bytes,
            _ => 0,
        };
        self.at += portion - lost;
        let rest = length > from + portion;
        // A record that is longer than the portion.
        self.portion = if rest && !any { self.portion.saturating_mul(2) } else { PORTION_BYTES };
        Ok(match (any, rest) {
            (_, true) => Look::Part,
            (true, false) => Look::All,
            (false, false) => Look::Nothing,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bmoe_trace::codec::TraceWriter;
    use bmoe_trace::record::TurnRecord;
    use std::io::Write;

    fn turn(turn: u32) -> Record {
        let id = "x".repeat(40);
        Record::Turn(TurnRecord { turn, id, prompt_tokens: 1, reused_tokens: 0, n_predict: 3 })
    }

    #[test]
    fn a_trace_that_grows_byte_by_byte_gives_every_record_once() {
        let mut writer = TraceWriter::new(Vec::new()).unwrap();
        let records: Vec<Record> = (0..5).map(turn).collect();
        records.iter().for_each(|record| writer.write(record).unwrap());
        let bytes = writer.into_inner();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.bin");
        let (mut tail, mut got) = (TraceTail::new(&path), Vec::new());
        assert_eq!(tail.take(|_| {}).unwrap(), Look::Nothing);
        let mut file = File::create(&path).unwrap();
        for byte in &bytes {
            file.write_all(&[*byte]).unwrap();
            tail.take(|record| got.push(record)).unwrap();
        }
        assert_eq!(got, records);
        assert_eq!(tail.take(|_| {}).unwrap(), Look::Nothing);
    }

    #[test]
    fn a_long_trace_comes_in_portions_and_another_file_is_refused() {
        let mut writer = TraceWriter::new(Vec::new()).unwrap();
        (0..50).for_each(|n| writer.write(&turn(n)).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.bin");
        std::fs::write(&path, writer.into_inner()).unwrap();
        let (mut tail, mut got) = (TraceTail { portion: 20, ..TraceTail::new(&path) }, 0);
        // Smaller than a record at first: it grows until one fits.
        while tail.take(|_| got += 1).unwrap() == Look::Part {}
        assert_eq!(got, 50);
        std::fs::write(&path, "step,steps,wall_ms\n").unwrap();
        assert!(matches!(TraceTail::new(&path).take(|_| {}), Err(CodecError::NotATrace)));
    }

    #[test]
    fn half_a_line_waits_for_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let (mut tail, mut got) = (LineTail::new(&path), Vec::new());
        for (text, lines) in [("a\nb", vec!["a"]), ("", vec![]), ("c\n\n", vec!["bc", ""])] {
            let mut file = File::options().append(true).create(true).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            got.clear();
            tail.take(|line| got.push(line.to_owned())).unwrap();
            assert_eq!(got, lines);
        }
    }
}
