//! One node of a simulated cluster: its machine, and what goes wrong with it now.

use crate::simulate::hardware::{End, Hardware};
use crate::simulate::hdfs;
use crate::simulate::machine::Machine;
use crate::simulate::oracle::{Broken, Check};
use crate::simulate::scene::{Scene, address_of};
use base::env::Random;
use base::id::ClusterId;
use base::planted::Planted;
use base::policy::Class;
use node::{Cluster, DeviceSetting, Door, MetaPlace, Settings};
use sim::disk::{SimFaults, When};
use sim::net::Gone;
use sim::random::SimRandom;
use sim::runtime_clock::MachineClock;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How it is with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It serves, or stands still.
    Runs,
    /// It ended and starts again.
    Down,
    /// It was taken out of the cluster.
    Out,
}

/// What all nodes of a history are like.
pub struct Kind {
    /// The cluster.
    pub cluster: ClusterId,
    /// Bytes that each device may use.
    pub capacity: u64,
    /// So many keep the metadata, the first ones: one, or three.
    pub keepers: usize,
}

impl Kind {
    /// Whether the node of this number keeps the metadata, alone or with others.
    pub fn keeps(&self, number: usize) -> bool {
        number < self.keepers
    }

    fn meta(&self, number: usize) -> MetaPlace {
        match self.keepers {
            1 if number == 0 => MetaPlace::Local,
            1 => MetaPlace::Node(address_of(0)),
            count => MetaPlace::Several {
                keepers: (0..count).map(address_of).collect(),
                own: self.keeps(number).then_some(number),
            },
        }
    }
}

/// One node.
pub struct Member {
    /// Its name, which is its machine's.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// What it runs on.
    pub machine: Machine,
    /// Its clock.
    pub clock: Arc<MachineClock>,
    /// How it is.
    pub state: State,
    /// Its processes stand still.
    pub held: bool,
    /// What its devices do wrong.
    pub faults: Vec<SimFaults>,
    /// A write failed, or will, in this life.
    pub has_write_error: bool,
    /// Something left service and comes back only when it starts again.
    pub must_restart: bool,
    /// How it ends when a disk stops by itself.
    pub end_when_stopped: End,
    settings: Settings,
}

/// Starts that may fail one after another while faults fire.
const STARTS_MAX: u64 = 12;

/// A clock gains or loses at most so many parts in a million: two of them as much as `base::limit::CLOCK_DRIFT_MAX`.
const DRIFT_MAX: u64 = base::limit::CLOCK_DRIFT_MAX as u64 / 2;

impl Member {
    /// The node of this number on new hardware.
    pub fn new(scene: &Scene, number: usize, random: SimRandom, hardware: Hardware, kind: &Kind) -> Member {
        let name = format!("node{number}");
        let address = address_of(number);
        let devices = hardware.devices.len();
        let device = |device| DeviceSetting {
            directory: PathBuf::from(format!("/{device}")),
            class: Class::Ssd,
            capacity: Some(kind.capacity),
        };
        let mut settings = Settings::new(&address, (0..devices).map(device).collect());
        settings.cluster = Some(Cluster { name: name.clone(), meta: kind.meta(number), ..Cluster::new(kind.cluster) });
        settings.repair_after = scene.repair_after;
        settings.hdfs = Door::At(format!("{name}:{}", hdfs::PORT));
        let drift = random.below(2 * DRIFT_MAX + 1) as i64 - DRIFT_MAX as i64;
        let clock = Arc::new(MachineClock::new(scene.clock.clone(), drift));
        Member {
            machine: Machine::new(scene, random, &format!("{name}."), hardware, clock.clone()),
            name,
            address,
            clock,
            state: State::Down,
            held: false,
            faults: vec![SimFaults::default(); devices],
            has_write_error: false,
            must_restart: false,
            end_when_stopped: End::Kill,
            settings,
        }
    }

    /// Starts it, several times if its disks stop or refuse meanwhile. The ends in between.
    pub async fn start(&mut self, scene: &Scene, planted: Option<Planted>) -> Check<Vec<&'static str>> {
        let mut ends = Vec::new();
        for _ in 0..STARTS_MAX {
            let started = self.machine.start(scene, self.settings.clone(), planted).await?;
            if let Err(reason) = started {
                scene.power_lost(&self.name);
                self.end(End::PowerLoss, Gone::Reset);
                ends.push("power loss");
                scene.say(|| format!("{}: {reason}", self.name));
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            self.faults.iter_mut().for_each(|faults| faults.read_error = When::Never);
            self.apply_faults();
            self.machine.spare_metadata();
            self.state = State::Runs;
            return Ok(ends);
        }
        Err(Broken(format!("{} does not start", self.name)))
    }

    /// Ends it here and now.
    pub fn end(&mut self, how: End, gone: Gone) {
        self.machine.end(how, gone);
        self.state = State::Down;
        // A full disk stays full, and with it writes go on to fail.
        let is_full = self.faults.iter().any(|faults| faults.capacity.is_some());
        (self.has_write_error, self.must_restart) = (is_full, is_full);
        // Whatever was to stop has stopped.
        let calm = |faults: &mut SimFaults| (faults.crash_at, faults.read_error) = (None, When::Never);
        self.faults.iter_mut().for_each(calm);
        self.apply_faults();
        self.machine.spare_metadata();
    }

    /// All its disks behave from here on.
    pub fn calm(&mut self) {
        self.faults.iter_mut().for_each(|faults| *faults = SimFaults::default());
        self.apply_faults();
        self.machine.spare_metadata();
        self.machine.hardware.stop_at_checkpoint.store(false, Ordering::Relaxed);
        self.machine.hardware.stop_at_swap.store(false, Ordering::Relaxed);
        self.machine.hardware.slowness.store(0, Ordering::Relaxed);
    }

    /// Its devices have the faults that were settled.
    pub fn apply_faults(&self) {
        for (device, faults) in self.machine.hardware.devices.iter().zip(&self.faults) {
            device.set_faults(faults.clone());
        }
    }
}
