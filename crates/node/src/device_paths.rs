//! Which device was found where at earlier starts: a small text file beside the metadata store. Without it, an empty mount
//! point would look like a new device, and a lost one, or one that nobody named this time, like none.

use crate::settings::DeviceSetting;
use crate::world::World;
use base::error::{Error, ErrorKind, Result};
use base::id::DeviceId;
use base::policy::Class;
use os::disk::Backend;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A device that was named at the start and could not be opened, or was named at an earlier one and not at this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Which.
    pub device: DeviceId,
    /// Its directory, for people.
    pub place: String,
    /// Why.
    pub why: String,
}

/// Whose a device of an earlier start is, as the metadata have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// This node's.
    Here,
    /// Another node's: it was started there meanwhile.
    Elsewhere,
    /// Nobody's: it was removed.
    Removed,
}

/// The devices by the directory in which each was found last.
#[derive(Default)]
pub struct DevicePaths {
    path: PathBuf,
    known: BTreeMap<PathBuf, DeviceId>,
    /// Those of which it was said at this start that they are gone.
    forgotten: BTreeMap<PathBuf, DeviceId>,
    /// Those of earlier starts that were removed from the store since. They stay in the file, as such a directory may be named at any later
    /// start, and only this tells it from one of another store.
    removed: BTreeMap<PathBuf, DeviceId>,
}

/// The first line: what the file is and its version.
const HEAD: &str = "stormwell devices 1";

/// The file's name.
pub const FILE: &str = "devices";

impl DevicePaths {
    /// Reads the file in the metadata store's directory; none is there before the first start.
    pub fn read(world: &dyn World, directory: &Path) -> Result<DevicePaths> {
        let path = directory.join(FILE);
        if !world.exists(&path)? {
            return Ok(DevicePaths { path, ..DevicePaths::default() });
        }
        let text = world.read_text(&path)?;
        let known = parse(&text).ok_or_else(|| {
            let text = format!(
                "{} does not say where the devices are; the data is untouched; remove the file if every disk is mounted",
                path.display()
            );
            Error::new(ErrorKind::Corrupt, text)
        })?;
        Ok(DevicePaths { path, known, ..DevicePaths::default() })
    }

    /// The device that was in this directory, if it is not there any more.
    pub fn lost(&self, world: &dyn World, setting: &DeviceSetting) -> Result<Option<Missing>> {
        let Some(device) = self.device_at(setting) else { return Ok(None) };
        if world.exists(&setting.identity())? {
            return Ok(None);
        }
        let why = format!(
            "the directory holds device {device} no more; mount its disk and start again, or, if it is gone for good, start \
             with --as-new {}",
            setting.directory.display()
        );
        Ok(Some(Missing { device, place: setting.directory.display().to_string(), why }))
    }

    /// Whether a device cannot be opened because of what its disk says or holds.
    pub fn is_of_the_disk(error: &Error) -> bool {
        matches!(error.kind(), ErrorKind::Io | ErrorKind::Corrupt | ErrorKind::NotFound)
    }

    /// The same for a device that cannot be opened. `Err`: the error is not the disk's, or nothing is known of such a device.
    pub fn unreadable(&mut self, setting: &DeviceSetting, error: Error) -> Result<Missing> {
        // What was said to be gone is there, and cannot be read.
        if let Some((directory, device)) = self.forgotten.remove_entry(&absolute(&setting.directory))
            && DevicePaths::is_of_the_disk(&error)
        {
            self.known.insert(directory, device);
        }
        match self.device_at(setting) {
            Some(device) if DevicePaths::is_of_the_disk(&error) => {
                Ok(Missing { device, place: setting.directory.display().to_string(), why: error.text().to_string() })
            }
            _ => Err(error),
        }
    }

