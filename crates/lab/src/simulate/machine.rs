//! One machine of a history: what it stands on, the node's process on it, and how that is started, held and ended.

use super::hardware::{End, Hardware, Process, SimWorld};
use super::oracle::{Broken, Check};
use super::scene::{CALL_BOUND, Scene};
use base::env::Clock;
use base::planted::Planted;
use node::{Running, Settings};
use sim::disk::SimFaults;
use sim::net::{Gone, SimNet};
use sim::random::SimRandom;
use std::sync::Arc;

/// A machine and the node on it.
pub struct Machine {
    /// Its disks.
    pub hardware: Arc<Hardware>,
    /// The host that its process is, or was last.
    pub host: SimNet,
    /// The node, while it runs.
    pub node: Option<Running>,
    process: Arc<Process>,
    /// Hosts on it are named so, and the number of the start.
    prefix: String,
    random: SimRandom,
    clock: Arc<dyn Clock>,
    lives: u64,
    /// Syncs that had failed when the node last ended.
    failed_syncs: u64,
}

impl Machine {
    /// A machine on which nothing runs. Each start of its node is a host of its own, named `prefix` and a number.
    pub fn new(scene: &Scene, random: SimRandom, prefix: &str, hardware: Hardware, clock: Arc<dyn Clock>) -> Machine {
        Machine {
            hardware: Arc::new(hardware),
            host: scene.net.host(&format!("{prefix}0")),
            node: None,
            process: Arc::default(),
            prefix: prefix.to_string(),
            random,
            clock,
            lives: 0,
            failed_syncs: 0,
        }
    }

    /// Tries once to start the node. It may stop or be refused by its disks meanwhile: then the reason, and it has to be ended.
    pub async fn start(
        &mut self,
        scene: &Scene,
        settings: Settings,
        planted: Option<Planted>,
    ) -> Check<Result<(), String>> {
        self.lives += 1;
        self.process = Arc::default();
        let name = format!("{}{}", self.prefix, self.lives);
        self.host = scene.net.host(&name);
        let world = Arc::new(SimWorld::new(self.hardware.clone(), self.process.clone(), planted));
        let chance = Arc::new(self.random.fork(&name));
        let starting = node::start(settings, world, Arc::new(self.host.clone()), self.clock.clone(), chance);
        let mut starting = std::pin::pin!(tokio::time::timeout(CALL_BOUND, starting));
        let mut others_stopped = false;
        let started = loop {
            tokio::select! {
                biased;
                () = self.hardware.stopped.notified() => {
                    if self.hardware.has_stopped() {
                        break None;
                    }
                    others_stopped = true;
                }
                started = &mut starting => break Some(started),
            }
        };
        if others_stopped {
            self.hardware.stopped.notify_one();
        }
        scene.count("starts");
        let reason = match started {
            // A device that refused reads is left out; this machine would rather start again with all.
            Some(Ok(Ok(running))) if !running.missing.is_empty() => running.missing[0].why.clone(),
            Some(Ok(Ok(running))) => {
                scene.say(|| format!("{name} runs: {:?}", running.notes));
                self.node = Some(running);
                return Ok(Ok(()));
            }
            Some(Ok(Err(error))) => error.to_string(),
            Some(Err(_)) => return Err(Broken(format!("{name} does not start in time"))),
            None => "a device stopped".to_string(),
        };
        scene.say(|| format!("{name} does not start: {reason}"));
        Ok(Err(reason))
    }

    /// Whether a failed sync left something in the system's cache that nobody knows of: after it a machine starts anew.
    pub fn must_lose_power(&mut self) -> bool {
        let failed_syncs = self.hardware.failed_syncs();
        failed_syncs > std::mem::replace(&mut self.failed_syncs, failed_syncs)
    }

    /// Ends the node here and now. `gone`: how its host goes.
    pub fn end(&mut self, how: End, gone: Gone) {
        self.hardware.end(how);
        self.host.leave(gone);
        self.process.end();
        self.node = None;
    }

    /// The node's engines stand still. Its host has to be held, too.
    pub fn hold(&self) {
        self.process.hold();
    }

    /// They go on.
    pub fn let_go(&self) {
        self.process.let_go();
    }

    /// Log and tree of the metadata store behave from here on.
    pub fn spare_metadata(&self) {
        for file in [&self.hardware.tree, &self.hardware.copy] {
            file.crash_at(None);
            file.error_at(None);
            file.read_error_at(None);
        }
        self.hardware.log.set_faults(SimFaults::default());
    }
}
