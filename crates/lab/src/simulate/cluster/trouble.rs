//! What goes wrong in the history of a cluster.

use super::member::State;
use super::{ClusterDirector, Deed, OUTAGE_MAX};
use crate::simulate::hardware::End;
use crate::simulate::oracle::Check;
use crate::simulate::players::Role;
use base::env::Random;
use base::unit::MIB;
use sim::disk::{SimFaults, When};
use std::sync::atomic::Ordering;

/// Troubles that a director of a cluster makes; those of the disks and of the network have names of their own there.
pub const TROUBLES: [&str; 31] = [
    "stop",
    "kill",
    "power loss",
    "end after an acknowledgement",
    "stop at an operation of a device",
    "stop at an operation of the log",
    "stop at an operation of the tree",
    "slow disks",
    "clock jump",
    "client death",
    "stop at a checkpoint",
    "failing sync of a device",
    "failing log",
    "failing tree",
    "rot",
    "pause",
    "all killed at once",
    "node joins",
    "node is taken out",
    "read errors while opening",
    "link cut",
    "link cut one way",
    "metadata of a keeper lost",
    "copy took a tree's place",
    "stop after a copy took a tree's place",
    "stop before a copy took a tree's place",
    "trouble of a copy",
    "keeper cut off from keepers",
    "power loss of all keepers",
    "node away for long",
    "device given up by a person",
];

/// What clients of a cluster do beside what those of one node do.
pub const OPERATIONS: [&str; 9] = [
    "view",
    "extents",
    "recover",
    "bag_rewind",
    "node_drain",
    "node_remove",
    "devices_and_hosts",
    "report_late",
    "device_lost",
];

/// Nodes of a cluster, at the most.
const MEMBERS_MAX: usize = 7;

impl ClusterDirector {
    /// Something goes wrong.
    pub(super) async fn trouble(&mut self) -> Check<()> {
        if self.kind.keepers > 1 && self.random.one_in(4) {
            return self.trouble_of_keepers().await;
        }
        let number = self.random.below(self.members.len() as u64) as usize;
        if self.scene.replicas > 1 && self.random.one_in(10) {
            self.away_for_long(number);
            return Ok(());
        }
        let what = self.random.below(36);
        if (0..22).contains(&what) && self.members[number].state != State::Runs {
            return Ok(());
        }
        match what {
            0..2 => self.end(number, End::Kill),
            2..4 => self.end(number, End::PowerLoss),
            4..6 => self.end_with_read_errors(number),
            6..9 => self.stop_at_operation(number),
            9 => self.slow_disks(number),
            10..13 => self.disk_fault(number),
            13 | 14 => self.fail_a_sync(number),
            15 => self.stop_at_checkpoint(number),
            16..19 => self.pause(number),
            19 => self.fail_the_metadata(),
            20 => {
                self.count("clock jump");
                let days = 2 * 24 * 3_600_000;
                let jump = self.random.below(2 * days) as i64 - days as i64;
                self.members[number].clock.jump_wall(jump);
            }
            21 => self.members[number].machine.host.cut_all(),
            22..26 => self.cut_a_link(),
            26 => self.cuts_and_delays(),
            27 | 28 => {
                let random = self.random.fork(&format!("death {}", self.left));
                if self.players.replace_one(&random) {
                    self.count("client death");
                }
            }
            29 | 30 => self.one_joins().await?,
            31 | 32 => self.one_leaves(number),
            33 | 34 => self.stop(number).await?,
            _ => self.kill_all(),
        }
        Ok(())
    }

    /// So many milliseconds that something lasts.
    fn outage(&self) -> u64 {
        let most = OUTAGE_MAX.as_millis() as u64;
        1 + self.random.below([100, 1_500, most][self.random.below(3) as usize])
    }

    fn end_with_read_errors(&mut self, number: usize) {
        self.end(number, End::PowerLoss);
        self.count("read errors while opening");
        let member = &mut self.members[number];
        let device = self.random.below(member.faults.len() as u64) as usize;
        member.faults[device].read_error = When::OneIn(1 + self.random.below(30));
        member.apply_faults();
    }

    /// A device stops at an operation soon to come, or the log or the tree of the one that keeps the metadata.
    fn stop_at_operation(&mut self, number: usize) {
        let hardware = self.members[number].machine.hardware.clone();
        self.members[number].end_when_stopped = if self.random.one_in(3) { End::Kill } else { End::PowerLoss };
        match self.random.below(4) {
            0 if self.kind.keeps(number) => {
                self.count("stop at an operation of the tree");
                hardware.tree.crash_at(Some(hardware.tree.changes() + self.random.below(40)));
            }
            1 if self.kind.keeps(number) => {
                self.count("stop at an operation of the log");
                let at = hardware.log.operations().changes() + self.random.below(40);
                hardware.log.set_faults(SimFaults { crash_at: Some(at), ..SimFaults::default() });
            }
            _ => {
                self.count("stop at an operation of a device");
                let member = &mut self.members[number];
                let device = self.random.below(member.faults.len() as u64) as usize;
                let at = hardware.devices[device].operations().changes() + self.random.below(80);
                member.faults[device].crash_at = Some(at);
                member.apply_faults();
            }
        }
    }

    fn slow_disks(&mut self, number: usize) {
        self.count("slow disks");
        let slowness = 20 + self.random.below(700);
        self.members[number].machine.hardware.slowness.store(slowness, Ordering::Relaxed);
        let pause = self.outage();
        self.plan(pause, Deed::Calm(number));
    }

