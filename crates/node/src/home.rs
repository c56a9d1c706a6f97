//! The small files of a node that does not keep the metadata: who it is and which devices it has. All its disks have them, so that it
//! stays the same node whichever of them it loses.

use crate::identity::Identity;
use crate::settings::{DeviceSetting, shown};
use crate::world::World;
use crate::{identity, places};
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

/// Copies the small files to the directories of all devices that are `there`. What went wrong with one, a sentence each: the node serves
/// without that copy.
pub fn copy(
    world: &dyn World,
    directory: &Path,
    devices: &[DeviceSetting],
    there: impl Fn(&Path) -> bool,
    backend: Backend,
) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    let is_copy = |device: &&DeviceSetting| {
        device.class != Class::Memory && device.directory != directory && there(&device.directory)
    };
    for name in [identity::FILE, places::FILE] {
        let text = world.read_text(&directory.join(name))?;
        for device in devices.iter().filter(is_copy) {
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
