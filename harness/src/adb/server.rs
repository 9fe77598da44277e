//! The adb server: where it is, how it is started, what it is asked.
//!
//! A request is four hexadecimal digits of length and then the text; the answer is `OKAY` or `FAIL` with a
//! message. After `host:transport:SERIAL` the connection belongs to that device.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::devices::{self, Listed};
use super::{AdbError, State};

const DEFAULT_PORT: u16 = 5037;
/// What connecting to the server may take; it is on this machine or on the next one.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// What the server may take to answer. Connecting to a wireless device takes it longest.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// What the server may take to start.
const START_LIMIT: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(20);
/// Its length has four hexadecimal digits.
const LONGEST_REQUEST: usize = 0xffff;

/// The adb server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Server {
    address: SocketAddrV4,
}

impl Server {
    /// The server at this address.
    #[must_use]
    pub fn at(address: SocketAddrV4) -> Self {
        Self { address }
    }

    /// The server that adb itself would use: `$ADB_SERVER_SOCKET`, else `$ANDROID_ADB_SERVER_ADDRESS` and
    /// `$ANDROID_ADB_SERVER_PORT`, else port 5037 of this machine.
    ///
    /// # Errors
    /// A variable has a value that can't be used.
    pub fn from_environment() -> Result<Self, AdbError> {
        Self::from_variables(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn from_variables(variable: &dyn Fn(&'static str) -> Option<String>) -> Result<Self, AdbError> {
        if let Some(value) = variable("ADB_SERVER_SOCKET") {
            let address = value.strip_prefix("tcp:").and_then(|rest| match rest.rsplit_once(':') {
                Some((host, port)) => resolve(host, port.parse().ok()?),
                None => Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, rest.parse().ok()?)),
            });
            return address.map(Self::at).ok_or(AdbError::Address {
                variable: "ADB_SERVER_SOCKET",
                value,
                expected: "tcp:HOST:PORT or tcp:PORT (IPv4)",
            });
        }
        let port = match variable("ANDROID_ADB_SERVER_PORT") {
            None => DEFAULT_PORT,
            Some(value) => {
                value.parse().ok().filter(|port| *port > 0).ok_or(AdbError::Address {
                    variable: "ANDROID_ADB_SERVER_PORT",
                    value,
                    expected: "a port number",
                })?
            }
        };
        let host = variable("ANDROID_ADB_SERVER_ADDRESS");
        match resolve(host.as_deref().unwrap_or("127.0.0.1"), port) {
            Some(address) => Ok(Self::at(address)),
            None => Err(AdbError::Address {
                variable: "ANDROID_ADB_SERVER_ADDRESS",
                value: host.unwrap_or_default(),
                expected: "a host with an IPv4 address",
            }),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Starts the server unless one answers. Does nothing more when it runs.
    ///
    /// # Errors
    /// There is none and it can't be started: the message says what is missing.
    pub fn start(&self) -> Result<(), AdbError> {
        let Err(error) = self.connect() else { return Ok(()) };
        let no_server = |reason: String| AdbError::NoServer { address: self.address, reason };
        if !self.address.ip().is_loopback() {
            return Err(no_server(format!(
                "{error}; start it there (`adb -a nodaemon server start`)"
            )));
        }
        // What it says goes to a file: the server outlives this command and would hold a pipe open.
        let said =
            tempfile::tempfile().map_err(|e| no_server(format!("no temporary file: {e}")))?;
        let log = said.try_clone().map_err(|e| no_server(e.to_string()))?;
        let child = Command::new("adb")
            // Not as `-L tcp:HOST:PORT`: for such an address adb never starts a server.
            .args(["-P", &self.address.port().to_string(), "start-server"])
            .env_remove("ADB_SERVER_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(no_server(
                    "and adb is not installed; install Android's platform-tools (Debian: apt-get \
                     install adb)"
                        .to_owned(),
                ));
            }
            Err(e) => return Err(no_server(format!("adb cannot be run: {e}"))),
        };
        let end = Instant::now() + START_LIMIT;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() >= end {
                let _ = child.kill();
                let _ = child.wait();
                break;
            }
            std::thread::sleep(TICK);
        }
        self.connect().map(drop).map_err(|error| {
            let said = read_whole(said).unwrap_or_default();
            let said = said.lines().rfind(|line| !line.is_empty()).unwrap_or("adb said nothing");
            no_server(format!("{error} after `adb start-server`: {said}"))
        })
    }

    /// Sends a request whose answer is `OKAY` or `FAIL`; the connection is as the request left it.
    ///
    /// # Errors
    /// There is no server, it refuses, or it does not answer.
    pub fn open(&self, request: &str) -> Result<Connection, AdbError> {
        let stream = self.connect().map_err(|source| AdbError::NoServer {
            address: self.address,
            reason: source.to_string(),
        })?;
        let mut connection = Connection { stream, address: self.address };
        connection.request(request)?;
        Ok(connection)
    }

    /// The text that answers a request to the server itself.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn ask(&self, request: &str) -> Result<String, AdbError> {
        self.open(request)?.text()
    }

    /// The devices that it knows, usable or not.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn devices(&self) -> Result<Vec<Listed>, AdbError> {
        Ok(devices::parse(&self.ask("host:devices-l")?))
    }

    /// How a device stands; `None` = it isn't in the list.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn state(&self, serial: &str) -> Result<Option<State>, AdbError> {
        Ok(self.devices()?.into_iter().find(|d| d.serial == serial).map(|d| d.state))
    }

    /// `adb connect`: makes a wireless device known.
    ///
    /// # Errors
    /// It isn't there, or does not want to; in adb's words.
    pub fn connect_device(&self, address: &str) -> Result<(), AdbError> {
        let said = self.ask(&format!("host:connect:{address}"))?;
        if said.starts_with("connected to") || said.starts_with("already connected to") {
            return Ok(());
        }
        Err(AdbError::Refused { message: said.trim().to_owned() })
    }

    /// `adb disconnect`: forgets a wireless device, so that it can be connected anew.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn disconnect_device(&self, address: &str) -> Result<(), AdbError> {
        self.ask(&format!("host:disconnect:{address}")).map(drop)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&SocketAddr::V4(self.address), CONNECT_LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.set_write_timeout(Some(ANSWER_LIMIT))?;
        Ok(stream)
    }
}

