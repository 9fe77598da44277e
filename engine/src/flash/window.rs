//! Reading one window, whatever the system makes of the request.

use std::io;

use super::layout::WINDOW_ALIGN;
use super::queue::SliceRead;

/// Attempts in a row that may come to nothing (interrupted, or "try again") before the read fails: a
/// device that always says so must not hang the run.
const MAX_FRUITLESS: u32 = 1000;

/// The bytes of a file that bring a slice, and where they go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// Where the first byte goes.
    pub(super) base: *mut u8,
    /// Where it is in the file.
    pub(super) offset: u64,
    /// Bytes to ask for.
    pub(super) bytes: usize,
    /// Bytes that must come: the window may reach past the end of the file, the slice may not.
    pub(super) needed: usize,
    /// Offsets, lengths and addresses are multiples of this.
    pub(super) align: usize,
}

impl Window {
    /// Of a slice: whole blocks when reads are direct, the slice itself when they are not.
    pub(super) fn of(read: &SliceRead, direct: bool) -> Self {
        let lead = read.offset % WINDOW_ALIGN;
        if direct {
            let needed = lead + read.bytes;
            Self {
                base: read.frame,
                offset: read.offset - lead,
                bytes: needed.next_multiple_of(WINDOW_ALIGN) as usize,
                needed: needed as usize,
                align: WINDOW_ALIGN as usize,
            }
        } else {
            Self {
                base: read.frame.wrapping_add(lead as usize),
                offset: read.offset,
                bytes: read.bytes as usize,
                needed: read.bytes as usize,
                align: 1,
            }
        }
    }
}

/// How much of a window has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    needed: usize,
    align: usize,
    done: usize,
    transferred: u64,
    fruitless: u32,
}

impl Progress {
    pub(super) fn new(needed: usize, align: usize) -> Self {
        Self { needed, align, done: 0, transferred: 0, fruitless: 0 }
    }

    /// Where in the window the next attempt starts: at the last whole block.
    pub(super) fn from(&self) -> usize {
        self.done / self.align * self.align
    }

    /// Bytes transferred so far, those read twice counted twice.
    pub(super) fn transferred(&self) -> u64 {
        self.transferred
    }

    /// Whether everything needed has come.
    pub(super) fn is_over(&self) -> bool {
        self.done >= self.needed
    }

    /// Takes what an attempt from [`Self::from`] on came to. Short, interrupted and refused-for-now
    /// attempts are made again.
    ///
    /// # Errors
    /// The read can't go on.
    pub(super) fn take(&mut self, attempt: io::Result<usize>) -> io::Result<()> {
        let from = self.from();
        match attempt {
            Ok(got) if from + got <= self.done => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("the file ends {} bytes early", self.needed - self.done),
            )),
            Ok(got) => {
                self.done = from + got;
                self.transferred += got as u64;
                self.fruitless = 0;
                Ok(())
            }
            Err(e)
                if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) =>
            {
                self.fruitless += 1;
                if self.fruitless < MAX_FRUITLESS {
                    return Ok(());
                }
                Err(io::Error::new(e.kind(), format!("{e}, {MAX_FRUITLESS} times in a row")))
            }
            Err(e) => Err(e),
        }
    }
}

/// Reads until the first `needed` bytes of the buffer are filled; returns the bytes transferred.
pub(super) fn read_window(
    buffer: &mut [u8],
    needed: usize,
    align: usize,
    mut read_at: impl FnMut(&mut [u8], usize) -> io::Result<usize>,
) -> io::Result<u64> {
    let mut progress = Progress::new(needed, align);
    while !progress.is_over() {
        let from = progress.from();
        progress.take(read_at(&mut buffer[from..], from))?;
    }
    Ok(progress.transferred())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_interrupted_reads_go_on_at_a_whole_block() {
        let content: Vec<u8> = (0..64u8).collect();
        let mut buffer = [0; 64];
        let mut calls = 0;
        let transferred = read_window(&mut buffer, 60, 8, |part, from| {
            calls += 1;
            assert_eq!(from % 8, 0);
            match calls % 3 {
                0 => return Err(io::ErrorKind::Interrupted.into()),
                1 => return Err(io::ErrorKind::WouldBlock.into()),
                _ => {}
            }
            let got = part.len().min(11);
            part[..got].copy_from_slice(&content[from..from + got]);
            Ok(got)
        })
        .unwrap();
        assert_eq!(buffer[..60], content[..60]);
        assert!(transferred >= 60);
        let error = read_window(&mut buffer, 60, 8, |_, _| Err(io::Error::from_raw_os_error(5)));
        assert_eq!(error.unwrap_err().raw_os_error(), Some(5));
    }

    #[test]
    fn a_read_that_is_interrupted_for_ever_fails() {
        let mut calls = 0;
        let error = read_window(&mut [0; 8], 8, 1, |_, _| {
            calls += 1;
            Err(io::Error::from_raw_os_error(4))
        })
        .unwrap_err();
        assert_eq!(calls, MAX_FRUITLESS);
        assert!(error.to_string().contains("1000 times in a row"), "{error}");
    }
}
