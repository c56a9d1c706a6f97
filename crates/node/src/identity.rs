//! Which node this is, and how often it was started: a small text file beside the metadata store.

use crate::world::World;
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use base::id::NodeId;
use os::disk::Backend;
use std::path::Path;

/// A node's name for as long as its data lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Which node.
    pub node: NodeId,
    /// Rises with every start.
    pub incarnation: u64,
}

/// The first line: what the file is and its version.
const HEAD: &str = "stormwell node 1";

/// The file's name.
pub const FILE: &str = "node";

impl Identity {
    /// Reads the identity in `directory`, or draws a new one, and records one more start, durably.
    pub fn start(world: &dyn World, directory: &Path, backend: Backend, random: &dyn Random) -> Result<Identity> {
        let identity = match Identity::read(world, directory)? {
            Some(found) => Identity { incarnation: found.incarnation.saturating_add(1), ..found },
            None => Identity { node: NodeId(random.wide()), incarnation: 1 },
        };
        world.replace(&directory.join(FILE), identity.text().as_bytes(), backend).map_err(|error| match error.kind() {
            ErrorKind::Full => Error::new(
                ErrorKind::Full,
                format!("a start is counted in a small file, for which there is no room: {error}; nothing is lost; make room there and start again"),
            ),
            _ => error,
        })?;
        Ok(identity)
    }

    /// The identity in `directory`; none: there is no such file.
    pub fn read(world: &dyn World, directory: &Path) -> Result<Option<Identity>> {
        let path = directory.join(FILE);
        if !world.exists(&path)? {
            return Ok(None);
        }
        let found = Identity::parse(&world.read_text(&path)?).ok_or_else(|| {
            Error::new(
                ErrorKind::Corrupt,
                format!(
                    "{} does not say which node this is; the data beside it is untouched; restore the file, or remove it \
                     to let the node draw a new name",
                    path.display()
                ),
            )
        })?;
        Ok(Some(found))
    }

    fn text(&self) -> String {
        format!("{HEAD}\nid {}\nincarnation {}\n", self.node, self.incarnation)
    }

    fn parse(text: &str) -> Option<Identity> {
        let mut lines = text.lines();
        if lines.next()? != HEAD {
            return None;
        }
        let node = u128::from_str_radix(lines.next()?.strip_prefix("id ")?, 16).ok()?;
        let incarnation = lines.next()?.strip_prefix("incarnation ")?.parse().ok()?;
        Some(Identity { node: NodeId(node), incarnation })
    }
}

#[cfg(test)]
mod tests {
    use super::Identity;
    use base::id::NodeId;
    use sim::random::SimRandom;

    /// Whatever is in the file is an identity, which is then written as it is read, or none.
    #[test]
    fn fuzz_identities() {
        let whole = Identity { node: NodeId(0xabc), incarnation: 7 }.text().into_bytes();
        for seed in sim::fuzz::seeds(5_000) {
            let (random, mut bytes) = (SimRandom::new(seed), whole.clone());
            for _ in 0..4 {
                sim::fuzz::damage(&random, &mut bytes);
                if let Some(read) = Identity::parse(&String::from_utf8_lossy(&bytes)) {
                    assert_eq!(Identity::parse(&read.text()), Some(read), "seed {seed}");
                }
            }
        }
    }

    /// What is written is read back; anything else is not taken for an identity.
    #[test]
    fn text() {
        let identity = Identity { node: NodeId(0xabc), incarnation: 7 };
        assert_eq!(Identity::parse(&identity.text()), Some(identity));
        for bad in [
            "",
            "stormwell node 2\nid 0\nincarnation 1\n",
            "stormwell node 1\nid x\nincarnation 1\n",
            "stormwell node 1\n",
        ] {
            assert_eq!(Identity::parse(bad), None, "{bad:?}");
        }
    }
}
