//! A writer that idles looks now and then whether the nodes of its replicas are there still: readers wait for one that went, and whoever ends the
//! file should the writer go, too, wants one that has stayed since the group was placed.

use super::Flow;
use super::append::Part;
use base::error::Result;
use base::policy::Level;
use std::time::Duration;

/// So often. One question for all writers of a session, who of the cluster is there.
const LOOK_EVERY: Duration = Duration::from_secs(5);

impl Flow {
    /// Whether there is something to look at: bytes of a group of several replicas that goes on, and nothing on its way that would tell.
    pub(super) fn is_looked_after(&self) -> bool {
        self.group.layout.has_several() && self.in_flight.is_empty() && self.sent > 0 && !self.is_full()
    }

    /// It has been idle for a while.
    pub(super) async fn has_idled() {
        tokio::time::sleep(LOOK_EVERY).await;
    }

    /// Asks replicas whose nodes are said to be silent for a sign of life: one that gives none is left, as with any append. Goes on in another group
    /// if a node started anew: what it had not written may be missing there, and of those that have stayed there is one less.
    pub(super) async fn look_after_replicas(&mut self) -> Result<()> {
        // While nobody says who is there nothing can be ended either.
        let Ok(table) = self.client.session.routes.told_within(LOOK_EVERY).await else { return Ok(()) };
        let mut is_silent = vec![false; self.group.layout.columns().len()];
        let mut started_anew = false;
        for slot in &mut self.group.slots {
            let Some((incarnation, silent)) = table.condition_of(slot.head.device) else { continue };
            is_silent[slot.column] |= silent;
            started_anew |= slot.incarnation.is_some_and(|placed| placed != incarnation);
            slot.incarnation = slot.incarnation.or(Some(incarnation));
        }
        if started_anew {
            return self.go_on_elsewhere().await;
        }
        for column in (0..is_silent.len()).filter(|column| is_silent[*column]) {
            self.send_to_all(column, Part::empty(), (Level::Written, false), None).await?;
        }
        Ok(())
    }
}
