//! How fast what was removed is taken apart: at once while nobody asks for anything, else in small steps with pauses, so that those who ask
//! lose little.

use crate::garbage::{STEP_BESIDE_OTHERS, STEP_MAX};
use base::limit::COMPOUND_FILES_MAX;
use base::unit::Time;
use std::time::Duration;

/// The longest pause: with steps of some 80 us everything else keeps nine tenths of the thread, and 15,000 names go in a second.
const PAUSE_MAX: Duration = Duration::from_millis(1);

/// Requests are counted for so long: those who wait for a sync of the disk ask nothing meanwhile, and yet lose if its log is full of removals.
const WINDOW: Duration = Duration::from_millis(10);

/// So many requests in a window make the pause the longest; fewer a shorter one, for then there is time.
const MANY: u64 = 20;

/// And fewer than so many none at all: who looks how far a removal is does not slow it down, and a step is soon over.
const FEW: u64 = 5;

/// Names that are made go on counting for the steps that follow, but not more than this many: those of four full requests of small files.
const MADE_MAX: u64 = 4 * COMPOUND_FILES_MAX as u64;

/// When the next step is due.
#[derive(Debug, Default)]
pub struct Pace {
    due: Time,
    /// When the present window began, and how many requests there had been by then.
    window: Time,
    requests: u64,
    /// Requests of the window before.
    came: u64,
    /// Inodes with lower numbers were made before, or as many names were taken apart since.
    made: u64,
}

impl Pace {
    /// When the next step is due. Where names are made faster than pauses allow there are none: what waits to be taken apart does not grow
    /// while no more is removed than is made.
    pub fn due(&self, next_inode: u64) -> Time {
        if next_inode.saturating_sub(self.made) >= STEP_BESIDE_OTHERS as u64 { Time::ZERO } else { self.due }
    }

    /// A step begins now: how many names it may take apart.
    pub fn begin(&mut self, now: Time, requests: u64, next_inode: u64) -> usize {
        let age = now.since(self.window);
        // What was asked long ago says nothing.
        let (came, before) =
            if age > 2 * WINDOW { (0, 0) } else { (requests.saturating_sub(self.requests), self.came) };
        if age >= WINDOW {
            (self.window, self.requests, self.came) = (now, requests, came);
        }
        let asked = Some(came.max(before).min(MANY)).filter(|asked| *asked >= FEW).unwrap_or(0);
        let waiting = next_inode.saturating_sub(self.made).min(MADE_MAX);
        let names = if asked == 0 { STEP_MAX } else { (waiting as usize).clamp(STEP_BESIDE_OTHERS, STEP_MAX) };
        self.made = next_inode - waiting;
        self.due = now.after(PAUSE_MAX * asked as u32 / MANY as u32);
        names
    }

    /// So many names' work was done in the step.
    pub fn end(&mut self, taken: usize, next_inode: u64) {
        self.made = self.made.saturating_add(taken as u64).min(next_inode);
    }
}

#[cfg(test)]
mod tests {
    use super::{FEW, MANY, PAUSE_MAX, Pace, WINDOW};
    use crate::garbage::{STEP_BESIDE_OTHERS, STEP_MAX};
    use base::unit::Time;

    /// Without requests a step follows the other; with many there is a pause, but not while names are made faster than they go; a while after
    /// the last request there is none.
    #[test]
    fn pauses() {
        let (mut pace, mut now) = (Pace::default(), Time::from_nanos(1_000_000_000));
        let step = |pace: &mut Pace, now: Time, requests: u64, next_inode: u64| {
            let names = pace.begin(now, requests, next_inode);
            pace.end(names, next_inode);
            names
        };
        assert_eq!(step(&mut pace, now, 5, 0), STEP_MAX, "requests of long ago do not count");
        assert!(pace.due(0) <= now);
        let many = 5 + 2 * MANY;
        assert_eq!(step(&mut pace, now, many, 0), STEP_BESIDE_OTHERS);
        assert_eq!(pace.due(0), now.after(PAUSE_MAX));
        assert!(pace.due(STEP_BESIDE_OTHERS as u64) <= now, "as many were made as a step takes");
        for done in 1..=256 / STEP_MAX {
            assert!(pace.due(256) <= now, "256 were made, and {done} steps are not done");
            assert_eq!(step(&mut pace, now, many, 256), STEP_MAX);
        }
        now = now.after(WINDOW);
        assert_eq!(step(&mut pace, now, many, 256), STEP_BESIDE_OTHERS);
        assert_eq!(pace.due(256), now.after(PAUSE_MAX), "those who asked may wait for the disk");
        now = now.after(WINDOW);
        assert_eq!(step(&mut pace, now, many + MANY / 2, 256), STEP_BESIDE_OTHERS);
        now = now.after(WINDOW);
        assert_eq!(step(&mut pace, now, many + MANY / 2, 256), STEP_BESIDE_OTHERS);
        assert_eq!(pace.due(256), now.after(PAUSE_MAX / 2));
        now = now.after(WINDOW);
        assert_eq!(step(&mut pace, now, many + MANY / 2, 256), STEP_MAX);
        assert_eq!(step(&mut pace, now, many + MANY / 2 + FEW - 1, 256), STEP_MAX);
        assert!(pace.due(256) <= now, "few requests count for none");
    }
}
