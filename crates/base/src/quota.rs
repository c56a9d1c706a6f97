//! What is said of a quota that is used up: a sentence for people, from which a gateway reads the numbers again to say it in the
//! words of its own clients.

use crate::error::{Error, ErrorKind};

/// A change that would take more than a quota allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// The directory that has the quota.
    pub path: String,
    /// It is about names; else about bytes.
    pub of_names: bool,
    /// Most names (the directory's own included) or bytes.
    pub limit: u64,
    /// How many there would be.
    pub would: u64,
}

const BEFORE_PATH: &str = "the quota of '";
const AFTER_PATH: &str = "' is ";
const NAMES: &str = " names, and there would be ";
const BYTES: &str = " bytes, and there would be ";
const ADVICE: &str = "; nothing was changed: delete something below it, or set a larger one";

impl From<Exceeded> for Error {
    fn from(exceeded: Exceeded) -> Error {
        let Exceeded { path, of_names, limit, would } = exceeded;
        let what = if of_names { NAMES } else { BYTES };
        Error::new(ErrorKind::OverQuota, format!("{BEFORE_PATH}{path}{AFTER_PATH}{limit}{what}{would}{ADVICE}"))
    }
}

impl Exceeded {
    /// What the error says; `None` if it is about something else.
    pub fn read(error: &Error) -> Option<Exceeded> {
        if error.kind() != ErrorKind::OverQuota {
            return None;
        }
        let (_, sentence) = error.text().split_once(BEFORE_PATH)?;
        let (path, rest) = sentence.rsplit_once(AFTER_PATH)?;
        let (numbers, _) = rest.split_once(ADVICE)?;
        let (of_names, numbers) = match numbers.split_once(NAMES) {
            Some(numbers) => (true, numbers),
            None => (false, numbers.split_once(BYTES)?),
        };
        let (limit, would) = (numbers.0.parse().ok()?, numbers.1.parse().ok()?);
        Some(Exceeded { path: path.to_string(), of_names, limit, would })
    }
}

#[cfg(test)]
mod tests {
    use super::Exceeded;
    use crate::error::{Error, ErrorKind};

    /// What is said of a quota can be read again, whatever its directory is called and whoever said more; nothing else is taken for it.
    #[test]
    fn read_again() {
        for (path, of_names) in [("/a", true), ("/it' is 7 names, and there would be 8", false), ("/", true)] {
            let exceeded = Exceeded { path: path.to_string(), of_names, limit: 3, would: u64::MAX };
            let error = Error::from(exceeded.clone());
            assert_eq!(Exceeded::read(&error), Some(exceeded.clone()));
            assert_eq!(Exceeded::read(&error.during("put x")), Some(exceeded));
        }
        for kind in [ErrorKind::OverQuota, ErrorKind::Full] {
            assert_eq!(Exceeded::read(&Error::new(kind, "the quota of nothing")), None);
        }
    }
}
