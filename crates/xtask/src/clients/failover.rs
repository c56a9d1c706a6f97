//! `cargo x clients failover`: a Java client with an HA list of two gateways, which are killed in turn under its calls.

use super::kit::Kit;
use super::servers::Stormwell;
use crate::stage::Run;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// What the client says when a gateway is to be killed.
const KILL: &str = "kill";

/// Runs it against a cluster of three nodes: one keeps the metadata, the other two are killed.
pub fn run(root: &Path, kit: &Kit, directory: &Path) -> Result<(), String> {
    let place = directory.join("failover");
    std::fs::create_dir(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    let configuration = place.join("stormwell.toml");
    Stormwell::init(root, &configuration)?;
    let keeper = Stormwell::prepare_node(root, &place, &configuration, ("keeper", &["data"]), None)?.start()?;
    let mut gateways = Vec::new();
    for name in ["one", "two"] {
        gateways.push(
            Stormwell::prepare_node(root, &place, &configuration, (name, &["data"]), Some(keeper.store()))?.start()?,
        );
    }
    let Run { words, .. } = kit.java("failover", "stormwell.clients.Failover", directory);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
    for gateway in &gateways {
        let address = gateway.address();
        command.arg(address.trim_start_matches("hdfs://"));
    }
    let mut client = command.spawn().map_err(|error| format!("java does not start: {error}"))?;
    let (Some(output), Some(mut input)) = (client.stdout.take(), client.stdin.take()) else {
        unreachable!("both are piped")
    };
    let (mut result, mut turn) = (Ok(()), 0);
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if line != KILL {
            println!("{line}");
            continue;
        }
        let back = gateways[turn % 2].kill_and_start();
        turn += 1;
        let told = back.and_then(|()| input.write_all(b"\n").map_err(|error| format!("the client has ended: {error}")));
        if let Err(text) = told {
            result = Err(text);
            let _ = client.kill();
        }
    }
    let status = client.wait().map_err(|error| format!("waiting for the client failed: {error}"))?;
    result?;
    if status.success() { Ok(()) } else { Err(format!("the client ended with {status}")) }
}
