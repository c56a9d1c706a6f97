//! A writer that idles looks now and then whether the nodes of its replicas are there still: readers wait for one that went, and whoever ends the
//! file should the writer go, too, wants one that has stayed since the group was placed.

use super::Flow;
use super::append::Part;
use base::error::Result;
use base::policy::Level;
use std::time::Duration;

/// So often. One question for all writers of a session, who of the cluster is there.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Of the writers of a session whose node started anew one in so many goes on elsewhere at each look: a node may be named by ten thousand open files.
const RENEWED_ONE_IN: u64 = 4;

impl Flow {
    /// Whether there is something to look at: bytes of a group of several replicas that goes on, and nothing on its way that would tell.
    pub(super) fn is_looked_after(&self) -> bool {
        let goes_on = self.group.layout.has_several() && self.sent > 0 && !self.is_full();
        goes_on && self.in_flight.is_empty() && self.check().is_ok()
    }

    /// How long it is until it is time to look again.
    pub(super) fn until_a_look(&self) -> Duration {
        self.looked_at.after(LOOK_EVERY).since(self.client.session.clock.now())
    }

    /// Asks replicas whose nodes are said to be silent for a sign of life, where others of their column are not: one that gives none is left, as with
    /// any append. Goes on in another group if a node started anew: what it had not written may be missing there, and of those that have stayed there
    /// is one less.
    pub(super) async fn look_after_replicas(&mut self) -> Result<()> {
        self.looked_at = self.client.session.clock.now();
        // While nobody says who is there nothing can be ended either.
        let Some(table) = self.client.session.routes.told_within(LOOK_EVERY).await else { return Ok(()) };
        let columns = self.group.layout.columns().len();
        let (mut is_silent, mut is_heard) = (vec![false; columns], vec![false; columns]);
        let mut started_anew = false;
        for slot in self.group.slots.iter_mut().filter(|slot| slot.acknowledged > 0) {
            let Some((incarnation, silent)) = table.condition_of(slot.head.device) else { continue };
            is_silent[slot.column] |= silent;
            is_heard[slot.column] |= !silent;
            started_anew |= slot.incarnation.is_some_and(|placed| placed < incarnation);
            slot.incarnation = slot.incarnation.or(Some(incarnation));
        }
        // Not all of a session at once: nothing hurries.
        if started_anew && self.client.session.random.below(RENEWED_ONE_IN) == 0 {
            return self.go_on_elsewhere().await;
        }
        for column in (0..columns).filter(|column| is_silent[*column] && is_heard[*column]) {
            self.send_to_all(column, Part::empty(), (Level::Written, false), None).await?;
        }
        Ok(())
    }
}
