//! Who starts and ends the node and its clients, makes trouble, and checks everything at the end.

use super::bags::{self, Puller, Pusher};
use super::files::Files;
use super::hardware::{End, Process, SimWorld};
use super::oracle::{Broken, Check};
use super::passing;
use super::returned;
use super::rivals::{self, Rivals};
use super::scene::{ADDRESS, CALL_BOUND, Scene};
use super::witness;
use base::disk::FileKind;
use base::env::{Clock, Random};
use base::error::ErrorKind;
use base::limit::SESSION_LEASE;
use base::planted::Planted;
use base::policy::Class;
use base::unit::MIB;
use node::{DeviceSetting, Running, Settings};
use sim::disk::{SimFaults, When};
use sim::net::{Gone, NetFaults, SimNet};
use sim::random::SimRandom;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Troubles that a director makes; those of the disks and of the network have names of their own there.
pub const TROUBLES: [&str; 16] = [
    "kill",
    "power loss",
    "end after an acknowledgement",
    "stop at an operation of a device",
    "stop at an operation of the log",
    "stop at an operation of the tree",
    "slow disks",
    "clock jump",
    "read errors while opening",
    "client death",
    "stop at a checkpoint",
    "failing sync of a device",
    "failing log",
    "failing tree",
    "read errors of the log while opening",
    "rot",
];

/// Faults of disks and network that a run should see.
pub const FAULTS: [&str; 15] = [
    "torn",
    "dropped",
    "create_dropped",
    "removed_file_back",
    "read_error",
    "write_error",
    "sync_error",
    "tree_read_error",
    "tree_write_error",
    "tree_sync_error",
    "no_space",
    "connection_cut",
    "delay",
    "silence",
    "crash_at",
];

/// Everything a workload does.
pub const OPERATIONS: [&str; 42] = [
    "connect",
    "make_directory",
    "create",
    "append",
    "write",
    "hflush",
    "sync",
    "close",
    "leave_open",
    "put",
    "put_flush",
    "read",
    "read_range",
    "read_while_written",
    "look",
    "delete",
    "rename",
    "stat",
    "list",
    "delete_all",
    "bag_create",
    "bag_seal",
    "bag_stat",
    "bag_delete",
    "push",
    "push_flush",
    "pull",
    "pull_given_up",
    "acknowledge",
    "acknowledge_flush",
    "acknowledgement_refused",
    "chunk_dropped",
    "append_synced",
    "renew",
    "look_for_the_end",
    "asked_after_the_end",
    "look_for_anothers",
    "contended",
    "bag_list",
    "read_out_of_service",
    "read_rotten",
    "devices",
];

/// What a client does.
#[derive(Clone, Copy, Debug)]
enum Role {
    Files(usize),
    Push(usize),
    Pull(usize),
    Returned,
    Witness,
    Rivals,
    Passing,
}

/// A client that plays.
struct Player {
    role: Role,
    life: u64,
    host: SimNet,
    task: AbortHandle,
    done: bool,
}

/// How a client ended: its place, which life of it, and what it found.
type Outcome = (usize, u64, Check<()>);

/// The one who runs a history.
pub struct Director {
    scene: Arc<Scene>,
    planted: Option<Planted>,
    random: SimRandom,
    process: Arc<Process>,
    node: Option<Running>,
    node_host: SimNet,
    lives: u64,
    /// Bytes that each device may use.
    capacity: u64,
    faults: Vec<SimFaults>,
    net_faults: NetFaults,
    /// A write failed, or will, in this life of the node.
    has_write_error: bool,
    /// How the node ends when a device stops by itself.
    end_when_stopped: End,
    /// Something left service and comes back only when the node starts again: now, or before the end.
    restart_soon: bool,
    must_restart: bool,
    /// Syncs that had failed when the node last ended.
    failed_syncs: u64,
    players: Vec<Player>,
    outcomes: (mpsc::Sender<Outcome>, mpsc::Receiver<Outcome>),
    troubles: BTreeMap<&'static str, u64>,
}

/// Bags of every history.
const BAGS: usize = 2;

/// Starts that may fail one after another while faults fire.
const STARTS_MAX: u64 = 12;

