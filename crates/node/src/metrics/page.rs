//! What a node tells about itself in numbers: the page `/metrics`. Hot paths only add to atomics; everything else is asked
//! for when somebody looks.

use super::Metrics;
use crate::exposition::{Kind, Page};
use crate::metadata::Metadata;
use crate::metered::{DiskStats, Doing};
use crate::node::{Node, Role};
use base::error::{ErrorKind, Result};
use meta::Part;
use net::message::device::ScrubState;
use net::message::{bag, kind_name};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bags that get metrics of their own, in the order of their names. Prometheus keeps a series for each.
const BAGS_MAX: usize = 200;

/// The page. An error if the metadata store does not answer. Of its names only the one that leads says how many there are.
pub async fn page(node: &Node) -> Result<String> {
    let mut page = Page::default();
    process(&mut page, node);
    calls(&mut page, &node.metrics);
    budgets(&mut page, &node.metrics);
    devices(&mut page, node);
    scrubs(&mut page, node);
    disks(&mut page, node);
    keeping(&mut page, node);
    if let Some(keeper) = node.keeper() {
        let help = "Files whose writer is gone that ended without bytes which were synced, or may have been; the log names them.";
        page.single("stormwell_damaged_ends_total", Kind::Counter, help, load(&node.metrics.damaged_ends));
        // Of several only the one that leads is asked: another one may be opening its store, for long.
        if node.metadata().is_ok() {
            match namespace(&mut page, &keeper.metadata).await {
                Err(error) if error.kind() != ErrorKind::Moved => return Err(error),
                _ => (),
            }
        }
        bags(&mut page, node).await;
    }
    let help = "Devices of this store that could not be opened at the start.";
    page.single("stormwell_devices_missing", Kind::Gauge, help, node.missing.len());
    Ok(page.finish())
}

/// Of a node that is told to keep the metadata, alone or with others: whether it does.
fn keeping(page: &mut Page, node: &Node) {
    let keeps = match &node.role {
        Role::Keeper(_) => true,
        Role::Several(several) if several.formation.is_some() => several.keeps_badly().is_empty(),
        _ => return,
    };
    let part = node.keeper().map(|keeper| keeper.metadata.part());
    let help = "1 while this node keeps the metadata; 0 if it is told to and does not: its log says why.";
    page.single("stormwell_keeper_keeps", Kind::Gauge, help, u64::from(keeps));
    let help = "1 while this node leads those that keep the metadata, or keeps it alone.";
    page.single("stormwell_keeper_leads", Kind::Gauge, help, u64::from(part.is_some_and(|part| part.leads())));
    let is_led = part.is_some_and(|part| !matches!(part, Part::Follows { leader: None, .. }));
    let help = "1 while this node knows which keeper leads; 0 while it does not, as for the second of an election.";
    page.single("stormwell_keeper_led", Kind::Gauge, help, u64::from(is_led));
    let help = "The keepers' term as far as this one knows; it rises whenever another one leads.";
    page.single("stormwell_keeper_term", Kind::Gauge, help, part.map_or(0, |part| part.term()));
}

fn process(page: &mut Page, node: &Node) {
    page.metric("stormwell_build_info", Kind::Gauge, "Always 1; the labels say what runs.");
    let (version, id) = (env!("CARGO_PKG_VERSION"), node.id.to_string());
    page.sample("stormwell_build_info", &[("version", version), ("node", &id)], 1);
    let uptime = node.clock.now().since(node.started).as_secs_f64();
    page.single("stormwell_uptime_seconds", Kind::Gauge, "Time since this node began to serve.", uptime);
    if let Ok(usage) = os::process::usage(std::process::id()) {
        let help = "Processor time of the server, user and kernel.";
        page.single("process_cpu_seconds_total", Kind::Counter, help, usage.processor.as_secs_f64());
        let help = "Memory that the server holds.";
        page.single("process_resident_memory_bytes", Kind::Gauge, help, usage.resident_bytes);
    }
}

