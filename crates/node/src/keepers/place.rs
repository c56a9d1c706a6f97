//! Where a keeper's directory is, and what is in it before anybody has looked.

use crate::settings::DeviceSetting;
use crate::world::World;
use crate::{identity, keeping, metadata};
use base::disk::{FileKind, FileName};
use base::error::Result;
use base::policy::Class;
use std::path::{Path, PathBuf};

/// The directory of a keeper: `meta` in the place that was `said`, else in the one device directory that has one, else in the first. It is not
/// refused for devices that are in use and metadata that are not there: a machine whose metadata are lost starts with its devices. The directory
/// is new then, and no keeper's (`formation`).
pub fn directory(world: &dyn World, devices: &[DeviceSetting], said: Option<&Path>) -> Result<PathBuf> {
    keeping::place(world, devices, said)
}

/// Whether one of these devices has been in use, so that a directory of metadata that is made now comes late. To be asked before devices are
/// opened.
pub fn is_late(world: &dyn World, devices: &[DeviceSetting]) -> Result<bool> {
    for device in devices.iter().filter(|device| device.class != Class::Memory) {
        if world.exists(&device.identity())? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a directory has metadata, of whomever: their tree or votes.
pub fn has_metadata(world: &dyn World, directory: &Path) -> Result<bool> {
    let votes = [0, 1].map(|number| FileName { kind: FileKind::Vote, number }.to_string());
    for name in votes.iter().map(String::as_str).chain([metadata::TREE]) {
        if world.exists(&directory.join(name))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a store has been made there by a node that keeps it alone.
pub fn is_alone(world: &dyn World, directory: &Path) -> Result<bool> {
    Ok(has_metadata(world, directory)? || world.exists(&directory.join(identity::FILE))?)
}
