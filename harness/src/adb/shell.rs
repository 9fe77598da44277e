//! Commands on a device: shell protocol 2, through the server's socket.
//!
//! A packet is a byte that says what it is, four bytes of length (little-endian), and that many bytes. Closing
//! the connection sends SIGHUP to the command; a command that is given with `exec` gets it itself.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{AdbError, Server};

/// Kinds of packets.
mod kind {
    pub(super) const STDIN: u8 = 0;
    pub(super) const STDOUT: u8 = 1;
    pub(super) const STDERR: u8 = 2;
    pub(super) const EXIT: u8 = 3;
    pub(super) const CLOSE_STDIN: u8 = 4;
}

/// What is sent at once: large enough to be fast (450 MB/s through adbd on one machine), small enough for the
/// progress to be seen on a slow cable.
const CHUNK_BYTES: usize = 64 << 10;
/// No packet of adbd is larger than its buffer of 1 MiB.
const PACKET_BYTES: usize = 1 << 20;
/// How often limits and progress are looked at.
const TICK: Duration = Duration::from_millis(100);

/// Words as a shell reads them back.
#[must_use]
pub fn quote<'w>(words: impl IntoIterator<Item = &'w [u8]>) -> Vec<u8> {
    let mut line = Vec::new();
    for word in words {
        if !line.is_empty() {
            line.push(b' ');
        }
        let plain = |b: &u8| b.is_ascii_alphanumeric() || b"%+,-./:=@_".contains(b);
        if !word.is_empty() && word.iter().all(plain) {
            line.extend_from_slice(word);
        } else {
            line.push(b'\'');
            for byte in word {
                match byte {
                    b'\'' => line.extend_from_slice(b"'\\''"),
                    byte => line.push(*byte),
                }
            }
            line.push(b'\'');
        }
    }
    line
}

/// How a command came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// With this exit code; 128 + N after signal N.
    Exited(u8),
    /// It was left by `Break`.
    Left,
    /// The time was up.
    TimedOut,
    /// The connection ended without an exit code, or the device did not answer any more.
    Lost(String),
}

/// A piece of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output<'a> {
    /// From the standard output.
    Stdout(&'a [u8]),
    /// From the standard error.
    Stderr(&'a [u8]),
    /// So many bytes of the input are sent by now. Comes now and then, also when nothing changed.
    Sent(u64),
}

/// When to give up.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// The time for the whole command.
    pub total: Option<Duration>,
    /// After this time in which nothing is heard and nothing can be sent `is_alive` is asked.
    pub silence: Duration,
    /// Whether the device still answers. Takes a while, but not for ever.
    pub is_alive: &'a dyn Fn() -> bool,
}

/// Runs a command line on a device to its end. Its input is `input`, or empty.
///
/// # Errors
/// It can't be started: the server or the device is not there or does not want to.
pub fn run(
    server: Server,
    serial: &str,
    line: &[u8],
    input: Option<&mut (dyn Read + Send)>,
    limits: Limits<'_>,
    on: &mut dyn FnMut(Output<'_>) -> ControlFlow<()>,
) -> Result<End, AdbError> {
    let started = Instant::now();
    let mut connection = server.open(&format!("host:transport:{serial}"))?;
    // Not a string: paths may hold any bytes, and adbd hands them on as they are.
    let service = [b"shell,v2,raw:", line].concat();
    connection.request_bytes(&service)?;
    let stream = connection.into_stream();
    let broken = |source| AdbError::Broken { address: server.address(), source };
    stream.set_read_timeout(Some(TICK)).map_err(broken)?;
    stream.set_write_timeout(None).map_err(broken)?;

    let sent = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = input.map(|input| {
            let (stream, sent, stop) = (&stream, &sent, &stop);
            scope.spawn(move || feed(stream, input, sent, stop))
        });
        if writer.is_none() {
            // Commands that read their input find its end.
            let _ = (&stream).write_all(&packet_head(kind::CLOSE_STDIN, 0));
        }
        let end = listen(&stream, &sent, writer.is_some(), started, limits, on);
        // Ends a writer that waits for room.
        stop.store(true, Ordering::SeqCst);
        let _ = stream.shutdown(Shutdown::Both);
        match writer.map(std::thread::ScopedJoinHandle::join) {
            // The input itself failed: the command got less than it should have.
            Some(Ok(Err(source))) => Err(AdbError::Input { source }),
            _ => Ok(end),
        }
    })
}

