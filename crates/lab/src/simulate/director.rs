//! Who starts and ends the node and its clients, makes trouble, and checks everything at the end.

use super::ending::{self, Ending};
use super::hardware::{End, Hardware};
use super::machine::Machine;
use super::oracle::{Broken, Check};
use super::players::{Players, Role};
use super::scene::{ADDRESS, CALL_BOUND, Scene};
use base::disk::FileKind;
use base::env::Random;
use base::planted::Planted;
use base::policy::Class;
use base::unit::MIB;
use node::{DeviceSetting, Settings};
use sim::disk::{SimFaults, When};
use sim::net::{Gone, NetFaults};
use sim::random::SimRandom;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Troubles that a director makes; those of the disks and of the network have names of their own there.
pub const TROUBLES: [&str; 18] = [
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
    "ends without a checkpoint",
    "failing writes",
];

/// Faults of disks and network that a run should see.
pub const FAULTS: [&str; 17] = [
    "torn",
    "dropped",
    "create_dropped",
    "removed_file_back",
    "read_error",
    "write_error",
    "write_errors_together",
    "no_room_for_kind",
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
pub const OPERATIONS: [&str; 46] = [
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
    "asked_again",
    "asked_in_between",
    "bag_list",
    "bag",
    "read_out_of_service",
    "read_rotten",
    "devices",
    "device_drain",
];

/// The one who runs a history.
pub struct Director {
    scene: Arc<Scene>,
    planted: Option<Planted>,
    random: SimRandom,
    machine: Machine,
    /// Bytes that each device may use.
    capacity: u64,
    /// The first one may use four times as many.
    first_is_large: bool,
    faults: Vec<SimFaults>,
    net_faults: NetFaults,
    /// A write failed, or will, in this life of the node, be it for want of room.
    has_write_error: bool,
    /// How the node ends when a device stops by itself.
    end_when_stopped: End,
    /// Something left service and comes back only when the node starts again: now, or before the end.
    restart_soon: bool,
    must_restart: bool,
    players: Players,
    troubles: BTreeMap<&'static str, u64>,
}

/// Starts that may fail one after another while faults fire.
const STARTS_MAX: u64 = 12;

impl Director {
    /// A director of a scene in which nothing runs.
    pub fn new(scene: Arc<Scene>, hardware: Hardware, planted: Option<Planted>) -> Director {
        let random = scene.random.fork("director");
        let devices = hardware.devices.len();
        // On the smallest an engine has hardly room for a few segments.
        let capacity = [10, 16, 32, 48][random.below(4) as usize] * MIB;
        let first_is_large = devices > 1 && random.one_in(2);
        let players = Players::new(scene.clone());
        Director {
            machine: Machine::new(&scene, SimRandom::new(scene.random.seed()), "node.", hardware, scene.clock.clone()),
            scene,
            planted,
            random,
            capacity,
            first_is_large,
            faults: vec![SimFaults::default(); devices],
            net_faults: NetFaults::default(),
            has_write_error: false,
            end_when_stopped: End::Kill,
            restart_soon: false,
            must_restart: false,
            players,
            troubles: BTreeMap::new(),
        }
    }

    /// Faults that fired, of all kinds.
    pub fn faults(&self) -> BTreeMap<&'static str, u64> {
        let mut faults = self.troubles.clone();
        for (name, count) in self.machine.hardware.fired().into_iter().chain(self.scene.net.fired()) {
            *faults.entry(name).or_default() += count;
        }
        faults
    }

    /// A digest of everything that all disks did.
    pub fn history(&self) -> u32 {
        self.machine.hardware.history()
    }

    fn count(&mut self, trouble: &'static str) {
        self.scene.say(|| format!("trouble: {trouble}"));
        *self.troubles.entry(trouble).or_default() += 1;
    }

    /// Starts the node. It may stop or be refused by its disks while it starts; then it is started again.
    pub async fn start(&mut self) -> Check<()> {
        let mut reason = String::new();
        for _ in 0..STARTS_MAX {
            let device = |number| DeviceSetting {
                directory: PathBuf::from(format!("/{number}")),
                class: Class::Ssd,
                // Half of the time the first one, with the metadata, has room for all that is on another one.
                capacity: Some(if number == 0 && self.first_is_large { 4 * self.capacity } else { self.capacity }),
            };
            let settings = Settings::new(ADDRESS, (0..self.faults.len()).map(device).collect());
            match self.machine.start(&self.scene, settings, self.planted).await? {
                Ok(()) => {
                    self.faults.iter_mut().for_each(|faults| faults.read_error = When::Never);
                    self.apply_faults();
                    self.machine.spare_metadata();
                    return self.machine.hardware.refuse_damage();
                }
                Err(why) => reason = why,
            }
            self.end(self.end_when_stopped);
            self.faults.iter_mut().for_each(|faults| faults.read_error = When::Never);
            self.apply_faults();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(Broken(format!("the node does not start: {reason}")))
    }

    /// Ends the node here and now.
    fn end(&mut self, how: End) {
        let how = if self.machine.must_lose_power() { End::PowerLoss } else { how };
        // A full disk stays full, and with it writes go on to fail.
        let is_full = self.faults.iter().any(|faults| faults.capacity.is_some());
        self.restart_soon = false;
        (self.has_write_error, self.must_restart) = (is_full, is_full);
        {
            let mut oracle = self.scene.oracle();
            oracle.ends += 1;
            oracle.out_of_service = false;
        }
        if how == End::PowerLoss {
            self.scene.power_lost("node");
        }
        self.count(if how == End::Kill { "kill" } else { "power loss" });
        let silent = how == End::PowerLoss && self.random.one_in(2);
        self.machine.end(how, if silent { Gone::Silent } else { Gone::Reset });
        // Whatever was to stop has stopped.
        self.faults.iter_mut().for_each(|faults| faults.crash_at = None);
        self.apply_faults();
        self.machine.spare_metadata();
    }

    fn apply_faults(&self) {
        for (device, faults) in self.machine.hardware.devices.iter().zip(&self.faults) {
            device.set_faults(faults.clone());
        }
        self.scene.net.set_faults(self.net_faults);
    }

    /// Ends the node, waits a little, and starts it again.
    async fn restart(&mut self, how: End) -> Check<()> {
        if self.random.one_in(2) {
            // Much is under way when it ends.
            self.machine.hardware.slowness.store(50 + self.random.below(400), Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(self.random.below(600))).await;
            self.machine.hardware.slowness.store(0, Ordering::Relaxed);
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
            self.machine.hardware.log.set_faults(SimFaults { read_error, ..SimFaults::default() });
        }
        self.start().await
    }

    /// Lets clients work and makes trouble until all of them are done.
    pub async fn work(&mut self) -> Check<()> {
        let mut roles = vec![Role::Push(0), Role::Pull(0), Role::Pull(0), Role::Push(1), Role::Pull(1), Role::Files(0)];
        roles.extend((1..1 + self.random.below(3) as usize).map(Role::Files));
        let sometimes = [
            (Role::Returned, 4),
            // In every history: the only one that looks for a name at two clients.
            (Role::Witness, 1),
            (Role::Rivals, 3),
            (Role::Passing, 3),
            (Role::Again, 2),
            (Role::Sealing, 3),
            (Role::Unanswered, 3),
            (Role::Outlived, 4),
            (Role::Filled, 3),
        ];
        for (role, rare) in sometimes {
            if self.random.one_in(rare) {
                roles.push(role);
            }
        }
        roles.into_iter().for_each(|role| self.players.begin(role));
        let mut left = 8 + self.random.below(12);
        while self.players.are_playing() {
            let pause = match self.random.below(3) {
                0 => self.random.below(100),
                1 => self.random.below(1_000),
                _ => self.random.below(4_000),
            };
            tokio::select! {
                biased;
                () = self.machine.hardware.stopped.notified() => self.restart(self.end_when_stopped).await?,
                () = self.scene.end_now.notified(), if left > 0 => {
                    left -= 1;
                    self.count("end after an acknowledgement");
                    self.end(if self.random.one_in(3) { End::Kill } else { End::PowerLoss });
                    self.start().await?;
                    if left == 0 {
                        self.rest().await?;
                    }
                }
                outcome = self.players.ended() => outcome?,
                () = tokio::time::sleep(Duration::from_millis(pause)), if left > 0 => {
                    left -= 1;
                    self.trouble().await?;
                    if left == 0 {
                        self.rest().await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes no more trouble, and brings back what left service.
    async fn rest(&mut self) -> Check<()> {
        self.calm();
        if self.must_restart {
            self.restart(End::PowerLoss).await?;
        }
        Ok(())
    }

    /// All disks and the network behave from here on.
    fn calm(&mut self) {
        self.scene.say(|| "calm".to_string());
        self.faults.iter_mut().for_each(|faults| *faults = SimFaults::default());
        self.net_faults = NetFaults::default();
        self.apply_faults();
        self.machine.spare_metadata();
        self.machine.hardware.stop_at_checkpoint.store(false, Ordering::Relaxed);
        self.machine.hardware.slowness.store(0, Ordering::Relaxed);
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
        match self.random.below(24) {
            0 | 1 => self.restart(End::Kill).await?,
            2 | 3 => self.restart(End::PowerLoss).await?,
            // Others take over what it had: twice as often where there are others.
            6 if self.faults.len() > 1 => return self.fail_a_sync(device).await,
            4..7 => self.stop_at_operation(device),
            7 => {
                self.count("slow disks");
                self.machine.hardware.slowness.store(20 + self.random.below(900), Ordering::Relaxed);
            }
            // A second failed write takes a device out of service until the node starts again.
            8 if !self.has_write_error => return self.fail_writes(device).await,
            9 => self.faults[device].read_error = When::Once,
            10 => {
                let room = self.random.below(3 * MIB);
                (self.has_write_error, self.must_restart) = (true, true);
                self.faults[device].capacity = Some(self.machine.hardware.devices[device].space() + room);
            }
            11 => self.machine.host.cut_all(),
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
                self.machine.hardware.stop_at_checkpoint.store(true, Ordering::Relaxed);
            }
            19 => return self.fail_a_sync(device).await,
            20 => self.fail_the_log(),
            21 | 22 => return self.end_without_checkpoints().await,
            _ => self.fail_the_tree().await,
        }
        self.apply_faults();
        // Set once, it fires once.
        self.faults[device].read_error = When::Never;
        Ok(())
    }

    /// One of the devices, the log or the tree stops at an operation soon to come.
    fn stop_at_operation(&mut self, device: usize) {
        self.end_when_stopped = if self.random.one_in(3) { End::Kill } else { End::PowerLoss };
        let hardware = self.machine.hardware.clone();
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
        let before = self.machine.hardware.failed_syncs();
        if self.random.one_in(2) {
            // Much is written and not synced when it fails.
            self.machine.hardware.slowness.store(100 + self.random.below(900), Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(self.random.below(1_000))).await;
        }
        self.faults[device].sync_error = When::Once;
        self.apply_faults();
        tokio::time::sleep(Duration::from_millis(self.random.below(1_500))).await;
        self.faults[device].sync_error = When::Never;
        self.apply_faults();
        self.machine.hardware.slowness.store(0, Ordering::Relaxed);
        if self.machine.hardware.failed_syncs() > before {
            self.must_restart = true;
            self.restart_soon = self.faults.len() == 1 || self.random.one_in(2);
            self.scene.oracle().out_of_service = true;
            // Time for everybody to look.
            tokio::time::sleep(Duration::from_millis(self.random.below(3_000))).await;
        }
        Ok(())
    }

    /// Writes in flight fail for one cause, with much that waits behind them: nobody notices, except that it takes longer.
    async fn fail_writes(&mut self, device: usize) -> Check<()> {
        self.calm();
        self.count("failing writes");
        // A device that finds no room to write again leaves service until the node starts again.
        (self.has_write_error, self.must_restart) = (true, true);
        let hardware = self.machine.hardware.clone();
        hardware.slowness.store(100 + self.random.below(900), Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(self.random.below(2_000))).await;
        self.faults[device].write_error = When::Together(1 + self.random.below(3));
        self.apply_faults();
        self.faults[device].write_error = When::Never;
        let before = hardware.devices[device].fired();
        for _ in 0..20 {
            if hardware.devices[device].fired() != before {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.apply_faults();
        hardware.slowness.store(0, Ordering::Relaxed);
        if self.random.one_in(3) {
            return Ok(());
        }
        let begun: BTreeMap<u64, String> = self.scene.calls_under_way().clone();
        let is_open = |number: &u64| self.scene.calls_under_way().contains_key(number);
        for _ in 0..300 {
            // A small device may have no room for a repair: then it leaves service, with words.
            let excused = hardware.has_stopped() || self.scene.counts().contains_key("no room to repair");
            if excused || !begun.keys().any(is_open) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let open = begun.into_iter().find(|(number, _)| is_open(number)).map(|(_, call)| call).unwrap_or_default();
        Err(Broken(format!("{open} did not end within 150 s, though nothing but writes failed, and once")))
    }

    /// Ends follow each other while no checkpoint finds room: much is under way at the first, and little happens before the next.
    async fn end_without_checkpoints(&mut self) -> Check<()> {
        self.calm();
        self.count("ends without a checkpoint");
        let forgets = [None, None, Some(FileKind::Journal), Some(FileKind::Data)][self.random.below(4) as usize];
        for faults in &mut self.faults {
            (faults.no_room_for, faults.forgets) = (Some(FileKind::Checkpoint), None);
        }
        self.apply_faults();
        let hardware = self.machine.hardware.clone();
        hardware.slowness.store(50 + self.random.below(400), Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(self.random.below(800))).await;
        hardware.slowness.store(0, Ordering::Relaxed);
        self.end(if self.random.one_in(4) { End::Kill } else { End::PowerLoss });
        for _ in 0..1 + self.random.below(3) {
            self.faults.iter_mut().for_each(|faults| faults.forgets = forgets);
            self.start().await?;
            for _ in 0..self.random.below(4) {
                drop(tokio::time::timeout(Duration::from_secs(2), self.scene.promised.notified()).await);
            }
            self.end(End::PowerLoss);
        }
        self.start().await?;
        self.calm();
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
        self.machine.hardware.log.set_faults(faults);
        (self.restart_soon, self.must_restart) = (true, true);
    }

    /// The same of the tree behind it, which is changed every few seconds.
    async fn fail_the_tree(&mut self) {
        self.calm();
        self.count("failing tree");
        let tree = self.machine.hardware.tree.clone();
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
        if self.players.replace_one(&self.random) {
            self.count("client death");
        }
    }

    /// Ends and starts the node once more, compares everything, empties everything, and looks whether the space came back.
    pub async fn finale(&mut self) -> Check<()> {
        self.calm();
        let restarts = self.must_restart || !self.random.one_in(4);
        if restarts {
            let how = if self.random.one_in(4) { End::Kill } else { End::PowerLoss };
            self.restart(how).await?;
        }
        let (client, _) = self.scene.connect("finale", &self.random).await?;
        // Without a restart a call whose client is gone may still be under way.
        let mut ending = Ending::new(self.scene.clone(), &self.random, client);
        ending.compare(self.players.directories(), restarts).await?;
        self.count("rot");
        ending::rot(&self.machine.hardware, &self.random);
        ending.clear().await?;
        let hardware = &self.machine.hardware;
        ending.space_comes_back(std::slice::from_ref(hardware)).await?;
        let Some(node) = self.machine.node.take() else { return Ok(()) };
        match tokio::time::timeout(CALL_BOUND, node.stop()).await {
            Ok(()) => Ok(()),
            Err(_) => Err(Broken("the node does not stop in time".to_string())),
        }
    }
}
