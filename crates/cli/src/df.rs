//! `stormwell df`: the devices of the store and how full they are.

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::Output;
use crate::show;
use base::policy::Class;
use clap::{ArgAction, Args};
use client::{Device, DevicesAnswer};
use serde_json::json;

/// Shows the store's devices, how full they are, and what the store holds
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
#[command(
    after_help = "Example:\n  stormwell df -h\n\nused: taken on the device, dead bytes not yet given back included. \
                        live: bytes of chunks that are alive. free: size less used."
)]
pub struct Df {
    /// Sizes for people: 1.5 GiB
    #[arg(short, long)]
    human: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

impl Df {
    /// Shows them.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let client = context.connect("df").await?;
        let answer = client.devices().await?;
        let view = client.view().await?;
        let node_of = |device: &Device| {
            let found = view.members.iter().find(|member| member.devices.contains(&device.device));
            found.map_or("", |member| member.node.name.as_str())
        };
        let mut output = Output::open()?;
        if context.json {
            for device in &answer.devices {
                output.json(&object(device, node_of(device)))?;
            }
            output.json(&json!({
                "kind": "total",
                "size": total(&answer, |device| device.capacity),
                "used": total(&answer, |device| device.used),
                "live": total(&answer, |device| device.live),
                "free": total(&answer, free),
                "files": answer.files,
                "directories": answer.directories,
                "bytes": answer.bytes,
            }))?;
        } else {
            for line in table(&answer, self.human) {
                let line = output.name(&line);
                output.line(&line)?;
            }
        }
        output.flush()?;
        Ok(Exit::Done)
    }
}

fn free(device: &Device) -> u64 {
    device.capacity.saturating_sub(device.used)
}

fn total(answer: &DevicesAnswer, part: impl Fn(&Device) -> u64) -> u64 {
    answer.devices.iter().map(part).fold(0, u64::saturating_add)
}

fn class_name(device: &Device) -> &'static str {
    Class::from_code(device.class).map_or("unknown", Class::name)
}

fn object(device: &Device, node: &str) -> serde_json::Value {
    json!({
        "kind": "device",
        "device": format!("{:032x}", device.device.value()),
        "class": class_name(device),
        "size": device.capacity,
        "used": device.used,
        "live": device.live,
        "free": free(device),
        "chunks": device.chunks,
        "backend": device.backend,
        "node": node,
        "place": device.place,
        "trouble": device.trouble,
    })
}

fn table(answer: &DevicesAnswer, human: bool) -> Vec<String> {
    let row = |first: &str, numbers: [String; 4], backend: &str, place: &str| {
        let [size, used, live, free] = numbers;
        format!("{first:<7} {size:>15} {used:>15} {live:>15} {free:>15}  {backend:<9} {place}").trim_end().to_string()
    };
    let heads = ["size", "used", "live", "free"].map(str::to_string);
    let mut lines = vec![row("class", heads, "backend", "place")];
    for device in &answer.devices {
        let numbers = [device.capacity, device.used, device.live, free(device)].map(|bytes| show::size(bytes, human));
        let mut place = device.place.clone();
        if !device.trouble.is_empty() {
            place.push_str(&format!("  OUT OF SERVICE: {}", device.trouble));
        }
        lines.push(row(class_name(device), numbers, &device.backend, &place));
    }
    let numbers = [
        total(answer, |device| device.capacity),
        total(answer, |device| device.used),
        total(answer, |device| device.live),
        total(answer, free),
    ];
    lines.push(row("total", numbers.map(|bytes| show::size(bytes, human)), "", ""));
    lines.push(format!(
        "{} in {}, {}",
        show::count(answer.files, "file", "files"),
        show::count(answer.directories, "directory", "directories"),
        base::unit::show_bytes(answer.bytes)
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::table;
    use client::{Device, DevicesAnswer};

    /// A device in trouble says so, totals add up without overflowing.
    #[test]
    fn tables() {
        let fine = Device {
            class: 2,
            capacity: 1 << 30,
            used: 1 << 29,
            live: 1 << 20,
            place: "/data/a".to_string(),
            backend: "io_uring".to_string(),
            ..Device::default()
        };
        let broken = Device { capacity: u64::MAX, trouble: "EIO from fsync".to_string(), class: 99, ..fine.clone() };
        let answer = DevicesAnswer { devices: vec![fine, broken], files: 1, directories: 2, bytes: 3, lacks: None };
        let lines = table(&answer, true);
        assert!(lines[1].starts_with("ssd") && lines[1].ends_with("io_uring  /data/a"), "{lines:?}");
        assert!(lines[1].contains("512 MiB"), "{lines:?}");
        assert!(lines[2].starts_with("unknown") && lines[2].ends_with("OUT OF SERVICE: EIO from fsync"), "{lines:?}");
        assert!(lines[3].starts_with("total"), "{lines:?}");
        assert_eq!(lines[4], "1 file in 2 directories, 3 B");
    }
}
