//! What happened between two looks at a store: rates, latencies, and how things stand.

use super::Look;
use super::page::{Labels, Page};
use std::collections::BTreeMap;

/// What a store did during one interval, and how it stood at its end. Rates are a second's, latencies are in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moment {
    /// How long the interval was.
    pub seconds: f64,
    /// Whether the store takes reads and writes.
    pub ready: bool,
    /// What is wrong.
    pub troubles: Vec<String>,
    /// Whether the node gave its numbers; without them everything below is zero.
    pub counted: bool,
    /// Where its console is; empty if it has none.
    pub console: String,
    /// The server's version.
    pub version: String,
    /// The server's process id.
    pub process: u64,
    /// Since it began to serve.
    pub uptime: f64,
    /// Processors that it kept busy.
    pub processors: f64,
    /// Memory that it holds, in bytes.
    pub memory: f64,
    /// Of the budgets for payload on its way in and out: bytes used and bytes there.
    pub budgets: [(f64, f64); 2],
    /// Open connections.
    pub connections: f64,
    /// Open sessions.
    pub sessions: f64,
    /// Calls that are being worked on.
    pub unanswered: f64,
    /// Bytes from and to sockets.
    pub received: f64,
    /// See `received`.
    pub sent: f64,
    /// Files, directories and bytes of the namespace.
    pub namespace: [f64; 3],
    /// Devices, and the metadata store's log at the end.
    pub devices: Vec<Device>,
    /// Kinds of calls that were answered during the interval, the most frequent first.
    pub calls: Vec<Calls>,
    /// Bags, in the order of their names.
    pub bags: Vec<Bag>,
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    /// Its directory, or `metadata`.
    pub place: String,
    /// Its class; empty for the metadata store's log, which has no room of its own either.
    pub class: String,
    /// Bytes used, and bytes there.
    pub used: f64,
    /// See `used`.
    pub capacity: f64,
    /// Whether writers wait for room.
    pub full: bool,
    /// Whether it takes no writes after a failed write or sync.
    pub out_of_service: bool,
    /// Bytes read a second.
    pub read: f64,
    /// Bytes written a second.
    pub written: f64,
    /// Reads, writes and syncs.
    pub reads: Timed,
    /// See `reads`.
    pub writes: Timed,
    /// See `reads`.
    pub syncs: Timed,
}

/// How often something was done, and how long it took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timed {
    /// A second.
    pub rate: f64,
    /// Half took less.
    pub p50: f64,
    /// One in a hundred took longer.
    pub p99: f64,
}

/// Calls of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    /// The kind.
    pub kind: String,
    /// How many, and how long they took.
    pub timed: Timed,
    /// A second, of those answered with an error.
    pub failures: f64,
}

/// One bag.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bag {
    /// Its name.
    pub name: String,
    /// Chunks that wait for a consumer.
    pub waiting: f64,
    /// Chunks that consumers work on.
    pub granted: f64,
    /// Bytes pushed a second.
    pub pushed: f64,
    /// Bytes acknowledged a second.
    pub acknowledged: f64,
}

/// Two pages and the time between them.
struct Pair<'a> {
    before: &'a Page,
    now: &'a Page,
    seconds: f64,
}

impl Pair<'_> {
    /// How much a counter rose a second. One that fell began anew: the server was started again.
    fn rate(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let (before, now) = (self.before.sum(name, labels), self.now.sum(name, labels));
        risen(before, now) / self.seconds
    }

    fn timed(&self, name: &str, labels: &[(&str, &str)]) -> Timed {
        let before: BTreeMap<u64, f64> =
            self.before.buckets(name, labels).into_iter().map(|(bound, count)| (bound.to_bits(), count)).collect();
        let mut buckets = self.now.buckets(name, labels);
        for (bound, count) in &mut buckets {
            *count = risen(before.get(&bound.to_bits()).copied().unwrap_or(0.0), *count);
        }
        let all = buckets.last().map_or(0.0, |(_, count)| *count);
        Timed { rate: all / self.seconds, p50: quantile(&buckets, 0.5), p99: quantile(&buckets, 0.99) }
    }
}

