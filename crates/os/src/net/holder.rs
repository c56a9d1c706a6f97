//! Who keeps a server from a port, from /proc.
#![allow(clippy::disallowed_methods)] // /proc is not data that an engine keeps.

use std::path::Path;

/// Who has a TCP port that cannot be listened on.
pub(super) enum Holder {
    /// A process that listens there, and its name.
    Process(u32, String),
    /// Somebody listens there, or did until a moment ago, and it cannot be found out who: another user's process, or one that is ending.
    Unseen,
    /// Nobody listens: it is the own port of a connection from this machine to somewhere, open or closed less than a minute ago.
    Connection,
}

/// Who has this port.
pub(super) fn holder_of(port: u16) -> Holder {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let rows = tables.iter().flat_map(|table| rows(table, port));
    let (mut inode, mut connections) = (None, 0);
    for (listens, of) in rows {
        if listens { inode = Some(of) } else { connections += 1 }
    }
    match inode {
        Some(inode) => process_with(inode).map_or(Holder::Unseen, |(process, name)| Holder::Process(process, name)),
        None if connections > 0 => Holder::Connection,
        None => Holder::Unseen,
    }
}

/// The sockets of a table that have this port here: whether they listen, and their inodes. Its columns are: number, local address, remote
/// address, state, queues, timer, retransmits, user, timeout, inode.
fn rows(table: &str, port: u16) -> impl Iterator<Item = (bool, u64)> {
    const LISTEN: &str = "0A";
    table.lines().skip(1).filter_map(move |line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let local = columns.get(1)?.rsplit_once(':')?.1;
        let inode = columns.get(9)?.parse().ok()?;
        (u16::from_str_radix(local, 16).ok()? == port).then_some((columns[3] == LISTEN, inode))
    })
}

/// The process that has the socket with this inode, and its name.
fn process_with(inode: u64) -> Option<(u32, String)> {
    let wanted = format!("socket:[{inode}]");
    let processes = std::fs::read_dir("/proc").ok()?.filter_map(std::result::Result::ok);
    for process in processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        if holds(process, Path::new(&wanted)) {
            return Some((process, crate::process::name(process)?));
        }
    }
    None
}

fn holds(process: u32, socket: &Path) -> bool {
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd"));
    let mut links = descriptors.into_iter().flatten().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.any(|link| link == socket)
}
