//! The one home of placement: candidates, policy and a seed in, devices out. Pure, so that the same input gives the same place.

use base::error::{Error, ErrorKind, Result};
use base::id::{DeviceId, NodeId};
use base::limit::REPLICAS_MAX;
use base::policy::{Class, Policy};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A device as placement sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which device.
    pub device: DeviceId,
    /// The node that has it.
    pub node: NodeId,
    /// Its class.
    pub class: Class,
    /// Bytes that still fit beside what it keeps back.
    pub free: u64,
    /// How many groups as wide as the wanted one were placed there, all candidates counted from the same moment on.
    pub placed: u32,
    /// Whether it takes no more new data.
    pub full: bool,
}

/// A device as the placement of one more replica sees it: also those that take none count, as a place to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The device.
    pub candidate: Candidate,
    /// Which rack its node is in; none: nobody said.
    pub rack: Option<u32>,
    /// Whether it can be written to now.
    pub serves: bool,
    /// Whether it takes a replica now.
    pub takes: bool,
    /// What it has does not count, or not for long: it is lost, or being emptied.
    pub lost: bool,
    /// It was given up by itself: what it has does not count, and its node may come back.
    pub returns: bool,
}

/// The device for one more replica of a column of `room` bytes that lies on the devices `has`, the head first: one of the head's class, if the
/// store has others of it, on a node that has no replica of the column, of those in a rack that has the fewest, and there by chance, each in proportion to its free bytes. A
/// second one on a node only if the store has no node besides those that have one: while one is away or full, the replica waits, also where it is
/// the one whose replica does not count because it is away. None: on no
/// device at present.
pub fn place_replica(homes: &[Home], has: &[DeviceId], room: u64, seed: u64) -> Option<DeviceId> {
    let is_one = |home: &&Home| has.contains(&home.candidate.device);
    let head = homes.iter().find(|home| Some(&home.candidate.device) == has.first());
    let others = || homes.iter().filter(|home| !is_one(home) && !home.lost);
    let class =
        head.map(|head| head.candidate.class).filter(|class| others().any(|home| home.candidate.class == *class));
    let fits = |home: &&Home| class.map_or(home.candidate.class.keeps(), |class| home.candidate.class == class);
    let counted = || homes.iter().filter(|home| is_one(home) && !home.lost);
    let on_node = |home: &&Home| counted().any(|one| one.candidate.node == home.candidate.node);
    let is_elsewhere =
        others().filter(fits).any(|home| !on_node(&home)) || homes.iter().any(|home| is_one(&home) && home.returns);
    let takes = |home: &&Home| {
        let roomy = home.takes && !home.candidate.full && home.candidate.free >= room.max(1);
        roomy && (!is_elsewhere || !on_node(home))
    };
    let in_rack = |home: &&Home| counted().filter(|one| home.rack.is_some() && one.rack == home.rack).count();
    let possible: Vec<&Home> = others().filter(fits).filter(takes).collect();
    let fewest = possible.iter().map(in_rack).min()?;
    let next: Vec<&Home> = possible.into_iter().filter(|home| in_rack(home) == fewest).collect();
    // Each as often as its part of the free bytes: the one with the most would take all copies at once.
    let free = |home: &&&Home| u128::from(home.candidate.free);
    // 40 bits of chance, so that no sum of free bytes times them is too large.
    let mut drawn = (u128::from(mix(seed) >> 24) * next.iter().map(|home| free(&home)).sum::<u128>()) >> 40;
    let chosen = next.iter().find(|home| {
        let is_here = drawn < free(home);
        drawn = drawn.saturating_sub(free(home));
        is_here
    });
    chosen.or(next.last()).map(|home| home.candidate.device)
}

/// The devices for the replicas of a new column beside its head, at most so many: fewer than wanted where `place_replica` finds no more at present.
pub fn place_others(homes: &[Home], head: DeviceId, others: usize, room: u64, seed: u64) -> Vec<DeviceId> {
    let mut has = vec![head];
    while has.len() <= others {
        let Some(next) = place_replica(homes, &has, room, mix(seed.wrapping_add(has.len() as u64))) else { break };
        has.push(next);
    }
    has.split_off(1)
}

