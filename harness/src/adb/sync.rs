//! Small files to and from a device, by `adb_client` under a watchdog.
//!
//! `adb_client` waits for ever when the device or the server falls silent. Here it works on a thread of its own
//! that is left alone when nothing moves any more; it ends when its connection does.

use std::fs::File;
use std::io::{self, Cursor, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use adb_client::server_device::ADBServerDevice;
use adb_client::{ADBDeviceExt, RustADBError};

use super::{AdbError, Server};

/// How often it is looked whether something moved.
const TICK: Duration = Duration::from_millis(100);

/// Writes a file on the device, with permissions for everybody, making the folders above it. What happens when it
/// breaks off halfway: a part of the file is there.
///
/// # Errors
/// The device refuses (in its words), or nothing moves for `silence`.
pub fn push(
    server: Server,
    serial: &str,
    content: Vec<u8>,
    path: &str,
    silence: Duration,
) -> Result<(), AdbError> {
    let path = path.to_owned();
    watched(server, serial, silence, move |device, moved| {
        device.push(Counted { inner: Cursor::new(content), moved }, path)
    })
}

/// Copies a file from the device into `file`. Too little comes when it breaks off: the caller knows its size.
///
/// # Errors
/// The device refuses (in its words), or nothing moves for `silence`.
pub fn pull(
    server: Server,
    serial: &str,
    path: &str,
    file: File,
    silence: Duration,
) -> Result<(), AdbError> {
    let path = path.to_owned();
    watched(server, serial, silence, move |device, moved| {
        let mut file = Counted { inner: file, moved };
        ADBDeviceExt::pull(device, &path, &mut file)
    })
}

/// Runs `work` on a thread until it ends or nothing has moved for `silence`.
fn watched(
    server: Server,
    serial: &str,
    silence: Duration,
    work: impl FnOnce(&mut ADBServerDevice, Arc<AtomicU64>) -> adb_client::Result<()> + Send + 'static,
) -> Result<(), AdbError> {
    let moved = Arc::new(AtomicU64::new(0));
    let (sender, result) = mpsc::channel();
    let mut device = ADBServerDevice::new(serial.to_owned(), Some(server.address()));
    let counter = Arc::clone(&moved);
    std::thread::spawn(move || {
        // Nobody listens any more when it took too long.
        let _ = sender.send(work(&mut device, counter));
    });
    let broken = |source| AdbError::Broken { address: server.address(), source };
    let (mut last, mut since) = (0, Instant::now());
    loop {
        match result.recv_timeout(TICK) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(RustADBError::IOError(source))) => return Err(broken(source)),
            Ok(Err(RustADBError::ADBRequestFailed(message))) => {
                return Err(AdbError::Refused { message });
            }
            Ok(Err(other)) => return Err(broken(io::Error::other(other))),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(broken(io::Error::other("the transfer ended without a result")));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = moved.load(Ordering::Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() >= silence {
            let silent = format!("nothing moved for {} s", silence.as_secs());
            return Err(broken(io::Error::new(io::ErrorKind::TimedOut, silent)));
        }
    }
}

/// Counts what goes through it.
struct Counted<T> {
    inner: T,
    moved: Arc<AtomicU64>,
}

impl<T: Read> Read for Counted<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.moved.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

impl<T: Write> Write for Counted<T> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buffer)?;
        self.moved.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