/// A connection to the server, or through it to a device.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    address: SocketAddrV4,
}

impl Connection {
    /// Sends a further request, as [`Server::open`] does the first.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub fn request(&mut self, request: &str) -> Result<(), AdbError> {
        self.request_bytes(request.as_bytes())
    }

    /// The same with a request that may be no text.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub fn request_bytes(&mut self, request: &[u8]) -> Result<(), AdbError> {
        if request.len() > LONGEST_REQUEST {
            let message = format!("a command of {} bytes is too long", request.len());
            return Err(AdbError::Refused { message });
        }
        let message = [format!("{:04x}", request.len()).as_bytes(), request].concat();
        let status = self.stream.write_all(&message).and_then(|()| self.bytes::<4>());
        match &status.map_err(|e| self.broken(e))? {
            b"OKAY" => Ok(()),
            b"FAIL" => Err(AdbError::Refused { message: self.text()?.trim().to_owned() }),
            other => Err(self.broken(io::Error::other(format!(
                "it answers {:?}, which is not adb's protocol",
                String::from_utf8_lossy(other)
            )))),
        }
    }

    /// A text with its length before it.
    fn text(&mut self) -> Result<String, AdbError> {
        let mut read = || -> io::Result<String> {
            let digits = self.bytes::<4>()?;
            let length = std::str::from_utf8(&digits)
                .ok()
                .and_then(|digits| u64::from_str_radix(digits, 16).ok())
                .ok_or_else(|| io::Error::other("a length is not hexadecimal"))?;
            let mut bytes = Vec::new();
            (&self.stream).take(length).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().map_err(|e| self.broken(e))
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn broken(&self, source: io::Error) -> AdbError {
        AdbError::Broken { address: self.address, source }
    }

    /// The socket, for what speaks another protocol from here on.
    #[must_use]
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }
}

fn resolve(host: &str, port: u16) -> Option<SocketAddrV4> {
    (host, port).to_socket_addrs().ok()?.find_map(|address| match address {
        SocketAddr::V4(address) => Some(address),
        SocketAddr::V6(_) => None,
    })
}

fn read_whole(mut file: std::fs::File) -> io::Result<String> {
    use std::io::Seek;
    file.rewind()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(variables: &[(&str, &str)]) -> Result<SocketAddrV4, String> {
        let variable = |name: &'static str| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        Server::from_variables(&variable).map(|s| s.address()).map_err(|e| e.to_string())
    }

    #[test]
    fn the_server_is_the_one_that_adb_would_use() {
        let local = |port| Ok(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
        assert_eq!(server(&[]), local(5037));
        assert_eq!(server(&[("ANDROID_ADB_SERVER_PORT", "6000")]), local(6000));
        assert_eq!(
            server(&[("ADB_SERVER_SOCKET", "tcp:6001"), ("ANDROID_ADB_SERVER_PORT", "1")]),
            local(6001)
        );
        assert_eq!(
            server(&[("ADB_SERVER_SOCKET", "tcp:10.0.0.7:6002")]),
            Ok("10.0.0.7:6002".parse().unwrap())
        );
    }

    #[test]
    fn values_that_cannot_be_used_are_named() {
        assert_eq!(
            server(&[("ADB_SERVER_SOCKET", "localfilesystem:/run/adb")]).unwrap_err(),
            "$ADB_SERVER_SOCKET is \"localfilesystem:/run/adb\"; expected tcp:HOST:PORT or tcp:PORT (IPv4)"
        );
        let error = server(&[("ANDROID_ADB_SERVER_PORT", "adb")]).unwrap_err();
        assert!(error.contains("\"adb\"") && error.contains("port number"), "{error}");
    }
}