    /// Devices whose directories were not named at this start, when those that were are found.
    pub fn left_out(&self, named: &[DeviceSetting]) -> Vec<Missing> {
        let is_named = |directory: &Path| named.iter().any(|setting| absolute(&setting.directory) == directory);
        let left_out = self.known.iter().filter(|(directory, _)| !is_named(directory));
        let missing = |(directory, device): (&PathBuf, &DeviceId)| {
            let place = directory.display().to_string();
            let why = format!(
                "it was not named at this start, and what is on it is safe; start again with --data {place} too; to do without it, \
                 empty it then with `stormwell device rm`; if it is gone for good, start with --as-new {place}"
            );
            Missing { device: *device, place, why }
        };
        left_out.map(missing).collect()
    }

    fn device_at(&self, setting: &DeviceSetting) -> Option<DeviceId> {
        self.known.get(&absolute(&setting.directory)).copied()
    }

    /// A new device may be made in this directory, if it turns out that none is there.
    pub fn forget(&mut self, directory: &Path) {
        let directory = absolute(directory);
        self.removed.remove(&directory);
        if let Some(device) = self.known.remove(&directory) {
            self.forgotten.insert(directory, device);
        }
    }

    /// Takes what the metadata say of the devices: those that are none of this node's any more are not missed. One that another node has may
    /// be followed by a new one in its directory, one that was removed only with `--as-new` (`removed_at`).
    pub fn compare(&mut self, standing: impl Fn(DeviceId) -> Standing) {
        for (directory, device) in std::mem::take(&mut self.known) {
            match standing(device) {
                Standing::Here => self.known.insert(directory, device),
                Standing::Elsewhere => None,
                Standing::Removed => self.removed.insert(directory, device),
            };
        }
    }

    /// A removed device was found in this directory, and is left out.
    pub fn stays_removed(&mut self, setting: &DeviceSetting, device: DeviceId) {
        self.removed.retain(|_, removed| *removed != device);
        self.removed.insert(absolute(&setting.directory), device);
    }

    /// Whether this device of an earlier start is none of the store's any more.
    pub fn was_removed(&self, device: DeviceId) -> bool {
        self.removed.values().any(|removed| *removed == device)
    }

    /// The removed device that was in this directory.
    pub fn removed_at(&self, setting: &DeviceSetting) -> Option<DeviceId> {
        self.removed.get(&absolute(&setting.directory)).copied()
    }

    /// A device was found in this directory. Those in memory are new each time and not noted: who was removed there before stays removed.
    pub fn found(&mut self, setting: &DeviceSetting, device: DeviceId) {
        self.known.retain(|_, known| *known != device);
        self.removed.retain(|_, removed| *removed != device);
        if setting.class != Class::Memory {
            self.removed.remove(&absolute(&setting.directory));
            self.known.insert(absolute(&setting.directory), device);
        }
    }

    /// Writes the file, durably. Where there is no room for that, one that says the same will do.
    pub fn write(&self, world: &dyn World, backend: Backend) -> Result<()> {
        let text = self.text();
        let says_so = world.exists(&self.path)? && world.read_text(&self.path).is_ok_and(|there| there == text);
        match world.replace(&self.path, text.as_bytes(), backend) {
            Err(error) if error.kind() == ErrorKind::Full && says_so => Ok(()),
            written => written,
        }
    }

    fn text(&self) -> String {
        let mut text = format!("{HEAD}\n");
        for (directory, device) in self.known.iter().chain(&self.removed) {
            match directory.to_str() {
                Some(name) if !name.contains('\n') => text.push_str(&format!("{device} {name}\n")),
                // A name that no line can hold: that device is only known by what it says of itself.
                _ => {}
            }
        }
        text
    }
}

fn parse(text: &str) -> Option<BTreeMap<PathBuf, DeviceId>> {
    // A directory may have a name that ends with a carriage return, which `lines` would take for a part of the end of a line.
    let mut lines = text.split_terminator('\n');
    if lines.next()? != HEAD {
        return None;
    }
    lines
        .map(|line| {
            let (device, directory) = line.split_once(' ')?;
            Some((PathBuf::from(directory), DeviceId(u128::from_str_radix(device, 16).ok()?)))
        })
        .collect()
}

