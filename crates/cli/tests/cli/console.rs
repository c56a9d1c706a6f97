//! The console: metrics that a scraper can read and that count what happened, health that says why, ports that are taken.

use crate::store::{Store, binary, noise, run, soon};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;

/// Sends these bytes to the console and gives the status and the body of what comes back.
pub fn ask(console: &str, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(console).expect("the console listens");
    stream.write_all(request.as_bytes()).expect("it takes a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers with text");
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_string())
}

/// GET, and the connection ends with the answer.
pub fn get(console: &str, path: &str) -> (u16, String) {
    ask(console, &format!("GET {path} HTTP/1.1\r\nHost: console\r\nConnection: close\r\n\r\n"))
}

/// Every sample of the page by its name and labels. Asserts what the exposition format asks for.
pub fn samples(page: &str) -> BTreeMap<String, f64> {
    let mut kinds = BTreeMap::new();
    let mut found = BTreeMap::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a kind");
            assert!(kinds.insert(name.to_string(), kind.to_string()).is_none(), "{name} is declared twice");
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a series and a value");
        let name = series.split('{').next().expect("a name");
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let kind = kinds.get(name).or_else(|| kinds.get(base)).unwrap_or_else(|| panic!("{line} was not declared"));
        assert_eq!(name.ends_with("_total"), kind == "counter", "{line} is a {kind}");
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line} has no number"));
        assert!(found.insert(series.to_string(), value).is_none(), "{series} is there twice");
    }
    found
}

/// The page counts what was done: calls, failures, bytes, devices, bags; counters only rise.
#[test]
fn metrics_count_what_happened() {
    let store = Store::start();
    let before = samples(&get(&store.console, "/metrics").1);
    store.local("file", &noise(3_000_000, 5));
    store.run(&["put", "file", "/file"]).done();
    store.run(&["cat", "/file"]).done();
    store.run(&["mv", "/nothing", "/other"]).failed(3, "/nothing");
    store.run_with(&["bag", "push", "b\"ag", "-", "--create", "--chunk", "64K"], &noise(200_000, 9)).done();
    let (status, page) = get(&store.console, "/metrics");
    assert_eq!(status, 200);
    let after = samples(&page);
    let sum = |name: &str| -> f64 {
        after.iter().filter(|(series, _)| series.starts_with(name)).map(|(_, value)| value).sum()
    };
    assert_eq!(after["stormwell_files"], 1.0);
    assert_eq!(after["stormwell_file_bytes"], 3_000_000.0);
    assert_eq!(after["stormwell_bag_waiting_chunks{bag=\"b\\\"ag\"}"], 4.0);
    assert_eq!(after["stormwell_bag_pushed_bytes_total{bag=\"b\\\"ag\"}"], 200_000.0);
    assert_eq!(after["stormwell_calls_total{kind=\"bag_push\"}"], 4.0);
    assert_eq!(after["stormwell_call_failures_total{kind=\"file_rename\"}"], 1.0);
    assert!(after["stormwell_call_seconds_sum{kind=\"bag_push\"}"] > 0.0);
    assert_eq!(after["stormwell_call_seconds_bucket{kind=\"bag_push\",le=\"+Inf\"}"], 4.0);
    assert!(after["stormwell_received_bytes_total"] >= 3_200_000.0);
    assert!(after["stormwell_sent_bytes_total"] >= 3_000_000.0);
    assert!(sum("stormwell_disk_written_bytes_total{place=") >= 3_200_000.0, "{page}");
    assert!(sum("stormwell_disk_seconds_count{place=\"metadata\",doing=\"sync\"}") >= 3.0, "{page}");
    assert_eq!(sum("stormwell_disk_failures_total"), 0.0);
    assert_eq!(sum("stormwell_device_capacity_bytes"), f64::from(512 << 20));
    assert_eq!(sum("stormwell_budget_used_bytes"), 0.0, "{page}");
    for (series, value) in &before {
        let name = series.split('{').next().expect("a name");
        let rises = ["_total", "_bucket", "_sum", "_count"].iter().any(|end| name.ends_with(end));
        assert!(!rises || after[series] >= *value, "{series} fell from {value}");
    }
}

