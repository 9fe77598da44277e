//! An adb server with one device in this process, for faults that a real one can't be made to have.
//!
//! The device runs commands with this machine's `sh`; its `/data/local/tmp` is a temporary folder.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Server;

/// The serial number of the device.
pub(crate) const SERIAL: &str = "FAKE1";
const TMP: &str = "/data/local/tmp";

/// What goes wrong.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    /// Commands end without saying how.
    pub(crate) no_exit_packet: bool,
    /// The connection breaks after so many bytes of a command's output.
    pub(crate) drop_after_output_bytes: Option<usize>,
    /// The connection breaks after so many bytes of a command's input.
    pub(crate) drop_after_input_bytes: Option<usize>,
    /// Pushes fail with this text once all is sent, as adbd's do.
    pub(crate) push_fails: Option<String>,
    /// Nothing is answered to these services.
    pub(crate) hangs: Option<&'static str>,
    /// Before every answer of the device.
    pub(crate) delay: Duration,
    /// So many transports to the device are refused with this text.
    pub(crate) refusals: Option<(usize, &'static str)>,
    /// What `host:devices-l` says of the device.
    pub(crate) state: Option<&'static str>,
}

/// The server; it answers as long as this process lives.
pub(crate) struct Fake {
    pub(crate) server: Server,
    folder: tempfile::TempDir,
    faults: Arc<Mutex<Faults>>,
    refused: Arc<AtomicUsize>,
}

impl Fake {
    pub(crate) fn start(faults: Faults) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let Ok(SocketAddr::V4(address)) = listener.local_addr() else { unreachable!() };
        let folder = tempfile::tempdir().unwrap();
        let fake = Self {
            server: Server::at(address),
            folder,
            faults: Arc::new(Mutex::new(faults)),
            refused: Arc::default(),
        };
        let (root, faults, refused) =
            (fake.folder.path().to_owned(), Arc::clone(&fake.faults), Arc::clone(&fake.refused));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let peer = Peer {
                    stream,
                    root: root.clone(),
                    faults: faults.lock().unwrap().clone(),
                    refused: Arc::clone(&refused),
                };
                std::thread::spawn(move || peer.serve());
            }
        });
        fake
    }

    /// From now on.
    pub(crate) fn set(&self, faults: Faults) {
        *self.faults.lock().unwrap() = faults;
    }

    /// Where a path of the device is here.
    pub(crate) fn path(&self, on_device: &Path) -> PathBuf {
        map(self.folder.path(), &on_device.to_string_lossy())
    }
}

fn map(root: &Path, path: &str) -> PathBuf {
    path.strip_prefix(TMP)
        .map_or_else(|| path.into(), |rest| root.join(rest.trim_start_matches('/')))
}

/// A connection to the server.
struct Peer {
    stream: TcpStream,
    root: PathBuf,
    faults: Faults,
    refused: Arc<AtomicUsize>,
}

impl Peer {
    fn serve(mut self) -> io::Result<()> {
        loop {
            let mut digits = [0; 4];
            self.stream.read_exact(&mut digits)?;
            let length = usize::from_str_radix(&String::from_utf8_lossy(&digits), 16).unwrap();
            let mut request = vec![0; length];
            self.stream.read_exact(&mut request)?;
            let request = String::from_utf8_lossy(&request).into_owned();
            if self.faults.hangs.is_some_and(|service| request.starts_with(service)) {
                // Until the other side has had enough.
                io::copy(&mut self.stream, &mut io::sink())?;
                return Ok(());
            }
            if let Some(serial) = request.strip_prefix("host:transport:") {
                if serial != SERIAL {
                    return self.fail(&format!("device '{serial}' not found"));
                }
                if let Some((times, message)) = self.faults.refusals
                    && self.refused.fetch_add(1, Ordering::SeqCst) < times
                {
                    return self.fail(message);
                }
                self.stream.write_all(b"OKAY")?;
            } else if request == "host:devices-l" {
                let state = self.faults.state.unwrap_or("device");
                return self.say(&format!("{SERIAL} {state} usb:1-1 model:Fake transport_id:1\n"));
            } else if let Some(line) = request.strip_prefix("shell,v2,raw:") {
                std::thread::sleep(self.faults.delay);
                self.stream.write_all(b"OKAY")?;
                return self.shell(line);
            } else if request == "sync:" {
                std::thread::sleep(self.faults.delay);
                self.stream.write_all(b"OKAY")?;
                return self.sync();
            } else {
                return self.fail("unknown service");
            }
        }
    }

