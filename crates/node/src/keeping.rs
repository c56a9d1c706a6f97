//! Where the metadata of a node that keeps them are. They are made at a store's first start, and never anew beside a device that has been
//! in use: a disk that is not mounted, or a setting that was left out once, must not begin a second store. So each device notes where its
//! metadata are, in a small text file.

use crate::device_paths::absolute;
use crate::identity;
use crate::settings::{DeviceSetting, shown};
use crate::world::World;
use base::error::{Error, ErrorKind, Result};
use base::policy::Class;
use os::disk::Backend;
use std::path::{Path, PathBuf};

/// The first line of a device's note: what the file is and its version.
const HEAD: &str = "stormwell metadata 1";

/// The note's name, in the directory of the device.
const FILE: &str = "metadata";

/// The metadata store's directory in a device's, or in one that was named for it.
pub const DIRECTORY: &str = "meta";

/// The directory of the metadata store: in the place that was `said`; else in the one device directory that has one already, else in the
/// first. A store whose devices are named in another order is the same store; two metadata stores are nobody's intention.
pub fn metadata_directory(world: &dyn World, devices: &[DeviceSetting], said: Option<&Path>) -> Result<PathBuf> {
    let directory = place(world, devices, said)?;
    check(world, devices, &directory)?;
    Ok(directory)
}

/// The same, whether the metadata of these devices are there or not.
pub fn place(world: &dyn World, devices: &[DeviceSetting], said: Option<&Path>) -> Result<PathBuf> {
    let found = in_devices(world, devices)?;
    match (said.map(|said| said.join(DIRECTORY)), found, devices.first()) {
        (Some(said), Some(other), _) if !is_same(world, &other, &said) => {
            let (other, said) = (shown(&other), shown(&said));
            let text = format!(
                "{other} holds a metadata store, and metadata_dir wants it to be {said}; nothing was changed; move the directory there while \
                 no node runs, or leave metadata_dir out"
            );
            Err(Error::new(ErrorKind::Invalid, text))
        }
        (Some(said), _, _) => Ok(said),
        (None, Some(found), _) => Ok(found),
        (None, None, Some(first)) => Ok(first.directory.join(DIRECTORY)),
        (None, None, None) => {
            Err(Error::new(ErrorKind::Invalid, "no device was given; name at least one with --data DIR"))
        }
    }
}

/// The metadata store that these devices hold, or say to be theirs; none if there is none.
pub fn find(world: &dyn World, devices: &[DeviceSetting]) -> Result<Option<PathBuf>> {
    if let Some(found) = in_devices(world, devices)? {
        return Ok(Some(found));
    }
    for noted in devices.iter().filter_map(|device| noted(world, device)) {
        if has_store(world, &noted)? {
            return Ok(Some(noted));
        }
    }
    Ok(None)
}