fn risen(before: f64, now: f64) -> f64 {
    if now >= before { now - before } else { now }
}

/// The value below which this part of the events lies, by a straight line within its bucket; the last bound that is finite
/// for those above it. Zero of nothing.
fn quantile(buckets: &[(f64, f64)], part: f64) -> f64 {
    let wanted = buckets.last().map_or(0.0, |(_, count)| *count) * part;
    let (mut low, mut below) = (0.0, 0.0);
    for (bound, count) in buckets.iter().filter(|_| wanted > 0.0) {
        if *count >= wanted {
            return if bound.is_finite() { low + (bound - low) * (wanted - below) / (count - below) } else { low };
        }
        (low, below) = (*bound, *count);
    }
    0.0
}

impl Moment {
    /// What happened between these looks.
    pub fn between(before: &Look, now: &Look) -> Moment {
        let seconds = now.at.since(before.at).as_secs_f64().max(1e-6);
        let answer = now.answer.clone();
        let pair = Pair { before: &before.page, now: &now.page, seconds };
        let page = &now.page;
        let budget = |way: &str| {
            let labels = [("way", way)];
            (page.sum("stormwell_budget_used_bytes", &labels), page.sum("stormwell_budget_bytes", &labels))
        };
        let namespace = ["stormwell_files", "stormwell_directories", "stormwell_file_bytes"];
        Moment {
            seconds,
            ready: answer.ready,
            troubles: answer.troubles,
            counted: !page.is_empty(),
            console: answer.console,
            version: answer.version,
            process: answer.process,
            uptime: page.sum("stormwell_uptime_seconds", &[]),
            processors: pair.rate("process_cpu_seconds_total", &[]),
            memory: page.sum("process_resident_memory_bytes", &[]),
            budgets: [budget("incoming"), budget("outgoing")],
            connections: page.sum("stormwell_connections", &[]),
            sessions: page.sum("stormwell_sessions", &[]),
            // This very look is one of them.
            unanswered: (page.sum("stormwell_calls_unanswered", &[]) - 1.0).max(0.0),
            received: pair.rate("stormwell_received_bytes_total", &[]),
            sent: pair.rate("stormwell_sent_bytes_total", &[]),
            namespace: namespace.map(|name| page.sum(name, &[])),
            devices: devices(&pair),
            calls: calls(&pair),
            bags: bags(&pair),
        }
    }
}

fn said(labels: &Labels, name: &str) -> String {
    labels.get(name).cloned().unwrap_or_default()
}

fn devices(pair: &Pair<'_>) -> Vec<Device> {
    let known = pair.now.all("stormwell_device_capacity_bytes").iter();
    let known = known.map(|(labels, capacity)| (said(labels, "place"), said(labels, "class"), *capacity));
    let log = pair.now.all("stormwell_disk_written_bytes_total").iter();
    let log =
        log.filter(|(labels, _)| said(labels, "place") == "metadata").map(|_| ("metadata".into(), String::new(), 0.0));
    known
        .chain(log)
        .map(|(place, class, capacity)| {
            let labels = [("place", place.as_str())];
            let timed = |doing| pair.timed("stormwell_disk_seconds", &[("place", place.as_str()), ("doing", doing)]);
            let is = |name| pair.now.sum(name, &labels) > 0.0;
            Device {
                class,
                capacity,
                used: pair.now.sum("stormwell_device_used_bytes", &labels),
                full: is("stormwell_device_full"),
                out_of_service: is("stormwell_device_out_of_service"),
                read: pair.rate("stormwell_disk_read_bytes_total", &labels),
                written: pair.rate("stormwell_disk_written_bytes_total", &labels),
                reads: timed("read"),
                writes: timed("write"),
                syncs: timed("sync"),
                place,
            }
        })
        .collect()
}

