//! The one home of placement: candidates, policy and a seed in, devices out. Pure, so that the same input gives the same place.

use base::error::{Error, ErrorKind, Result};
use base::id::DeviceId;
use base::policy::{Class, Policy};

/// A device as placement sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which device.
    pub device: DeviceId,
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
    if !candidates.iter().any(|candidate| fits(candidate, policy)) {
        let wish = wish(policy);
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("the store has no device for {wish}; nothing was written: add a device or change the policy"),
        ));
    }
    let usable = || candidates.iter().filter(|candidate| fits(candidate, policy) && !candidate.full && candidate.free > 0);
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
        let mut place = ((total >> 32) * u128::from(random) >> 32) + (((total & 0xFFFF_FFFF) * u128::from(random)) >> 64);
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

/// All devices that a bag under this policy lives on, full ones too: they drain, and may take data again.
pub fn place_bag(candidates: &[Candidate], policy: Policy) -> Result<Vec<DeviceId>> {
    check(policy)?;
    let fitting: Vec<DeviceId> =
        candidates.iter().filter(|candidate| fits(candidate, policy)).map(|candidate| candidate.device).collect();
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

fn fits(candidate: &Candidate, policy: Policy) -> bool {
    match policy.tier {
        Some(class) => candidate.class == class,
        None => candidate.class != Class::Bulk,
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
