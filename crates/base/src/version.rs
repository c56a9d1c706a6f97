//! Versions of the program, as stores keep them: the least one that can read what was written.

use crate::error::{Error, ErrorKind};
use std::fmt;

/// A version of the program. Stored as one number, so that the order of the numbers is the order of the versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramVersion {
    /// Of what may break promises.
    pub major: u16,
    /// Of what is added.
    pub minor: u16,
    /// Of what is mended.
    pub patch: u16,
}

impl ProgramVersion {
    /// This program's.
    pub const OWN: ProgramVersion = ProgramVersion {
        major: part(env!("CARGO_PKG_VERSION_MAJOR")),
        minor: part(env!("CARGO_PKG_VERSION_MINOR")),
        patch: part(env!("CARGO_PKG_VERSION_PATCH")),
    };

    /// The number that is stored: 16 bits each, patch lowest. Zero: nobody said.
    pub const fn to_number(self) -> u64 {
        (self.major as u64) << 32 | (self.minor as u64) << 16 | self.patch as u64
    }

    /// The version of a stored number.
    pub const fn from_number(number: u64) -> ProgramVersion {
        ProgramVersion { major: (number >> 32) as u16, minor: (number >> 16) as u16, patch: number as u16 }
    }
}

impl fmt::Display for ProgramVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The number in a part of the package's version.
const fn part(text: &str) -> u16 {
    let (bytes, mut at, mut value) = (text.as_bytes(), 0, 0u16);
    while at < bytes.len() {
        value = value * 10 + (bytes[at] - b'0') as u16;
        at += 1;
    }
    value
}

/// The error for what a newer program has written and this one does not know: it is no damage, and nothing is done with it.
/// `what` is it (`group 4 is of kind 9`); `least` is the least program that reads it, as far as the store says.
pub fn newer(what: impl fmt::Display, least: ProgramVersion) -> Error {
    let own = ProgramVersion::OWN;
    let known = if least > own { least.to_string() } else { "the one that wrote it".to_string() };
    let text = format!(
        "newer: {what}: written by a newer Stormwell than this one, which is {own}; data is safe and nothing was changed; use a version of at least {known}"
    );
    Error::new(ErrorKind::Unsupported, text)
}

#[cfg(test)]
mod tests {
    use super::{ProgramVersion, newer};
    use crate::error::ErrorKind;

    /// Numbers keep the order of versions, this program's own comes out as the package says it, and the error names the version
    /// to use if the store knows it.
    #[test]
    fn versions() {
        let version = |major, minor, patch| ProgramVersion { major, minor, patch };
        let rising = [version(0, 0, 0), version(0, 0, 9), version(0, 2, 0), version(1, 0, 0), version(65535, 1, 65535)];
        assert!(rising.windows(2).all(|pair| pair[0].to_number() < pair[1].to_number()));
        assert!(rising.iter().all(|version| ProgramVersion::from_number(version.to_number()) == *version));
        assert_eq!(ProgramVersion::OWN.to_string(), env!("CARGO_PKG_VERSION"));
        let told = newer("group 4 is of kind 9", version(65535, 1, 0));
        assert_eq!(told.kind(), ErrorKind::Unsupported);
        assert!(
            told.text().starts_with("newer: group 4 is of kind 9: ") && told.text().ends_with("at least 65535.1.0")
        );
        assert!(newer("it", version(0, 0, 0)).text().ends_with("at least the one that wrote it"));
    }
}