/// The device for a new group: where fewest were placed for its free space, so that every device gets its part of the groups, neither
/// more nor less; among equals chance decides.
/// `Invalid` if no device could ever fit the policy, `Full` if those that do are full.
pub fn place(candidates: &[Candidate], policy: Policy, seed: u64) -> Result<DeviceId> {
    if !candidates.iter().any(|candidate| policy.fits(candidate.class)) {
        let wish = devices_for(policy);
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("the store has no device for {wish}; nothing was written: add a device or change the policy"),
        ));
    }
    // One without room is the last choice, not none: what was deleted may leave it any moment, and who writes there waits for that.
    let usable = || candidates.iter().filter(|candidate| policy.fits(candidate.class) && !candidate.full);
    let Some(fewest) = usable().min_by(|first, second| by_share(first, second)) else {
        let wish = devices_for(policy);
        return Err(Error::new(
            ErrorKind::Full,
            format!("every device for {wish} is full; what was acknowledged is safe: delete something or add a device"),
        ));
    };
    let equal: Vec<DeviceId> =
        usable().filter(|candidate| by_share(candidate, fewest).is_eq()).map(|candidate| candidate.device).collect();
    Ok(equal[(mix(seed) % equal.len() as u64) as usize])
}

/// The devices for the columns of a new group, each once. Each has room for `room` bytes, and the nodes with the fewest columns come
/// first. Fewer than `columns` if no others have that room; if none has, one as `place` says. Errors as `place`.
pub fn place_columns(
    candidates: &[Candidate],
    policy: Policy,
    columns: usize,
    room: u64,
    seed: u64,
) -> Result<Vec<DeviceId>> {
    let roomy = candidates.iter().filter(|candidate| takes_column(candidate, policy, room));
    let mut left: Vec<Candidate> = roomy.copied().collect();
    if columns == 1 || left.is_empty() {
        let from = if left.is_empty() { candidates } else { &left };
        return Ok(vec![place(from, policy, seed)?]);
    }
    let (mut chosen, mut of_nodes) = (Vec::new(), BTreeMap::<NodeId, usize>::new());
    while chosen.len() < columns && !left.is_empty() {
        let count = |candidate: &Candidate| of_nodes.get(&candidate.node).copied().unwrap_or(0);
        let fewest = left.iter().map(count).min();
        let next: Vec<Candidate> = left.iter().filter(|candidate| Some(count(candidate)) == fewest).copied().collect();
        let device = place(&next, policy, mix(seed.wrapping_add(chosen.len() as u64)))?;
        if let Some(at) = left.iter().position(|candidate| candidate.device == device) {
            *of_nodes.entry(left.swap_remove(at).node).or_default() += 1;
        }
        chosen.push(device);
    }
    Ok(chosen)
}

/// The error of a group for which there are fewer places than its policy wants at the least.
pub fn too_few(places: usize, least: usize) -> Error {
    Error::new(
        ErrorKind::Full,
        format!(
            "what is written there has to have {least} copies at the least from its beginning, and there is a place for {places} now: the other nodes \
             are away, full, or too few; what was acknowledged is safe; start them, make room, add a node, or allow fewer with `stormwell policy set \
             DIRECTORY --least {places}`"
        ),
    )
}

/// The candidates but those that refused a writer's bytes; all of them if no other takes data under this policy.
pub fn without(candidates: Vec<Candidate>, policy: Policy, refused: &[DeviceId]) -> Vec<Candidate> {
    let is_other = |candidate: &&Candidate| !refused.contains(&candidate.device);
    let others: Vec<Candidate> = candidates.iter().filter(is_other).copied().collect();
    if columns_possible(&others, policy, 1) > 0 { others } else { candidates }
}

/// How many columns with room for `room` bytes each a group could have.
pub fn columns_possible(candidates: &[Candidate], policy: Policy, room: u64) -> usize {
    candidates.iter().filter(|candidate| takes_column(candidate, policy, room)).count()
}

/// Whether a group may have a column of so many bytes there.
pub fn takes_column(candidate: &Candidate, policy: Policy, room: u64) -> bool {
    policy.fits(candidate.class) && !candidate.full && candidate.free >= room.max(1)
}

