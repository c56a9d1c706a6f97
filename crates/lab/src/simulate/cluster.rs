//! Who starts, ends, holds and cuts off the nodes of a cluster, lets nodes join and leave, and checks everything at the end.

mod giving_up;
mod keepers;
mod member;
mod trouble;

use super::ending::{self, Ending};
use super::hardware::{End, Hardware};
use super::operator;
use super::oracle::{Broken, Check};
use super::players::{Players, Role};
use super::replicas;
use super::scene::{CALL_BOUND, Scene};
use base::env::{Clock, Random};
use base::id::ClusterId;
use base::planted::Planted;
use base::unit::{MIB, Time};
use client::Client;
use giving_up::By;
use member::{Kind, Member, State};
use sim::net::{Gone, NetFaults};
use sim::random::SimRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
pub use trouble::{OPERATIONS, TROUBLES};

/// Calls of clients that are acknowledged in each history, at least.
pub const ACKNOWLEDGED_MIN: u64 = 5_000;

/// Faults that fire in each history, at least.
pub const FAULTS_MIN: u64 = 5;

/// Nothing is held, cut off or down for longer than this.
const OUTAGE_MAX: Duration = Duration::from_secs(12);

/// After a call was given up it may be held on its way so long: two outages, one after the other, and the session's end.
pub const LATE: Duration = Duration::from_secs(45);

/// So long after the last fault all nodes are there again.
const HEALED: Duration = Duration::from_secs(30);

/// The one who runs the history of a cluster.
pub struct ClusterDirector {
    scene: Arc<Scene>,
    planted: Option<Planted>,
    random: SimRandom,
    kind: Kind,
    /// A keeper's metadata are lost for good, or will be.
    has_lost_keeper: bool,
    /// They are.
    has_lost_metadata: bool,
    members: Vec<Member>,
    stopped: Arc<Notify>,
    net_faults: NetFaults,
    /// What is going to happen, and when.
    agenda: BTreeMap<(Time, u64), Deed>,
    deeds: u64,
    players: Players,
    troubles: BTreeMap<&'static str, u64>,
    /// Troubles still to come.
    left: u64,
}

/// What a director does at a moment that was settled before.
#[derive(Clone, Debug)]
enum Deed {
    /// Makes trouble.
    Trouble,
    /// Starts the node of this number.
    Start(usize),
    /// Ends it and starts it again.
    Restart(usize),
    /// Lets its processes go on.
    LetGo(usize),
    /// Ends the second one, whose metadata are lost with that, and the first one, which is away for longer.
    LoseMetadata(usize, usize),
    /// Mends the link between two machines.
    Mend(String, String),
    /// Its disks behave from here on.
    Calm(usize),
    /// The network behaves from here on.
    CalmNet,
}

impl ClusterDirector {
    /// A director of a scene in which nothing runs: a keeper and two to four members, or three keepers and up to two; where files shall have three
    /// copies one more at the least, so that writers can go on elsewhere.
    pub fn new(scene: Arc<Scene>, planted: Option<Planted>) -> ClusterDirector {
        let random = scene.random.fork("cluster");
        let capacity = [16, 32, 48][random.below(3) as usize] * MIB;
        let kind = Kind { cluster: ClusterId(random.wide()), capacity, keepers: scene.keepers };
        let least = if scene.replicas > 2 { 4 } else { 3 };
        let mut director = ClusterDirector {
            players: Players::new(scene.clone()),
            kind,
            has_lost_keeper: false,
            has_lost_metadata: false,
            members: Vec::new(),
            stopped: Arc::default(),
            net_faults: NetFaults::default(),
            agenda: BTreeMap::new(),
            deeds: 0,
            troubles: BTreeMap::new(),
            left: 25 + random.below(25),
            scene,
            planted,
            random,
        };
        for _ in 0..least + director.random.below(3) {
            director.add_member();
        }
        director
    }

