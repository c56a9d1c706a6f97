//! Devices that are away for long are given up by themselves, so that what they have gets replicas elsewhere; and those that are back count again.
//!
//! Since when one is away is what this leadership saw itself: a new leader has heard of nobody at first, and would else give up the whole store. So
//! nothing is given up before it has led for as long as a device has to be away. Nor is there if too many are away at once: then it is the network,
//! or the power, and not their disks, and copying a large part of the store would help nobody (`check_few`). One is only given up if that wins
//! something: a group on it wants several replicas and has one elsewhere that can be copied. Else waiting for it costs nothing, and what a
//! device that counts has comes back with it as it is.
//!
//! What is given up by itself is waited for still where that is all there is: bags, ranges that are to be freed, files whose writer is gone
//! (`DeviceInfo::is_gone`). It counts again when it answers and nothing is on it that the metadata do not know (`TakeBack`): what they still name there
//! is good with it if there is nothing else, and is compared with what is good elsewhere before (`confirming`). One that a person gave up counts again
//! when nothing names it.

use super::claims::Claims;
use super::comparing::compare;
use super::job::{Job, LOOK_EVERY, said};
use crate::device_handle::DeviceHandle;
use crate::leading::Leading;
use crate::log::Level;
use crate::node::Node;
use crate::settings::PLACE_UNSAID;
use base::error::{ErrorKind, Result};
use base::id::{BagId, DeviceId, GroupId, NodeId, Owner};
use base::limit::{FAILED_GIVEN_UP_AFTER, LIST_PAGE_MAX};
use base::planted::Planted;
use base::unit::Time;
use meta::request::{DeviceInfo, NodeInfo};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// The longest between two looks, and between two attempts to let a device count again on which something goes on.
const LOOK_MOST: Duration = Duration::from_secs(10);

/// Whoever asks whether something is won waits after each page so many times as long as it took: a device of ten million groups of one copy
/// takes 40 s of the metadata thread, in steps of some milliseconds, and the others have nine tenths of it meanwhile.
const OTHERS_TURNS: u32 = 9;

/// How a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// It serves.
    Well,
    /// Its node says that it failed: it gives what it has, and takes nothing.
    Failed,
    /// Its node does not have it.
    Missing,
    /// Its node was heard of then, or never since the leadership began.
    Silent(Option<Time>),
}

/// A device as it is seen now.
#[derive(Clone, Debug)]
struct Seen {
    device: DeviceId,
    node: NodeId,
    /// Site and rack; none: nobody said.
    rack: Option<(String, String)>,
    /// It was given up already.
    lost: bool,
    how: How,
}

/// Which devices have been away for how long.
struct Waits {
    began: Time,
    /// How long a device has to be away.
    after: Duration,
    since: BTreeMap<DeviceId, Time>,
    /// When it was looked last.
    looked: Option<Time>,
    /// When too many were away last: what is away since then is waited for anew.
    crowded: Option<Time>,
}

impl Waits {
    fn note(&mut self, now: Time, seen: &[Seen]) {
        // This process stood still, or its machine did: it has not heard of anybody, and nobody is to be judged by that.
        if self.looked.is_some_and(|looked| now.since(looked) > self.after.min(2 * LOOK_MOST)) {
            self.began = now;
        }
        // One that nobody says anything of was there at the last look; at the first it is not known since when it is not.
        let unheard = self.looked.map_or(self.began, |_| now);
        self.looked = Some(now);
        let away = |device: &&Seen| device.how != How::Well;
        let known: BTreeSet<DeviceId> = seen.iter().filter(away).map(|device| device.device).collect();
        self.since.retain(|device, _| known.contains(device));
        for Seen { device, how, .. } in seen.iter().filter(away) {
            match how {
                How::Silent(heard) => {
                    let since = self.since.entry(*device).or_insert(heard.unwrap_or(unheard));
                    // It may have been back since the last look.
                    *since = heard.unwrap_or(*since).max(*since);
                }
                How::Well | How::Failed | How::Missing => drop(self.since.entry(*device).or_insert(now)),
            }
        }
    }

