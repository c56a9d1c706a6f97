//! Several keepers of the metadata, their disks and the network between them in virtual time: what was acknowledged is there, whoever leads; what was
//! read stays; each change is made once; and all have the same in the end.

mod clients;
mod copying;
mod named;

use crate::stored::entries_of_tree;
use base::disk::{BlockFile, Disk, FileKind, FileName};
use base::env::Random;
use base::error::ErrorKind;
use base::id::ClusterId;
use base::planted::Planted;
use base::unit::{GIB, MIB, Time, WallTime};
use clients::{Asked, Client, Known, Name, Question, Tag};
use meta::{CopyJob, Effect, KeeperMessage, Mending, MergeJob, PageJob, Seats, Settings, Store};
use quorum::KeeperId;
use sim::disk::{SimDevice, SimDisk, SimFaults, When};
use sim::file::SimFileDevice;
use sim::random::SimRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

const MS: u64 = 1_000_000;
const MADE: WallTime = WallTime(1_700_000_000_000);

/// A promise that was broken, in words.
#[derive(Debug)]
struct Broken(String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A machine with a keeper.
struct Machine {
    device: SimDevice,
    file: SimFileDevice,
    runs: Option<(SimDisk, Store<Tag>)>,
    /// It could not be opened, and gets a copy.
    mends: Option<Mending>,
    starts_at: u64,
    /// Its disk does nothing until then.
    slow_until: u64,
    /// What is being merged, and when that ends.
    merging: Option<(MergeJob, u64)>,
    /// Where a copy of another tree is made, and what is being written of it, and when that ends.
    copy: SimFileDevice,
    copying: Option<(CopyJob, u64)>,
    /// Pages for others, and when they are read.
    pages: Vec<(PageJob, u64)>,
    /// What it is asked, and when that comes.
    mail: Vec<Question>,
    /// It is in the middle of a turn, for which it read its clock then, until then.
    busy: Option<(Time, u64)>,
}

struct Cluster {
    random: SimRandom,
    planted: Option<Planted>,
    now: u64,
    machines: Vec<Machine>,
    clients: Vec<Client>,
    sent: Vec<(u64, usize, usize, KeeperMessage)>,
    cut: BTreeSet<(usize, usize)>,
    /// Names that were asked for.
    names: BTreeMap<String, Name>,
    leaders: u64,
    answered: u64,
    copies: u64,
    /// Which one's disk rotted; at the most one at a time.
    rotten: Option<usize>,
    mended: u64,
    trouble: bool,
    pace: Pace,
    /// Pages of copies that were written.
    written: u64,
    /// What this one says that it has is lost.
    unheard: Option<usize>,
}

/// How long things take that take as long as chance wants else.
#[derive(Default)]
struct Pace {
    page: Option<u64>,
    copy: Option<u64>,
    merge: Option<u64>,
    page_bytes: Option<usize>,
}

impl Cluster {
    fn new(seed: u64, count: usize, planted: Option<Planted>) -> Cluster {
        let random = SimRandom::new(seed);
        let machine = |_| Machine {
            device: SimDevice::new(random.next(), SimFaults::default()),
            file: SimFileDevice::new(),
            runs: None,
            mends: None,
            starts_at: random.below(50 * MS),
            slow_until: 0,
            merging: None,
            copy: SimFileDevice::new(),
            copying: None,
            pages: Vec::new(),
            mail: Vec::new(),
            busy: None,
        };
        let machines = (0..count).map(machine).collect();
        let client = |_| Client { call: 1, asked: Some(Asked::Opens), tries: 0, again_at: 0, made: 0 };
        Cluster {
            machines,
            clients: (0..3).map(client).collect(),
            random,
            planted,
            now: 0,
            sent: Vec::new(),
            cut: BTreeSet::new(),
            names: BTreeMap::new(),
            leaders: 0,
            answered: 0,
            copies: 0,
            rotten: None,
            mended: 0,
            trouble: true,
            pace: Pace::default(),
            written: 0,
            unheard: None,
        }
    }

    fn time(&self) -> Time {
        Time::from_nanos(1_000 * MS + self.now)
    }

    fn wall(&self) -> WallTime {
        WallTime(MADE.0 + self.now / MS)
    }

    /// So many steps of about a millisecond.
    fn steps(&mut self, steps: u64) -> Result<(), Broken> {
        for _ in 0..steps {
            self.now += self.random.below(2 * MS);
            if self.trouble && self.random.one_in(600) {
                self.do_harm();
            }
            self.deliver();
            for at in 0..self.machines.len() {
                self.turn(at)?;
            }
            for who in 0..self.clients.len() {
                self.ask(who);
            }
        }
        Ok(())
    }

    fn do_harm(&mut self) {
        let count = self.machines.len() as u64;
        let at = self.random.below(count) as usize;
        match self.random.below(9) {
            0 => self.set_faults(at, SimFaults { sync_error: When::Once, ..SimFaults::default() }),
            1 => {
                let crash_at = Some(self.machines[at].device.operations().changes() + self.random.below(40));
                self.set_faults(at, SimFaults { crash_at, ..SimFaults::default() });
            }
            2 => (0..self.machines.len()).for_each(|at| self.dies(at)),
            3 | 4 => {
                // One way, or both.
                let other = self.random.below(count) as usize;
                self.cut.insert((at, other));
                if self.random.one_in(2) {
                    self.cut.insert((other, at));
                }
            }
            5 => self.cut.clear(),
            6 => self.machines[at].slow_until = self.now + self.random.below(900 * MS),
            _ => self.dies(at),
        }
    }

    fn set_faults(&mut self, at: usize, faults: SimFaults) {
        // One that stops while it is opened would be waited for for ever.
        if self.machines[at].runs.is_some() {
            self.machines[at].device.set_faults(faults);
        }
    }

    /// The process is killed, or the power fails.
    fn dies(&mut self, at: usize) {
        let starts_at = self.now + self.random.below(700 * MS);
        let (by_power, seed) = (self.random.one_in(2), self.random.next());
        let machine = &mut self.machines[at];
        if machine.runs.take().is_none() && machine.mends.take().is_none() {
            return;
        }
        (machine.merging, machine.copying) = (None, None);
        machine.pages.clear();
        machine.mail.clear();
        machine.busy = None;
        if machine.device.crashed() || by_power {
            machine.device.crash();
            machine.file.crash(seed);
            machine.copy.crash(seed);
        } else {
            machine.device.kill();
            machine.file.kill();
            machine.copy.kill();
        }
        machine.device.set_faults(SimFaults::default());
        machine.starts_at = starts_at;
    }

    /// What is on the disk of a keeper that does not run rots, or is gone: one bit of a group of the log that something behind it says to be durable, or the
    /// beginning of the tree, or all of it. Others are whole meanwhile, most of them.
    fn rots(&mut self, at: usize) {
        if self.machines[at].runs.is_some() || self.machines.len() < 3 || self.rotten.is_some() {
            return;
        }
        let machine = &self.machines[at];
        match self.random.below(4) {
            0 => machine.file.poke(0, &[0; 4096]),
            1 => machine.file.open().set_length(0).expect("it is cut"),
            _ => {
                let groups = groups_of(&machine.device);
                let newest = groups.iter().map(|(_, _, order)| *order).max().unwrap_or(0);
                // So many are written together at the most.
                let said: Vec<_> = groups.iter().filter(|(_, _, order)| *order + 4 < newest).collect();
                if said.is_empty() {
                    return;
                }
                let back = self.random.below(said.len().min(40) as u64) as usize;
                let (file, offset, _) = said[said.len() - 1 - back];
                machine.device.rot(*file, *offset + self.random.below(200), 3);
            }
        }
        self.rotten = Some(at);
    }

    fn starts(&mut self, at: usize) -> Result<(), Broken> {
        let (now, wall) = (self.time(), self.wall());
        let voters: Vec<KeeperId> = (1..=self.machines.len() as u64).map(KeeperId).collect();
        let own = voters[at];
        let random = Arc::new(SimRandom::new(self.random.next()));
        let settings = Settings {
            segment_length: MIB,
            segments_max: 3,
            merge_bytes: 2 << 10,
            copy_page: self.pace.page_bytes.unwrap_or(2 << 10),
            seats: Some(Seats { store: ClusterId(5), own, voters, made: MADE }),
            planted: self.planted,
            ..Settings::for_capacity(GIB, random)
        };
        let machine = &mut self.machines[at];
        let mut disk = machine.device.attach();
        let broken = |error| Broken(format!("keeper {at} does not start: {error}"));
        match Store::open(&mut disk, Box::new(machine.file.open()), &settings, now, wall) {
            Ok((store, _)) => {
                machine.runs = Some((disk, store));
                self.rotten = self.rotten.filter(|rotten| *rotten != at);
            }
            Err(why) if self.rotten == Some(at) => {
                machine.mends = Some(Mending::open(&mut disk, &settings, now, why).map_err(broken)?);
            }
            Err(error) => return Err(broken(error)),
        }
        Ok(())
    }

    /// What a machine does whose keeper is mended.
    fn mends(&mut self, at: usize) -> Result<(), Broken> {
        let (now, time) = (self.now, self.time());
        let machine = &mut self.machines[at];
        let Some(mending) = &mut machine.mends else { return Ok(()) };
        if let Some((job, _)) = machine.copying.take_if(|(_, at)| *at <= now) {
            let done = mending.copied(time, job.run(|| Ok(Box::new(machine.copy.open()))));
            done.map_err(|error| Broken(format!("keeper {at} is not mended: {error}")))?;
        }
        if mending.next_tick().is_some_and(|due| due <= time) {
            mending.tick(time);
        }
        for effect in mending.take_effects() {
            self.mended += u64::from(matches!(effect, Effect::Copied));
            self.does(at, effect)?;
        }
        Ok(())
    }

    fn deliver(&mut self) {
        let (now, time) = (self.now, self.time());
        let (due, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.sent).into_iter().partition(|(at, ..)| *at <= now);
        self.sent = rest;
        for (_, from, to, message) in due {
            if self.cut.contains(&(from, to)) {
                continue;
            }
            let machine = &mut self.machines[to];
            if machine.busy.is_some() {
                self.sent.push((now, from, to, message));
                continue;
            }
            match (&mut machine.runs, &mut machine.mends) {
                (Some((_, store)), _) => store.receive(time, message),
                (None, Some(mending)) => mending.receive(time, message),
                (None, None) => {}
            }
        }
    }

    /// What a machine does in a step.
    fn turn(&mut self, at: usize) -> Result<(), Broken> {
        let (now, time, wall) = (self.now, self.time(), self.wall());
        if self.machines[at].device.crashed() {
            self.dies(at);
        }
        if self.machines[at].mends.is_some() {
            return self.mends(at);
        }
        if self.machines[at].runs.is_none() {
            if self.trouble && self.random.one_in(2_000) {
                self.rots(at);
            }
            return if self.machines[at].starts_at <= now { self.starts(at) } else { Ok(()) };
        }
        let machine = &mut self.machines[at];
        if machine.busy.is_some_and(|(_, until)| now < until) {
            return Ok(());
        }
        let Some((disk, store)) = &mut machine.runs else { return Ok(()) };
        // What it was asked meanwhile is of the turn, and all that was done in it leaves now.
        let mut effects = Vec::new();
        if let Some((began, _)) = machine.busy.take() {
            for Question { caller, request, tag, .. } in machine.mail.extract_if(.., |question| question.comes <= now) {
                store.submit(began, wall, caller, request, tag);
            }
            effects = store.take_effects(time);
        }
        let mut done = Vec::new();
        if machine.slow_until <= now && self.random.one_in(2) {
            disk.poll(Some(Duration::ZERO), &mut done);
        }
        done.into_iter().for_each(|done| store.completed(time, done));
        for Question { caller, request, tag, .. } in machine.mail.extract_if(.., |question| question.comes <= now) {
            store.submit(time, wall, caller, request, tag);
        }
        if store.next_tick().is_some_and(|due| due <= time) {
            store.tick(time, wall);
        }
        if let Some((job, _)) = machine.merging.take_if(|(_, at)| *at <= now) {
            drop(store.merged(time, job.run()));
        }
        if let Some(job) = store.merge_job(time) {
            let takes = self.pace.merge.unwrap_or_else(|| self.random.below(20 * MS));
            machine.merging = Some((job, now + takes));
        }
        if let Some((job, _)) = machine.copying.take_if(|(_, at)| *at <= now) {
            store.copied(time, job.run(|| Ok(Box::new(machine.copy.open()))));
        }
        let due = |page: &mut (PageJob, u64)| page.1 <= now;
        let pages: Vec<PageJob> = machine.pages.extract_if(.., due).map(|(job, _)| job).collect();
        if self.trouble && self.random.one_in(400) {
            machine.busy = Some((time, now + self.random.below(2_000 * MS)));
        } else {
            effects.extend(store.take_effects(time));
        }
        // A copy that is too slow is begun anew.
        let mut failures = store.take_failures();
        failures.retain(|_, error| error.kind() != ErrorKind::Busy);
        if let Some((what, error)) = failures.first_key_value() {
            return Err(Broken(format!("keeper {at}, {what}: {error}")));
        }
        // Whoever runs a store whose log failed starts it again.
        let failed = store.in_service().is_err_and(|error| error.kind() == ErrorKind::Io);
        for page in pages {
            let (to, message) = page.run().map_err(|error| Broken(format!("keeper {at} reads no page: {error}")))?;
            self.sends(at, to, &message);
        }
        for effect in effects {
            self.does(at, effect)?;
        }
        if failed {
            self.dies(at);
        }
        Ok(())
    }

    fn does(&mut self, at: usize, effect: Effect<Tag>) -> Result<(), Broken> {
        match effect {
            Effect::Disk { token, op } => {
                if let Some((disk, _)) = &mut self.machines[at].runs {
                    disk.submit(token, op);
                }
            }
            Effect::Send { to, message } => self.sends(at, to, &message),
            Effect::Page(job) => {
                // One after the other.
                let begins = self.machines[at].pages.last().map_or(self.now, |(_, ends)| *ends).max(self.now);
                let ends = begins + self.pace.page.unwrap_or_else(|| self.random.below(5 * MS));
                self.machines[at].pages.push((job, ends));
            }
            Effect::Copy(job) => {
                let machine = &mut self.machines[at];
                if machine.copying.is_some() {
                    return Err(Broken(format!("keeper {at} has two pages written at once")));
                }
                let takes = self.pace.copy.unwrap_or_else(|| self.random.below(20 * MS));
                machine.copying = Some((job, self.now + takes));
                self.written += 1;
            }
            Effect::Copied => {
                self.dies(at);
                let machine = &mut self.machines[at];
                std::mem::swap(&mut machine.file, &mut machine.copy);
                machine.starts_at = self.now;
                self.copies += 1;
            }
            Effect::Turned(part) => self.leaders += u64::from(part.leads()),
            Effect::Reply { tag, result } => self.answered(tag, result)?,
        }
        Ok(())
    }

    fn sends(&mut self, at: usize, to: KeeperId, message: &KeeperMessage) {
        let is_unheard = match message {
            KeeperMessage::Log(message) => self.unheard == Some(at) && message.acknowledges().is_some(),
            KeeperMessage::Copy(_) => false,
        };
        if !is_unheard && !self.random.one_in(100) {
            let bytes = message.bytes().expect("keepers send it").into();
            let message = KeeperMessage::read(&bytes).expect("it was sent");
            let late = if self.random.one_in(30) { 200 * MS } else { 2 * MS };
            self.sent.push((self.now + self.random.below(late), at, to.0 as usize - 1, message));
        }
    }

    /// No more trouble: everybody is answered, all names that were acknowledged are there, and all keepers have the same in their trees.
    fn end(&mut self) -> Result<(), Broken> {
        self.trouble = false;
        self.cut.clear();
        for at in 0..self.machines.len() {
            self.machines[at].device.set_faults(SimFaults::default());
        }
        let answered = self.answered;
        self.steps(8_000)?;
        if self.answered < answered + 100 {
            return Err(Broken(format!("{} answers in the last seconds", self.answered - answered)));
        }
        let is_there = |(_, name): &(&String, &Name)| name.known == Known::There;
        let known: Vec<String> = self.names.iter().filter(is_there).map(|(name, _)| name.clone()).collect();
        // One in a while: others are looked at all the time.
        for name in known.iter().step_by(known.len() / 10 + 1) {
            self.look_at(name)?;
        }
        // Nothing comes any more; all is merged everywhere.
        self.clients.clear();
        let stands = |machine: &Machine| {
            let (_, store) = machine.runs.as_ref()?;
            store.is_quiet().then(|| store.sequence())
        };
        for round in 0.. {
            self.steps(1_000)?;
            let stand: Vec<Option<u64>> = self.machines.iter().map(stands).collect();
            if stand[0].is_some() && stand.iter().all(|other| *other == stand[0]) {
                break;
            }
            if round > 60 {
                return Err(Broken(format!("the keepers stand at {stand:?} for ever")));
            }
        }
        let mut trees = Vec::new();
        for at in 0..self.machines.len() {
            if let Some(Err(error)) = self.machines[at].runs.as_ref().map(|(_, store)| store.in_service()) {
                return Err(Broken(format!("keeper {at} is not in service in the end: {error}")));
            }
            self.dies(at);
            trees.push(entries_of_tree(&self.machines[at].file));
        }
        if let Some(other) = trees.iter().position(|tree| tree != &trees[0]) {
            return Err(Broken(format!("the trees of keepers 0 and {other} are not the same")));
        }
        self.compare_names(&trees[0])
    }

    /// Looks at a name where somebody leads, until that is answered.
    fn look_at(&mut self, name: &str) -> Result<(), Broken> {
        self.clients[0].asked = Some(Asked::Looks(name.to_string(), None));
        (self.clients[0].call, self.clients[0].again_at) = (self.clients[0].call + 1, 0);
        for _ in 0..10 {
            self.steps(1_000)?;
            if !matches!(&self.clients[0].asked, Some(Asked::Looks(asked, _)) if asked == name) {
                return Ok(());
            }
        }
        Err(Broken(format!("nobody says whether {name} is there")))
    }
}

/// The groups in the files of a keeper's log: where they begin, and their orders, by these.
fn groups_of(device: &SimDevice) -> Vec<(FileName, u64, u64)> {
    let mut groups = Vec::new();
    for (file, _) in device.files().into_iter().filter(|(name, _)| name.kind == FileKind::Log) {
        let is_group = |block: &&[u8]| quorum::is_group(block) && block[8] == 1;
        for (at, block) in device.peek(file).chunks_exact(4096).enumerate().filter(|(_, block)| is_group(block)) {
            let order = u64::from_le_bytes(block[20..28].try_into().expect("eight bytes"));
            groups.push((file, at as u64 * 4096, order));
        }
    }
    groups.sort_by_key(|(_, _, order)| *order);
    groups
}

fn history(seed: u64, count: usize, planted: Option<Planted>) -> Result<Cluster, Broken> {
    let mut cluster = Cluster::new(seed, count, planted);
    cluster.steps(12_000)?;
    cluster.end()?;
    Ok(cluster)
}

fn seeds(usual: u64) -> u64 {
    std::env::var("STORMWELL_KEEPERS_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(usual)
}

/// Whatever happens to keepers, their disks and the network between them.
#[test]
fn no_promise_is_broken() {
    let (mut leaders, mut answered, mut copies, mut mended) = (0, 0, 0, 0);
    for seed in 0..seeds(12) {
        let count = [3, 3, 2, 5][seed as usize % 4];
        let cluster = history(seed, count, None).unwrap_or_else(|broken| {
            panic!(
                "seed {seed}: {broken}; STORMWELL_KEEPERS_SEEDS={} cargo test -p meta no_promise_is_broken",
                seed + 1
            )
        });
        (leaders, answered) = (leaders + cluster.leaders, answered + cluster.answered);
        (copies, mended) = (copies + cluster.copies, mended + cluster.mended);
    }
    assert!(leaders > 20 && answered > 1_000, "{leaders} leaders, {answered} answers");
    assert!(copies > 5 && mended > 0, "{copies} copies, {mended} of them for mending");
}

/// A fault that is put in breaks a promise within 200 histories, from each of three on; of those as many as are usually needed are played each time.
#[test]
fn planted_faults_are_seen() {
    let starts = if std::env::var_os("STORMWELL_KEEPERS_SEEDS").is_some() { &[1000, 0, 2000][..] } else { &[1000] };
    for fault in [
        Planted::MergedUncommitted,
        Planted::AnswersForgottenAtTurn,
        Planted::ServedBeforeOwnEntry,
        Planted::EntryAcknowledgedBeforeSync,
        Planted::HalfACopyCounts,
        Planted::RotTakenForTear,
    ] {
        for from in starts {
            let seen = (*from..from + 200).find(|seed| history(*seed, 3, Some(fault)).is_err());
            assert!(seen.is_some(), "{fault:?} is not seen from seed {from} on");
        }
    }
}