/// What is kept back on every device, see `SimWorld::chunk_settings`.
const RESERVE: u64 = 4 * MIB;

/// What an empty device holds at most when space is short: two data segments, journal segments of two checkpoints, and those.
const EMPTY_MAX: u64 = 2 * 2 * MIB + 2 * MIB + MIB / 2;

impl Director {
    /// A director of a scene in which nothing runs.
    pub fn new(scene: Arc<Scene>, planted: Option<Planted>) -> Director {
        let random = scene.random.fork("director");
        let devices = scene.hardware.devices.len();
        // On the smallest an engine has hardly room for a few segments.
        let capacity = [10, 16, 32, 48][random.below(4) as usize] * MIB;
        Director {
            node_host: scene.net.host("node 0"),
            scene,
            planted,
            random,
            process: Arc::default(),
            node: None,
            lives: 0,
            capacity,
            faults: vec![SimFaults::default(); devices],
            net_faults: NetFaults::default(),
            has_write_error: false,
            end_when_stopped: End::Kill,
            restart_soon: false,
            must_restart: false,
            failed_syncs: 0,
            players: Vec::new(),
            outcomes: mpsc::channel(64),
            troubles: BTreeMap::new(),
        }
    }

    /// Faults that fired, of all kinds.
    pub fn faults(&self) -> BTreeMap<&'static str, u64> {
        let mut faults = self.troubles.clone();
        let hardware = &self.scene.hardware;
        let disks = hardware.devices.iter().chain([&hardware.log]).flat_map(sim::disk::SimDevice::fired);
        for (name, count) in disks.chain(hardware.tree.fired()).chain(self.scene.net.fired()) {
            *faults.entry(name).or_default() += count;
        }
        faults
    }

    fn count(&mut self, trouble: &'static str) {
        self.scene.say(|| format!("trouble: {trouble}"));
        *self.troubles.entry(trouble).or_default() += 1;
    }

    /// Starts the node. It may stop or be refused by its disks while it starts; then it is started again.
    pub async fn start(&mut self) -> Check<()> {
        let mut reason = String::new();
        for _ in 0..STARTS_MAX {
            self.lives += 1;
            self.process = Arc::default();
            self.node_host = self.scene.net.host(&format!("node {}", self.lives));
            let device = |number| DeviceSetting {
                directory: PathBuf::from(format!("/{number}")),
                class: Class::Ssd,
                capacity: Some(self.capacity),
            };
            let settings = Settings::new(ADDRESS, (0..self.faults.len()).map(device).collect());
            let world = Arc::new(SimWorld::new(self.scene.hardware.clone(), self.process.clone(), self.planted));
            let chance = Arc::new(self.scene.random.fork(&format!("node {}", self.lives)));
            let net = Arc::new(self.node_host.clone());
            let starting = node::start(settings, world, net, self.scene.clock.clone(), chance);
            let started = tokio::select! {
                biased;
                () = self.scene.hardware.stopped.notified() => None,
                started = tokio::time::timeout(CALL_BOUND, starting) => Some(started),
            };
            self.scene.count("starts");
            match started {
                // A device that refused reads is left out; this machine would rather start again with all.
                Some(Ok(Ok(running))) if !running.missing.is_empty() => reason = running.missing[0].why.clone(),
                Some(Ok(Ok(running))) => {
                    self.faults.iter_mut().for_each(|faults| faults.read_error = When::Never);
                    self.apply_faults();
                    self.spare_metadata();
                    self.scene.say(|| format!("node {} runs: {:?}", self.lives, running.notes));
                    self.node = Some(running);
                    return Ok(());
                }
                Some(Ok(Err(error))) => reason = error.to_string(),
                Some(Err(_)) => return Err(Broken("the node does not start in time".to_string())),
                None => reason = "a device stopped".to_string(),
            }
            self.scene.say(|| format!("node {} does not start: {reason}", self.lives));
            self.end(self.end_when_stopped);
            self.faults.iter_mut().for_each(|faults| faults.read_error = When::Never);
            self.apply_faults();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(Broken(format!("the node does not start: {reason}")))
    }

    /// Ends the node here and now.
    fn end(&mut self, how: End) {
        // What a failed sync did not make durable is in the system's cache and nobody knows: after it a machine starts anew.
        let failed_syncs = self.scene.hardware.failed_syncs();
        let how = if failed_syncs > self.failed_syncs { End::PowerLoss } else { how };
        self.failed_syncs = failed_syncs;
        (self.restart_soon, self.must_restart) = (false, false);
        {
            let mut oracle = self.scene.oracle();
            oracle.ends += 1;
            oracle.out_of_service = false;
            if how == End::PowerLoss {
                oracle.power_lost();
            }
        }
        self.count(if how == End::Kill { "kill" } else { "power loss" });
        self.scene.hardware.end(how);
        let silent = how == End::PowerLoss && self.random.one_in(2);
        self.node_host.leave(if silent { Gone::Silent } else { Gone::Reset });
        self.process.end();
        self.node = None;
        self.has_write_error = false;
        // Whatever was to stop has stopped.
        self.faults.iter_mut().for_each(|faults| faults.crash_at = None);
        self.apply_faults();
        self.spare_metadata();
    }

    /// Log and tree of the metadata store behave from here on.
    fn spare_metadata(&self) {
        let hardware = &self.scene.hardware;
        hardware.tree.crash_at(None);
        hardware.tree.error_at(None);
        hardware.tree.read_error_at(None);
        hardware.log.set_faults(SimFaults::default());
    }

    fn apply_faults(&self) {
        for (device, faults) in self.scene.hardware.devices.iter().zip(&self.faults) {
            device.set_faults(faults.clone());
        }
        self.scene.net.set_faults(self.net_faults);
    }

    /// Ends the node, waits a little, and starts it again.
    async fn restart(&mut self, how: End) -> Check<()> {
        if self.random.one_in(2) {
            // Much is under way when it ends.
            self.scene.hardware.slowness.store(50 + self.random.below(400), Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(self.random.below(600))).await;
            self.scene.hardware.slowness.store(0, Ordering::Relaxed);
        }
        self.end(how);
        let pause = match self.random.below(8) {
            0 => 11_000 + self.random.below(5_000),
            1..4 => self.random.below(3_000),
            _ => self.random.below(50),
        };
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if self.random.one_in(4) {
            let device = self.random.below(self.faults.len() as u64) as usize;
            self.count("read errors while opening");
            self.faults[device].read_error = When::OneIn(1 + self.random.below(30));
            self.apply_faults();
        }
        if self.random.one_in(8) {
            self.count("read errors of the log while opening");
            let read_error = When::OneIn(1 + self.random.below(10));
            self.scene.hardware.log.set_faults(SimFaults { read_error, ..SimFaults::default() });
        }
        self.start().await
    }

    /// Lets clients work and makes trouble until all of them are done.
    pub async fn work(&mut self) -> Check<()> {
        let mut roles = vec![Role::Push(0), Role::Pull(0), Role::Pull(0), Role::Push(1), Role::Pull(1), Role::Files(0)];
        roles.extend((1..1 + self.random.below(3) as usize).map(Role::Files));
        for (role, rare) in [(Role::Returned, 4), (Role::Witness, 2), (Role::Rivals, 3), (Role::Passing, 3)] {
            if self.random.one_in(rare) {
                roles.push(role);
            }
        }
        for role in roles {
            let player = self.player(self.players.len(), role, 1, Duration::ZERO);
            self.players.push(player);
        }
        let mut left = 8 + self.random.below(12);
        while self.players.iter().any(|player| !player.done) {
            let pause = match self.random.below(3) {
                0 => self.random.below(100),
                1 => self.random.below(1_000),
                _ => self.random.below(4_000),
            };
            tokio::select! {
                biased;
                () = self.scene.hardware.stopped.notified() => self.restart(self.end_when_stopped).await?,
                () = self.scene.end_now.notified(), if left > 0 => {
                    left -= 1;
                    self.count("end after an acknowledgement");
                    self.end(if self.random.one_in(3) { End::Kill } else { End::PowerLoss });
                    self.start().await?;
                    if left == 0 {
                        self.calm();
                    }
                }
                outcome = self.outcomes.1.recv() => self.note(outcome)?,
                () = tokio::time::sleep(Duration::from_millis(pause)), if left > 0 => {
                    left -= 1;
                    self.trouble().await?;
                    if left == 0 {
                        self.calm();
                        if self.must_restart {
                            self.restart(End::PowerLoss).await?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, outcome: Option<Outcome>) -> Check<()> {
        let Some((place, life, result)) = outcome else { return Ok(()) };
        if self.players[place].life == life {
            self.players[place].done = true;
        }
        result
    }

    /// A client on a host of its own, which begins after a while.
    fn player(&self, place: usize, role: Role, life: u64, pause: Duration) -> Player {
        let name = match role {
            Role::Files(_) => format!("files {place}.{life}"),
            Role::Push(bag) => format!("push {place}.{life} to bag {bag}"),
            Role::Pull(bag) => format!("pull {place}.{life} from bag {bag}"),
            Role::Returned => format!("returned {place}.{life}"),
            Role::Witness => format!("witness {place}.{life}"),
            Role::Passing => format!("passing {place}.{life}"),
            Role::Rivals => format!("rivals {place}.{life}"),
        };
        let host = self.scene.net.host(&name);
        let (scene, random, tell) = (self.scene.clone(), self.scene.random.fork(&name), self.outcomes.0.clone());
        let task = tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let outcome = act(scene, role, name, random).await;
            // The director may have seen enough.
            let _ = tell.send((place, life, outcome)).await;
        });
        Player { role, life, host, task: task.abort_handle(), done: false }
    }

    /// All disks and the network behave from here on.
    fn calm(&mut self) {
        self.scene.say(|| "calm".to_string());
        self.faults.iter_mut().for_each(|faults| *faults = SimFaults::default());
        self.net_faults = NetFaults::default();
        self.apply_faults();
        self.spare_metadata();
        self.scene.hardware.stop_at_checkpoint.store(false, Ordering::Relaxed);
        self.scene.hardware.slowness.store(0, Ordering::Relaxed);
    }

    async fn trouble(&mut self) -> Check<()> {
        self.scene.oracle().out_of_service = false;
        if self.restart_soon {
            let how = if self.random.one_in(2) { End::Kill } else { End::PowerLoss };
            return self.restart(how).await;
        }
        if self.random.one_in(2) {
            // What lasted is over.
            self.calm();
        }
        let device = self.random.below(self.faults.len() as u64) as usize;
        match self.random.below(22) {
            0 | 1 => self.restart(End::Kill).await?,
            2 | 3 => self.restart(End::PowerLoss).await?,
            4..7 => self.stop_at_operation(device),
            7 => {
                self.count("slow disks");
                self.scene.hardware.slowness.store(20 + self.random.below(900), Ordering::Relaxed);
            }
            // A second failed write takes a device out of service until the node starts again.
            8 if !self.has_write_error => {
                self.has_write_error = true;
                self.faults[device].write_error = When::Once;
            }
            9 => self.faults[device].read_error = When::Once,
            10 => {
                let room = self.random.below(3 * MIB);
                self.faults[device].capacity = Some(self.scene.hardware.devices[device].space() + room);
            }
            11 => self.node_host.cut_all(),
            12 => self.net_faults.cut_one_in = Some(20 + self.random.below(200)),
            13 => self.net_faults.delay_max = 1 + self.random.below(1_500),
            14 => {
                self.count("clock jump");
                let days = 2 * 24 * 3_600_000;
                self.scene.clock.jump_wall(self.random.below(2 * days) as i64 - days as i64);
            }
            15 | 16 => self.client_death(),
            17 | 18 => {
                self.count("stop at a checkpoint");
                self.end_when_stopped = End::PowerLoss;
                self.scene.hardware.stop_at_checkpoint.store(true, Ordering::Relaxed);
            }
            19 => return self.fail_a_sync(device).await,
            20 => self.fail_the_log(),
            _ => self.fail_the_tree().await,
        }
        self.apply_faults();
        // Set once, they fire once.
        (self.faults[device].write_error, self.faults[device].read_error) = (When::Never, When::Never);
        Ok(())
    }

    /// One of the devices, the log or the tree stops at an operation soon to come.
    fn stop_at_operation(&mut self, device: usize) {
        self.end_when_stopped = if self.random.one_in(3) { End::Kill } else { End::PowerLoss };
        let hardware = self.scene.hardware.clone();
        match self.random.below(4) {
            0 => {
                self.count("stop at an operation of the tree");
                hardware.tree.crash_at(Some(hardware.tree.changes() + self.random.below(40)));
            }
            1 => {
                self.count("stop at an operation of the log");
                let at = hardware.log.operations().changes() + self.random.below(40);
                hardware.log.set_faults(SimFaults { crash_at: Some(at), ..SimFaults::default() });
            }
            _ => {
                self.count("stop at an operation of a device");
                let at = hardware.devices[device].operations().changes() + self.random.below(80);
                self.faults[device].crash_at = Some(at);
            }
        }
    }

    /// A sync of a device fails: it leaves service. With others the history may go on without it for long.
    async fn fail_a_sync(&mut self, device: usize) -> Check<()> {
        self.calm();
        self.count("failing sync of a device");
        let before = self.scene.hardware.failed_syncs();
        self.faults[device].sync_error = When::Once;
        self.apply_faults();
        tokio::time::sleep(Duration::from_millis(self.random.below(1_500))).await;
        self.faults[device].sync_error = When::Never;
        self.apply_faults();
        if self.scene.hardware.failed_syncs() > before {
            self.must_restart = true;
            self.restart_soon = self.faults.len() == 1 || self.random.one_in(2);
            self.scene.oracle().out_of_service = true;
            // Time for everybody to look.
            tokio::time::sleep(Duration::from_millis(self.random.below(3_000))).await;
        }
        Ok(())
    }

    /// The metadata log cannot be written, or not be synced: changes of names are refused until the node starts again.
    fn fail_the_log(&mut self) {
        self.count("failing log");
        let mut faults = SimFaults::default();
        if self.random.one_in(2) {
            faults.write_error = When::Once;
        } else {
            faults.sync_error = When::Once;
        }
        self.scene.hardware.log.set_faults(faults);
        (self.restart_soon, self.must_restart) = (true, true);
    }

    /// The same of the tree behind it, which is changed every few seconds.
    async fn fail_the_tree(&mut self) {
        self.calm();
        self.count("failing tree");
        let tree = self.scene.hardware.tree.clone();
        let fired = tree.fired();
        if self.random.one_in(3) {
            tree.read_error_at(Some(tree.reads() + self.random.below(3)));
        } else {
            tree.error_at(Some(tree.changes() + self.random.below(12)));
        }
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(self.random.below(1_000))).await;
            if tree.fired() != fired {
                (self.restart_soon, self.must_restart) = (true, true);
                return;
            }
        }
    }

    /// A client's machine is gone; another one takes its place.
    fn client_death(&mut self) {
        let place = self.random.below(self.players.len() as u64) as usize;
        if self.players[place].done {
            return;
        }
        self.count("client death");
        let silent = self.random.one_in(2);
        let player = &self.players[place];
        player.host.leave(if silent { Gone::Silent } else { Gone::Reset });
        player.task.abort();
        let (role, life) = (player.role, player.life + 1);
        // Half of the time its session has ended before another one begins, and what it left open was closed by the node.
        let pause = if self.random.one_in(2) { SESSION_LEASE + Duration::from_secs(5) } else { Duration::ZERO };
        self.players[place] = self.player(place, role, life, pause);
    }

    /// Ends and starts the node once more, compares everything, empties everything, and looks whether the space came back.
    pub async fn finale(&mut self) -> Check<()> {
        self.calm();
        let restarts = self.must_restart || !self.random.one_in(4);
        if restarts {
            let how = if self.random.one_in(4) { End::Kill } else { End::PowerLoss };
            self.restart(how).await?;
        }
        let scene = self.scene.clone();
        let (client, _) = scene.connect("finale", &self.random).await?;
        let places: Vec<usize> = self
            .players
            .iter()
            .filter_map(|player| match player.role {
                Role::Files(place) => Some(place),
                _ => None,
            })
            .collect();
        let mut all = Vec::new();
        for place in places {
            let directory = directory_of(place);
            let mut files =
                Files::new(scene.clone(), client.clone(), self.random.fork(&directory), "finale", &directory);
            // Without a restart a call whose client is gone may still be under way.
            files.look_at_all(restarts).await?;
            all.push(files);
        }
        witness::compare(&scene, "finale", &client).await?;
        for directory in [returned::DIRECTORY, rivals::DIRECTORY, witness::DIRECTORY] {
            match scene.insist("finale", "delete_all", || client.delete(directory, true)).await? {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Broken(format!("{directory}: {error}")));
                }
                _ => (),
            }
        }
        for number in 0..BAGS {
            let bag = bags::open(&scene, "finale", &client, number).await?;
            let random = self.random.fork(&bags::name_of(number));
            Puller::new(scene.clone(), random, &format!("finale of bag {number}"), number, bag).finish().await?;
            let name = bags::name_of(number);
            let deleted = scene.insist("finale", "bag_delete", || client.bag_delete(&name)).await?;
            deleted.map_err(|error| Broken(format!("{name}: {error}")))?;
        }
        passing::end(&scene, "finale", &client).await?;
        self.rot();
        for mut files in all {
            files.read_rotten().await?;
            files.clear().await?;
        }
        self.space_comes_back(&client).await?;
        let Some(node) = self.node.take() else { return Ok(()) };
        match tokio::time::timeout(CALL_BOUND, node.stop()).await {
            Ok(()) => Ok(()),
            Err(_) => Err(Broken("the node does not stop in time".to_string())),
        }
    }

    /// Turns over bits all over the data of all devices.
    fn rot(&mut self) {
        self.count("rot");
        for device in &self.scene.hardware.devices {
            for (file, length) in device.files() {
                let bits = if file.kind == FileKind::Data { self.random.below(30) } else { 0 };
                for _ in 0..bits {
                    device.rot(file, self.random.below(length), self.random.below(8) as u32);
                }
            }
        }
    }

    async fn space_comes_back(&self, client: &client::Client) -> Check<()> {
        let begun = self.scene.clock.now();
        // An engine gives space back when less than a quarter is free beside the reserve: so much may stay in use, no more.
        let lazy = (self.capacity / 4 * 3 - RESERVE).max(EMPTY_MAX);
        loop {
            let asked = self.scene.insist("finale", "devices", || client.devices()).await?;
            let devices = asked.map_err(|error| Broken(format!("devices: {error}")))?.devices;
            let empty = |device: &client::Device| device.chunks == 0 && device.live == 0 && device.used <= lazy;
            if devices.iter().all(empty) {
                return Ok(());
            }
            if self.scene.clock.now().since(begun) > CALL_BOUND {
                for device in &self.scene.hardware.devices {
                    self.scene.say(|| format!("left on a device: {:?}", device.files()));
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

fn directory_of(place: usize) -> String {
    format!("/d{place}")
}

/// What a client does from its first call to its last.
async fn act(scene: Arc<Scene>, role: Role, name: String, random: SimRandom) -> Check<()> {
    let (client, _) = scene.connect(&name, &random).await?;
    match role {
        Role::Files(place) => Files::new(scene, client, random, &name, &directory_of(place)).work(60).await,
        Role::Push(number) => {
            let bag = bags::open(&scene, &name, &client, number).await?;
            Pusher { scene, random, name, number, bag }.work(25).await
        }
        Role::Pull(number) => {
            let bag = bags::open(&scene, &name, &client, number).await?;
            Puller::new(scene, random, &name, number, bag).work(80).await
        }
        Role::Returned => returned::play(scene, random, name, client).await,
        Role::Witness => {
            let (other, _) = scene.connect(&name, &random.fork("other")).await?;
            witness::play(&scene, &random, &name, &client, &other).await
        }
        Role::Passing => passing::play(&scene, &random, &name, &client).await,
        Role::Rivals => {
            let (second, _) = scene.connect(&name, &random.fork("second")).await?;
            let (third, _) = scene.connect(&name, &random.fork("third")).await?;
            Rivals::new(scene, random, &name, vec![client, second, third]).work(12).await
        }
    }
}