    /// Whether one has been away for long enough that counts still, however many others are.
    fn is_overdue(&self, now: Time, seen: &[Seen]) -> bool {
        let began = self.began.after(self.after);
        let is_old = |device: &Seen| self.since.get(&device.device).is_some_and(|since| since.after(self.after) <= now);
        began <= now && seen.iter().any(|device| !device.lost && is_old(device))
    }

    /// Those that have been away for long enough and count still, and when the next one will have been.
    fn due<'a>(&self, now: Time, seen: &'a [Seen]) -> (Vec<&'a Seen>, Option<Time>) {
        let (mut due, mut next) = (Vec::new(), None);
        for device in seen.iter().filter(|device| !device.lost) {
            let Some(since) = self.since.get(&device.device) else { continue };
            let wait = if device.how == How::Failed { self.after.min(FAILED_GIVEN_UP_AFTER) } else { self.after };
            let since = self.crowded.map_or(*since, |crowded| crowded.max(*since));
            let when = since.after(wait).max(self.began.after(self.after));
            if when <= now {
                due.push(device);
            } else {
                next = Some(next.map_or(when, |next: Time| next.min(when)));
            }
        }
        (due, next)
    }
}

/// Whether few enough are away for giving them up to be right: one third of all devices at the most, or those of one node or one rack if that is
/// no more than half of them. Else why not. Those that were given up and do not count again yet are away as well: else the store would go in
/// thirds.
fn check_few(seen: &[Seen], name: impl Fn(NodeId) -> String) -> std::result::Result<(), String> {
    let away: Vec<&Seen> = seen.iter().filter(|device| device.how != How::Well || device.lost).collect();
    let others = seen.len() - away.len();
    let nodes: BTreeSet<NodeId> = away.iter().map(|device| device.node).collect();
    let racks: BTreeSet<Option<&(String, String)>> = away.iter().map(|device| device.rack.as_ref()).collect();
    let of_one_node = nodes.len() == 1 && away.len() <= others;
    let of_one_rack = racks.len() == 1 && !racks.contains(&None) && away.len() <= others;
    if away.len() * 3 <= seen.len() || of_one_node || of_one_rack {
        return Ok(());
    }
    let names: Vec<String> = nodes.into_iter().take(8).map(name).collect();
    Err(format!(
        "{} of {} devices are away, of nodes {}: more than a third of all, and not of one node or rack with half of all at the most; none is given up by itself; bring them \
         back, or say which are gone for good with `stormwell device lost`",
        away.len(),
        seen.len(),
        names.join(", ")
    ))
}

/// The job.
struct GiveUp {
    waits: Waits,
    /// Whether something is won by giving one up.
    wins: BTreeMap<DeviceId, Wins>,
}

/// Whether something is won by giving a device up.
#[derive(Clone, Copy, Debug)]
enum Wins {
    /// Nothing by what was looked at: up to this group.
    Looks(GroupId),
    /// It is known, and believed until then.
    Knows(bool, Time),
}

/// Gives up what is away for long, until it is cut short. It sleeps until the next device has been away for long enough, or may have begun to be.
pub async fn give_up_by_itself(node: Arc<Node>, leading: Arc<Leading>) {
    let (after, mut began) = (node.repair_after, node.clock.now());
    if node.planted == Some(Planted::GivenUpAfterATurn) {
        began = Time::ZERO;
    }
    let mut job = GiveUp {
        waits: Waits { began, after, since: BTreeMap::new(), looked: None, crowded: None },
        wins: BTreeMap::new(),
    };
    let look = (after / 10).clamp(LOOK_EVERY, LOOK_MOST);
    loop {
        let next = match job.step(&node, &leading).await {
            Ok(next) => next,
            Err(error) => {
                said(&node, "give_up", Err(error));
                None
            }
        };
        let until = next.map_or(look, |next| next.since(node.clock.now()).min(look));
        // A clock that stands between two of its steps must not keep it awake.
        tokio::time::sleep(until.max(Duration::from_millis(1))).await;
    }
}

