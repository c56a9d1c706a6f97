//! The one home of placement: candidates, policy and a seed in, devices out. Pure, so that the same input gives the same place.

use base::error::{Error, ErrorKind, Result};
use base::id::{DeviceId, NodeId};
use base::policy::{Class, Policy};
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
    /// Bytes that still fit.
    pub free: u64,
    /// Bytes that fit in all.
    pub capacity: u64,
    /// Work waiting there, in requests or groups: any unit, the same for all candidates.
    pub queue: u64,
    /// Whether it takes no more new data.
    pub full: bool,
}

/// The device for a new group: two candidates are drawn with a chance in proportion to their free space, and the one
/// with the shorter queue wins; with equal queues the one with the greater free part of its capacity.
/// `Invalid` if no device could ever fit the policy, `Full` if those that do are full.
pub fn place(candidates: &[Candidate], policy: Policy, seed: u64) -> Result<DeviceId> {
    check(policy)?;
    if !candidates.iter().any(|candidate| fits(candidate.class, policy)) {
        let wish = wish(policy);
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("the store has no device for {wish}; nothing was written: add a device or change the policy"),
        ));
    }
    let usable =
        || candidates.iter().filter(|candidate| fits(candidate.class, policy) && !candidate.full && candidate.free > 0);
    let total: u128 = usable().map(|candidate| u128::from(candidate.free)).sum();
    if total == 0 {
        let wish = wish(policy);
        return Err(Error::new(
            ErrorKind::Full,
            format!("every device for {wish} is full; what was acknowledged is safe: delete something or add a device"),
        ));
    }
    let draw = |random: u64| {
        // random / 2^64 of the total, without a product beyond 128 bits: sums of free space stay below 2^96.
        let mut place =
            (((total >> 32) * u128::from(random)) >> 32) + (((total & 0xFFFF_FFFF) * u128::from(random)) >> 64);
        place = place.min(total - 1);
        for candidate in usable() {
            if place < u128::from(candidate.free) {
                return candidate;
            }
            place -= u128::from(candidate.free);
        }
        unreachable!("the place is below the sum of all")
    };
    let (first, second) = (draw(mix(seed)), draw(mix(seed.wrapping_add(1).rotate_left(32))));
    Ok(better(first, second).device)
}

/// The devices for the columns of a new group, each once. A single one is as `place` says; of several, each has room for `room` bytes,
/// and the nodes with the fewest columns come first. Fewer than `columns` if no others have that room. Errors as `place`.
pub fn place_columns(
    candidates: &[Candidate],
    policy: Policy,
    columns: usize,
    room: u64,
    seed: u64,
) -> Result<Vec<DeviceId>> {
    let mut left: Vec<Candidate> = Vec::new();
    if columns > 1 {
        left.extend(candidates.iter().filter(|candidate| takes_column(candidate, policy, room)));
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
    if chosen.is_empty() {
        chosen.push(place(candidates, policy, seed)?);
    }
    Ok(chosen)
}

/// How many columns with room for `room` bytes each a group could have.
pub fn columns_possible(candidates: &[Candidate], policy: Policy, room: u64) -> usize {
    candidates.iter().filter(|candidate| takes_column(candidate, policy, room)).count()
}

fn takes_column(candidate: &Candidate, policy: Policy, room: u64) -> bool {
    fits(candidate.class, policy) && !candidate.full && candidate.free >= room.max(1)
}

/// All devices that a bag under this policy lives on, full ones too: they drain, and may take data again.
pub fn place_bag(candidates: &[Candidate], policy: Policy) -> Result<Vec<DeviceId>> {
    check(policy)?;
    let fitting: Vec<DeviceId> =
        candidates.iter().filter(|candidate| fits(candidate.class, policy)).map(|candidate| candidate.device).collect();
    if fitting.is_empty() {
        let wish = wish(policy);
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("the store has no device for {wish}; the bag was not made: add a device or change the policy"),
        ));
    }
    Ok(fitting)
}

/// Whether this store can do what the policy says.
pub fn check(policy: Policy) -> Result<()> {
    match policy.replicas {
        None | Some(1) => Ok(()),
        Some(other) => Err(Error::new(
            ErrorKind::Unsupported,
            format!("the policy asks for {other} copies and this version keeps one; set replicas to 1 or leave it out"),
        )),
    }
}

/// Whether devices of this class are for what has this policy.
pub fn fits(class: Class, policy: Policy) -> bool {
    match policy.tier {
        Some(tier) => class == tier,
        None => class != Class::Bulk,
    }
}

fn wish(policy: Policy) -> String {
    match policy.tier {
        Some(class) => format!("the tier '{}'", class.name()),
        None => "new data".to_string(),
    }
}

