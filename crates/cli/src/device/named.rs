//! Which devices somebody means: by node and directory, by the first digits of the id, or all.

use super::id_of;
use crate::exit::Result;
use base::error::{Error, ErrorKind};
use client::{Client, Device, Host};
use std::path::{Path, absolute};

/// Fewer digits of an id name nothing: they may be a directory that is misspelt.
const ID_DIGITS_MIN: usize = 4;

/// A device, and the node that has it if one says so.
type Hosted = (Device, Option<Host>);

/// The devices that a person means by this name; `all` are those that are served.
pub async fn named(client: &Client, name: &str) -> Result<Vec<Device>> {
    let several = client.view().await?.members.len() > 1;
    let found = choose(&client.devices_and_hosts().await?, several, name)?;
    match &found[..] {
        [device] if device.missing => {
            let text =
                format!("{} is missing; nothing was done; bring the disk back and start the node again", device.place);
            Err(Error::new(ErrorKind::Busy, text).into())
        }
        _ => Ok(found),
    }
}

/// The one device that a person means by this name, whether it is there or not.
pub async fn one_named(client: &Client, name: &str) -> Result<Device> {
    let several = client.view().await?.members.len() > 1;
    match &choose(&client.devices_and_hosts().await?, several, name)?[..] {
        [device] => Ok(device.clone()),
        _ => {
            let text = format!("'{name}' does not name one device; nothing was done");
            Err(Error::new(ErrorKind::Invalid, text).into())
        }
    }
}

/// The same among these, in a store of `several` nodes or of one.
fn choose(devices: &[Hosted], several: bool, name: &str) -> base::error::Result<Vec<Device>> {
    if name == "all" {
        return Ok(devices.iter().map(|(device, _)| device).filter(|device| !device.missing).cloned().collect());
    }
    let in_place =
        |hosted: &&Hosted| if several { is_on_node(hosted, name) } else { is_directory(&hosted.0.place, name) };
    let by_id = |(device, _): &&Hosted| name.len() >= ID_DIGITS_MIN && id_of(device).starts_with(name);
    let mut found: Vec<&Hosted> = devices.iter().filter(in_place).collect();
    if several && found.is_empty() {
        refuse_without_node(devices, name)?;
    }
    if found.is_empty() {
        found = devices.iter().filter(by_id).collect();
    }
    match found[..] {
        [(device, _)] => Ok(vec![device.clone()]),
        [] => {
            let form = if several { ", as NODE:DIRECTORY," } else { "" };
            let text = format!(
                "this store has no device '{name}'; nothing was done; `stormwell device ls` shows directories{form} and --json ids"
            );
            Err(Error::new(ErrorKind::NotFound, text))
        }
        _ => {
            let text =
                format!("more than one device is meant by '{name}'; nothing was done; give the digits of its id");
            Err(Error::new(ErrorKind::Invalid, text))
        }
    }
}

/// In a store of several nodes a directory alone names nothing: each may have one that is called so, and the one of another node
/// would be emptied while somebody looks at this one's.
fn refuse_without_node(devices: &[Hosted], name: &str) -> base::error::Result<()> {
    let candidates: Vec<String> = devices
        .iter()
        .filter_map(split)
        .filter(|(_, directory)| is_directory(directory, name))
        .map(|(node, directory)| format!("{node}:{directory}"))
        .collect();
    if candidates.is_empty() {
        return Ok(());
    }
    let text = format!(
        "'{name}' does not say on which node; nothing was done; write it with the node's name, as `stormwell device ls` does: {}",
        candidates.join(" or ")
    );
    Err(Error::new(ErrorKind::Invalid, text))
}

/// The node's name and the directory there.
fn split((device, host): &Hosted) -> Option<(&str, &str)> {
    let node = host.as_ref()?.name.as_str();
    let directory = device.place.strip_prefix(node).and_then(|rest| rest.strip_prefix(':'));
    // An older node shows its own devices without its name.
    Some((node, directory.unwrap_or(&device.place)))
}

/// Whether `name` is the node's name and the directory of this device.
fn is_on_node(hosted: &Hosted, name: &str) -> bool {
    split(hosted).is_some_and(|(node, directory)| {
        let named = name.strip_prefix(node).and_then(|rest| rest.strip_prefix(':'));
        named.is_some_and(|named| Path::new(named) == Path::new(directory))
    })
}

/// Whether both mean one directory of this machine.
fn is_directory(place: &str, name: &str) -> bool {
    place == name || absolute(name).is_ok_and(|name| absolute(place).is_ok_and(|place| place == name))
}

#[cfg(test)]
mod tests {
    use super::{Hosted, choose};
    use base::error::ErrorKind;
    use base::id::NodeId;
    use client::{Device, Host};

    fn device(node: &str, place: &str, id: u128) -> Hosted {
        let host = Host {
            node: NodeId(1),
            name: node.to_string(),
            rack: String::new(),
            hdfs: String::new(),
            silent: false,
            incarnation: 1,
        };
        (Device { place: place.to_string(), device: id.into(), ..Device::default() }, Some(host))
    }

    fn ids(devices: &[Hosted], several: bool, name: &str) -> Result<Vec<u128>, ErrorKind> {
        let chosen = choose(devices, several, name).map_err(|error| error.kind())?;
        Ok(chosen.iter().map(|device| device.device.value()).collect())
    }

    /// Alone, a node's devices are named by their directories, however these are written.
    #[test]
    fn one_node() {
        let devices = [device("a", "/disk1", 0xabcd << 112), device("a", "disk2", 0xab00 << 112)];
        assert_eq!(ids(&devices, false, "/disk1/"), Ok(vec![0xabcd << 112]));
        assert_eq!(ids(&devices, false, "./disk2"), Ok(vec![0xab00 << 112]));
        assert_eq!(ids(&devices, false, "abcd"), Ok(vec![0xabcd << 112]));
        assert_eq!(ids(&devices, false, "abc"), Err(ErrorKind::NotFound));
        assert_eq!(ids(&devices, false, "all").map(|all| all.len()), Ok(2));
    }

    /// In a store of several nodes a directory alone is refused, with the devices that may be meant, even if only one has it:
    /// that of the machine where somebody stands may have left the store. The keeper of an older version shows no name.
    #[test]
    fn several_nodes() {
        for keepers in ["a:/disk2", "/disk2"] {
            let devices = [device("a", keepers, 1), device("b", "b:/disk2", 2), device("b", "b:/disk3", 3)];
            for (name, id) in [("a:/disk2", 1), ("b:/disk2", 2), ("b:/disk3/", 3)] {
                assert_eq!(ids(&devices, true, name), Ok(vec![id]), "{name}");
            }
            let error = choose(&devices, true, "/disk2").expect_err("it is on both").text().to_string();
            assert!(error.contains("a:/disk2 or b:/disk2"), "{error}");
            assert_eq!(ids(&devices, true, "/disk3"), Err(ErrorKind::Invalid));
            assert_eq!(ids(&devices, true, "c:/disk3"), Err(ErrorKind::NotFound));
        }
    }
}
