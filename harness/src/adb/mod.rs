//! Devices behind the adb server.
//!
//! * [`server`]: the server itself: where it is, starting it, what it is asked.
//! * [`devices`]: what the server says of its devices, and what to do about those that can't be used.
//! * [`shell`]: runs commands on a device (shell protocol 2): live output, input, exit codes, time limits.
//! * [`sync`]: small files to and from a device.
//!
//! [`sync`] is `adb_client`'s, under a watchdog. Commands are our own since `adb_client` loses their exit codes,
//! takes a device that vanished for a success and never gives up waiting; and so is the list of devices, since a
//! single device without permissions makes `adb_client` refuse the whole list.

pub mod devices;
#[cfg(test)]
pub(crate) mod fake;
pub mod server;
pub mod shell;
pub mod sync;

use std::io;
use std::net::SocketAddrV4;

pub use devices::{Listed, State};
pub use server::Server;

/// What went wrong between this program and a device.
#[derive(Debug, thiserror::Error)]
pub enum AdbError {
    /// The environment names a server that can't be used.
    #[error("${variable} is {value:?}; expected {expected}")]
    Address {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// There is no server, and none can be started.
    #[error("no adb server answers at {address}: {reason}")]
    NoServer {
        /// Where it should be.
        address: SocketAddrV4,
        /// What was seen, and what to do.
        reason: String,
    },
    /// The server refused a request, in its own words.
    #[error("adb: {message}")]
    Refused {
        /// Its words.
        message: String,
    },
    /// The connection ended or nothing came in time.
    #[error("the adb server at {address} broke off: {source}")]
    Broken {
        /// Where it is.
        address: SocketAddrV4,
        /// What the system said.
        source: io::Error,
    },
    /// What should be sent can't be read.
    #[error("cannot read what is to be sent: {source}")]
    Input {
        /// What the system said.
        source: io::Error,
    },
}
