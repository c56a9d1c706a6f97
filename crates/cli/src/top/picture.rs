//! How `top` shows a moment: lines for people, an object for programs.

use super::moment::{Bag, Calls, Device, Moment, Timed};
use crate::show;
use base::unit::show_bytes;
use serde_json::{Value, json};
use std::time::Duration;

/// Kinds of calls that are shown to people; programs get all.
const CALLS_SHOWN: usize = 12;

/// Bags that are shown to people, those with the most waiting chunks.
const BAGS_SHOWN: usize = 10;

/// The moment in lines.
pub fn lines(moment: &Moment, at: &str) -> Vec<String> {
    let state = if moment.ready { "ready" } else { "NOT READY" };
    let uptime = show::duration(Duration::try_from_secs_f64(moment.uptime).unwrap_or_default());
    let console = if moment.console.is_empty() { "off" } else { &moment.console };
    let mut lines = vec![format!("{at}  {state}  up {uptime}  version {}  console {console}", moment.version)];
    lines.extend(moment.troubles.iter().map(|trouble| format!("  ! {trouble}")));
    if !moment.counted {
        lines.push("  the node gives no numbers while its metadata store does not answer".to_string());
        return lines;
    }
    let [files, directories, stored] = moment.namespace.map(whole);
    let [(incoming, incoming_max), (outgoing, outgoing_max)] =
        moment.budgets.map(|(used, total)| (bytes(used), bytes(total)));
    lines.push(format!(
        "{} in {}, {}; {}, {}, {} calls under way",
        show::count(files, "file", "files"),
        show::count(directories, "directory", "directories"),
        show_bytes(stored),
        show::count(whole(moment.sessions), "session", "sessions"),
        show::count(whole(moment.connections), "connection", "connections"),
        whole(moment.unanswered),
    ));
    lines.push(format!(
        "memory {}, payload in {incoming} of {incoming_max}, out {outgoing} of {outgoing_max}; {:.2} processors; \
         received {}/s, sent {}/s",
        bytes(moment.memory),
        moment.processors,
        bytes(moment.received),
        bytes(moment.sent),
    ));
    devices(&mut lines, &moment.devices);
    calls(&mut lines, &moment.calls);
    bags(&mut lines, &moment.bags);
    lines
}

fn devices(lines: &mut Vec<String>, devices: &[Device]) {
    lines.push(String::new());
    lines.push(format!(
        "{:<7} {:>9} {:>9} {:>10} {:>10} {:>17} {:>17} {:>17}  device",
        "class", "used", "free", "read/s", "written/s", "read p50/p99", "write p50/p99", "sync p50/p99"
    ));
    for device in devices {
        let (class, used, free) = if device.class.is_empty() {
            ("-", "-".to_string(), "-".to_string())
        } else {
            (device.class.as_str(), bytes(device.used), bytes(device.capacity - device.used))
        };
        let state = match (device.out_of_service, device.full) {
            (true, _) => "  OUT OF SERVICE",
            (false, true) => "  FULL",
            (false, false) => "",
        };
        let [reads, writes, syncs] = [device.reads, device.writes, device.syncs].map(span);
        lines.push(format!(
            "{class:<7} {used:>9} {free:>9} {:>10} {:>10} {reads:>17} {writes:>17} {syncs:>17}  {}{state}",
            bytes(device.read),
            bytes(device.written),
            device.place
        ));
    }
}

fn calls(lines: &mut Vec<String>, calls: &[Calls]) {
    lines.push(String::new());
    lines.push(format!("{:>10} {:>10} {:>9} {:>9}  call", "calls/s", "failed/s", "p50", "p99"));
    for call in calls.iter().take(CALLS_SHOWN) {
        let Timed { rate, p50, p99 } = call.timed;
        let (p50, p99) = (time(p50), time(p99));
        lines.push(format!("{rate:>10.1} {:>10.1} {p50:>9} {p99:>9}  {}", call.failures, call.kind));
    }
    if calls.len() > CALLS_SHOWN {
        lines.push(format!("{:>10} kinds more, rarer", calls.len() - CALLS_SHOWN));
    }
}

fn bags(lines: &mut Vec<String>, bags: &[Bag]) {
    if bags.is_empty() {
        return;
    }
    lines.push(String::new());
    lines.push(format!("{:>10} {:>10} {:>12} {:>14}  bag", "waiting", "at work", "pushed/s", "acknowledged/s"));
    let mut fullest: Vec<&Bag> = bags.iter().collect();
    fullest.sort_by(|one, other| other.waiting.total_cmp(&one.waiting));
    for bag in fullest.iter().take(BAGS_SHOWN) {
        let (waiting, granted) = (whole(bag.waiting), whole(bag.granted));
        let (pushed, acknowledged) = (bytes(bag.pushed), bytes(bag.acknowledged));
        lines.push(format!(
            "{waiting:>10} {granted:>10} {pushed:>12} {acknowledged:>14}  {}",
            show::harmless(&bag.name)
        ));
    }
    if bags.len() > BAGS_SHOWN {
        lines.push(format!("{:>10} bags more, with less to do", bags.len() - BAGS_SHOWN));
    }
}

