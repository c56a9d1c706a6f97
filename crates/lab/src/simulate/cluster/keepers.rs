//! What goes wrong with several keepers of the metadata.

use super::member::State;
use super::{ClusterDirector, Deed};
use crate::simulate::hardware::End;
use crate::simulate::oracle::Check;
use base::env::Random;
use std::sync::atomic::Ordering;

impl ClusterDirector {
    /// Something goes wrong with one of them, mostly with whoever leads.
    pub(super) async fn trouble_of_keepers(&mut self) -> Check<()> {
        let any = self.random.below(self.kind.keepers as u64) as usize;
        let number = self.leader().filter(|_| !self.random.one_in(3)).unwrap_or(any);
        if self.members[number].state != State::Runs {
            return Ok(());
        }
        match self.random.below(10) {
            0 | 1 => {
                let pause = 300 + self.random.below(5_000);
                self.pause_for(number, pause);
            }
            2 | 3 => self.cut_off_from_keepers(number),
            4 => self.end(number, if self.random.one_in(2) { End::Kill } else { End::PowerLoss }),
            5 => {
                self.members[any].end_when_stopped = End::PowerLoss;
                self.members[any].machine.hardware.stop_at_swap.store(true, Ordering::Relaxed);
            }
            6 => self.plan_a_loss(number),
            7 => self.end_keepers(),
            8 => self.stop(number).await?,
            _ => self.trouble_a_copy(any),
        }
        Ok(())
    }

    /// A copy of another keeper's tree cannot be written, or the machine stops at an operation of it; whenever there is one next.
    fn trouble_a_copy(&mut self, number: usize) {
        let copy = &self.members[number].machine.hardware.copy;
        let at = Some(copy.changes() + self.random.below(30));
        match self.random.one_in(2) {
            true => copy.error_at(at),
            false => copy.crash_at(at),
        }
        self.members[number].end_when_stopped = if self.random.one_in(3) { End::Kill } else { End::PowerLoss };
        self.count("trouble of a copy");
    }

    /// The keeper that led when somebody looked last.
    fn leader(&self) -> Option<usize> {
        let name = self.scene.leader();
        (0..self.kind.keepers).find(|number| Some(&self.members[*number].name) == name.as_ref())
    }

    /// Whoever leads stops, and starts again.
    pub(super) async fn another_leads(&mut self) -> Check<()> {
        let Some(number) = self.leader() else { return Ok(()) };
        self.stop(number).await?;
        if self.members[number].state == State::Down {
            self.start_member(number).await?;
        }
        Ok(())
    }

    /// Others than this one, in any order.
    fn other_keepers(&self, number: usize) -> Vec<usize> {
        let mut others: Vec<usize> = (0..self.kind.keepers).filter(|other| *other != number).collect();
        if self.random.one_in(2) {
            others.reverse();
        }
        others
    }

    /// Others keepers do not hear one, or it does not hear them, or both; its devices and clients do.
    fn cut_off_from_keepers(&mut self, number: usize) {
        self.count("keeper cut off from keepers");
        // Longer than an election takes, mostly.
        let (way, pause) = (self.random.below(3), 500 + self.random.below(8_000));
        for other in self.other_keepers(number) {
            let (one, other) = (self.members[number].name.clone(), self.members[other].name.clone());
            let (from, to) = if way == 1 { (&other, &one) } else { (&one, &other) };
            self.scene.net.cut_link(from, to, way == 2);
            self.plan(pause, Deed::Mend(one, other));
        }
    }

    /// The power of all keepers fails at once, as that of a rack. One of them is away for longer: the others go on without it.
    pub(super) fn end_keepers(&mut self) {
        self.count("power loss of all keepers");
        let late = self.random.below(self.kind.keepers as u64) as usize;
        for number in 0..self.kind.keepers {
            if self.members[number].state == State::Runs {
                let pause = if number == late { 1_000 + self.random.below(8_000) } else { self.random.below(300) };
                self.end_for(number, End::PowerLoss, pause);
            }
        }
    }

    /// One keeper stands still and lacks what the two others agree on meanwhile; then one of those loses its metadata, and the first one is away. Until
    /// that is back nobody may lead: what it has, nobody else has. Once in a history: of three keepers two are left then.
    fn plan_a_loss(&mut self, first: usize) {
        let others = self.other_keepers(first);
        let [lost, behind] = others[..] else { return };
        let runs = |number: &usize| self.members[*number].state == State::Runs && !self.members[*number].held;
        // Before anybody has led there may be no store yet, and none begins with a directory that is lost.
        if self.has_lost_keeper || self.scene.leader().is_none() || !others.iter().all(runs) {
            return;
        }
        self.has_lost_keeper = true;
        self.pause_for(behind, 2_000);
        let pause = 500 + self.random.below(1_000);
        self.plan(pause, Deed::LoseMetadata(first, lost));
    }

    /// That happens.
    pub(super) fn lose_metadata(&mut self, first: usize, lost: usize) {
        self.count("metadata of a keeper lost");
        if self.members[first].state == State::Runs {
            let pause = 3_000 + self.random.below(6_000);
            self.end_for(first, End::PowerLoss, pause);
        }
        if self.members[lost].state == State::Runs {
            let pause = self.random.below(300);
            self.end_for(lost, End::PowerLoss, pause);
        }
        self.members[lost].machine.hardware.lose_metadata();
        self.has_lost_metadata = true;
    }
}
