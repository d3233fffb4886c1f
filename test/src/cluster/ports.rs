//! Free ports and address ranges that stay ours.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

/// The first port: below the range of outgoing connections, so that the kernel does not assign these ports.
const FIRST: u16 = 18_000;
const LAST: u16 = 31_999;

/// A port of the loopback address that no other launcher on this machine takes while this value lives.
#[derive(Debug)]
pub(super) struct Port {
    number: u16,
    /// An abstract socket is a lock that needs no file and that the kernel releases with the process.
    _claim: UnixListener,
}

impl Port {
    /// Claims a free port.
    pub(super) fn claim() -> Result<Self> {
        let span = LAST - FIRST + 1;
        let offset = u16::try_from(RandomState::new().hash_one(std::process::id()) % u64::from(span))?;
        for step in 0..span {
            let number = FIRST + (offset + step) % span;
            let name = SocketAddr::from_abstract_name(format!("olm-test-port-{number}"))?;
            if let Ok(claim) = UnixListener::bind_addr(&name)
                && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
            {
                return Ok(Self {
                    number,
                    _claim: claim,
                });
            }
        }
        bail!("no port from {FIRST} to {LAST} is free")
    }

    /// The number.
    pub(super) fn number(&self) -> u16 {
        self.number
    }
}

/// An address on this machine without a server. No other launcher takes it before this process ends, so that a
/// restarted program finds it free.
///
/// # Errors
/// When there is none.
pub fn free_address() -> Result<String> {
    static CLAIMED: Mutex<Vec<Port>> = Mutex::new(Vec::new());
    let port = Port::claim()?;
    let address = format!("127.0.0.1:{}", port.number());
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).push(port);
    Ok(address)
}

/// 127.N.0.0/16, for the services of one cluster: no other launcher on this machine takes it while this value lives.
#[derive(Debug)]
pub(super) struct ServiceRange {
    number: u8,
    _claim: UnixListener,
}

impl ServiceRange {
    /// Claims a range.
    pub(super) fn claim() -> Result<Self> {
        for number in 64..=254 {
            let name = SocketAddr::from_abstract_name(format!("olm-test-services-{number}"))?;
            if let Ok(claim) = UnixListener::bind_addr(&name) {
                return Ok(Self {
                    number,
                    _claim: claim,
                });
            }
        }
        bail!("no range of service addresses is free")
    }

    /// N in 127.N.0.0/16.
    pub(super) fn number(&self) -> u8 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claimed_ports_differ_and_are_free_to_listen_on() {
        let ports: Vec<Port> = (0..50).map(|_| Port::claim().unwrap()).collect();
        let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
        for number in &numbers {
            TcpListener::bind((Ipv4Addr::LOCALHOST, *number)).unwrap();
        }
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), ports.len());
    }

    #[test]
    fn claimed_ranges_differ() {
        let (first, second) = (ServiceRange::claim().unwrap(), ServiceRange::claim().unwrap());
        assert_ne!(first.number(), second.number());
    }
}
