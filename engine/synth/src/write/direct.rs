//! A sequential file writer that goes round the page cache where the file system allows.
//!
//! A model is far larger than what should be cached, and copying it through the page cache costs several
//! times what making the weights does.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Alignment of memory, file offsets and lengths that every O_DIRECT implementation accepts.
const ALIGNMENT: usize = 4096;
/// Bytes per write.
const BUFFER_BYTES: usize = 4 << 20;

/// The writer. [`DirectWriter::finish`] must be called, or the last bytes are missing.
pub(super) struct DirectWriter {
    file: File,
    /// A little longer than the buffer proper, which starts at `start` to be aligned.
    memory: Vec<u8>,
    start: usize,
    filled: usize,
}

impl DirectWriter {
    /// Creates or truncates `path`.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let open = |flags: OFlags| {
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .custom_flags(flags.bits() as i32)
                .open(path)
        };
        // Some file systems refuse the flag at open; they get ordinary writes.
        let file = match open(OFlags::DIRECT) {
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
                open(OFlags::empty())?
            }
            other => other?,
        };
        let memory = vec![0; BUFFER_BYTES + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Ok(Self { file, memory, start, filled: 0 })
    }

    pub(super) fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let n = bytes.len().min(BUFFER_BYTES - self.filled);
            let at = self.start + self.filled;
            self.memory[at..at + n].copy_from_slice(&bytes[..n]);
            self.filled += n;
            bytes = &bytes[n..];
            if self.filled == BUFFER_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.memory[self.start..self.start + self.filled])?;
        self.filled = 0;
        Ok(())
    }

    /// Writes what is left and waits until everything is on disk.
    pub(super) fn finish(mut self) -> io::Result<()> {
        // The tail has any length, so it takes the ordinary way.
        let flags = rustix::fs::fcntl_getfl(&self.file)?;
        rustix::fs::fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
        self.flush()?;
        self.file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_length_arrives() {
        let dir = tempfile::tempdir().unwrap();
        for len in [0, 1, 4096, BUFFER_BYTES - 1, BUFFER_BYTES, BUFFER_BYTES + 5000] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
            let path = dir.path().join("file");
            let mut writer = DirectWriter::create(&path).unwrap();
            for piece in bytes.chunks(100_003) {
                writer.put(piece).unwrap();
            }
            writer.finish().unwrap();
            assert!(std::fs::read(&path).unwrap() == bytes, "{len} bytes");
        }
    }
}
