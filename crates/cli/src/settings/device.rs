//! Devices as people write them.

use base::error::{Error, ErrorKind, Result};
use base::policy::Class;
use base::unit::parse_bytes;
use node::DeviceSetting;
use std::path::PathBuf;

/// Reads `DIR[:CLASS[:CAPACITY]]`. A directory with a colon in its name is written with its class.
pub fn device(text: &str) -> Result<DeviceSetting> {
    let invalid = |text: &str| Err(Error::new(ErrorKind::Invalid, text));
    let parts: Vec<&str> = text.split(':').collect();
    let class_at = |place: Option<usize>| place.filter(|at| *at > 0).and_then(|at| Class::from_name(parts[at]));
    let (last, before) = (parts.len() - 1, parts.len().checked_sub(2));
    let (directory, class, capacity) = match (class_at(Some(last)), class_at(before)) {
        _ if last == 0 => (text.to_string(), Class::default(), None),
        (Some(class), _) => (parts[..last].join(":"), class, None),
        (None, Some(class)) => (parts[..last - 1].join(":"), class, Some(bytes(parts[last])?)),
        (None, None) => {
            return invalid(&format!(
                "'{}' is no class of devices; write DIR[:CLASS[:CAPACITY]] with memory, nvm, ssd or hdd",
                if last == 1 { parts[1] } else { parts[last - 1] }
            ));
        }
    };
    if directory.is_empty() {
        return invalid("the directory has no name");
    }
    if class == Class::Bulk {
        return invalid(
            "a bulk is a far store of plain files and no device, and there is none yet; write DIR[:CLASS[:CAPACITY]] with memory, nvm, ssd or \
             hdd; where the metadata are is said by metadata_dir",
        );
    }
    if capacity == Some(0) {
        return invalid("a device of no capacity holds nothing");
    }
    Ok(DeviceSetting { directory: PathBuf::from(directory), class, capacity })
}

fn bytes(text: &str) -> Result<u64> {
    parse_bytes(text).map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::device;
    use base::policy::Class;
    use std::path::Path;

    /// A device is a directory, perhaps a class, perhaps a capacity; a colon in a name does not get in the way.
    #[test]
    fn devices() {
        for (text, directory, class, capacity) in [
            ("data", "data", Class::Ssd, None),
            ("./a/b", "./a/b", Class::Ssd, None),
            ("/d:hdd", "/d", Class::Hdd, None),
            ("/d:memory:1.5G", "/d", Class::Memory, Some(3 << 29)),
            ("/d:ssd:4096", "/d", Class::Ssd, Some(4096)),
            ("a:b:nvm", "a:b", Class::Nvm, None),
            ("a:b:nvm:1T", "a:b", Class::Nvm, Some(1 << 40)),
        ] {
            let read = device(text).unwrap_or_else(|refusal| panic!("{text}: {refusal}"));
            assert_eq!((read.directory.as_path(), read.class, read.capacity), (Path::new(directory), class, capacity));
        }
        for bad in [
            "",
            ":ssd",
            "/d:floppy",
            "/d:ssd:",
            "/d:ssd:many",
            "/d:10G",
            "/d:ssd:0",
            "/d:",
            "/d:x:10G",
            "/d:bulk",
            "/d:bulk:1G",
        ] {
            assert!(device(bad).is_err(), "{bad:?}");
        }
        assert!(device("/d:bulk:1G").is_err_and(|refusal| refusal.text().contains("metadata_dir")));
        assert!(device("/d:floppy").is_err_and(|refusal| refusal.text().contains("'floppy'")));
    }
}