    /// Another machine, on which nothing runs. Its number.
    fn add_member(&mut self) -> usize {
        let number = self.members.len();
        let random = self.scene.random.fork(&format!("node{number}"));
        let devices = 1 + random.below(2) as usize;
        let mut hardware = Hardware::new(devices, &random, self.scene.clock.clone(), self.stopped.clone());
        hardware.remembered_calls = self.scene.remembered_calls;
        hardware.remembered_answers = self.scene.remembered_answers;
        hardware.page_max = self.scene.page_max;
        hardware.late_syncs = self.scene.late_syncs.clone();
        let member = Member::new(&self.scene, number, random, hardware, &self.kind);
        self.members.push(member);
        number
    }

    /// Faults that fired, of all kinds.
    pub fn faults(&self) -> BTreeMap<&'static str, u64> {
        let mut faults = self.troubles.clone();
        let members = self.members.iter().flat_map(|member| member.machine.hardware.fired());
        for (name, count) in members.chain(self.scene.net.fired()) {
            *faults.entry(name).or_default() += count;
        }
        faults
    }

    /// A digest of everything that all disks did.
    pub fn history(&self) -> u32 {
        self.members.iter().fold(0, |history: u32, member| history.rotate_left(5) ^ member.machine.hardware.history())
    }

    /// Starts all nodes, in any order: those that find no keeper wait for it.
    pub async fn start(&mut self) -> Check<()> {
        self.scene.goal.store(ACKNOWLEDGED_MIN, Ordering::Relaxed);
        if self.kind.keepers > 1 {
            self.scene.count("histories with three keepers");
        }
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        while !order.is_empty() {
            let number = order.swap_remove(self.random.below(order.len() as u64) as usize);
            self.start_member(number).await?;
        }
        Ok(())
    }

    async fn start_member(&mut self, number: usize) -> Check<()> {
        let (scene, planted) = (self.scene.clone(), self.planted);
        let ended = self.members[number].start(&scene, planted).await?;
        ended.into_iter().for_each(|how| self.count(how));
        let running = self.members.iter().filter(|member| member.state != State::Out);
        self.scene.set_addresses(running.map(|member| member.address.clone()).collect());
        Ok(())
    }

    fn count(&mut self, trouble: &'static str) {
        self.scene.say(|| format!("trouble: {trouble}"));
        *self.troubles.entry(trouble).or_default() += 1;
    }

    fn now(&self) -> Time {
        self.scene.clock.now()
    }

    /// Something happens so many milliseconds from now.
    fn plan(&mut self, milliseconds: u64, deed: Deed) {
        self.deeds += 1;
        let when = self.now().after(Duration::from_millis(milliseconds));
        self.agenda.insert((when, self.deeds), deed);
    }

    /// Lets clients work and makes trouble until all of them are done.
    pub async fn work(&mut self) -> Check<()> {
        replicas::wish(&self.scene, &self.random.fork("policy")).await?;
        let mut roles = vec![Role::Push(0), Role::Pull(0), Role::Pull(0), Role::Push(1), Role::Pull(1)];
        roles.extend((0..2 + self.random.below(2) as usize).map(Role::Files));
        roles.extend((4..6).map(Role::SlowFiles));
        // A bag that retains its chunks keeps a device from leaving for as long as it is gone through.
        let passes = if self.random.one_in(3) { Role::Unanswered } else { Role::Passes };
        roles.extend([passes, Role::Onlooker, Role::Hdfs(0)]);
        let sometimes = [
            (Role::Returned, 2),
            (Role::Witness, if self.kind.keepers > 1 { 1 } else { 2 }),
            (Role::Rivals, 3),
            (Role::Passing, 2),
            (Role::Again, 3),
            (Role::Sealing, 3),
            (Role::Taken, 2),
            (Role::Settings, 3),
        ];
        for (role, rare) in sometimes {
            if self.random.one_in(rare) {
                roles.push(role);
            }
        }
        roles.into_iter().for_each(|role| self.players.begin(role));
        self.plan(500, Deed::Trouble);
        while self.players.are_playing() {
            let next = self.agenda.first_key_value().map(|((when, _), _)| when.since(self.now()));
            let stopped = self.stopped.clone();
            tokio::select! {
                biased;
                () = stopped.notified() => self.end_stopped(),
                () = self.scene.end_now.notified() => self.somebody_said_so(),
                outcome = self.players.ended() => outcome?,
                () = tokio::time::sleep(next.unwrap_or(CALL_BOUND)) => self.next_deed().await?,
            }
        }
        Ok(())
    }

    async fn next_deed(&mut self) -> Check<()> {
        let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= self.scene.clock.now()) else {
            return Ok(());
        };
        let deed = entry.remove();
        self.scene.say(|| format!("director: {deed:?}"));
        match deed {
            Deed::Trouble => {
                self.left = self.left.saturating_sub(1);
                if self.left > 0 {
                    self.trouble().await?;
                    let pause = [200, 1_500, 3_500][self.random.below(3) as usize];
                    let pause = self.random.below(pause);
                    self.plan(pause, Deed::Trouble);
                }
            }
            Deed::Start(number) => {
                if self.members[number].state == State::Down {
                    self.start_member(number).await?;
                }
            }
            Deed::Restart(number) => {
                if self.members[number].state == State::Runs {
                    self.end(number, End::PowerLoss);
                }
            }
            Deed::LetGo(number) => self.let_go(number),
            Deed::LoseMetadata(first, lost) => self.lose_metadata(first, lost),
            Deed::Mend(one, other) => self.scene.net.mend_link(&one, &other),
            Deed::Calm(number) => self.members[number].calm(),
            Deed::CalmNet => {
                self.net_faults = NetFaults::default();
                self.scene.net.set_faults(self.net_faults);
            }
        }
        Ok(())
    }

    /// Ends the nodes whose disks stopped.
    fn end_stopped(&mut self) {
        for number in 0..self.members.len() {
            let member = &self.members[number];
            if member.machine.hardware.has_stopped() && member.state == State::Runs {
                self.end(number, member.end_when_stopped);
            }
        }
    }

    /// Somebody was acknowledged something just now, or took a node out.
    fn somebody_said_so(&mut self) {
        let left = std::mem::take(&mut *self.scene.left.lock().unwrap_or_else(PoisonError::into_inner));
        for number in 0..self.members.len() {
            if left.contains(&self.members[number].name) && self.members[number].state != State::Out {
                self.take_out(number);
                if self.random.one_in(2) {
                    // It comes back as a new node, with the directories that it had.
                    self.members[number].state = State::Down;
                    let pause = self.random.below(5_000);
                    self.plan(pause, Deed::Start(number));
                }
            }
        }
        if self.left > 0 && left.is_empty() && self.random.one_in(3) {
            let number = self.random.below(self.members.len() as u64) as usize;
            if self.members[number].state == State::Runs {
                self.count("end after an acknowledgement");
                let how = if self.random.one_in(3) { End::Kill } else { End::PowerLoss };
                self.end(number, how);
                if self.kind.keepers > 1 && self.random.one_in(2) {
                    self.end_keepers();
                }
            }
        }
    }

    /// The machine of a node that was removed is switched off.
    fn take_out(&mut self, number: usize) {
        self.let_go(number);
        self.scene.killed(&self.members[number].name);
        self.members[number].end(End::Kill, Gone::Reset);
        self.members[number].state = State::Out;
    }

    /// Ends a node here and now. It starts again after a while.
    fn end(&mut self, number: usize, how: End) {
        let pause = match self.random.below(8) {
            0 | 1 => self.random.below(OUTAGE_MAX.as_millis() as u64),
            2..5 => self.random.below(3_000),
            _ => self.random.below(50),
        };
        self.end_for(number, how, pause);
    }

    /// Ends a node here and now. It starts again after so many milliseconds. Mostly its power does not go if that would end a promise: then the
    /// others are there, and what is promised is checked, of files with several copies.
    fn end_for(&mut self, number: usize, how: End, pause: u64) {
        self.let_go(number);
        let name = &self.members[number].name;
        let would_void = how == End::PowerLoss && self.scene.replicas > 1 && self.scene.oracle().would_void(name);
        let how = if would_void && !self.random.one_in(4) {
            self.scene.count("power losses spared");
            End::Kill
        } else {
            how
        };
        let member = &mut self.members[number];
        let how = if member.machine.must_lose_power() { End::PowerLoss } else { how };
        if how == End::PowerLoss {
            self.scene.power_lost(&member.name);
        } else {
            self.scene.killed(&member.name);
        }
        let silent = how == End::PowerLoss && self.random.one_in(2);
        member.end(how, if silent { Gone::Silent } else { Gone::Reset });
        self.count(if how == End::Kill { "kill" } else { "power loss" });
        self.plan(pause, Deed::Start(number));
    }

    /// A node is told to stop, as its operator does: it hands over what it does, and lets what is under way end. It starts again after a while.
    pub(super) async fn stop(&mut self, number: usize) -> Check<()> {
        let member = &mut self.members[number];
        if member.held || member.state != State::Runs || member.machine.hardware.has_stopped() {
            return Ok(());
        }
        let Some(node) = member.machine.node.take() else { return Ok(()) };
        let stopped = self.stopped.clone();
        self.count("stop");
        tokio::select! {
            biased;
            // A disk of it may stop meanwhile, or one of another node.
            () = stopped.notified() => stopped.notify_one(),
            ended = tokio::time::timeout(CALL_BOUND, node.stop()) => if ended.is_err() {
                return Err(Broken(format!("{} does not stop in time", self.members[number].name)));
            },
        }
        // All that was acknowledged is durable: that the power goes right after it changes nothing.
        let how = if self.random.one_in(2) { End::Kill } else { End::PowerLoss };
        self.end(number, how);
        Ok(())
    }

    fn let_go(&mut self, number: usize) {
        let member = &mut self.members[number];
        if std::mem::take(&mut member.held) {
            member.machine.let_go();
            self.scene.net.let_go(&member.name);
        }
    }

    /// Nothing goes wrong from here on. What is down starts, and mostly all nodes end and start once more.
    async fn heal(&mut self) -> Check<()> {
        self.left = 0;
        for (_, deed) in std::mem::take(&mut self.agenda) {
            if let Deed::Mend(one, other) = deed {
                self.scene.net.mend_link(&one, &other);
            }
        }
        self.net_faults = NetFaults::default();
        self.scene.net.set_faults(self.net_faults);
        let all = !self.random.one_in(4);
        for number in 0..self.members.len() {
            self.let_go(number);
            self.members[number].calm();
            let member = &mut self.members[number];
            if member.state == State::Runs && (all || member.must_restart || member.machine.hardware.has_stopped()) {
                let how = if self.random.one_in(4) { End::Kill } else { End::PowerLoss };
                self.end(number, how);
            }
        }
        self.agenda.clear();
        let mut down: Vec<usize> =
            (0..self.members.len()).filter(|number| self.members[*number].state == State::Down).collect();
        while !down.is_empty() {
            let number = down.swap_remove(self.random.below(down.len() as u64) as usize);
            self.start_member(number).await?;
        }
        Ok(())
    }

    /// Heals everything, compares it, empties it, and looks whether the space came back.
    pub async fn finale(&mut self) -> Check<()> {
        self.heal().await?;
        let random = SimRandom::new(self.random.seed());
        let (client, _) = self.scene.connect("finale", &random).await?;
        self.all_are_there(&client).await?;
        // Whoever leads then is looked at: each keeper in some history.
        while self.kind.keepers > 1 && !self.has_lost_metadata && !self.random.one_in(3) {
            self.another_leads().await?;
            self.all_are_there(&client).await?;
        }
        // What was given up just now may still be on its way.
        tokio::time::sleep(LATE).await;
        // Whatever sessions that are over left open was ended by the store meanwhile.
        self.scene.oracle().is_all_closed = true;
        let all_made = replicas::are_made(&self.scene, &client, false).await?;
        replicas::are_alike(&self.scene, &random, &client, (all_made, BTreeSet::new())).await?;
        replicas::are_back(&self.scene, &client, all_made).await?;
        self.one_is_given_up(&random, &client, all_made, By::Itself).await?;
        let mut ending = Ending::new(self.scene.clone(), &random, client.clone());
        ending.compare(self.players.directories(), true).await?;
        self.one_is_given_up(&random, &client, all_made, By::Person).await?;
        self.count("rot");
        let machines: Vec<Arc<Hardware>> = self.members.iter().map(|member| member.machine.hardware.clone()).collect();
        machines.iter().for_each(|hardware| ending::rot(hardware, &random));
        ending.clear().await?;
        ending.space_comes_back(&machines).await?;
        self.drains_end(&client).await?;
        for member in &mut self.members {
            if let Some(node) = member.machine.node.take()
                && tokio::time::timeout(CALL_BOUND, node.stop()).await.is_err()
            {
                return Err(Broken(format!("{} does not stop in time", member.name)));
            }
        }
        Ok(())
    }

    /// All nodes that run are members soon, and all their devices are in use.
    async fn all_are_there(&self, client: &Client) -> Check<()> {
        let begun = self.now();
        loop {
            let asked = self.scene.insist("finale", "devices_and_hosts", || client.devices_and_hosts()).await?;
            let devices = asked.map_err(|error| Broken(format!("devices: {error}")))?;
            let well = devices.iter().filter(|(device, host)| {
                !device.missing && !device.out_of_service && host.as_ref().is_some_and(|host| !host.silent)
            });
            let runs = self.members.iter().filter(|member| member.state == State::Runs).count();
            // Nodes, not their devices: whose devices have all been taken out is there, too. One that is being taken out may not be.
            let view = self.scene.insist("finale", "view", || client.view()).await?;
            let view = view.map_err(|error| Broken(format!("view: {error}")))?;
            let heard = view.members.iter().filter(|member| !member.silent).count();
            let badly = view.members.iter().filter(|member| !member.keeping.is_empty()).count();
            if well.count() == devices.len()
                && heard + self.players.leaving() >= runs
                && badly == usize::from(self.has_lost_metadata)
            {
                return Ok(());
            }
            if self.now().since(begun) > HEALED {
                let bad: Vec<String> = devices
                    .iter()
                    .map(|(device, host)| {
                        format!("{} {:?} {}", device.place, host.as_ref().map(|host| &host.name), device.trouble)
                    })
                    .collect();
                let badly: Vec<&String> = view.members.iter().map(|member| &member.keeping).collect();
                return Err(Broken(format!(
                    "{} s after the last fault not all nodes are there: {bad:?}; what is wrong with what they keep: {badly:?}",
                    HEALED.as_secs()
                )));
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// What was to be emptied is empty and out of the cluster, as nothing keeps it any more.
    async fn drains_end(&mut self, client: &Client) -> Check<()> {
        let begun = self.now();
        loop {
            let asked = self.scene.insist("finale", "devices", || client.devices()).await?;
            let devices = asked.map_err(|error| Broken(format!("devices: {error}")))?.devices;
            let waits: Vec<String> = devices.into_iter().filter_map(|device| Some(device.drain?.waits)).collect();
            if waits.is_empty() {
                break;
            }
            if self.now().since(begun) > CALL_BOUND {
                return Err(Broken(format!("everything was deleted and drains do not end: {waits:?}")));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        for name in self.players.taken_out() {
            let view = client.view().await.map_err(|error| Broken(format!("view: {error}")))?;
            let has_none =
                |member: &net::message::cluster::Member| member.node.name == name && member.devices.is_empty();
            if view.members.iter().any(has_none) && !operator::remove(&self.scene, "finale", client, &name).await? {
                return Err(Broken(format!("{name} is empty and cannot be removed")));
            }
        }
        Ok(())
    }
}