/// Ready while it takes reads and writes; 503 with the reason while the only device is full; ready again when there is room.
#[test]
fn health_says_why() {
    let store = Store::with_capacity("160M");
    assert_eq!(get(&store.console, "/health/live"), (200, "live\n".to_string()));
    assert_eq!(get(&store.console, "/health/ready"), (200, "ready\n".to_string()));
    let mut filling = store.command(&["put", "-", "/big"]);
    let mut filling =
        filling.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command runs");
    let mut pipe = filling.stdin.take().expect("stdin is a pipe");
    let feeding = std::thread::spawn(move || {
        let part = noise(1 << 20, 3);
        // The pipe breaks when the store has no room and the command gives up.
        while pipe.write_all(&part).is_ok() {}
    });
    let mut seen = (200, String::new());
    while seen.0 == 200 && filling.try_wait().expect("it can be looked at").is_none() {
        seen = get(&store.console, "/health/ready");
    }
    assert_eq!(seen.0, 503, "{}", seen.1);
    assert!(seen.1.starts_with("not ready\n") && seen.1.contains("is full"), "{}", seen.1);
    let json = "GET /health/ready HTTP/1.1\r\nHost: a\r\nAccept: application/json\r\nConnection: close\r\n\r\n";
    let (status, body) = ask(&store.console, json);
    assert!(status == 200 || body.contains("\"ready\":false"), "{status} {body}");
    filling.kill().expect("it is killed");
    filling.wait().expect("it ends");
    feeding.join().expect("feeding ends");
    // What a put leaves that is killed.
    let left = store.run(&["ls", "/"]).done().text();
    assert!(left.starts_with(".stormwell-put-") && left.lines().count() == 1, "{left}");
    store.run(&["rm", &format!("/{}", left.trim_end())]).done();
    let ready = soon(|| get(&store.console, "/health/ready").0 == 200);
    assert!(ready, "never ready again: {:?}", get(&store.console, "/health/ready"));
}

/// What is no question gets an answer that says so, or none, and the next one is answered as ever.
#[test]
fn strangers() {
    let store = Store::start();
    assert_eq!(get(&store.console, "/nothing").0, 404);
    assert_eq!(
        ask(&store.console, "POST /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").0,
        405
    );
    assert_eq!(ask(&store.console, "\u{1}\u{2}nonsense\r\n\r\n").0, 400);
    drop(TcpStream::connect(&store.console).expect("it listens"));
    assert_eq!(get(&store.console, "/health/live").0, 200);
}

/// A console port that was asked for and is taken is an error that says so; the usual one that is taken gives way to a
/// free one, and the log says where.
#[test]
fn taken_ports() {
    let store = Store::start();
    let mut command = binary();
    command.args(["serve", "--at", "127.0.0.1:0", "--data", "other:ssd:512M", "--console", &store.console]);
    command.current_dir(&store.directory);
    run(command, b"").failed(8, "--console: ");
    // Two neighbouring ports, of which the second is taken.
    let (first, _second) = (0..100)
        .find_map(|_| {
            let first = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("its address");
            let next = TcpListener::bind(("127.0.0.1", first.port().checked_add(1)?)).ok()?;
            Some((first, next))
        })
        .expect("two neighbouring ports");
    let mut command = binary();
    command.args(["serve", "--at", &first.to_string(), "--data", "other:ssd:512M", "--log", "json"]);
    command.current_dir(&store.directory).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut server = command.spawn().expect("the server starts");
    let mut lines = BufReader::new(server.stderr.take().expect("stderr is a pipe")).lines();
    let mut said = Vec::new();
    let serving = loop {
        let line = lines.next().unwrap_or_else(|| panic!("it ended: {said:?}")).expect("a line");
        let object: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        said.push(line);
        if object["text"] == "serving" {
            break object;
        }
    };
    let console = serving["console"].as_str().expect("an address").to_string();
    let answer = get(&console, "/health/ready");
    server.kill().expect("it is killed");
    server.wait().expect("it ends");
    assert_eq!(answer.0, 200);
    assert!(said.iter().any(|line| line.contains("\"level\":\"warn\"") && line.contains(&console)), "{said:?}");
}

/// The words in this text that begin as a metric of ours does.
fn metrics_named(text: &str) -> std::collections::BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("stormwell_") || word.starts_with("process_")).map(str::to_string).collect()
}

/// Every metric that the dashboard and the alert rules name is on the page, and every alert has its page of instructions.
#[test]
fn dashboard_and_alerts_name_what_there_is() {
    let store = Store::start();
    store.run_with(&["bag", "push", "b", "-", "--create"], b"bytes").done();
    let page = get(&store.console, "/metrics").1;
    let declared: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let known = |name: &str| {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let is = |name: &str, kind: &str| declared.contains(&format!("{name} {kind}").as_str());
        is(name, "counter") || is(name, "gauge") || base.is_some_and(|base| is(base, "histogram"))
    };
    let operate = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate");
    let read = |name: &str| {
        std::fs::read_to_string(operate.join(name)).unwrap_or_else(|error| panic!("docs/operate/{name}: {error}"))
    };
    let dashboard: serde_json::Value = serde_json::from_str(&read("grafana.json")).expect("the dashboard is JSON");
    assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() >= 10));
    let alerts = read("alerts.yml");
    for text in [&dashboard.to_string(), &alerts] {
        let names = metrics_named(text);
        assert!(names.len() >= 5, "{names:?}");
        for name in names {
            assert!(known(&name), "{name} is not on the page /metrics");
        }
    }
    let names: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() >= 5);
    for name in names {
        let text = read(&format!("{name}.md"));
        for heading in [&format!("# {name}\n"), "\n## Is data safe?\n", "\n## What to do\n"] {
            assert!(text.contains(heading), "docs/operate/{name}.md has no {heading:?}");
        }
    }
}
