//! Comparing a store that was started again with what was acknowledged before.

use super::content;
use super::load::Worker;
use super::model::{Actual, Entry};
use super::report::{Finding, Found, Kind};
use super::store::CAPACITY;
use base::buffer::Pool;
use base::error::ErrorKind;
use base::unit::show_bytes;
use bytes::Bytes;
use client::{Client, CreateOptions};
use std::collections::BTreeMap;
use std::time::Duration;

/// Space is looked at so often, after a pause each, before it counts as leaked: 90 s. Groups that a killed client was writing
/// belong to its session, whose lease is 30 s.
const LOOKS: u32 = 900;
const PAUSE: Duration = Duration::from_millis(100);

/// Compares a worker's directory and bag. What was found is what the worker goes on from.
pub async fn check(worker: &mut Worker, client: &Client) -> Found<()> {
    check_files(worker, client).await?;
    worker.bag.check(client, &mut worker.counts).await
}

/// Compares a worker's directory.
pub async fn check_files(worker: &mut Worker, client: &Client) -> Found<()> {
    let mut found = BTreeMap::new();
    let mut directories = vec![worker.root.clone()];
    match client.stat(&worker.root).await {
        Ok(_) => drop(found.insert(worker.root.clone(), Actual::Directory)),
        Err(error) if error.kind() == ErrorKind::NotFound => directories.clear(),
        Err(error) => return Err(error.into()),
    }
    while let Some(directory) = directories.pop() {
        let mut listing = client.list_all(&directory);
        while let Some(entry) = listing.next().await? {
            worker.counts.compared += 1;
            let path = format!("{directory}/{}", entry.name);
            if entry.attributes.directory {
                directories.push(path.clone());
                found.insert(path, Actual::Directory);
                continue;
            }
            let bytes = client.read_small(&path).await?;
            worker.counts.bytes += bytes.len() as u64;
            let contents = worker.model.contents(&path);
            let same = contents.into_iter().filter(|number| content::bytes(*number, 0, bytes.len()) == bytes).collect();
            found.insert(path, Actual::File(bytes.len() as u64, same));
        }
    }
    worker.model.settle(&found)
}

/// Compares the namespace's totals with what all workers have.
pub async fn check_totals(workers: &[Worker], client: &Client) -> Found<()> {
    let answer = client.devices().await?;
    let entries = || workers.iter().flat_map(|worker| worker.model.now.values());
    let files = entries().filter(|entry| matches!(entry, Entry::File(_))).count() as u64;
    // The root directory is nobody's.
    let directories = entries().count() as u64 - files + 1;
    if (answer.files, answer.directories) != (files, directories) {
        let text = format!(
            "the namespace counts {} files and {} directories; there are {files} and {directories}",
            answer.files, answer.directories
        );
        return Err(Finding::new(Kind::Corrupt, text));
    }
    match answer.devices.into_iter().find(|device| !device.trouble.is_empty()) {
        None => Ok(()),
        Some(device) => Err(Finding::new(Kind::Trouble, format!("{}: {}", device.place, device.trouble))),
    }
}

/// After everything was deleted: no chunk stays, and what is used falls to the reserve and the two data segments that are
/// always there. The log lets go of space only as it moves on, so something is written meanwhile.
pub async fn check_space(client: &Client) -> Found<()> {
    let settings = chunk::Settings::for_capacity(CAPACITY, Pool::new(0));
    let least = settings.reserve + 2 * settings.data_segment;
    let mut last = String::new();
    for _ in 0..LOOKS {
        let devices = client.devices().await?.devices;
        let empty = devices.iter().all(|device| device.chunks == 0 && device.live == 0);
        if empty && devices.iter().all(|device| device.used <= least) {
            return Ok(());
        }
        let shown = devices.iter().map(|device| {
            format!("{} chunks, {} live, {} used", device.chunks, show_bytes(device.live), show_bytes(device.used))
        });
        last = shown.collect::<Vec<_>>().join("; ");
        if empty {
            nudge(client).await?;
        }
        tokio::time::sleep(PAUSE).await;
    }
    let text = format!("with everything deleted there are still {last}; at most {} should be used", show_bytes(least));
    Err(Finding::new(Kind::Leaked, text))
}

/// Writes 4 MiB to every device, about, and deletes them.
async fn nudge(client: &Client) -> Found<()> {
    for _ in 0..4 {
        let mut writer = client.create("/nudge", CreateOptions::default()).await?;
        writer.write(Bytes::from(vec![7; 2 << 20])).await?;
        writer.close().await?;
        client.delete("/nudge", false).await?;
    }
    Ok(())
}