fn calls(page: &mut Page, metrics: &Metrics) {
    let net = &metrics.net;
    let heard: Vec<_> = net
        .answers
        .by_kind()
        .map(|(kind, stats)| (label_of(kind), stats.took.counted(), load(&stats.failed)))
        .filter(|(_, counted, _)| counted.count() > 0)
        .collect();
    page.metric("stormwell_calls_total", Kind::Counter, "Calls that were answered, by kind; failed ones too.");
    for (kind, counted, _) in &heard {
        page.sample("stormwell_calls_total", &[("kind", kind)], counted.count());
    }
    page.metric("stormwell_call_failures_total", Kind::Counter, "Calls that were answered with an error, by kind.");
    for (kind, _, failed) in &heard {
        page.sample("stormwell_call_failures_total", &[("kind", kind)], failed);
    }
    let help = "From when a call was read until its answer was queued, by kind. Pulls wait for a chunk to come.";
    page.metric("stormwell_call_seconds", Kind::Histogram, help);
    for (kind, counted, _) in &heard {
        page.histogram("stormwell_call_seconds", &[("kind", kind)], counted);
    }
    let answered: u64 = heard.iter().map(|(_, counted, _)| counted.count()).sum();
    let help = "Calls that are being worked on.";
    page.single("stormwell_calls_unanswered", Kind::Gauge, help, load(&net.calls).saturating_sub(answered));
    let open = load(&net.connections_open);
    page.single("stormwell_connections", Kind::Gauge, "Connections that are open.", open);
    let help = "Connections taken since the start.";
    page.single("stormwell_connections_total", Kind::Counter, help, load(&net.connections));
    let help = "Connections refused or ended because others need their place or what they held.";
    page.single("stormwell_refused_connections_total", Kind::Counter, help, load(&net.refused_connections));
    let help = "Faults in Stormwell itself that ended the one connection whose task they were in.";
    page.single("stormwell_panics_total", Kind::Counter, help, base::fault::contained_faults());
    let help = "Frames that ended their connection: damaged, out of bounds, unknown.";
    page.single("stormwell_refused_frames_total", Kind::Counter, help, load(&net.refused_frames));
    let help = "Bytes read from sockets.";
    page.single("stormwell_received_bytes_total", Kind::Counter, help, load(&net.bytes_in));
    let help = "Bytes written to sockets.";
    page.single("stormwell_sent_bytes_total", Kind::Counter, help, load(&net.bytes_out));
}

/// `file_make_directory` for `file::MakeDirectory`.
fn label_of(kind: u16) -> String {
    let mut label = String::new();
    for letter in kind_name(kind).unwrap_or("unknown").replace("::", "_").chars() {
        if letter.is_ascii_uppercase() && !label.ends_with('_') && !label.is_empty() {
            label.push('_');
        }
        label.push(letter.to_ascii_lowercase());
    }
    label
}

fn budgets(page: &mut Page, metrics: &Metrics) {
    let budgets = [("incoming", &metrics.incoming), ("outgoing", &metrics.outgoing)];
    page.metric("stormwell_budget_bytes", Kind::Gauge, "Memory that payload on its way may take.");
    for (way, budget) in budgets {
        page.sample("stormwell_budget_bytes", &[("way", way)], budget.total());
    }
    page.metric("stormwell_budget_used_bytes", Kind::Gauge, "Memory that payload on its way takes now.");
    for (way, budget) in budgets {
        let used = budget.total().saturating_sub(budget.available());
        page.sample("stormwell_budget_used_bytes", &[("way", way)], used);
    }
}

/// One number of a device's usage: the metric, what it says, the number.
type OfUsage = (&'static str, &'static str, fn(&chunk::Usage) -> u64);

