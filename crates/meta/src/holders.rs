//! When holders of files in a gateway's protocol were heard of, through whichever gateway. In memory alone: after a start nobody counts
//! as silent for longer than the store is open.

use crate::attributes::check_holder;
use crate::reply::Reply;
use crate::state::State;
use base::error::{Error, ErrorKind, Result};
use base::limit::{HOLDERS_HEARD_MAX, HOLDERS_TOLD_MAX};
use base::unit::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// Holders that were heard of lately.
#[derive(Default)]
pub struct Holders {
    heard: BTreeMap<String, Time>,
    /// Whoever is not known was not heard of since: when the store was opened, or when the last one that is forgotten was heard of.
    unknown_since: Time,
}

impl Holders {
    /// Nobody is known at this time, when the store is opened.
    pub fn since(now: Time) -> Holders {
        Holders { unknown_since: now, ..Holders::default() }
    }

    /// The holder was heard of at this time.
    pub fn hear(&mut self, holder: &str, at: Time) {
        match self.heard.get_mut(holder) {
            Some(heard) => *heard = at.max(*heard),
            None => {
                if self.heard.len() >= HOLDERS_HEARD_MAX {
                    self.forget_older_half();
                }
                self.heard.insert(holder.to_string(), at);
            }
        }
    }

    /// Forgets those that were heard of longest ago. Nobody counts as silent for longer by that.
    fn forget_older_half(&mut self) {
        let mut times: Vec<Time> = self.heard.values().copied().collect();
        let middle = times.len() / 2;
        let (_, newest, _) = times.select_nth_unstable(middle);
        let newest = *newest;
        self.heard.retain(|_, heard| *heard > newest);
        self.unknown_since = self.unknown_since.max(newest);
    }

    /// When the holder was heard of, or may have been.
    fn heard_at(&self, holder: &str) -> Time {
        self.heard.get(holder).map_or(self.unknown_since, |heard| self.unknown_since.max(*heard))
    }
}

impl State {
    /// Answers `Holders`.
    pub fn holders_heard(&mut self, seen: &[(String, Duration)], asked: &[String]) -> Result<Reply> {
        let told = seen.len().saturating_add(asked.len());
        if told > HOLDERS_TOLD_MAX {
            let text = format!(
                "{told} holders were told and asked for at once, {HOLDERS_TOLD_MAX} are the most; nothing was noted: do it in several steps"
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        seen.iter().try_for_each(|(holder, _)| check_holder(holder))?;
        let now = self.now;
        for (holder, ago) in seen {
            let ago = u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX);
            self.holders.hear(holder, Time::from_nanos(now.as_nanos().saturating_sub(ago)));
        }
        Ok(Reply::Silent(asked.iter().map(|holder| now.since(self.holders.heard_at(holder))).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::Holders;
    use base::limit::HOLDERS_HEARD_MAX;
    use base::unit::Time;

    /// Memory is bounded, and whoever is forgotten for it, or was never heard of, counts as heard of when the last of the forgotten was:
    /// nobody as silent for longer than it is.
    #[test]
    fn forgotten_holders_are_not_silent() {
        let mut holders = Holders::since(Time::from_nanos(5));
        assert_eq!(holders.heard_at("none"), Time::from_nanos(5));
        for number in 0..=HOLDERS_HEARD_MAX as u64 {
            holders.hear(&format!("h{number}"), Time::from_nanos(10 + number));
            holders.hear("kept", Time::from_nanos(10 + number));
        }
        assert!(holders.heard.len() <= HOLDERS_HEARD_MAX);
        let last = 10 + HOLDERS_HEARD_MAX as u64;
        assert_eq!(holders.heard_at("kept"), Time::from_nanos(last));
        for number in 0..=HOLDERS_HEARD_MAX as u64 {
            assert!(holders.heard_at(&format!("h{number}")) >= Time::from_nanos(10 + number), "{number}");
        }
        assert!(holders.heard_at("none") > Time::from_nanos(5));
        holders.hear("kept", Time::from_nanos(7));
        assert_eq!(holders.heard_at("kept"), Time::from_nanos(last), "older news changes nothing");
    }
}
