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
    /// Steps of the load that were answered. Some do nothing.
    pub steps: u64,
    /// Names, bags and chunks that were looked at after a kill, and compared.
    pub compared: u64,
    /// Bytes compared.
    pub bytes: u64,
    /// Times that everything was deleted and space came back.
    pub sweeps: u64,
    /// Nodes that stood still for a while.
    pub pauses: u64,
    /// Links cut in both directions, and nodes cut off from everybody.
    pub cuts: u64,
    /// Links cut in one direction.
    pub half_cuts: u64,
    /// Disks that were full for a while.
    pub filled: u64,
    /// Trials that were made again because the machine stood still.
    pub repeats: u64,
}

impl Counts {
    /// The rows of trials with one server, as (what, number).
    pub fn of_servers(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("servers killed", self.stops),
            ("of these while they started", self.stops_at_start),
            ("steps of the load answered", self.steps),
            ("names, bags and chunks compared", self.compared),
            ("bytes compared", self.bytes),
            ("times everything was deleted and the space came back", self.sweeps),
        ]
    }

    /// The rows of trials with a cluster.
    pub fn of_clusters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("clusters", self.trials),
            ("nodes killed", self.stops),
            ("of these while they started", self.stops_at_start),
            ("nodes that stood still", self.pauses),
            ("links cut, and nodes cut off", self.cuts),
            ("links cut one way", self.half_cuts),
            ("disks full", self.filled),
            ("trials made again because the machine stood still", self.repeats),
            ("steps of the load answered", self.steps),
            ("names, bags and chunks compared", self.compared),
            ("bytes compared", self.bytes),
            ("times everything was deleted and the space came back", self.sweeps),
        ]
    }

    /// What else happened to clusters, for people.
    pub fn blows(&self) -> String {
        format!(
            "{} pauses, {} cuts, {} half cuts, {} full disks, ",
            self.pauses, self.cuts, self.half_cuts, self.filled
        )
    }
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
        self.steps += other.steps;
        self.compared += other.compared;
        self.repeats += other.repeats;
        self.bytes += other.bytes;
        self.sweeps += other.sweeps;
        self.pauses += other.pauses;
        self.cuts += other.cuts;
        self.half_cuts += other.half_cuts;
        self.filled += other.filled;
    }
}