    fn fail(&mut self, message: &str) -> io::Result<()> {
        write!(self.stream, "FAIL{:04x}{message}", message.len())
    }

    fn say(&mut self, message: &str) -> io::Result<()> {
        write!(self.stream, "OKAY{:04x}{message}", message.len())
    }

    fn shell(self, line: &str) -> io::Result<()> {
        let line = line.replace(TMP, &self.root.to_string_lossy());
        let mut child = Command::new("sh")
            .args(["-c", &line])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take();
        let mut from = self.stream.try_clone()?;
        let limit = self.faults.drop_after_input_bytes;
        std::thread::spawn(move || -> io::Result<()> {
            let mut taken = 0;
            loop {
                let mut head = [0; 5];
                from.read_exact(&mut head)?;
                let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
                let mut body = vec![0; length];
                from.read_exact(&mut body)?;
                match (head[0], &mut stdin) {
                    (0, Some(stdin)) => {
                        let end = limit.map_or(length, |limit| (limit - taken).min(length));
                        // A command that has ended wants no more.
                        let _ = stdin.write_all(&body[..end]);
                        taken += end;
                        if limit == Some(taken) {
                            return from.shutdown(Shutdown::Both);
                        }
                    }
                    (4, stdin) => *stdin = None,
                    _ => {}
                }
            }
        });
        let stream = Arc::new(Mutex::new(self.stream.try_clone()?));
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let limit = self.faults.drop_after_output_bytes;
        let pump = |kind: u8, mut pipe: Box<dyn Read + Send>| {
            let stream = Arc::clone(&stream);
            std::thread::spawn(move || {
                let (mut piece, mut sent) = (vec![0; 32 << 10], 0);
                while let Ok(n @ 1..) = pipe.read(&mut piece) {
                    let end = limit.map_or(n, |limit| (limit - sent).min(n));
                    let mut stream = stream.lock().unwrap();
                    let length = u32::try_from(n).unwrap().to_le_bytes();
                    let packet = [&[kind], &length[..], &piece[..end]].concat();
                    sent += end;
                    if stream.write_all(&packet).is_err() || limit == Some(sent) {
                        let _ = stream.shutdown(Shutdown::Both);
                        return;
                    }
                }
            })
        };
        let pumps = [pump(1, Box::new(out)), pump(2, Box::new(err))];
        let status = child.wait()?;
        for pump in pumps {
            let _ = pump.join();
        }
        if !self.faults.no_exit_packet {
            let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
            let code = u8::try_from(code).unwrap_or(u8::MAX);
            stream.lock().unwrap().write_all(&[3, 1, 0, 0, 0, code])?;
        }
        self.stream.shutdown(Shutdown::Both)
    }

    fn sync(mut self) -> io::Result<()> {
        loop {
            let mut head = [0; 8];
            self.stream.read_exact(&mut head)?;
            let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
            let mut argument = vec![0; length];
            self.stream.read_exact(&mut argument)?;
            let argument = String::from_utf8_lossy(&argument).into_owned();
            match &head[..4] {
                b"SEND" => {
                    let path = argument.rsplit_once(',').map_or(&*argument, |(path, _)| path);
                    self.receive(&map(&self.root, path))?;
                }
                b"RECV" => match std::fs::read(map(&self.root, &argument)) {
                    Ok(content) => {
                        for piece in content.chunks(60_000) {
                            self.chunk(*b"DATA", piece)?;
                        }
                        self.chunk(*b"DONE", b"")?;
                    }
                    Err(error) => self.chunk(*b"FAIL", error.to_string().as_bytes())?,
                },
                _ => return Ok(()),
            }
        }
    }

    fn receive(&mut self, path: &Path) -> io::Result<()> {
        let mut content = Vec::new();
        loop {
            let mut head = [0; 8];
            self.stream.read_exact(&mut head)?;
            if &head[..4] == b"DONE" {
                break;
            }
            let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
            let mut piece = vec![0; length];
            self.stream.read_exact(&mut piece)?;
            content.extend(piece);
        }
        if let Some(message) = self.faults.push_fails.clone() {
            return self.chunk(*b"FAIL", message.as_bytes());
        }
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(path, content)?;
        self.chunk(*b"OKAY", b"")
    }

    fn chunk(&mut self, tag: [u8; 4], body: &[u8]) -> io::Result<()> {
        let length = u32::try_from(body.len()).unwrap().to_le_bytes();
        self.stream.write_all(&[&tag[..], &length, body].concat())
    }
}