impl GiveUp {
    /// Gives up what is due. When the next one is.
    async fn step(&mut self, node: &Arc<Node>, leading: &Arc<Leading>) -> Result<Option<Time>> {
        let seen = self.look(node, leading).await?;
        let now = node.clock.now();
        self.wins.retain(|device, wins| {
            let is_believed = !matches!(wins, Wins::Knows(_, until) if *until <= now);
            is_believed && self.waits.since.contains_key(device)
        });
        if let Err(why) = self.check_few(leading, seen.clone()).await? {
            self.waits.crowded = Some(now);
            if self.waits.is_overdue(now, &seen) && leading.away.withhold(&why) {
                node.log.say(Level::Error, "repair", &why, &[]);
            }
            return Ok(None);
        }
        leading.away.withhold("");
        let (due, mut next) = self.waits.due(now, &seen);
        let mut give_up = Vec::new();
        for device in due.into_iter().map(|due| due.device) {
            match self.wins((node, leading), device, now.after(LOOK_EVERY)).await? {
                Some(true) => give_up.push(device),
                Some(false) => (),
                // How the others are is looked at in between.
                None => next = Some(now),
            }
        }
        for device in give_up {
            // That took its time: it may be back, or others be away by now.
            let seen = self.look(node, leading).await?;
            let now = node.clock.now();
            let is_due = self.waits.due(now, &seen).0.iter().any(|due| due.device == device);
            if !is_due || self.check_few(leading, seen).await?.is_err() {
                continue;
            }
            leading.metadata.ask(meta::Request::DeviceGivenUp { device }).await?;
            let away = self.waits.since.get(&device).map_or(Duration::ZERO, |since| now.since(*since));
            let text = format!(
                "a device is given up, which has been away for {} s: what has other replicas gets new ones; what has none is there again when it \
                 comes back; it counts again then",
                away.as_secs()
            );
            node.log.say(Level::Warn, "repair", &text, &[("device", &device)]);
        }
        Ok(next)
    }

    /// All devices as they are now.
    async fn look(&mut self, node: &Node, leading: &Leading) -> Result<Vec<Seen>> {
        let infos = leading.devices().await?;
        let seen: Vec<Seen> =
            infos.iter().filter(|info| !info.is_gone()).map(|info| see(node, leading, info)).collect();
        self.waits.note(node.clock.now(), &seen);
        leading.away.note(&self.waits.since);
        Ok(seen)
    }

    async fn check_few(&self, leading: &Leading, mut seen: Vec<Seen>) -> Result<std::result::Result<(), String>> {
        if self.waits.since.is_empty() {
            return Ok(Ok(()));
        }
        let (_, nodes) = leading.nodes().await?;
        let nodes: BTreeMap<NodeId, NodeInfo> = nodes.into_iter().map(|known| (known.info.node, known.info)).collect();
        for device in &mut seen {
            device.rack = nodes.get(&device.node).and_then(rack_of);
        }
        let name = |node: NodeId| nodes.get(&node).map_or_else(|| node.to_string(), |info| info.name.clone());
        Ok(check_few(&seen, name))
    }

    /// Whether something is won by giving it up; none: that is not known by then, and the next call goes on. Asked again after as long as it is
    /// waited for: little is closed there while it is away.
    async fn wins(
        &mut self,
        (node, leading): (&Node, &Leading),
        device: DeviceId,
        until: Time,
    ) -> Result<Option<bool>> {
        loop {
            let after = match self.wins.get(&device) {
                Some(Wins::Knows(wins, _)) => return Ok(Some(*wins)),
                Some(Wins::Looks(after)) => Some(*after),
                None => None,
            };
            let begun = node.clock.now();
            if begun >= until {
                return Ok(None);
            }
            let request = meta::Request::LacksWithout { device, after };
            let wins = match leading.metadata.ask(request).await? {
                meta::Reply::LacksWithout { any: false, resume: Some(last) } => Wins::Looks(last),
                meta::Reply::LacksWithout { any, .. } => Wins::Knows(any, node.clock.now().after(self.waits.after)),
                other => unreachable!("what would lack replicas was asked for: {other:?}"),
            };
            self.wins.insert(device, wins);
            if matches!(wins, Wins::Looks(_)) {
                tokio::time::sleep(node.clock.now().since(begun) * OTHERS_TURNS).await;
            }
        }
    }
}

