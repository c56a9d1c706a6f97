//! The small files of a node that does not keep the metadata alone: who it is and which devices it has. All its disks have them, so that it
//! stays the same node whichever of them it loses.

use crate::identity::Identity;
use crate::settings::{DeviceSetting, shown};
use crate::world::World;
use crate::{device_paths, identity};
use base::error::{Error, ErrorKind, Result};
use base::id::NodeId;
use base::policy::Class;
use os::disk::Backend;
use std::path::{Path, PathBuf};

/// The device directory whose small files count: of the node that most directories are of (the first named, if as many are of another), and
/// there those that were written last. The first directory if none has any; made if it is missing.
pub fn member_directory(world: &dyn World, devices: &[DeviceSetting]) -> Result<PathBuf> {
    for device in devices {
        if world.exists(&device.directory.join("meta")).unwrap_or(false) {
            let text = format!(
                "{} holds a metadata store, so it belongs to a node that keeps one; nothing was changed; give this node other \
                 directories, or start it without --meta",
                shown(&device.directory)
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
    }
    files_directory(world, devices)
}

/// The same of a node that keeps the metadata with others, or did: one of its directories may hold them.
pub fn files_directory(world: &dyn World, devices: &[DeviceSetting]) -> Result<PathBuf> {
    let (mut found, mut trouble): (Vec<(&Path, Identity)>, Option<Error>) = (Vec::new(), None);
    for device in devices {
        match Identity::read(world, &device.directory) {
            Ok(Some(identity)) => found.push((&device.directory, identity)),
            Ok(None) => (),
            // A broken disk: another one may say the same.
            Err(error) => drop(trouble.get_or_insert(error)),
        }
    }
    let count = |node: NodeId| found.iter().filter(|(_, other)| other.node == node).count();
    // The last of equals wins: in reverse, that is the first named.
    let node = found.iter().rev().max_by_key(|(_, identity)| count(identity.node)).map(|(_, identity)| identity.node);
    let of_node = found.iter().rev().filter(|(_, identity)| Some(identity.node) == node);
    let best = of_node.max_by_key(|(_, identity)| identity.incarnation);
    match (best, trouble) {
        (Some((directory, _)), _) => Ok(directory.to_path_buf()),
        (None, Some(trouble)) => Err(trouble),
        (None, None) => {
            let none = || Error::new(ErrorKind::Invalid, "no device was given; name at least one with --data DIR");
            let first = devices.first().ok_or_else(none)?.directory.clone();
            world.make_directory(&first)?;
            Ok(first)
        }
    }
}

/// Copies the small files to the directories of all devices that are `there`, but not over those of another node. What went wrong with one,
/// a sentence each: the node serves without that copy.
pub fn copy(
    world: &dyn World,
    directory: &Path,
    devices: &[DeviceSetting],
    there: impl Fn(&Path) -> bool,
    backend: Backend,
) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    let itself = Identity::read(world, directory)?.map(|identity| identity.node);
    let may_have = |device: &&DeviceSetting| {
        device.class != Class::Memory && device.directory != directory && there(&device.directory)
    };
    let mut copies = Vec::new();
    for device in devices.iter().filter(may_have) {
        match Identity::read(world, &device.directory) {
            Ok(Some(other)) if Some(other.node) != itself => notes.push(format!(
                "{}: its file `{}` says that it is another node's, {}; it was left as it is: this node would not know itself by this disk \
                 alone; if that node is gone for good, remove the file",
                shown(&device.directory),
                identity::FILE,
                other.node
            )),
            // One that cannot be read is made anew.
            _ => copies.push(device),
        }
    }
    for name in [identity::FILE, device_paths::FILE] {
        let text = world.read_text(&directory.join(name))?;
        for device in &copies {
            if let Err(error) = world.replace(&device.directory.join(name), text.as_bytes(), backend) {
                notes.push(format!(
                    "{}: the copy of {name} was not written: {error}; the node serves, and would not know itself by this disk alone",
                    shown(&device.directory)
                ));
            }
        }
    }
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use super::{copy, device_paths, identity};
    use crate::identity::Identity;
    use crate::settings::DeviceSetting;
    use crate::world::{OsWorld, World};
    use base::policy::Class;
    use os::disk::Backend;
    use os::random::SystemRandom;

    /// A directory of another node keeps that node's files, with a word; one without any gets this node's.
    #[test]
    fn another_nodes_files_stay() {
        let root = std::env::temp_dir().join(format!("stormwell-home-{}", std::process::id()));
        let [own, others, new] = ["own", "others", "new"].map(|name| root.join(name));
        let start = |directory| {
            OsWorld.make_directory(directory).expect("made");
            Identity::start(&OsWorld, directory, Backend::Threads, &SystemRandom).expect("started")
        };
        let (itself, other) = (start(&own), start(&others));
        std::fs::create_dir_all(&new).expect("made");
        std::fs::write(own.join(device_paths::FILE), "places").expect("written");
        let setting = |directory: &std::path::PathBuf| DeviceSetting {
            directory: directory.clone(),
            class: Class::Ssd,
            capacity: None,
        };
        let devices = [&own, &others, &new].map(setting);
        let notes = copy(&OsWorld, &own, &devices, |_| true, Backend::Threads).expect("copied");
        let read = |directory| Identity::read(&OsWorld, directory).expect("readable");
        assert_eq!((read(&others), read(&new)), (Some(other), Some(itself)));
        assert!(new.join(device_paths::FILE).exists() && !others.join(device_paths::FILE).exists());
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.contains(identity::FILE) && note.contains(&other.node.to_string()), "{note}");
        std::fs::remove_dir_all(&root).expect("removed");
    }
}