/// The path from the root, without asking the disk that may be gone.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Why a device is not served that was emptied and removed from the store, and holds so many chunks: one that failed took no deletion when it
/// was emptied.
pub fn left_out(place: &str, device: DeviceId, chunks: u64) -> String {
    if chunks > 0 {
        return left_out_as_it_is(place, device, &format!("still holds {chunks} chunks"));
    }
    format!(
        "{place}: device {device} was emptied and removed from this store, so nothing is missing: it is left out, and its disk may be taken \
         away. Start without this directory; to use its disk here again, empty the directory and start with --as-new {place}"
    )
}

/// The same of one that may hold something. `state`: what is known of that.
pub fn left_out_as_it_is(place: &str, device: DeviceId, state: &str) -> String {
    format!(
        "{place}: device {device} was emptied and removed from this store at an earlier start, and {state}; the store has no use for what \
         is on it: it is left out, and its chunks were not touched. Start without this directory. If another store has used it since, the chunks \
         are that one's; else delete it. To use its disk here again, empty the directory and start with --as-new {place}"
    )
}

#[cfg(test)]
mod tests {
    use super::{DevicePaths, HEAD, Standing, parse};
    use crate::settings::DeviceSetting;
    use base::id::DeviceId;
    use base::policy::Class;
    use sim::random::SimRandom;
    use std::path::PathBuf;

    /// Whatever is in the file names devices, which are then written as they are read, or is refused.
    #[test]
    fn fuzz_places() {
        let whole = format!("{HEAD}\n{} /a b\n{} /c\n", DeviceId(7), DeviceId(u128::MAX));
        for seed in sim::fuzz::seeds(5_000) {
            let (random, mut bytes) = (SimRandom::new(seed), whole.clone().into_bytes());
            for _ in 0..4 {
                sim::fuzz::damage(&random, &mut bytes);
                if let Some(known) = parse(&String::from_utf8_lossy(&bytes)) {
                    let places = DevicePaths { known, ..DevicePaths::default() };
                    assert_eq!(parse(&places.text()), Some(places.known), "seed {seed}");
                }
            }
        }
    }

    /// What is written is read back; a device that moved is known at its new place only; nonsense is refused.
    #[test]
    fn text() {
        let setting = |name: &str, class| DeviceSetting { directory: PathBuf::from(name), class, capacity: None };
        let mut places = DevicePaths::default();
        places.found(&setting("/a b", Class::Ssd), DeviceId(7));
        places.found(&setting("/c", Class::Hdd), DeviceId(u128::MAX));
        places.found(&setting("/m", Class::Memory), DeviceId(9));
        assert_eq!(parse(&places.text()), Some(places.known.clone()));
        assert_eq!(places.known.len(), 2);
        places.found(&setting("/d", Class::Ssd), DeviceId(7));
        assert_eq!(places.device_at(&setting("/a b", Class::Ssd)), None);
        assert_eq!(places.device_at(&setting("/d", Class::Ssd)), Some(DeviceId(7)));
        // A removed one is not missed, and still known as one that was the store's when the file is read again, until its directory has another.
        let standing = |device| if device == DeviceId(7) { Standing::Removed } else { Standing::Here };
        places.compare(standing);
        assert_eq!(places.left_out(&[setting("/c", Class::Hdd)]), []);
        let known = parse(&places.text()).expect("it was written");
        let mut places = DevicePaths { known, ..places };
        places.compare(standing);
        let at = |places: &DevicePaths| {
            (places.removed_at(&setting("/d", Class::Ssd)), places.device_at(&setting("/d", Class::Ssd)))
        };
        assert!(at(&places) == (Some(DeviceId(7)), None) && places.was_removed(DeviceId(7)));
        places.found(&setting("/d", Class::Memory), DeviceId(10));
        assert_eq!(at(&places), (Some(DeviceId(7)), None));
        places.found(&setting("/d", Class::Ssd), DeviceId(8));
        assert_eq!(at(&places), (None, Some(DeviceId(8))));
        assert_eq!(parse(&places.text()), Some(places.known.clone()));
        for bad in ["", "stormwell devices 2\n", "stormwell devices 1\nx /a\n", "stormwell devices 1\n7\n"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