const OF_USAGE: [OfUsage; 8] = [
    ("stormwell_device_capacity_bytes", "What the device may use.", |usage| usage.capacity),
    ("stormwell_device_used_bytes", "What the device's files occupy, dead bytes included.", |usage| usage.used),
    ("stormwell_device_live_bytes", "Bytes of chunks that exist.", |usage| usage.live),
    ("stormwell_device_reserve_bytes", "Kept back for deletes and repair.", |usage| usage.reserve),
    ("stormwell_device_chunks", "Chunks that exist.", |usage| usage.chunks),
    ("stormwell_device_full", "1 while writers wait for room.", |usage| u64::from(usage.full)),
    ("stormwell_device_out_of_service", "1 after a failed write or sync: only reads go on.", |usage| {
        u64::from(usage.failed)
    }),
    ("stormwell_device_damaged_chunks", "Chunks found damaged since the start.", |usage| usage.damaged),
];

fn devices(page: &mut Page, node: &Node) {
    let usages: Vec<_> = node.served().map(|device| (device, device.usage())).collect();
    for (name, help, number) in OF_USAGE {
        page.metric(name, Kind::Gauge, help);
        for (device, usage) in &usages {
            let labels = [("place", device.place.as_str()), ("class", device.class.name())];
            page.sample(name, &labels, number(usage));
        }
    }
}

/// One number of a device's last scrub: the metric, what it says, the number.
type OfScrub = (&'static str, &'static str, fn(&ScrubState) -> u64);

const OF_SCRUB: [OfScrub; 3] = [
    ("stormwell_device_scrub_running", "1 while the device is scrubbed.", |state| u64::from(state.running)),
    ("stormwell_device_scrub_ended_seconds", "When the last scrub ended, since 1970; 0: none did.", |state| {
        state.ended_ms / 1000
    }),
    ("stormwell_device_scrub_damaged_bytes", "Bytes that the last scrub found damaged.", |state| state.damaged_bytes),
];

fn scrubs(page: &mut Page, node: &Node) {
    for (name, help, number) in OF_SCRUB {
        page.metric(name, Kind::Gauge, help);
        for device in node.served() {
            let state = device.scrubbed().map(|scrubbed| scrubbed.state()).unwrap_or_default();
            page.sample(name, &[("place", device.place.as_str())], number(&state));
        }
    }
}

/// One counter of a disk: the metric, what it says, the counter.
type OfDisk = (&'static str, &'static str, fn(&DiskStats) -> &AtomicU64);

const OF_DISK: [OfDisk; 4] = [
    ("stormwell_disk_read_bytes_total", "Bytes read from the disk or its page cache.", |stats| &stats.bytes_read),
    ("stormwell_disk_written_bytes_total", "Bytes written to the disk.", |stats| &stats.bytes_written),
    ("stormwell_disk_punched_bytes_total", "Bytes given back to the file system.", |stats| &stats.bytes_punched),
    ("stormwell_disk_checkpoints_total", "Checkpoints of the device's index.", |stats| &stats.checkpoints),
];

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn disks(page: &mut Page, node: &Node) {
    let mut all: Vec<(&str, &DiskStats)> = Vec::new();
    for (id, stats) in &node.metrics.disks {
        if let Some(device) = node.devices.get(id) {
            all.push((&device.place, stats));
        }
    }
    if let Some(keeper) = node.keeper() {
        all.push(("metadata", &keeper.disk));
    }
    let help = "How long disk operations took, by what they do.";
    page.metric("stormwell_disk_seconds", Kind::Histogram, help);
    for (place, stats) in &all {
        for doing in Doing::ALL {
            let labels = [("place", *place), ("doing", doing.name())];
            page.histogram("stormwell_disk_seconds", &labels, &stats.took[doing as usize].counted());
        }
    }
    page.metric("stormwell_disk_failures_total", Kind::Counter, "Disk operations that failed, by what they do.");
    for (place, stats) in &all {
        for doing in Doing::ALL {
            let labels = [("place", *place), ("doing", doing.name())];
            page.sample("stormwell_disk_failures_total", &labels, load(&stats.failed[doing as usize]));
        }
    }
    for (name, help, number) in OF_DISK {
        page.metric(name, Kind::Counter, help);
        for (place, stats) in &all {
            page.sample(name, &[("place", place)], load(number(stats)));
        }
    }
}

