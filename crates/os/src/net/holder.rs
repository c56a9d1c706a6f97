//! Who listens on a port, from /proc.
#![allow(clippy::disallowed_methods)] // /proc is not data that an engine keeps.

use std::path::Path;

/// The process that listens on this TCP port, and its name. Nothing if it cannot be found out, as for another user's process.
pub(super) fn listener_on(port: u16) -> Option<(u32, String)> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let inode = tables.iter().find_map(|table| listening_inode(&std::fs::read_to_string(table).ok()?, port))?;
    let wanted = format!("socket:[{inode}]");
    let processes = std::fs::read_dir("/proc").ok()?.filter_map(std::result::Result::ok);
    for process in processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        if holds(process, Path::new(&wanted)) {
            return Some((process, crate::process::name(process)?));
        }
    }
    None
}

/// The socket's inode, from a table whose columns are: number, local address, remote address, state, queues, timer, retransmits, user, timeout, inode.
fn listening_inode(table: &str, port: u16) -> Option<u64> {
    const LISTEN: &str = "0A";
    table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let local = columns.get(1)?.rsplit_once(':')?.1;
        let matches = u16::from_str_radix(local, 16).ok()? == port && *columns.get(3)? == LISTEN;
        matches.then(|| columns.get(9)?.parse().ok()).flatten()
    })
}

fn holds(process: u32, socket: &Path) -> bool {
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd"));
    let mut links = descriptors.into_iter().flatten().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.any(|link| link == socket)
}
