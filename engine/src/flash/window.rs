//! Reading one window, whatever the system makes of the request.

use std::io;

/// Reads until the first `needed` bytes of the buffer are filled (a window may reach past the end of
/// the file; the slice may not). Goes on after short and interrupted reads, at the last whole block.
pub(super) fn read_window(
    buffer: &mut [u8],
    needed: usize,
    align: usize,
    mut read_at: impl FnMut(&mut [u8], usize) -> io::Result<usize>,
) -> io::Result<u64> {
    let mut done = 0;
    let mut transferred = 0;
    while done < needed {
        let from = done / align * align;
        match read_at(&mut buffer[from..], from) {
            Ok(got) if from + got <= done => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    format!("the file ends {} bytes early", needed - done),
                ));
            }
            Ok(got) => {
                done = from + got;
                transferred += got as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(transferred)
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
            if calls % 2 == 0 {
                return Err(io::ErrorKind::Interrupted.into());
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
}
