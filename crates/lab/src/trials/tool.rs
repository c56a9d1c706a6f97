//! The system's own tools that trials call: mounts, loop devices, networks.

use base::error::{Error, ErrorKind, Result};
use std::path::Path;
use std::process::Command;

/// Why what needs root and these tools cannot be done here, if it cannot.
pub fn obstacle(what: &str, tools: &[&str]) -> Option<String> {
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        return Some(format!("{what} need root"));
    }
    let missing = tools.iter().find(|tool| {
        let looked = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output();
        !looked.is_ok_and(|output| output.status.success())
    });
    missing.map(|tool| format!("{tool} is not there (packages e2fsprogs, iproute2, mount, xfsprogs)"))
}

/// Runs a tool to its end and answers with what it printed.
pub fn run(words: &[&str], paths: &[&Path]) -> Result<String> {
    let Some((tool, arguments)) = words.split_first() else { unreachable!("a tool is named") };
    let output = Command::new(tool).args(arguments).args(paths).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::new(ErrorKind::Io, format!("{} {paths:?} failed: {}", words.join(" "), said.trim())))
}
