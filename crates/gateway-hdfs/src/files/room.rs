//! Which devices had no room lately, so that a file whose bytes can go nowhere is told so before it waits.

use super::open::OpenFile;
use base::error::Result;
use base::id::DeviceId;
use base::policy::Class;
use base::unit::{MIB, Time};
use client::{Client, Device};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// While none of the devices is known to be full, they are asked about again after so long, and not for each new block: they report how full they
/// are as often.
const KNOWN_MAX: Duration = Duration::from_secs(1);

/// Devices that refused bytes because they had no room.
#[derive(Default)]
pub struct Room {
    /// How many bytes of each were not in use then. Devices keep some back, so they are full before all of it is.
    refused: Mutex<BTreeMap<DeviceId, u64>>,
    /// All devices, as they were told of last, and when that was asked.
    known: Mutex<Option<(Time, Arc<Vec<Device>>)>>,
}

impl Room {
    /// A file goes no further because there is no room: on this device, or on none of those that its bytes may go to.
    pub async fn was_refused(&self, client: &Client, file: &OpenFile, by: Option<DeviceId>) {
        let Ok(answer) = client.devices().await else { return };
        let mut full: Vec<&Device> =
            answer.devices.iter().filter(|device| by.is_none_or(|by| id(device) == by)).collect();
        if by.is_none() {
            full = fitting(client, file, full).await.unwrap_or_default();
        }
        self.refused().extend(full.into_iter().map(|device| (id(device), free(device))));
    }

    /// Whether no device takes another block of the file: each that may have it has no room at all, or not more than when it
    /// refused something.
    pub async fn is_gone(&self, client: &Client, file: &OpenFile, now: Time) -> bool {
        let asking = async { client.devices().await.map(|answer| answer.devices) };
        let Ok(devices) = self.devices(now, asking).await else { return false };
        let refused = self.still_full(&devices);
        let takes = |device: &&Device| !device.missing && !device.out_of_service && device.drain.is_none();
        let has_room = |device: &&Device| free(device) >= MIB && !refused.contains_key(&id(device));
        let taking: Vec<&Device> = devices.iter().filter(takes).collect();
        match taking.iter().filter(|device| has_room(device)).count() {
            0 => true,
            with_room if with_room == taking.len() => false,
            // What the store says later is right in any case: it only takes longer.
            _ => fitting(client, file, taking).await.is_some_and(|fitting| !fitting.iter().any(has_room)),
        }
    }

    /// Those that refused something and have no more room since. One that left the store is forgotten.
    fn still_full(&self, devices: &[Device]) -> BTreeMap<DeviceId, u64> {
        let mut refused = self.refused();
        let has_no_more =
            |full, at: u64| devices.iter().any(|device| id(device) == full && free(device) <= at.saturating_add(MIB));
        refused.retain(|full, at| has_no_more(*full, *at));
        refused.clone()
    }

    /// All devices: what was told lately if none of them is known to have no room, else what `asking` tells.
    async fn devices(&self, now: Time, asking: impl Future<Output = Result<Vec<Device>>>) -> Result<Arc<Vec<Device>>> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let lately = known().clone().filter(|(asked, _)| now.since(*asked) < KNOWN_MAX);
        if let Some((_, devices)) = lately.filter(|_| self.refused().is_empty()) {
            return Ok(devices);
        }
        let devices = Arc::new(asking.await?);
        *known() = Some((now, devices.clone()));
        Ok(devices)
    }

    fn refused(&self) -> MutexGuard<'_, BTreeMap<DeviceId, u64>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those of the devices that the file's bytes may go to; nothing if that cannot be said.
async fn fitting<'a>(client: &Client, file: &OpenFile, devices: Vec<&'a Device>) -> Option<Vec<&'a Device>> {
    let (_, policy) = client.get_policy(&file.path).await.ok()?;
    let fits = |device: &&Device| Class::from_code(device.class).is_some_and(|class| policy.fits(class));
    Some(devices.into_iter().filter(fits).collect())
}

fn id(device: &Device) -> DeviceId {
    DeviceId(device.device.value())
}

/// Bytes that are not in use.
fn free(device: &Device) -> u64 {
    device.capacity.saturating_sub(device.used)
}

#[cfg(test)]
mod tests {
    use super::{KNOWN_MAX, Room};
    use base::id::DeviceId;
    use base::unit::{MIB, Time};
    use client::Device;
    use std::time::Duration;

    /// Who refused something is full until it has more room than then, or has left the store.
    #[test]
    fn full_until_there_is_more_room() {
        let room = Room::default();
        let device = |number: u128, used: u64| Device {
            device: number.into(),
            capacity: 100 * MIB,
            used: used * MIB,
            ..Device::default()
        };
        room.refused().extend([(DeviceId(1), 3 * MIB), (DeviceId(2), 3 * MIB), (DeviceId(3), 3 * MIB)]);
        let full = room.still_full(&[device(1, 96), device(2, 95), device(4, 100)]);
        assert!(full.keys().eq([&DeviceId(1)]), "the second has 5 MiB, the third is gone: {full:?}");
        assert!(room.still_full(&[]).is_empty() && room.refused().is_empty());
    }

    /// Devices are asked about once a second, however many blocks are begun; each time while one of them is full.
    #[tokio::test]
    async fn asked_once_a_second() {
        let (room, mut asked) = (Room::default(), 0);
        let mut look = async |after: Duration, now: &mut Time| {
            *now = now.after(after);
            let before = asked;
            let devices = room.devices(*now, async {
                asked += 1;
                Ok(vec![Device::default(); asked])
            });
            let devices = devices.await.expect("told");
            assert_eq!(devices.len(), asked, "the last answer");
            asked > before
        };
        let (mut now, soon) = (Time::ZERO, Duration::from_millis(100));
        assert!(look(soon, &mut now).await);
        for _ in 0..9 {
            assert!(!look(soon, &mut now).await);
        }
        assert!(look(soon, &mut now).await);
        room.refused().insert(DeviceId(1), 7);
        assert!(look(Duration::ZERO, &mut now).await && look(Duration::ZERO, &mut now).await);
        room.refused().clear();
        assert!(!look(soon, &mut now).await && look(KNOWN_MAX, &mut now).await);
    }
}