/// All devices that a bag under this policy lives on, full ones too: they drain, and may take data again.
pub fn place_bag(candidates: &[Candidate], policy: Policy) -> Result<Vec<DeviceId>> {
    if let Some(other) = policy.replicas.filter(|replicas| *replicas != 1) {
        let text = format!(
            "the policy asks for {other} copies and bags have one; the bag was not made: set replicas to 1 or leave it out"
        );
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let fitting: Vec<DeviceId> =
        candidates.iter().filter(|candidate| policy.fits(candidate.class)).map(|candidate| candidate.device).collect();
    if fitting.is_empty() {
        let wish = devices_for(policy);
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("the store has no device for {wish}; the bag was not made: add a device or change the policy"),
        ));
    }
    Ok(fitting)
}

/// Whether files can have this policy.
pub fn check(policy: Policy) -> Result<()> {
    match policy.replicas {
        Some(other) if !(1..=REPLICAS_MAX as u32).contains(&other) => Err(Error::new(
            ErrorKind::Invalid,
            format!("the policy asks for {other} copies; nothing was changed: 1 to {REPLICAS_MAX} are possible"),
        )),
        replicas => match policy.least {
            Some(least) if !(1..=replicas.unwrap_or(REPLICAS_MAX as u32)).contains(&least) => Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "the policy wants places for {least} copies at the least; nothing was changed: name 1 to as many as there shall be copies"
                ),
            )),
            _ => Ok(()),
        },
    }
}

/// How many copies of a file there shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// How often its bytes count, and what programs that asked for a number are shown.
    pub counted: u32,
    /// What its groups want; none: nobody wishes for anything.
    pub replicas: Option<u32>,
}

/// The wish that wins. `own`: somebody said it of this file, and it always counts. `asked`: whoever made the file did, which counts where its
/// directory wants several: Hadoop asks for three unless it is told otherwise. `above`: the directory's. More than the directory wants is for no more
/// copies than there are nodes: Hadoop asks for ten of a job's files in a store of any size, which would lack copies for ever.
pub fn wish(own: Option<u32>, asked: u32, above: Option<u32>, nodes: impl FnOnce() -> u32) -> Wish {
    let (most, directory) = (REPLICAS_MAX as u32, above.unwrap_or(1).max(1));
    let asked = (asked > 0).then_some(asked);
    let said = own.or(asked.filter(|_| directory > 1)).map(|said| said.clamp(1, most));
    let replicas = match said {
        Some(said) if said > directory => Some(said.min(nodes().max(directory))),
        Some(said) => Some(said),
        None => above,
    };
    Wish { counted: own.or(asked).unwrap_or(directory), replicas }
}

fn devices_for(policy: Policy) -> String {
    match policy.tier {
        Some(class) => format!("the tier '{}'", class.name()),
        None => "data without a wish, which goes to nvm, ssd or hdd".to_string(),
    }
}

/// Who has the smaller share: groups placed for each free byte, compared without a division. Half a group is added, as if the next one
/// were rounded: with a whole one, great devices would run ahead of their part. (2^33 groups times 2^64 bytes fit.)
fn by_share(first: &Candidate, second: &Candidate) -> Ordering {
    let share = |one: &Candidate, other: &Candidate| (2 * u128::from(one.placed) + 1) * u128::from(other.free);
    share(first, second).cmp(&share(second, first))
}

/// Spreads every bit of the seed over the whole number.
fn mix(seed: u64) -> u64 {
    let mut value = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    value = (value ^ (value >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 32)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 30)
}