async fn namespace(page: &mut Page, metadata: &Metadata) -> Result<()> {
    let totals = crate::translate::totals(metadata.ask(meta::Request::Usage).await?);
    let sessions = crate::translate::sessions(metadata.ask(meta::Request::Sessions).await?);
    page.single("stormwell_files", Kind::Gauge, "Files of the store.", totals.files);
    page.single("stormwell_directories", Kind::Gauge, "Directories of the store.", totals.directories);
    page.single("stormwell_file_bytes", Kind::Gauge, "Bytes of all files.", totals.bytes);
    page.single("stormwell_sessions", Kind::Gauge, "Sessions of clients that are open.", sessions);
    lacking(page, metadata).await
}

/// What lacks copies, by how many are left.
async fn lacking(page: &mut Page, metadata: &Metadata) -> Result<()> {
    let request = meta::Request::Lacking { after: None, limit: 0, avoid: Vec::new() };
    let meta::Reply::Lacking { lacks, .. } = metadata.ask(request).await? else {
        unreachable!("how many lack replicas was asked for")
    };
    let left = [("none", lacks.none_left), ("one", lacks.one_left), ("more", lacks.fewer)];
    let help = "Groups of closed files that have fewer copies than they shall have, by how many are left.";
    page.metric("stormwell_lacking_groups", Kind::Gauge, help);
    for (left, (groups, _)) in left {
        page.sample("stormwell_lacking_groups", &[("left", left)], groups);
    }
    page.metric("stormwell_lacking_bytes", Kind::Gauge, "Their bytes.");
    for (left, (_, bytes)) in left {
        page.sample("stormwell_lacking_bytes", &[("left", left)], bytes);
    }
    Ok(())
}

/// One number of a bag: the metric, its kind, what it says, the number.
type OfBag = (&'static str, Kind, &'static str, fn(&bag::Info) -> u64);

const OF_BAG: [OfBag; 6] = [
    ("stormwell_bag_waiting_chunks", Kind::Gauge, "Chunks that wait for a consumer.", |info| info.waiting),
    ("stormwell_bag_granted_chunks", Kind::Gauge, "Chunks that consumers work on.", |info| info.granted),
    ("stormwell_bag_pushed_chunks_total", Kind::Counter, "Chunks ever pushed.", |info| info.pushed),
    ("stormwell_bag_pushed_bytes_total", Kind::Counter, "Bytes ever pushed.", |info| info.pushed_bytes),
    ("stormwell_bag_acknowledged_chunks_total", Kind::Counter, "Chunks acknowledged.", |info| info.acknowledged),
    ("stormwell_bag_acknowledged_bytes_total", Kind::Counter, "Bytes acknowledged.", |info| info.acknowledged_bytes),
];

async fn bags(page: &mut Page, node: &Node) {
    let Ok(leading) = node.leading() else { return };
    let mut bags = match node.list_bags(&leading, bag::List { after: String::new(), limit: BAGS_MAX as u32 }).await {
        Ok(answer) => answer.bags,
        Err(_) => Vec::new(),
    };
    // A counter that is less than it was would be taken for one that began anew.
    bags.retain(|info| info.unasked == 0);
    for (name, kind, help, number) in OF_BAG {
        page.metric(name, kind, help);
        for info in &bags {
            page.sample(name, &[("bag", &info.name)], number(info));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::label_of;

    /// Labels of kinds are words with underscores, as metrics are named.
    #[test]
    fn labels() {
        assert_eq!(label_of(18), "file_make_directory");
        assert_eq!(label_of(69), "bag_push");
        assert_eq!(label_of(9999), "unknown");
    }
}
