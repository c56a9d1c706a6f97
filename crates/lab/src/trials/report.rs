//! What trials found and how much they looked at.

use base::error::Error;
use std::fmt;
use std::ops::AddAssign;

/// What went wrong, as docs/trust.md counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something acknowledged is not there.
    Lost,
    /// Something is there with other bytes.
    Corrupt,
    /// A chunk was handed out twice, or again after its acknowledgement.
    Duplicated,
    /// Something removed is there again, or something that nobody made.
    Resurrected,
    /// Space that nothing needs does not come back.
    Leaked,
    /// A server that does not start, complains, or refuses what it should do.
    Trouble,
}

/// One thing that went wrong.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What.
    pub kind: Kind,
    /// What was expected and what was found.
    pub text: String,
}

impl Finding {
    /// A finding of this kind.
    pub fn new(kind: Kind, text: impl Into<String>) -> Finding {
        Finding { kind, text: text.into() }
    }
}

impl From<Error> for Finding {
    /// Whatever refuses to work while nothing is killed is trouble.
    fn from(error: Error) -> Finding {
        Finding::new(Kind::Trouble, error.text())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.text)
    }
}

/// The result of a step that may find something.
pub type Found<T> = Result<T, Finding>;

/// What was done and looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Trials.
    pub trials: u64,
    /// SIGKILLs.
    pub stops: u64,
    /// Of these, before the server served.
    pub stops_at_start: u64,
    /// Operations whose answer or effect was compared.
    pub operations: u64,
    /// Bytes compared.
    pub bytes: u64,
    /// Times that everything was deleted and space came back.
    pub sweeps: u64,
}

/// What was found, by kind, as (name, number): one at most, because the first finding ends a run.
pub fn by_kind(finding: Option<&Finding>) -> [(&'static str, u64); 6] {
    const NAMES: [(Kind, &str); 6] = [
        (Kind::Lost, "lost"),
        (Kind::Corrupt, "corrupt"),
        (Kind::Duplicated, "duplicated"),
        (Kind::Resurrected, "resurrected"),
        (Kind::Leaked, "leaked"),
        (Kind::Trouble, "trouble"),
    ];
    NAMES.map(|(kind, name)| (name, u64::from(finding.is_some_and(|finding| finding.kind == kind))))
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.trials += other.trials;
        self.stops += other.stops;
        self.stops_at_start += other.stops_at_start;
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.sweeps += other.sweeps;
    }
}
