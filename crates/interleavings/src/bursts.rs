//! Askers that make their changes in their own thread, or leave them to the metadata's.

use crate::here::Handed;
use crate::metadata::Metadata;
use crate::sleeper::{Sleeper, check};
use crate::world::Turn;
use base::burst::Gathers;
use std::sync::Arc;

/// So many askers with a burst of two changes each, and as many who ask one by itself. All changes are made, once. If the metadata's thread is
/// left asleep before that, nobody can go on, and loom says so.
pub fn nothing_is_left(bursts: usize, alone: usize) {
    check(3, move || {
        let sleeper = Arc::new(Sleeper::default());
        let expected = 2 * bursts + alone;
        let (metadata, mut turn) = Metadata::new(&sleeper, expected);
        let threads: Vec<_> = (0..bursts + alone)
            .map(|asker| {
                let metadata = metadata.clone();
                loom::thread::spawn(move || {
                    if asker < bursts {
                        metadata.send(2 * asker, true);
                        metadata.send(2 * asker + 1, true);
                        metadata.burst_ended();
                    } else {
                        metadata.send(bursts + asker, false);
                    }
                })
            })
            .collect();
        while metadata.made().len() < expected {
            let Turn::Wait(wait) = turn(&mut Handed::default()) else { unreachable!("nobody ends it") };
            if wait.is_none() && metadata.made().len() < expected {
                sleeper.wait();
            }
        }
        threads.into_iter().for_each(|thread| assert!(thread.join().is_ok(), "an asker ends"));
        let mut made = metadata.made();
        made.sort_unstable();
        assert_eq!(made, (0..expected).collect::<Vec<usize>>(), "lost or doubled");
    });
}
