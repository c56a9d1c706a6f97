//! `cargo x clients jobs`: Hadoop's own jobs with the local job runner against Stormwell, which is killed under the writers of one.

use super::kit::Kit;
use super::servers::Stormwell;
use crate::stage::Run;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// What the jobs say when the server is to be killed.
const KILL: &str = "kill";

/// A JVM with room for eight writers and the buffers of two sorts.
const JVM: [&str; 3] = ["-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// Runs all jobs and checks what they leave. They download some 20 MB of jars the first time.
pub fn run(root: &Path, kit: &Kit, directory: &Path, ours: &mut Stormwell) -> Result<(), String> {
    let kit = kit.other(root, "jobs")?;
    let Run { words, .. } = kit.java_as(&JVM, "jobs", "stormwell.jobs.Jobs", directory);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg(ours.address()).arg(directory).current_dir(directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut jobs = command.spawn().map_err(|error| format!("java does not start: {error}"))?;
    let Some(output) = jobs.stdout.take() else { unreachable!("it is piped") };
    let mut result = Ok(());
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if line != KILL {
            println!("{line}");
        } else if let Err(text) = ours.kill_and_start() {
            result = Err(text);
            let _ = jobs.kill();
        }
    }
    let status = jobs.wait().map_err(|error| format!("waiting for the jobs failed: {error}"))?;
    result?;
    if status.success() { Ok(()) } else { Err(format!("they ended with {status}")) }
}
