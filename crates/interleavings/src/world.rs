//! How an engine is worked, as in `node`'s `world`.

use base::disk::{Disk, Done};
use std::time::Duration;

pub(crate) trait Work: Send {
    fn turn(&mut self, done: &mut Vec<Done>, disk: &mut dyn Disk) -> Turn;
}

pub(crate) enum Turn {
    Wait(Option<Duration>),
    #[allow(dead_code)]
    End,
}
