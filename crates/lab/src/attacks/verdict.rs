//! How a server and its healthy client fared beside an attack.

use super::healthy::{Done, Times};
use base::error::Error;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A million bytes.
const MB: u64 = 1_000_000;

/// The most memory of its own that the server may take, in bytes.
const MEMORY_MAX: u64 = 600 * MB;

/// What p99 of `stat` may be: on a machine that has nothing else to do, and on any.
const STAT_MAX: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// `/health/ready` is answered within so long.
const HEALTH_MAX: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(2));

/// A listing through Hadoop's port is answered within so long.
const LISTING_MAX: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));

/// The part of its throughput that the client keeps at least: on a machine that has nothing else to do, and on any, where the attack
/// has a processor less to share.
const KEPT_MIN: (f64, f64) = (0.5, 0.05);

/// What was measured.
pub struct Verdict {
    /// Whether the server runs still.
    pub lives: bool,
    /// RssAnon at its highest, in bytes.
    pub most_memory: u64,
    /// The client before the attack.
    pub alone: Done,
    /// The client beside it.
    pub beside: Done,
    /// What the attack counted.
    pub told: BTreeMap<&'static str, u64>,
    /// Lines of the server that tell of errors.
    pub words: Vec<String>,
    /// Why the attack could not be made, if it could not.
    pub attacked: Option<Error>,
}

impl Verdict {
    fn kept(&self) -> f64 {
        self.beside.rate() / self.alone.rate().max(1.0)
    }

    /// What is not as it must be, in sentences.
    pub fn faults(&self, strict: bool) -> Vec<String> {
        let pick = |bars: (Duration, Duration)| if strict { bars.0 } else { bars.1 };
        let mut faults = Vec::new();
        if !self.lives {
            faults.push("the server ended".to_string());
        }
        if let Some(error) = &self.attacked {
            faults.push(format!("the attack could not be made: {error}"));
        }
        if self.most_memory > MEMORY_MAX {
            faults.push(format!("the server took {} MB, more than {}", self.most_memory / MB, MEMORY_MAX / MB));
        }
        for (what, times, most) in [
            ("stat", (&self.beside.stats, self.beside.stats.p99()), pick(STAT_MAX)),
            ("/health/ready", (&self.beside.health, self.beside.health.most()), pick(HEALTH_MAX)),
            ("listing", (&self.beside.listings, self.beside.listings.most()), pick(LISTING_MAX)),
            ("files", (&self.beside.files, Duration::ZERO), Duration::MAX),
        ] {
            let (times, slow): (&Times, Duration) = times;
            if let Some(first) = times.failed.first() {
                faults.push(format!("{what}: {} of {} failed, first: {first}", times.failed.len(), times.took.len()));
            }
            if times.took.is_empty() {
                faults.push(format!("{what}: none ended"));
            }
            if slow > most {
                faults.push(format!("{what} took {} ms, more than {}", slow.as_millis(), most.as_millis()));
            }
        }
        let least = if strict { KEPT_MIN.0 } else { KEPT_MIN.1 };
        if self.kept() < least {
            faults.push(format!("the client kept {:.2} of its throughput, less than {least}", self.kept()));
        }
        faults.extend(self.words.iter().map(|line| format!("the server said: {line}")));
        faults
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let ms = |duration: Duration| duration.as_secs_f64() * 1000.0;
        json!({
            "lives": self.lives,
            "memory": self.most_memory,
            "stat_p99_ms_alone": ms(self.alone.stats.p99()),
            "stat_p99_ms": ms(self.beside.stats.p99()),
            "stats": self.beside.stats.took.len(),
            "stats_failed": self.beside.stats.failed.len(),
            "health_most_ms": ms(self.beside.health.most()),
            "listings": self.beside.listings.took.len(),
            "listings_failed": self.beside.listings.failed.len(),
            "listing_most_ms": ms(self.beside.listings.most()),
            "bytes_per_second_alone": self.alone.rate(),
            "bytes_per_second": self.beside.rate(),
            "kept": self.kept(),
            "told": self.told,
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told: Vec<String> = self.told.iter().map(|(what, number)| format!("{number} {what}")).collect();
        write!(
            f,
            "{}; {} MB at most; stat p99 {} ms ({} alone), {} of {} failed; listing {} ms at most, {} of {} failed; health {} ms at most; {:.0} MB/s ({:.0} alone); {}",
            if self.lives { "lives" } else { "ended" },
            self.most_memory / MB,
            self.beside.stats.p99().as_millis(),
            self.alone.stats.p99().as_millis(),
            self.beside.stats.failed.len(),
            self.beside.stats.took.len(),
            self.beside.listings.most().as_millis(),
            self.beside.listings.failed.len(),
            self.beside.listings.took.len(),
            self.beside.health.most().as_millis(),
            self.beside.rate() / 1e6,
            self.alone.rate() / 1e6,
            told.join(", ")
        )
    }
}