/// A device as it is seen now, but for where it stands.
fn see(node: &Node, leading: &Leading, info: &DeviceInfo) -> Seen {
    let how = match leading.device_handle(node, info.device) {
        Ok(handle) if handle.is_able() => How::Well,
        Ok(handle) if handle.can_be_asked() => How::Failed,
        Ok(DeviceHandle::Remote(far)) if !far.peer.is_reachable() => How::Silent(Some(far.peer.heard_at())),
        Ok(_) => How::Missing,
        // Its node, which may report, has said nothing of it.
        Err(_) => How::Silent(None),
    };
    Seen { device: info.device, node: info.node, rack: None, lost: info.lost, how }
}

fn rack_of(info: &NodeInfo) -> Option<(String, String)> {
    let is_said = !info.rack.is_empty() && info.rack != PLACE_UNSAID;
    is_said.then(|| (info.site.clone(), info.rack.clone()))
}

/// Lets devices that were given up count again.
#[derive(Default)]
pub struct TakeBack {
    under_way: Claims<DeviceId>,
    returning: JoinSet<(DeviceId, bool)>,
    /// Until when those are left alone on which something goes on.
    later: BTreeMap<DeviceId, Time>,
}

impl Job for TakeBack {
    const NAME: &'static str = "take_back";

    async fn step(&mut self, node: &Arc<Node>, leading: &Arc<Leading>) -> Result<bool> {
        let now = node.clock.now();
        self.later.retain(|_, until| *until > now);
        while let Some(ended) = self.returning.try_join_next() {
            if let Ok((device, true)) = ended {
                self.later.insert(device, now.after(LOOK_MOST));
            }
        }
        let still = leading.jobs.still();
        // One that is to be emptied leaves the store when it is.
        let later: BTreeSet<DeviceId> = self.later.keys().copied().collect();
        leading.away.keep_back(later.clone());
        let waits = |info: &DeviceInfo| {
            info.lost && !info.draining && !still.contains(&info.device) && !later.contains(&info.device)
        };
        for info in leading.devices().await?.into_iter().filter(waits) {
            let Some(handle) = leading.device_handle(node, info.device).ok().filter(DeviceHandle::is_able) else {
                continue;
            };
            if !info.may_return && is_named(leading, info.device).await? {
                continue;
            }
            if let Some(claim) = self.under_way.try_claim(info.device) {
                let (node, leading) = (node.clone(), leading.clone());
                self.returning.spawn(async move {
                    let taken = leading.meanwhile(take_back(&node, &leading, &handle)).await;
                    let is_later = matches!(&taken, Some(Ok(true)));
                    if let Some(taken) = taken {
                        said(&node, TakeBack::NAME, taken.map(drop));
                    }
                    drop(claim);
                    (info.device, is_later)
                });
            }
        }
        Ok(false)
    }
}

/// Whether a group names the device, or may: not all were looked through.
async fn is_named(leading: &Leading, device: DeviceId) -> Result<bool> {
    let request = meta::Request::GroupsOn { device, after: None, limit: 1 };
    match leading.metadata.ask(request).await? {
        meta::Reply::GroupsOn { groups, .. } => Ok(!groups.is_empty()),
        other => unreachable!("groups on a device were asked for: {other:?}"),
    }
}