    /// A write or a read fails, or a device is full for a while.
    fn disk_fault(&mut self, number: usize) {
        let member = &mut self.members[number];
        let device = self.random.below(member.faults.len() as u64) as usize;
        match self.random.below(3) {
            // A second failed write takes a device out of service until the node starts again.
            0 if !member.has_write_error => {
                member.has_write_error = true;
                member.faults[device].write_error = When::Once;
            }
            1 => member.faults[device].read_error = When::Once,
            _ => {
                let room = self.random.below(3 * MIB);
                // Two writes may fail at once.
                (member.has_write_error, member.must_restart) = (true, true);
                member.faults[device].capacity = Some(member.machine.hardware.devices[device].space() + room);
            }
        }
        member.apply_faults();
        // Set once, they fire once.
        (member.faults[device].write_error, member.faults[device].read_error) = (When::Never, When::Never);
        let must_restart = member.must_restart;
        let pause = self.outage();
        self.plan(pause, Deed::Calm(number));
        if must_restart {
            // Its operator does what the device asks for: makes room, and starts the node again.
            let later = pause + 500 + self.outage();
            self.plan(later, Deed::Restart(number));
        }
    }

    /// A sync of a device fails: it leaves service until its node starts again.
    fn fail_a_sync(&mut self, number: usize) {
        self.count("failing sync of a device");
        let member = &mut self.members[number];
        let device = self.random.below(member.faults.len() as u64) as usize;
        member.faults[device].sync_error = When::Once;
        member.apply_faults();
        member.faults[device].sync_error = When::Never;
        member.must_restart = true;
        let pause = 500 + self.outage();
        self.plan(pause, Deed::Restart(number));
        if self.random.one_in(4) {
            // What is acknowledged on it now does not become durable, and it is emptied.
            self.one_leaves(number);
        }
    }

    fn stop_at_checkpoint(&mut self, number: usize) {
        self.count("stop at a checkpoint");
        self.members[number].end_when_stopped = End::PowerLoss;
        self.members[number].machine.hardware.stop_at_checkpoint.store(true, Ordering::Relaxed);
    }

    /// The log or the tree of the metadata store fails: a keeper that is the only one refuses changes of names until its node starts again.
    fn fail_the_metadata(&mut self) {
        let number = self.random.below(self.kind.keepers as u64) as usize;
        let hardware = self.members[number].machine.hardware.clone();
        if self.random.one_in(2) {
            self.count("failing log");
            let once = |writes| match writes {
                true => SimFaults { write_error: When::Once, ..SimFaults::default() },
                false => SimFaults { sync_error: When::Once, ..SimFaults::default() },
            };
            hardware.log.set_faults(once(self.random.one_in(2)));
        } else {
            self.count("failing tree");
            hardware.tree.error_at(Some(hardware.tree.changes() + self.random.below(12)));
        }
        self.members[number].must_restart = true;
        let pause = 500 + self.random.below(4_000);
        self.plan(pause, Deed::Restart(number));
    }

    /// A node's processes stand still, as after SIGSTOP: its engines do nothing, and it neither reads nor is heard.
    fn pause(&mut self, number: usize) {
        let pause = self.outage();
        self.pause_for(number, pause);
    }

    /// The same for so many milliseconds.
    pub(super) fn pause_for(&mut self, number: usize, pause: u64) {
        if std::mem::replace(&mut self.members[number].held, true) {
            return;
        }
        self.count("pause");
        self.members[number].machine.hold();
        self.scene.net.hold(&self.members[number].name);
        self.plan(pause, Deed::LetGo(number));
    }

    /// The link between two nodes, or between a node and a client, is cut, one way or both.
    fn cut_a_link(&mut self) {
        let draw = || format!("node{}", self.random.below(self.members.len() as u64));
        let one = draw();
        let other = match self.random.one_in(2) {
            true => draw(),
            false => self.players.machine_of_one(&self.random).unwrap_or_else(draw),
        };
        if one == other {
            return;
        }
        let (one, other) = if self.random.one_in(2) { (one, other) } else { (other, one) };
        self.scene.net.cut_link(&one, &other, self.random.one_in(2));
        let pause = self.outage();
        self.plan(pause, Deed::Mend(one, other));
    }

    fn cuts_and_delays(&mut self) {
        match self.random.one_in(2) {
            true => self.net_faults.cut_one_in = Some(20 + self.random.below(200)),
            false => self.net_faults.delay_max = 1 + self.random.below(1_500),
        }
        self.scene.net.set_faults(self.net_faults);
        let pause = self.outage();
        self.plan(pause, Deed::CalmNet);
    }

    async fn one_joins(&mut self) -> Check<()> {
        if self.members.len() >= MEMBERS_MAX {
            return Ok(());
        }
        self.count("node joins");
        let number = self.add_member();
        self.start_member(number).await
    }

    fn one_leaves(&mut self, number: usize) {
        let there = self.members.iter().filter(|member| member.state != State::Out).count();
        if self.kind.keeps(number) || there < 4 || self.members[number].state == State::Out {
            return;
        }
        self.count("node is taken out");
        if self.random.one_in(2) {
            // Pushes wait for room in it, and appends, while it is emptied.
            let member = &mut self.members[number];
            (member.has_write_error, member.must_restart) = (true, true);
            for (device, faults) in member.machine.hardware.devices.iter().zip(&mut member.faults) {
                faults.capacity = Some(device.space() + self.random.below(MIB));
            }
            member.apply_faults();
            let pause = self.outage();
            self.plan(pause, Deed::Calm(number));
        }
        self.players.begin(Role::Operator(number));
    }

    /// All nodes end at once, and start in any order.
    fn kill_all(&mut self) {
        self.count("all killed at once");
        let how = if self.random.one_in(2) { End::Kill } else { End::PowerLoss };
        for number in 0..self.members.len() {
            if self.members[number].state == State::Runs {
                self.end(number, how);
            }
        }
    }
}
