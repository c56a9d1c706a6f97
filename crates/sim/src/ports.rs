//! Addresses for servers that other processes of a test have to know before they listen.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// How many were given in this process.
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// So many addresses on loopback at which nobody listens. Their ports are below those that the system gives connections, one of which could take a
/// port before its server does. Two tests that look at once begin at different ports.
#[expect(clippy::disallowed_methods, reason = "whether a port is free, a socket says")]
pub fn free(count: usize) -> Vec<String> {
    const FIRST: u16 = 10_000;
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let end = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768);
    let ports = end.max(FIRST + 1) - FIRST;
    // Prime to most lengths of the range, so that neighbouring processes look far from each other; and two tests of one look behind each other.
    let before = TAKEN.fetch_add(count as u32, Ordering::Relaxed);
    let begin = std::process::id().wrapping_mul(7_919).wrapping_add(before) % u32::from(ports);
    let mut held = Vec::new();
    for step in 0..u32::from(ports) {
        let port = FIRST + ((begin + step) % u32::from(ports)) as u16;
        held.extend(TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).ok());
        if held.len() == count {
            break;
        }
    }
    assert_eq!(held.len(), count, "no free ports from {FIRST} to {end}");
    held.iter().filter_map(|listener| listener.local_addr().ok()).map(|at| at.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::free;
    use std::collections::BTreeSet;
    use std::net::TcpListener;

    /// They are different, and can be listened at.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "it listens there")]
    fn they_are_free() {
        let addresses = free(3);
        assert_eq!(addresses.iter().collect::<BTreeSet<_>>().len(), 3);
        for address in addresses {
            TcpListener::bind(&address).expect("nobody listens there");
        }
    }
}
