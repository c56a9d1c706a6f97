//! What memory has of the state, read from the layers: at the opening, and again when what was not committed is thrown away.

use crate::holders::Holders;
use crate::layers::Layers;
use crate::log::Log;
use crate::replay::apply_group;
use crate::settings::Settings;
use crate::state::State;
use base::error::Result;
use base::unit::{Time, WallTime};
use base::version::ProgramVersion;
use quorum::group_max;
use std::sync::Arc;

impl State {
    /// The state in these layers, whose last change has this sequence number. Sessions begin anew. `least`: `MergedRecord::least`.
    pub fn load(
        (layers, sequence): (Layers, u64),
        settings: &Settings,
        (now, wall): (Time, WallTime),
        least: ProgramVersion,
    ) -> Result<State> {
        let entry_max = group_max(settings.segment_length);
        let mut state = State::new(layers, sequence, entry_max, Arc::clone(&settings.random))?;
        state.now = now;
        state.wall = wall;
        state.planted = settings.planted;
        state.least = least;
        state.widths = settings.widths;
        state.remembered_max = settings.remembered_calls;
        state.page_max = settings.page_max;
        state.superuser.clone_from(&settings.superuser);
        state.holders = Holders::since(now);
        state.load_sessions()?;
        state.load_answers(settings.remembered_answers)?;
        state.load_nodes()?;
        state.load_devices()?;
        state.load_rewants()?;
        Ok(state)
    }

    /// What of this state is committed, and durable here, without the rest. Who was heard of, and how full devices are, stays, which only memory has.
    pub fn settled(&mut self, log: &Log, settings: &Settings) -> Result<State> {
        let (mut layers, frozen) = self.layers.without_overlay(log.settled())?;
        let mut sequence = frozen.unwrap_or(log.merged_to());
        for group in log.behind(sequence) {
            sequence = apply_group(&mut layers, group, sequence)?;
        }
        let mut state = State::load((layers, sequence), settings, (self.now, self.wall), self.least)?;
        state.keep_heard(self);
        state.sessions.keep_untold(&self.sessions, log.settled());
        Ok(state)
    }

    /// Who was heard of, and how full devices are, as this other state has it.
    pub fn keep_heard(&mut self, before: &mut State) {
        self.devices.keep_reports(&before.devices);
        self.nodes.keep_heard(&before.nodes);
        self.holders = std::mem::take(&mut before.holders);
    }
}