/// Sends the input. An error is one of reading it; when it can't be sent the listener sees why.
fn feed(
    mut stream: &TcpStream,
    input: &mut (dyn Read + Send),
    sent: &AtomicU64,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut packet = vec![0; 5 + CHUNK_BYTES];
    while !stop.load(Ordering::SeqCst) {
        let n = match input.read(&mut packet[5..]) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => {
                // Nothing that the command could take for the end of its input.
                let _ = stream.shutdown(Shutdown::Both);
                return Err(e);
            }
        };
        let kind = if n == 0 { kind::CLOSE_STDIN } else { kind::STDIN };
        let head = packet_head(kind, u32::try_from(n).unwrap_or(u32::MAX));
        packet[..5].copy_from_slice(&head);
        if stream.write_all(&packet[..5 + n]).is_err() || n == 0 {
            break;
        }
        sent.fetch_add(n as u64, Ordering::SeqCst);
    }
    Ok(())
}

fn packet_head(kind: u8, length: u32) -> [u8; 5] {
    let [a, b, c, d] = length.to_le_bytes();
    [kind, a, b, c, d]
}

fn listen(
    mut stream: &TcpStream,
    sent: &AtomicU64,
    has_input: bool,
    started: Instant,
    limits: Limits<'_>,
    on: &mut dyn FnMut(Output<'_>) -> ControlFlow<()>,
) -> End {
    let mut packets = Packets::default();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut heard = Instant::now();
    let mut sent_before = 0;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return End::Lost("the connection ended before the command did".to_owned()),
            Ok(n) => {
                heard = Instant::now();
                packets.push(&buffer[..n]);
                loop {
                    match packets.next() {
                        Ok(Some((kind::EXIT, code))) => {
                            return End::Exited(code.first().copied().unwrap_or_default());
                        }
                        Ok(Some((kind::STDOUT, bytes))) => {
                            if on(Output::Stdout(&bytes)).is_break() {
                                return End::Left;
                            }
                        }
                        Ok(Some((kind::STDERR, bytes))) => {
                            if on(Output::Stderr(&bytes)).is_break() {
                                return End::Left;
                            }
                        }
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(reason) => return End::Lost(reason),
                    }
                }
            }
            Err(e) if is_timeout(&e) => {}
            Err(e) => return End::Lost(format!("the connection broke: {e}")),
        }
        if has_input {
            let now = sent.load(Ordering::SeqCst);
            if now != sent_before {
                (sent_before, heard) = (now, Instant::now());
            }
            if on(Output::Sent(now)).is_break() {
                return End::Left;
            }
        } else if on(Output::Stdout(&[])).is_break() {
            // Whoever waits for output may want to stop although there is none.
            return End::Left;
        }
        if limits.total.is_some_and(|total| started.elapsed() >= total) {
            return End::TimedOut;
        }
        if heard.elapsed() >= limits.silence {
            if !(limits.is_alive)() {
                let silent_s = heard.elapsed().as_secs();
                return End::Lost(format!(
                    "nothing was heard for {silent_s} s and it does not answer"
                ));
            }
            heard = Instant::now();
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// Packets out of pieces of any size.
#[derive(Debug, Default)]
struct Packets {
    bytes: Vec<u8>,
    start: usize,
}

impl Packets {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next packet that is whole.
    fn next(&mut self) -> Result<Option<(u8, Vec<u8>)>, String> {
        let rest = &self.bytes[self.start..];
        let Some((head, body)) = rest.split_first_chunk::<5>() else { return Ok(None) };
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > PACKET_BYTES {
            return Err(format!("a packet of {length} bytes is not of the shell protocol"));
        }
        let Some(body) = body.get(..length) else { return Ok(None) };
        let packet = (head[0], body.to_vec());
        self.start += 5 + length;
        Ok(Some(packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        let words: [&[u8]; 6] = [b"a", b"", b"it's", b"$HOME `x` \"y\"", b"two\nlines", b"\xff*"];
        let mut line = b"printf '%s\\0' ".to_vec();
        line.extend(quote(words));
        let out = std::process::Command::new("sh")
            .arg("-c")
            .arg(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&line))
            .output()
            .unwrap();
        let back: Vec<_> = out.stdout.split(|b| *b == 0).collect();
        assert_eq!(back[..6], words);
    }

    #[test]
    fn packets_come_out_of_pieces_of_any_size() {
        let mut stream = Vec::new();
        for (kind, body) in [(1, &b"hello"[..]), (2, b""), (3, b"\x07")] {
            stream.extend(packet_head(kind, u32::try_from(body.len()).unwrap()));
            stream.extend(body);
        }
        for size in 1..=stream.len() {
            let (mut packets, mut found) = (Packets::default(), Vec::new());
            for piece in stream.chunks(size) {
                packets.push(piece);
                while let Some(packet) = packets.next().unwrap() {
                    found.push(packet);
                }
            }
            assert_eq!(found, [(1, b"hello".to_vec()), (2, vec![]), (3, vec![7])]);
        }
    }

    #[test]
    fn what_is_no_packet_ends_the_reading() {
        let mut packets = Packets::default();
        packets.push(b"HTTP/1.1 400");
        assert!(packets.next().unwrap_err().contains("not of the shell protocol"));
    }
}