fn calls(pair: &Pair<'_>) -> Vec<Calls> {
    let kinds = pair.now.all("stormwell_calls_total").iter().map(|(labels, _)| said(labels, "kind"));
    let mut calls: Vec<Calls> = kinds
        // How often somebody looks is no news to them.
        .filter(|kind| kind != "session_look")
        .map(|kind| {
            let labels = [("kind", kind.as_str())];
            let failures = pair.rate("stormwell_call_failures_total", &labels);
            Calls { timed: pair.timed("stormwell_call_seconds", &labels), failures, kind }
        })
        .filter(|calls| calls.timed.rate > 0.0)
        .collect();
    calls.sort_by(|one, other| other.timed.rate.total_cmp(&one.timed.rate).then_with(|| one.kind.cmp(&other.kind)));
    calls
}

fn bags(pair: &Pair<'_>) -> Vec<Bag> {
    let names = pair.now.all("stormwell_bag_waiting_chunks").iter();
    names
        .map(|(labels, waiting)| {
            let name = said(labels, "bag");
            let labels = [("bag", name.as_str())];
            Bag {
                waiting: *waiting,
                granted: pair.now.sum("stormwell_bag_granted_chunks", &labels),
                pushed: pair.rate("stormwell_bag_pushed_bytes_total", &labels),
                acknowledged: pair.rate("stormwell_bag_acknowledged_bytes_total", &labels),
                name,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::Look;
    use super::super::page::Page;
    use super::{Moment, quantile};
    use base::unit::Time;
    use client::LookAnswer;

    fn look(seconds: u64, page: &str) -> Look {
        Look { at: Time::from_nanos(seconds * 1_000_000_000), answer: LookAnswer::default(), page: Page::read(page) }
    }

    /// Rates are what rose over the time between, latencies those of the interval alone; a counter that fell began anew.
    #[test]
    fn between_two_looks() {
        let page = |written: u32, fast: u32, slow: u32| {
            format!(
                "stormwell_device_capacity_bytes{{place=\"/d\",class=\"ssd\"}} 100\n\
                 stormwell_disk_written_bytes_total{{place=\"/d\"}} {written}\n\
                 stormwell_disk_seconds_bucket{{place=\"/d\",doing=\"sync\",le=\"0.001\"}} {fast}\n\
                 stormwell_disk_seconds_bucket{{place=\"/d\",doing=\"sync\",le=\"+Inf\"}} {slow}\n"
            )
        };
        let moment = Moment::between(&look(1, &page(1000, 10, 10)), &look(3, &page(5000, 10, 14)));
        let device = &moment.devices[0];
        assert_eq!((moment.devices.len(), device.written, device.syncs.rate), (1, 2000.0, 2.0));
        assert_eq!(device.syncs.p50, 0.001, "all four of the interval were above the last finite bound");
        let again = Moment::between(&look(3, &page(5000, 10, 14)), &look(4, &page(300, 1, 1)));
        assert_eq!((again.devices[0].written, again.devices[0].syncs.rate), (300.0, 1.0));
        assert!(!Moment::between(&look(1, ""), &look(2, "")).counted);
    }

    /// A quantile lies in the bucket where that part of the events ends.
    #[test]
    fn quantiles() {
        let buckets = [(0.1, 0.0), (0.2, 50.0), (0.4, 100.0), (f64::INFINITY, 100.0)];
        assert_eq!(quantile(&buckets, 0.5), 0.2);
        assert!((quantile(&buckets, 0.75) - 0.3).abs() < 1e-9);
        assert_eq!(quantile(&[(f64::INFINITY, 4.0)], 0.5), 0.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
        assert_eq!(quantile(&[(0.1, 0.0), (f64::INFINITY, 0.0)], 0.99), 0.0);
    }
}