/// A number that came as a float; what is no count is zero.
fn whole(value: f64) -> u64 {
    value as u64
}

fn bytes(value: f64) -> String {
    show_bytes(whole(value))
}

/// Both latencies of a kind of operation, or a dash if none was done.
fn span(timed: Timed) -> String {
    if timed.rate > 0.0 { format!("{}/{}", time(timed.p50), time(timed.p99)) } else { "-".to_string() }
}

/// `0.25ms`, `12ms`, `1.20s`.
fn time(seconds: f64) -> String {
    match seconds {
        0.0..0.01 => format!("{:.2}ms", seconds * 1e3),
        0.01..1.0 => format!("{:.0}ms", seconds * 1e3),
        _ => format!("{seconds:.2}s"),
    }
}

/// The moment as an object. Bytes and counts, a second where the name says so; latencies in microseconds.
pub fn object(moment: &Moment) -> Value {
    let [files, directories, stored] = moment.namespace.map(whole);
    let [(incoming, incoming_max), (outgoing, outgoing_max)] = moment.budgets;
    json!({
        "seconds": rounded(moment.seconds),
        "ready": moment.ready,
        "troubles": moment.troubles,
        "counted": moment.counted,
        "version": moment.version,
        "process": moment.process,
        "console": moment.console,
        "uptime_s": rounded(moment.uptime),
        "processors": rounded(moment.processors),
        "memory": whole(moment.memory),
        "incoming": { "used": whole(incoming), "size": whole(incoming_max) },
        "outgoing": { "used": whole(outgoing), "size": whole(outgoing_max) },
        "sessions": whole(moment.sessions),
        "connections": whole(moment.connections),
        "calls_under_way": whole(moment.unanswered),
        "received_per_s": rounded(moment.received),
        "sent_per_s": rounded(moment.sent),
        "files": files,
        "directories": directories,
        "bytes": stored,
        "devices": moment.devices.iter().map(device).collect::<Vec<_>>(),
        "calls": moment.calls.iter().map(call).collect::<Vec<_>>(),
        "bags": moment.bags.iter().map(bag).collect::<Vec<_>>(),
    })
}

fn device(device: &Device) -> Value {
    json!({
        "directory": device.place,
        "class": device.class,
        "used": whole(device.used),
        "size": whole(device.capacity),
        "full": device.full,
        "out_of_service": device.out_of_service,
        "read_per_s": rounded(device.read),
        "written_per_s": rounded(device.written),
        "reads": timed(device.reads),
        "writes": timed(device.writes),
        "syncs": timed(device.syncs),
    })
}

fn call(call: &Calls) -> Value {
    let mut object = timed(call.timed);
    object["kind"] = json!(call.kind);
    object["failures_per_s"] = rounded(call.failures);
    object
}

fn bag(bag: &Bag) -> Value {
    json!({
        "bag": bag.name,
        "waiting": whole(bag.waiting),
        "at_work": whole(bag.granted),
        "pushed_per_s": rounded(bag.pushed),
        "acknowledged_per_s": rounded(bag.acknowledged),
    })
}

fn timed(timed: Timed) -> Value {
    let micros = |seconds: f64| rounded(seconds * 1e6);
    json!({ "per_s": rounded(timed.rate), "p50_us": micros(timed.p50), "p99_us": micros(timed.p99) })
}

/// Three digits behind the point are more than anybody can use.
fn rounded(value: f64) -> Value {
    json!((value * 1e3).round() / 1e3)
}

#[cfg(test)]
mod tests {
    use super::{Bag, Calls, Device, Moment, Timed, lines, object};

    fn moment() -> Moment {
        let timed = Timed { rate: 3.0, p50: 0.000_25, p99: 1.2 };
        let device =
            Device { place: "/d".into(), class: "ssd".into(), capacity: 2048.0, used: 1024.0, ..Device::default() };
        Moment {
            ready: true,
            counted: true,
            devices: vec![Device { syncs: timed, full: true, ..device }],
            calls: vec![Calls { kind: "chunk_append".into(), timed, failures: 0.5 }],
            bags: vec![Bag { name: "a\u{1b}b".into(), waiting: 7.0, ..Bag::default() }],
            ..Moment::default()
        }
    }

    /// People see devices with their state, calls and bags; a name with control characters is shown, not obeyed.
    #[test]
    fn people() {
        let text = lines(&moment(), "127.0.0.1:1").join("\n");
        for part in
            ["127.0.0.1:1  ready", "1.0 KiB", "0.25ms/1.20s  /d  FULL", "0.25ms     1.20s  chunk_append", "a\\u{1b}b"]
        {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        let mute = Moment { ready: false, troubles: vec!["the disk".into()], ..Moment::default() };
        let text = lines(&mute, "x").join("\n");
        assert!(text.contains("NOT READY") && text.contains("! the disk") && text.contains("no numbers"), "{text}");
    }

    /// Programs get the same numbers by name.
    #[test]
    fn programs() {
        let object = object(&moment());
        assert_eq!(object["devices"][0]["syncs"]["p50_us"], 250.0);
        assert_eq!(object["calls"][0]["kind"], "chunk_append");
        assert_eq!(object["bags"][0]["waiting"], 7);
    }
}
