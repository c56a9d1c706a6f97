//! The end of a history: everything is compared, then deleted, and the space has to come back.

use super::again;
use super::bags::{self, Puller};
use super::files::Files;
use super::filled;
use super::hardware::Hardware;
use super::hdfs;
use super::oracle::{Broken, Check};
use super::passing;
use super::returned;
use super::rivals;
use super::scene::{CALL_BOUND, Scene};
use super::witness;
use base::disk::FileKind;
use base::env::{Clock, Random};
use base::error::ErrorKind;
use base::unit::MIB;
use client::{Client, Device};
use sim::random::SimRandom;
use std::sync::Arc;
use std::time::Duration;

/// Bags of every history.
const BAGS: usize = 2;

/// What is kept back on every device, see `SimWorld::chunk_settings`.
const RESERVE: u64 = 4 * MIB;

/// What an empty device holds at most when space is short: two data segments, journal segments of two checkpoints, and those.
const EMPTY_MAX: u64 = 2 * 2 * MIB + 2 * MIB + MIB / 2;

/// Who compares and deletes.
pub struct Ending {
    scene: Arc<Scene>,
    random: SimRandom,
    client: Client,
    files: Vec<Files>,
}

impl Ending {
    /// `client` does it, when all other clients are done and no fault fires any more.
    pub fn new(scene: Arc<Scene>, random: &SimRandom, client: Client) -> Ending {
        Ending { scene, random: SimRandom::new(random.seed()), client, files: Vec::new() }
    }

    /// Compares everything with what was promised, and empties the bags. `settled`: no call is under way anywhere.
    pub async fn compare(&mut self, directories: Vec<String>, settled: bool) -> Check<()> {
        let (scene, client) = (&self.scene, &self.client);
        for directory in directories {
            let random = self.random.fork(&directory);
            let mut files = Files::new(scene.clone(), client.clone(), random, "finale", &directory);
            files.look_at_all(settled).await?;
            self.files.push(files);
        }
        witness::compare(scene, "finale", client).await?;
        let hdfs = [hdfs::settings::DIRECTORY, hdfs::taken::DIRECTORY];
        let store = [again::DIRECTORY, filled::DIRECTORY, returned::DIRECTORY, rivals::DIRECTORY, witness::DIRECTORY];
        for directory in store.into_iter().chain(hdfs) {
            match scene.insist("finale", "delete_all", || client.delete(directory, true)).await? {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Broken(format!("{directory}: {error}")));
                }
                _ => (),
            }
        }
        for number in 0..BAGS {
            let bag = bags::open(scene, "finale", client, number).await?;
            let random = self.random.fork(&bags::name_of(number));
            Puller::new(scene.clone(), random, &format!("finale of bag {number}"), number, bag).finish().await?;
            let name = bags::name_of(number);
            let deleted = scene.insist("finale", "bag_delete", || client.bag_delete(&name)).await?;
            deleted.map_err(|error| Broken(format!("{name}: {error}")))?;
        }
        passing::end(scene, "finale", client).await
    }

    /// Reads all files once more, after bits of them rotted, and deletes them.
    pub async fn clear(&mut self) -> Check<()> {
        for mut files in std::mem::take(&mut self.files) {
            files.read_rotten().await?;
            files.clear().await?;
        }
        Ok(())
    }

    /// Waits until nothing is left on any device of `capacity` bytes, `CALL_BOUND` at most.
    pub async fn space_comes_back(&self, machines: &[Arc<Hardware>]) -> Check<()> {
        let (scene, client) = (&self.scene, &self.client);
        let begun = scene.clock.now();
        // An engine gives space back when less than a quarter is free beside the reserve: so much may stay in use, no more.
        let lazy = |device: &Device| (device.capacity / 4 * 3).saturating_sub(RESERVE).max(EMPTY_MAX);
        loop {
            let asked = scene.insist("finale", "devices", || client.devices()).await?;
            let devices = asked.map_err(|error| Broken(format!("devices: {error}")))?.devices;
            let empty = |device: &Device| device.chunks == 0 && device.live == 0 && device.used <= lazy(device);
            if devices.iter().all(empty) {
                return Ok(());
            }
            if scene.clock.now().since(begun) > CALL_BOUND {
                for device in machines.iter().flat_map(|hardware| &hardware.devices) {
                    scene.say(|| format!("left on a device: {:?}", device.files()));
                }
                let left: Vec<String> = devices
                    .iter()
                    .map(|device| format!("{} chunks, {} live, {} used", device.chunks, device.live, device.used))
                    .collect();
                return Err(Broken(format!("everything was deleted and space does not come back: {left:?}")));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// Turns over bits all over the data of all devices of a machine.
pub fn rot(hardware: &Hardware, random: &SimRandom) {
    for device in &hardware.devices {
        for (file, length) in device.files() {
            let bits = if file.kind == FileKind::Data { random.below(30) } else { 0 };
            for _ in 0..bits {
                device.rot(file, random.below(length), random.below(8) as u32);
            }
        }
    }
}
