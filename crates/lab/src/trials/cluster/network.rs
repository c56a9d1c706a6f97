//! A network of its own for each trial: every host is a network namespace with an address, joined by a bridge in one more namespace
//! over links of a given rate. Nothing of it is seen from outside, so several runs do not meet.
//!
//! A link between two hosts is cut in one direction by giving the sender a wrong hardware address of the receiver: what it sends
//! is lost without a word, as in a broken switch.

use crate::trials::tool;
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use base::net::{Boxed, Listener, Net, Stream};
use os::net::TcpNet;
use std::fs::File;
use std::future::poll_fn;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Namespaces that trials make begin like this; then comes the id of the process that made them.
const PREFIX: &str = "stormwell-trial-";

/// Where the system keeps their names.
const NAMES: &str = "/run/netns";

/// Nobody has this hardware address.
const NOBODY: &str = "02:00:00:00:00:ff";

/// Hosts that have addresses.
const HOSTS_MAX: usize = 99;

/// Why there can be no networks here, if there cannot.
pub fn obstacle() -> Option<String> {
    if let Some(obstacle) = tool::obstacle("network namespaces", &["ip", "tc"]) {
        return Some(obstacle);
    }
    let attempt = Network::new(&[], 1000);
    attempt.err().map(|error| error.text().to_string())
}

/// The network. It goes with everything in it when this goes.
pub struct Network {
    /// The namespace of the bridge.
    hub: String,
    hosts: Vec<String>,
}

impl Network {
    /// A network of these hosts, each joined by a link that carries so many Mbit/s in each direction. Networks of processes that are
    /// gone are removed.
    pub fn new(names: &[&str], rate: u64) -> Result<Network> {
        assert!(names.len() <= HOSTS_MAX, "{} hosts", names.len());
        remove_stale()?;
        let tag = format!("{PREFIX}{}-{:08x}", std::process::id(), os::random::SystemRandom.next() as u32);
        let mut network = Network { hub: format!("{tag}-hub"), hosts: Vec::new() };
        ip(&format!("netns add {}", network.hub))?;
        let hub = network.hub.clone();
        ip(&format!("-n {hub} link add name br0 type bridge"))?;
        ip(&format!("-n {hub} link set br0 up"))?;
        for name in names {
            let host = format!("{tag}-{name}");
            ip(&format!("netns add {host}"))?;
            network.hosts.push(host);
            network.join(network.hosts.len() - 1, rate)?;
        }
        for from in 0..names.len() {
            for to in (0..names.len()).filter(|to| *to != from) {
                network.mend(from, to)?;
            }
        }
        Ok(network)
    }

    /// Joins a host to the bridge. Both ends of its link send at the rate, whatever anybody wants to send.
    fn join(&self, host: usize, rate: u64) -> Result<()> {
        let (hub, name) = (&self.hub, &self.hosts[host]);
        let port = format!("v{host}");
        ip(&format!("-n {hub} link add {port} type veth peer name eth0 address {} netns {name}", hardware(host)))?;
        ip(&format!("-n {hub} link set {port} master br0 up"))?;
        ip(&format!("-n {name} addr add {}/24 dev eth0", address(host)))?;
        ip(&format!("-n {name} link set lo up"))?;
        ip(&format!("-n {name} link set eth0 up"))?;
        // What is kept back may wait for 100 ms; the burst is what 10 ms carry at the highest rate.
        for (place, device) in [(name, "eth0"), (hub, port.as_str())] {
            let words =
                format!("tc -n {place} qdisc add dev {device} root tbf rate {rate}mbit burst 1280kb latency 100ms");
            tool::run(&words.split(' ').collect::<Vec<_>>(), &[])?;
        }
        Ok(())
    }

    /// Cuts the way from one host to another; the way back stays.
    pub fn cut(&self, from: usize, to: usize) -> Result<()> {
        self.send_to(from, to, NOBODY)
    }

    /// Mends it.
    pub fn mend(&self, from: usize, to: usize) -> Result<()> {
        self.send_to(from, to, &hardware(to))
    }

    fn send_to(&self, from: usize, to: usize, hardware: &str) -> Result<()> {
        let (name, to) = (&self.hosts[from], address(to));
        ip(&format!("-n {name} neigh replace {to} lladdr {hardware} nud permanent dev eth0"))
    }

    /// The namespace of a host.
    pub fn namespace(&self, host: usize) -> Result<Namespace> {
        let path = Path::new(NAMES).join(&self.hosts[host]);
        Ok(Namespace(Arc::new(os::file::open(&path)?)))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in self.hosts.iter().chain([&self.hub]) {
            if let Err(error) = ip(&format!("netns del {name}")) {
                eprintln!("lab: {error}");
            }
        }
    }
}

/// A host's address.
pub fn address(host: usize) -> String {
    format!("10.77.0.{}", host + 1)
}

fn hardware(host: usize) -> String {
    format!("02:00:00:00:00:{:02}", host + 1)
}

fn ip(words: &str) -> Result<()> {
    let mut all = vec!["ip"];
    all.extend(words.split(' '));
    tool::run(&all, &[]).map(drop)
}

/// Removes what processes left that were killed.
fn remove_stale() -> Result<()> {
    // No such directory: nobody has made a name yet.
    for path in os::file::read_directory(Path::new(NAMES)).unwrap_or_default() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|owner| os::process::name(owner).is_none()) {
            // Another run may do the same at this moment.
            let _ = ip(&format!("netns del {name}"));
        }
    }
    Ok(())
}

/// A network namespace.
#[derive(Clone)]
pub struct Namespace(Arc<File>);

impl Namespace {
    /// The command's process will be in it.
    pub fn hold(&self, command: &mut Command) {
        let file = self.0.clone();
        // SAFETY: setns is a plain system call, safe between fork and exec; it allocates nothing and takes no lock.
        unsafe { command.pre_exec(move || set_namespace(&file)) };
    }

    /// Runs `work` with this thread in it. Sockets stay where they were made.
    fn within<T>(&self, outside: &File, work: impl FnOnce() -> T) -> std::io::Result<T> {
        set_namespace(&self.0)?;
        let done = work();
        set_namespace(outside)?;
        Ok(done)
    }
}

fn set_namespace(namespace: &File) -> std::io::Result<()> {
    // SAFETY: a plain system call on a descriptor that is open.
    match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// The network as a host sees it, for the sockets of a client in this process.
pub struct NetOf {
    inside: Namespace,
    outside: File,
}

impl NetOf {
    /// What a host's clients connect with.
    pub fn new(inside: Namespace) -> Result<NetOf> {
        let outside = os::file::open(Path::new("/proc/thread-self/ns/net"))?;
        Ok(NetOf { inside, outside })
    }
}

impl Net for NetOf {
    fn connect<'a>(&'a self, address: &'a str) -> Boxed<'a, Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let mut connecting = TcpNet.connect(address);
            // The socket is made in one of these turns, and never between two.
            poll_fn(|context| {
                let turn = self.inside.within(&self.outside, || connecting.as_mut().poll(context));
                turn.unwrap_or_else(|error| Err(error.into()).into())
            })
            .await
        })
    }

    fn listen<'a>(&'a self, _address: &'a str) -> Boxed<'a, Result<Box<dyn Listener>>> {
        Box::pin(async { Err(Error::new(ErrorKind::Unsupported, "clients of trials do not listen")) })
    }
}