#[cfg(test)]
mod tests {
    use super::{
        Candidate, Home, Wish, check, columns_possible, place, place_bag, place_columns, place_others, place_replica,
        wish,
    };
    use base::error::ErrorKind;
    use base::id::{DeviceId, NodeId};
    use base::policy::{Class, Policy};
    use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, proptest};
    use std::collections::BTreeSet;

    fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
        let class = (0..5u32).prop_map(|code| Class::from_code(code).unwrap_or_default());
        let one = (class, any::<u64>(), 0..4u32, any::<bool>(), any::<bool>());
        proptest::collection::vec(one, 0..12).prop_map(|drawn| {
            let candidate =
                |(number, (class, free, placed, full, empty)): (usize, (Class, u64, u32, bool, bool))| Candidate {
                    device: DeviceId(number as u128),
                    node: NodeId(number as u128 / 3),
                    class,
                    free: if empty { 0 } else { free },
                    placed,
                    full,
                };
            drawn.into_iter().enumerate().map(candidate).collect()
        })
    }

    fn policies() -> impl Strategy<Value = Policy> {
        (0..6u32).prop_map(|code| Policy { tier: Class::from_code(code), replicas: None, ..Policy::default() })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Columns are on different devices that have room for them, as many as were asked for if there are; and no node gets a second
        /// one while another that could take it has none.
        #[test]
        fn columns(candidates in candidates(), policy in policies(), wanted in 2..20usize, room in any::<u64>(), seed in any::<u64>()) {
            let takes = |c: &&Candidate| policy.fits(c.class) && !c.full && c.free > 0 && c.free >= room;
            let roomy: Vec<&Candidate> = candidates.iter().filter(takes).collect();
            prop_assert_eq!(columns_possible(&candidates, policy, room), roomy.len());
            let Ok(chosen) = place_columns(&candidates, policy, wanted, room, seed) else {
                prop_assert!(place(&candidates, policy, seed).is_err());
                return Ok(());
            };
            let mut different = chosen.clone();
            different.sort();
            different.dedup();
            prop_assert_eq!(different.len(), chosen.len());
            prop_assert_eq!(chosen.len(), wanted.min(roomy.len()).max(1));
            if !roomy.is_empty() {
                let of = |node: NodeId| roomy.iter().filter(|c| c.node == node && chosen.contains(&c.device)).count();
                prop_assert_eq!(roomy.iter().filter(|c| chosen.contains(&c.device)).count(), chosen.len());
                for c in roomy.iter().filter(|c| !chosen.contains(&c.device)) {
                    prop_assert!(roomy.iter().all(|other| of(other.node) <= of(c.node) + 1));
                }
            }
        }

        /// One more replica is on a device that has none, takes it and has room for it; on no node that has one while another node has a device
        /// of that class, and in no rack with more of them than another rack that could take it has.
        #[test]
        fn replica(
            candidates in candidates(),
            drawn in proptest::collection::vec((0..3u32, any::<bool>(), 0..5u32), 12),
            has in proptest::collection::btree_set(0..12u128, 1..4),
            room in any::<u64>(),
            seed in any::<u64>(),
        ) {
            let home = |(candidate, (rack, takes, lost)): (&Candidate, &(u32, bool, u32))| Home {
                candidate: *candidate,
                rack: Some(*rack).filter(|rack| *rack > 0),
                serves: *takes,
                takes: *takes && *lost > 0,
                lost: *lost == 0,
                returns: false,
            };
            let homes: Vec<Home> = candidates.iter().zip(&drawn).map(home).collect();
            let has: Vec<DeviceId> = has.into_iter().map(DeviceId).collect();
            let counted: Vec<&Home> = homes.iter().filter(|h| has.contains(&h.candidate.device) && !h.lost).collect();
            let free: Vec<&Home> = homes.iter().filter(|h| !has.contains(&h.candidate.device) && !h.lost).collect();
            let class = homes.iter().find(|h| h.candidate.device == has[0]).map(|h| h.candidate.class);
            let class = class.filter(|class| free.iter().any(|h| h.candidate.class == *class));
            let right = |h: &Home| class.map_or(h.candidate.class.keeps(), |class| h.candidate.class == class);
            let shares = |h: &Home| counted.iter().any(|one| one.candidate.node == h.candidate.node);
            let roomy = |h: &Home| h.takes && !h.candidate.full && h.candidate.free > 0 && h.candidate.free >= room;
            let elsewhere = free.iter().any(|h| right(h) && !shares(h));
            let possible: Vec<&&Home> =
                free.iter().filter(|h| right(h) && roomy(h) && (!elsewhere || !shares(h))).collect();
            let chosen = place_replica(&homes, &has, room, seed);
            prop_assert_eq!(chosen.is_some(), !possible.is_empty());
            if let Some(chosen) = chosen {
                let chosen = possible.iter().find(|h| h.candidate.device == chosen);
                prop_assert!(chosen.is_some());
                let in_rack = |h: &Home| counted.iter().filter(|one| h.rack.is_some() && one.rack == h.rack).count();
                let fewest = possible.iter().map(|h| in_rack(h)).min();
                prop_assert_eq!(chosen.map(|h| in_rack(h)), fewest);
            }
            prop_assert_eq!(chosen, place_replica(&homes, &has, room, seed));
        }

        /// The replicas of a new column are as many as are wanted if there are so many nodes that take one, each on a node of its own where the store
        /// has as many.
        #[test]
        fn others(candidates in candidates(), wanted in 0..5usize, room in 1..u64::MAX, seed in any::<u64>()) {
            let one_class = |candidate: &Candidate| Candidate { class: Class::Ssd, ..*candidate };
            let candidates: Vec<Candidate> = candidates.iter().map(one_class).collect();
            let home = |candidate: &Candidate| Home { candidate: *candidate, rack: None, serves: true, takes: true, lost: false, returns: false };
            let homes: Vec<Home> = candidates.iter().map(home).collect();
            let Some(head) = candidates.first() else { return Ok(()) };
            let placed = place_others(&homes, head.device, wanted, room, seed);
            let of = |device: &DeviceId| candidates.iter().find(|c| c.device == *device);
            let nodes: BTreeSet<_> = placed.iter().filter_map(of).chain([head]).map(|c| c.node).collect();
            let takes = |c: &&Candidate| !c.full && c.free >= room && c.device != head.device;
            prop_assert!(placed.len() <= wanted && !placed.contains(&head.device));
            prop_assert!(placed.iter().filter_map(of).all(|c| takes(&c)));
            if wanted < candidates.iter().map(|c| c.node).collect::<BTreeSet<_>>().len() {
                let possible: BTreeSet<_> =
                    candidates.iter().filter(takes).map(|c| c.node).filter(|node| *node != head.node).collect();
                prop_assert_eq!((nodes.len(), placed.len()), (placed.len() + 1, wanted.min(possible.len())));
            }
        }

        /// A place always has the right class and room; without such a device the error says which of the two is missing.
        #[test]
        fn fits(candidates in candidates(), policy in policies(), seed in any::<u64>()) {
            let right = |c: &Candidate| policy.tier.map_or(!matches!(c.class, Class::Bulk | Class::Memory), |class| c.class == class);
            let room = |c: &Candidate| !c.full;
            match place(&candidates, policy, seed) {
                Ok(device) => {
                    prop_assert!(candidates.iter().any(|c| c.device == device && right(c) && room(c)));
                    let some = candidates.iter().any(|c| right(c) && room(c) && c.free > 0);
                    prop_assert!(!some || candidates.iter().any(|c| c.device == device && c.free > 0));
                }
                Err(error) if error.kind() == ErrorKind::Full => {
                    prop_assert!(candidates.iter().any(right) && !candidates.iter().any(|c| right(c) && room(c)));
                }
                Err(error) => {
                    prop_assert_eq!(error.kind(), ErrorKind::Invalid);
                    prop_assert!(!candidates.iter().any(right));
                }
            }
            prop_assert_eq!(place(&candidates, policy, seed), place(&candidates, policy, seed));
            let columns = place_columns(&candidates, policy, 1, u64::MAX, seed);
            prop_assert_eq!(columns, place(&candidates, policy, seed).map(|device| vec![device]));
            let members = place_bag(&candidates, policy).unwrap_or_default();
            prop_assert_eq!(members.len(), candidates.iter().filter(|c| right(c)).count());
        }
    }

    /// A device that could not take all of a short group gets none while another one can, however few it has; nor does one that only has
    /// what it keeps back. If no device can, one of those with some room is tried.
    #[test]
    fn roomy() {
        let candidate = |number: u128, free: u64, placed: u32| Candidate {
            device: DeviceId(number),
            node: NodeId(number),
            class: Class::Ssd,
            free,
            placed,
            full: false,
        };
        let chosen = |free: [u64; 3], columns: usize, seed: u64| {
            let candidates = [candidate(0, free[0], 0), candidate(1, free[1], 9), candidate(2, free[2], 900)];
            place_columns(&candidates, Policy::default(), columns, 8, seed).expect("there are devices")
        };
        for seed in 0..20 {
            assert_eq!(chosen([7, 0, 8], 1, seed), [DeviceId(2)]);
            assert_eq!(chosen([7, 0, 8], 3, seed), [DeviceId(2)]);
            assert_eq!(chosen([0, 0, 7], 1, seed), [DeviceId(2)]);
        }
        let tried: std::collections::BTreeSet<DeviceId> = (0..99).flat_map(|seed| chosen([0; 3], 1, seed)).collect();
        assert_eq!(tried.len(), 3);
    }

    /// Of every group that is placed each device gets its part, in proportion to its free space: after any number of groups no
    /// device is one whole group away from it. Which of equal devices comes first is chance.
    #[test]
    fn spread() {
        let device = |number, free| Candidate {
            device: DeviceId(number),
            node: NodeId(1),
            class: Class::Ssd,
            free,
            placed: 0,
            full: false,
        };
        for parts in [&[1, 1, 1, 1][..], &[1, 3], &[1, 1, 2, 5]] {
            let numbered = parts.iter().enumerate();
            let mut candidates: Vec<Candidate> =
                numbered.map(|(number, part)| device(number as u128, part << 40)).collect();
            let all: u64 = parts.iter().sum();
            for seed in 0..400 {
                let device = place(&candidates, Policy::default(), seed).unwrap_or_else(|error| panic!("{error}"));
                candidates[device.0 as usize].placed += 1;
                for (candidate, part) in candidates.iter().zip(parts) {
                    let (got, due) = (u64::from(candidate.placed) * all, (seed + 1) * part);
                    assert!(got.abs_diff(due) <= all, "{parts:?}: {} of {} at {part}", candidate.placed, seed + 1);
                }
            }
        }
        let equal = [device(0, 1 << 40), device(1, 1 << 40), device(2, 1 << 40), device(3, 1 << 40)];
        let mut firsts = [0u32; 4];
        for seed in 0..8000 {
            let device = place(&equal, Policy::default(), seed).unwrap_or_else(|error| panic!("{error}"));
            firsts[device.0 as usize] += 1;
        }
        assert!(firsts.iter().all(|count| (1700..2300).contains(count)), "{firsts:?}");
    }

    /// More copies than a column can have are refused, not ignored; bags have one.
    #[test]
    fn copies() {
        let of = |replicas| Policy { tier: None, replicas: Some(replicas), ..Policy::default() };
        for (replicas, is_possible) in [(0, false), (1, true), (16, true), (17, false)] {
            assert_eq!(check(of(replicas)).is_ok(), is_possible, "{replicas}");
        }
        assert_eq!(place_bag(&[], of(3)).map_err(|error| error.kind()), Err(ErrorKind::Unsupported));
    }

    /// Which wish wins: a file's own one always, what was asked for where the directory wants several, else the directory's. Only a file's is cut by the
    /// nodes that there are, and never below what its directory wants.
    #[test]
    fn wishes() {
        let cases = [
            // own, asked, above, nodes: counted, replicas
            ((None, 0, None, 4), (1, None)),
            ((None, 0, Some(1), 4), (1, Some(1))),
            ((None, 0, Some(3), 4), (3, Some(3))),
            ((None, 0, Some(5), 4), (5, Some(5))),
            ((None, 3, None, 4), (3, None)),
            ((None, 3, Some(1), 4), (3, Some(1))),
            ((None, 3, Some(2), 4), (3, Some(3))),
            ((None, 1, Some(2), 4), (1, Some(1))),
            ((None, 10, Some(3), 4), (10, Some(4))),
            ((None, 10, Some(3), 2), (10, Some(3))),
            ((None, 10, Some(16), 4), (10, Some(10))),
            ((None, 99, Some(2), 40), (99, Some(16))),
            ((Some(2), 0, None, 4), (2, Some(2))),
            ((Some(2), 3, Some(1), 1), (2, Some(1))),
            ((Some(2), 3, Some(1), 0), (2, Some(1))),
            ((Some(1), 3, Some(3), 4), (1, Some(1))),
            ((Some(5), 3, Some(3), 4), (5, Some(4))),
            ((Some(5), 3, Some(6), 4), (5, Some(5))),
            ((Some(0), 0, Some(2), 4), (0, Some(1))),
            ((Some(3), 0, Some(0), 9), (3, Some(3))),
        ];
        for ((own, asked, above, nodes), (counted, replicas)) in cases {
            let won = wish(own, asked, above, || nodes);
            assert_eq!(won, Wish { counted, replicas }, "{own:?}, {asked}, {above:?}, {nodes}");
        }
    }
}
