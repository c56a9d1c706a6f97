//! Wishes for redundancy and acknowledgement, attached to directories and files, inherited from the nearest directory above.

/// How far a byte must have come before it is acknowledged: *received* < *written* < *synced*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// In memory of the node.
    Received,
    /// The device write is done: survives a kill of the process.
    Written,
    /// On stable media: survives a power loss.
    #[default]
    Synced,
}

/// The class of a device. A tier is all devices of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A memory pool: nothing survives the process.
    Memory,
    /// Byte-addressable persistent memory.
    Nvm,
    /// A solid-state disk, NVMe or SATA.
    #[default]
    Ssd,
    /// A spinning disk.
    Hdd,
    /// A far store: Lustre, NFS, S3.
    Bulk,
}

impl Class {
    const NAMES: [(Class, &str); 5] = [
        (Class::Memory, "memory"),
        (Class::Nvm, "nvm"),
        (Class::Ssd, "ssd"),
        (Class::Hdd, "hdd"),
        (Class::Bulk, "bulk"),
    ];

    /// The word for it in commands, settings and metrics.
    pub fn name(self) -> &'static str {
        Class::NAMES[self as usize].1
    }

    /// The class of this name.
    pub fn from_name(name: &str) -> Option<Class> {
        Class::NAMES.iter().find(|(_, known)| *known == name).map(|(class, _)| *class)
    }

    /// Whether its devices still have what was synced when their node has ended. What has no wish goes to such devices only.
    pub fn keeps(self) -> bool {
        matches!(self, Class::Nvm | Class::Ssd | Class::Hdd)
    }

    /// The number that is stored and sent.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// The class with this number.
    pub fn from_code(code: u32) -> Option<Class> {
        Class::NAMES.get(code as usize).map(|(class, _)| *class)
    }
}

/// How bytes are made smaller by who sends them, before they cross the network and reach a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4: quick in both directions.
    Lz4,
    /// Zstandard at level 1: tighter, for less speed.
    Zstd,
}

impl Compression {
    const NAMES: [(Compression, &str); 3] =
        [(Compression::None, "none"), (Compression::Lz4, "lz4"), (Compression::Zstd, "zstd")];

    /// The largest code there is: who knows this one knows all below it.
    pub const CODE_MAX: u32 = Compression::NAMES.len() as u32 - 1;

    /// The word for it in commands.
    pub fn name(self) -> &'static str {
        Compression::NAMES[self as usize].1
    }

    /// The compression of this name.
    pub fn from_name(name: &str) -> Option<Compression> {
        Compression::NAMES.iter().find(|(_, known)| *known == name).map(|(compression, _)| *compression)
    }

    /// The number that is stored and sent.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// The compression with this number.
    pub fn from_code(code: u32) -> Option<Compression> {
        Compression::NAMES.get(code as usize).map(|(compression, _)| *compression)
    }
}

/// Wishes for the bytes under a directory. `None` everywhere means: as the directory above says; at the root, the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Only devices of this class; none means any class that keeps what it has when its node ends, and is a device.
    pub tier: Option<Class>,
    /// Replicas of every byte of a file, 1 to `REPLICAS_MAX`; none means one. A file is acknowledged when as many have it as there are places for;
    /// what it lacks is made when its groups are closed. Bags have one.
    pub replicas: Option<u32>,
    /// Replicas that there have to be places for, or nothing is written; none means one. Of who can write to fewer no more is wanted.
    pub least: Option<u32>,
    /// How the bytes of files are made smaller by who writes them; none means not at all.
    pub compression: Option<Compression>,
}

impl Policy {
    /// This policy where it says something, `above` where it does not.
    #[must_use]
    pub fn over(self, above: Policy) -> Policy {
        Policy {
            tier: self.tier.or(above.tier),
            replicas: self.replicas.or(above.replicas),
            least: self.least.or(above.least),
            compression: self.compression.or(above.compression),
        }
    }

    /// With how many replicas a group is begun at the least.
    #[must_use]
    pub fn least(self) -> usize {
        self.least.unwrap_or(1).min(self.replicas.unwrap_or(1)).max(1) as usize
    }

    /// Whether devices of this class are for what has this policy.
    #[must_use]
    pub fn fits(self, class: Class) -> bool {
        match self.tier {
            Some(tier) => class == tier,
            None => class.keeps(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Class, Policy};

    /// Without a wish bytes go only where a node's end does not take them; a wish is followed to the letter.
    #[test]
    fn what_is_not_wished() {
        let classes = (0..5).filter_map(Class::from_code);
        let fits: Vec<Class> = classes.filter(|class| Policy::default().fits(*class)).collect();
        assert_eq!(fits, [Class::Nvm, Class::Ssd, Class::Hdd]);
        let memory = Policy { tier: Some(Class::Memory), ..Policy::default() };
        assert!(memory.fits(Class::Memory) && !memory.fits(Class::Ssd));
    }
}