/// Deletes all that is on a device which nothing names, and lets it count again. So nothing that it had before is ever taken for a replica but what is
/// named there all the time; a copy that somebody makes there meanwhile is claimed, and waited for. True: it does not count for some time because files are open
/// there. How they end is asked of it as of one that was given up (`orphans`), and not of one that counts again.
async fn take_back(node: &Node, leading: &Leading, handle: &DeviceHandle) -> Result<bool> {
    let left = compare(node, leading, handle).await?;
    if left.claimed > 0 || left.newer > 0 || left.open > 0 {
        return Ok(left.newer + left.open > 0);
    }
    drop_bags_that_it_left(leading, handle).await?;
    match leading.metadata.ask(meta::Request::DeviceBack { device: handle.id() }).await {
        Ok(_) => {
            let text = "a device that was given up is back, and counts again: it takes new data; of what it had the rest is deleted that is elsewhere by \
                        now, and what other devices have, too, counts when it was compared with that";
            node.log.say(Level::Info, "repair", text, &[("device", &handle.id())]);
            Ok(false)
        }
        // What it had is being looked through, or it was named until just now.
        Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A device that a person gave up left its bags with what was there: those chunks were said to be lost, and must not be given to anybody should it
/// become a member again.
async fn drop_bags_that_it_left(leading: &Leading, handle: &DeviceHandle) -> Result<()> {
    let (mut after, mut bags) = (None, BTreeSet::<BagId>::new());
    loop {
        let (chunks, more) = handle.inventory(after, LIST_PAGE_MAX).await?;
        bags.extend(chunks.iter().filter_map(|(_, stat)| match stat.owner {
            Owner::Bag(bag) => Some(bag),
            Owner::Group(_) | Owner::Newer(_) => None,
        }));
        after = chunks.last().map(|(chunk, _)| *chunk);
        if !more {
            break;
        }
    }
    for bag in bags {
        let is_member = match leading.metadata.ask(meta::Request::BagOf { bag }).await {
            Ok(meta::Reply::Bag(info)) => info.members.contains(&handle.id()),
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Ok(other) => unreachable!("a bag was asked for: {other:?}"),
            Err(error) => return Err(error),
        };
        if !is_member {
            handle.drop_bag(bag).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{How, Seen, Waits, check_few};
    use base::id::{DeviceId, NodeId};
    use base::limit::FAILED_GIVEN_UP_AFTER;
    use base::unit::Time;
    use std::collections::BTreeMap;
    use std::time::Duration;

    const AFTER: Duration = Duration::from_secs(600);

    fn at(seconds: u64) -> Time {
        Time::ZERO.after(Duration::from_secs(seconds))
    }

    fn seen(device: u128, node: u128, how: How) -> Seen {
        Seen { device: DeviceId(device), node: NodeId(node), rack: None, lost: false, how }
    }

    fn leading_since(began: u64) -> Waits {
        Waits { began: at(began), after: AFTER, since: BTreeMap::new(), looked: None, crowded: None }
    }

    fn due(waits: &Waits, now: u64, seen: &[Seen]) -> Vec<u128> {
        waits.due(at(now), seen).0.into_iter().map(|device| device.device.0).collect()
    }

    /// A leader has heard of nobody when it begins: nothing is due before it has led for as long as a device has to be away, whatever was before.
    #[test]
    fn a_new_leader_begins_anew() {
        let silent = [seen(1, 1, How::Silent(None)), seen(2, 2, How::Failed), seen(3, 3, How::Missing)];
        let mut waits = leading_since(10_000);
        for now in (10_000..10_600).step_by(10) {
            waits.note(at(now), &silent);
            assert_eq!(due(&waits, now, &silent), [], "at {now}");
        }
        assert_eq!(waits.due(at(10_599), &silent).1, Some(at(10_600)));
        assert_eq!(due(&waits, 10_600, &silent), [1, 2, 3]);
        // With the fault put in: it takes what it did not see for what it waited for.
        let mut planted = leading_since(0);
        planted.note(at(10_000), &silent);
        assert_eq!(due(&planted, 10_000, &silent), [1]);
    }

    /// Looks each ten seconds until then.
    fn look(waits: &mut Waits, times: std::ops::Range<u64>, seen: &[Seen]) {
        times.step_by(10).for_each(|now| waits.note(at(now), seen));
    }

    /// One that was back in between begins anew, also if nobody looked meanwhile; one that failed waits a minute; one that was given up is not again.
    #[test]
    fn away_without_a_break() {
        let mut waits = leading_since(0);
        let silent = |heard| [seen(1, 1, How::Silent(Some(at(heard))))];
        look(&mut waits, 1000..1500, &silent(990));
        look(&mut waits, 1500..2090, &silent(1495));
        assert_eq!((due(&waits, 2094, &silent(1495)), waits.due(at(2094), &silent(1495)).1), (vec![], Some(at(2095))));
        assert_eq!(due(&waits, 2095, &silent(1495)), [1]);
        look(&mut waits, 2100..3000, &[seen(1, 1, How::Well)]);
        assert!(waits.since.is_empty());
        let failed = [seen(1, 1, How::Failed), Seen { lost: true, ..seen(2, 1, How::Failed) }];
        waits.note(at(3000), &failed);
        let minute = 3000 + FAILED_GIVEN_UP_AFTER.as_secs();
        assert_eq!((due(&waits, minute - 1, &failed), due(&waits, minute, &failed)), (vec![], vec![1]));
        waits.after = Duration::from_secs(30);
        assert_eq!(due(&waits, 3030, &failed), [1], "no longer than others");
    }

    /// A leader that stood still has heard of nobody; a device that nobody names any more was there a moment ago; and what was away while too many were
    /// is waited for anew when they are back.
    #[test]
    fn nobody_is_judged_by_old_news() {
        let mut stood = leading_since(0);
        let silent = [seen(1, 1, How::Silent(Some(at(990))))];
        look(&mut stood, 0..1000, &[seen(1, 1, How::Well)]);
        stood.note(at(5000), &silent);
        assert_eq!(due(&stood, 5599, &silent), []);
        let mut unnamed = leading_since(0);
        look(&mut unnamed, 0..100_000, &[seen(1, 1, How::Well)]);
        let nobody = [seen(1, 1, How::Silent(None))];
        look(&mut unnamed, 100_000..100_600, &nobody);
        assert_eq!((due(&unnamed, 100_599, &nobody), due(&unnamed, 100_600, &nobody)), (vec![], vec![1]));
        let mut crowded = leading_since(0);
        let last = [seen(1, 1, How::Silent(Some(at(1000))))];
        look(&mut crowded, 0..3000, &last);
        crowded.crowded = Some(at(2990));
        assert_eq!((due(&crowded, 3589, &last), due(&crowded, 3590, &last)), (vec![], vec![1]));
    }

    /// As many as one third of all devices, or those of one node, or of one rack where racks are named, and never more.
    #[test]
    fn few_at_once() {
        let store = |away: &[bool], racks: &[&str], of_each: usize| {
            let nodes = away.iter().enumerate().flat_map(|(number, away)| {
                let how = if *away { How::Silent(None) } else { How::Well };
                let rack = racks.get(number).map(|rack| (String::new(), rack.to_string()));
                (0..of_each).map(move |device| Seen {
                    rack: rack.clone(),
                    ..seen((number * of_each + device) as u128, number as u128, how)
                })
            });
            check_few(&nodes.collect::<Vec<_>>(), |node| format!("n{}", node.0)).is_ok()
        };
        for of_each in [1, 4] {
            assert!(store(&[true, false, false], &[], of_each), "one node of three");
            assert!(!store(&[true, true, false], &[], of_each), "two of three");
            assert!(store(&[true, false], &[], of_each) && !store(&[true, true], &[], of_each));
            assert!(store(&[true, true, false, false, false, false], &[], of_each));
            assert!(!store(&[true, true, true, false, false, false, false, false], &[], of_each));
            let racks = ["a", "a", "a", "b", "b", "b"];
            assert!(store(&[true, true, true, false, false, false], &racks, of_each), "a rack of two");
            assert!(!store(&[true, false, true, true, false, false], &racks, of_each), "of both racks");
            assert!(!store(&[true, true, true, false], &["a", "a", "a", "a"], of_each), "the one rack there is");
        }
        let large = [seen(1, 1, How::Well), seen(2, 2, How::Silent(None)), seen(3, 2, How::Silent(None))];
        assert!(check_few(&large, |_| String::new()).is_err(), "the node that has most of it");
        let returned =
            [Seen { lost: true, ..seen(1, 1, How::Well) }, seen(2, 2, How::Silent(None)), seen(3, 3, How::Well)];
        assert!(check_few(&returned, |_| String::new()).is_err(), "one is back and does not count yet");
        let half = [seen(1, 1, How::Failed), seen(2, 1, How::Well)];
        assert!(check_few(&half, |_| String::new()).is_ok(), "one of two disks of the only node");
        let given_up = [
            Seen { lost: true, ..seen(1, 1, How::Silent(None)) },
            seen(2, 2, How::Silent(None)),
            seen(3, 3, How::Well),
        ];
        let why = check_few(&given_up, |node| format!("n{}", node.0)).expect_err("the store would go node by node");
        assert!(why.starts_with("2 of 3 devices are away, of nodes n1, n2"), "{why}");
    }
}
