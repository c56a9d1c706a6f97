//! Tools beside cargo that the tests want: looks for them and installs them where that is possible.

use std::process::{Command, Stdio};

/// Whether this runs under continuous integration, where nothing may be skipped.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Makes sure that fio is there, or says in one line what goes without it. An error under continuous integration.
pub fn set_up() -> Result<(), String> {
    if answers("fio", &["--version"]) {
        return Ok(());
    }
    if is_root() && answers("apt-get", &["--version"]) {
        println!("set-up: fio is missing; installing it with apt-get");
        // A fresh container has no package lists; one that has them needs no update.
        if !answers("apt-get", &["install", "-y", "fio"]) {
            answers("apt-get", &["update"]);
            answers("apt-get", &["install", "-y", "fio"]);
        }
        if answers("fio", &["--version"]) {
            return Ok(());
        }
    }
    let text = "fio is missing; install it (apt-get install fio)";
    if in_ci() {
        return Err(text.to_owned());
    }
    println!(
        "set-up: {text}; skipped without it: fio as the raw side of `stormwell bench` (its own direct loop stands in)"
    );
    Ok(())
}

/// Whether this may do what only root may.
pub fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Whether a program is there and ends well with these arguments.
pub fn answers(program: &str, arguments: &[&str]) -> bool {
    let status = Command::new(program)
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