/// The metadata store in one of the devices' directories.
fn in_devices(world: &dyn World, devices: &[DeviceSetting]) -> Result<Option<PathBuf>> {
    let mut found: Option<PathBuf> = None;
    for path in devices.iter().map(|device| device.directory.join(DIRECTORY)) {
        if !world.exists(&path)? {
            continue;
        }
        if let Some(other) = &found {
            let text = format!(
                "both {} and {} hold a metadata store, so they belong to different stores; start each with its own `stormwell serve`. \
                 Nothing was changed",
                shown(other),
                shown(&path)
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        found = Some(path);
    }
    Ok(found)
}

/// Refuses a directory that is not the one of the metadata that these devices have had.
fn check(world: &dyn World, devices: &[DeviceSetting], directory: &Path) -> Result<()> {
    let is_there = has_store(world, directory)?;
    let is_used = |device: &DeviceSetting| world.exists(&device.identity());
    for device in devices.iter().filter(|device| device.class != Class::Memory) {
        if !is_used(device)? {
            continue;
        }
        let noted = noted(world, device).filter(|noted| !is_same(world, noted, directory));
        let elsewhere = match &noted {
            Some(noted) => has_store(world, noted)?,
            None => false,
        };
        if is_there && !elsewhere {
            continue;
        }
        let (device, directory) = (shown(&device.directory), shown(directory));
        let kind = if elsewhere { ErrorKind::Invalid } else { ErrorKind::NotFound };
        let text = match noted {
            Some(noted) if elsewhere => {
                let place = noted.parent().map(shown).unwrap_or_default();
                format!(
                    "the metadata of the device in {device} are in {}, and this start would use {directory}; nothing was changed; start with \
                     metadata_dir = {place}; if that is an old copy, move it away",
                    shown(&noted)
                )
            }
            Some(noted) => format!(
                "the metadata of the device in {device} were in {} and are not there, nor in {directory}; nothing was changed; mount their \
                 disk, or say with metadata_dir where they are now; an empty directory would become a new device",
                shown(&noted)
            ),
            None => format!(
                "the directory {device} is a device already, and its metadata are not in {directory}; nothing was changed; mount their disk, \
                 name all directories of the store, or say with metadata_dir where they are; an empty directory would become a new device"
            ),
        };
        return Err(Error::new(kind, text));
    }
    Ok(())
}

/// Whether two names are of one directory.
fn is_same(world: &dyn World, one: &Path, other: &Path) -> bool {
    absolute(one) == absolute(other) || world.is_same(one, other)
}

/// Whether a metadata store has been made in this directory.
fn has_store(world: &dyn World, directory: &Path) -> Result<bool> {
    Ok(world.exists(&directory.join(identity::FILE))? || world.exists(&directory.join(crate::metadata::TREE))?)
}

/// Where a device notes that its metadata are. One that has no note, or whose note does not read, is of a store that was made before
/// there were notes, or new.
fn noted(world: &dyn World, device: &DeviceSetting) -> Option<PathBuf> {
    let path = device.directory.join(FILE);
    if !world.exists(&path).unwrap_or(false) {
        return None;
    }
    parse(&world.read_text(&path).ok()?)
}

/// Whether a device was served last with the metadata in this directory, as far as its own directory says: it notes them, and no member of a
/// cluster, which would have left its identity there, had it since.
pub fn is_of(world: &dyn World, device: &DeviceSetting, directory: &Path) -> bool {
    let of_a_member = world.exists(&device.directory.join(identity::FILE)).unwrap_or(true);
    !of_a_member && noted(world, device).is_some_and(|noted| is_same(world, &noted, directory))
}

fn parse(text: &str) -> Option<PathBuf> {
    text.strip_prefix(HEAD)?.strip_prefix('\n')?.strip_suffix('\n').map(PathBuf::from)
}

/// Lets every device note where the metadata are. What went wrong with one, a sentence each: the node serves without that note.
pub fn note(world: &dyn World, directory: &Path, devices: &[DeviceSetting], backend: Backend) -> Vec<String> {
    let directory = absolute(directory);
    // A name that no line can hold is not noted.
    let Some(name) = directory.to_str().filter(|name| !name.contains('\n')) else { return Vec::new() };
    let text = format!("{HEAD}\n{name}\n");
    let lacks = |device: &&DeviceSetting| {
        let is_used = device.class != Class::Memory && world.exists(&device.identity()).unwrap_or(false);
        is_used && noted(world, device).as_ref() != Some(&directory)
    };
    let failed = |device: &DeviceSetting| {
        let error = world.replace(&device.directory.join(FILE), text.as_bytes(), backend).err()?;
        let device = shown(&device.directory);
        Some(format!("{device}: it was not noted where the metadata are: {error}; the node serves"))
    };
    devices.iter().filter(lacks).filter_map(failed).collect()
}

#[cfg(test)]
mod tests {
    use super::{HEAD, parse};
    use sim::random::SimRandom;

    /// Whatever is in a note is a directory, or nothing; one that can be written is read as it was.
    #[test]
    fn fuzz_metadata_notes() {
        let whole = format!("{HEAD}\n/some/where\n");
        assert!(parse(&whole).is_some_and(|directory| directory.ends_with("where")));
        for seed in sim::fuzz::seeds(2_000) {
            let (random, mut bytes) = (SimRandom::new(seed), whole.clone().into_bytes());
            for _ in 0..4 {
                sim::fuzz::damage(&random, &mut bytes);
                let text = String::from_utf8_lossy(&bytes);
                if let Some(read) = parse(&text) {
                    assert_eq!(parse(&format!("{HEAD}\n{}\n", read.display())), Some(read), "seed {seed}");
                }
            }
        }
    }
}