fn better<'a>(first: &'a Candidate, second: &'a Candidate) -> &'a Candidate {
    let free_part = |one: &Candidate, other: &Candidate| u128::from(one.free) * u128::from(other.capacity.max(1));
    if (second.queue, free_part(first, second)) < (first.queue, free_part(second, first)) { second } else { first }
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
    use super::{Candidate, columns_possible, place, place_bag, place_columns};
    use base::error::ErrorKind;
    use base::id::{DeviceId, NodeId};
    use base::policy::{Class, Policy};
    use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, proptest};

    fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
        let class = (0..5u32).prop_map(|code| Class::from_code(code).unwrap_or_default());
        let one = (class, any::<u64>(), 0..4u64, any::<bool>(), any::<bool>());
        proptest::collection::vec(one, 0..12).prop_map(|drawn| {
            let candidate =
                |(number, (class, free, queue, full, empty)): (usize, (Class, u64, u64, bool, bool))| Candidate {
                    device: DeviceId(number as u128),
                    node: NodeId(number as u128 / 3),
                    class,
                    free: if empty { 0 } else { free },
                    capacity: free,
                    queue,
                    full,
                };
            drawn.into_iter().enumerate().map(candidate).collect()
        })
    }

    fn policies() -> impl Strategy<Value = Policy> {
        (0..6u32).prop_map(|code| Policy { tier: Class::from_code(code), replicas: None, compression: None })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Columns are on different devices that have room for them, as many as were asked for if there are; and no node gets a second
        /// one while another that could take it has none.
        #[test]
        fn columns(candidates in candidates(), policy in policies(), wanted in 2..20usize, room in any::<u64>(), seed in any::<u64>()) {
            let takes = |c: &&Candidate| super::fits(c.class, policy) && !c.full && c.free > 0 && c.free >= room;
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

        /// A place always has the right class and room; without such a device the error says which of the two is missing.
        #[test]
        fn fits(candidates in candidates(), policy in policies(), seed in any::<u64>()) {
            let right = |c: &Candidate| policy.tier.map_or(c.class != Class::Bulk, |class| c.class == class);
            let room = |c: &Candidate| !c.full && c.free > 0;
            match place(&candidates, policy, seed) {
                Ok(device) => prop_assert!(candidates.iter().any(|c| c.device == device && right(c) && room(c))),
                Err(error) if error.kind() == ErrorKind::Full => {
                    prop_assert!(candidates.iter().any(right) && !candidates.iter().any(|c| right(c) && room(c)));
                }
                Err(error) => {
                    prop_assert_eq!(error.kind(), ErrorKind::Invalid);
                    prop_assert!(!candidates.iter().any(right));
                }
            }
            prop_assert_eq!(place(&candidates, policy, seed), place(&candidates, policy, seed));
            let columns = place_columns(&candidates, policy, 1, 1 << 63, seed);
            prop_assert_eq!(columns, place(&candidates, policy, seed).map(|device| vec![device]));
            let members = place_bag(&candidates, policy).unwrap_or_default();
            prop_assert_eq!(members.len(), candidates.iter().filter(|c| right(c)).count());
        }
    }

    /// Free space attracts in proportion, and queues repel: no device is left out, none is swamped.
    #[test]
    fn spread() {
        let device = |number, free, queue| Candidate {
            device: DeviceId(number),
            node: NodeId(1),
            class: Class::Ssd,
            free,
            capacity: 4 << 40,
            queue,
            full: false,
        };
        let count = |candidates: &[Candidate]| {
            let mut counts = vec![0u32; candidates.len()];
            for seed in 0..8000 {
                let device = place(candidates, Policy::default(), seed).unwrap_or_else(|error| panic!("{error}"));
                counts[device.0 as usize] += 1;
            }
            counts
        };
        let equal =
            count(&[device(0, 1 << 40, 0), device(1, 1 << 40, 0), device(2, 1 << 40, 0), device(3, 1 << 40, 0)]);
        assert!(equal.iter().all(|count| (1700..2300).contains(count)), "{equal:?}");
        let small = count(&[device(0, 1 << 40, 0), device(1, 3 << 40, 0)]);
        assert!((300..800).contains(&small[0]), "a quarter of the space, drawn twice: {small:?}");
        let busy = count(&[device(0, 1 << 40, 9), device(1, 1 << 40, 0), device(2, 1 << 40, 0)]);
        assert!((600..1200).contains(&busy[0]), "only if drawn twice: {busy:?}");
    }

    /// More copies than this version keeps are refused, not ignored.
    #[test]
    fn copies() {
        let policy = Policy { tier: None, replicas: Some(3), compression: None };
        assert_eq!(place(&[], policy, 0).map_err(|error| error.kind()), Err(ErrorKind::Unsupported));
    }
}
