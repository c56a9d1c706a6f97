//! What no meeting of threads may break in the waking of `node` and `net`.

use interleavings::askers::{self, Asker};
use interleavings::{mailboxes, outbounds};

/// The reader of a mailbox never sleeps on something that is in it; nothing is lost, doubled or overtaken.
#[test]
fn mailbox() {
    mailboxes::nothing_is_left(1, 2);
    mailboxes::nothing_is_left(2, 1);
}

/// What is asked in a burst, or by itself, is done by its asker or by the engine's thread, which does not sleep on it, and overtakes nothing of that asker.
#[test]
fn here() {
    use Asker::{Alone, AtOnce, Burst};
    for askers in [&[AtOnce][..], &[AtOnce, AtOnce], &[Burst, Alone], &[Burst, Burst], &[AtOnce, Burst]] {
        askers::nothing_is_left(askers);
    }
}

/// No answer waits while nobody is awake to write it, whatever the socket takes at once, and none is torn by another thread's.
#[test]
fn outbound() {
    for at_once in [0, 10, usize::MAX] {
        for awaited in [false, true] {
            outbounds::nothing_is_left(2, 0, at_once, awaited);
        }
        outbounds::nothing_is_left(1, 5, at_once, true);
    }
}

/// What a connection has not written when it ends counts no more, whoever was about to write it.
#[test]
fn outbound_ends() {
    for at_once in [10, usize::MAX] {
        outbounds::nothing_counts_after_the_end(2, at_once);
    }
}
