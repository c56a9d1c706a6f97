//! The rule of the end of a group, in a table and in all histories of small worlds.

mod world;

use super::{End, Ending, Has, Known, ending};
use crate::stripe::Stripe;
use world::{Broken, World, Wrong};

const WORLD: World = World {
    columns: 1,
    copies: 2,
    appends: 4,
    window: 2,
    at_once: false,
    looks: false,
    gives_up: false,
    passes_over: false,
    fills: false,
    deletes: false,
    wrong: Wrong::Nothing,
};

fn survives(world: World) {
    match world.explore() {
        Ok(states) => eprintln!("{states} states of {world:?}"),
        Err(Broken { what, history }) => panic!("{what} in {world:?}:\n{}", history.join("\n")),
    }
}

fn breaks(world: World, expected: &str) {
    match world.explore() {
        Ok(states) => panic!("{states} states of {world:?} and nothing was noticed"),
        Err(Broken { what, history }) => {
            eprintln!("{:?}: {what}:\n{}", world.wrong, history.join("\n"));
            assert_eq!(what, expected, "{world:?}");
        }
    }
}

/// Sound enough is one in each column, else all have to answer; the longest counts, and who has less is told.
#[test]
fn table() {
    let sound = |length| Known::Answered { length, sound: true };
    let other = |length| Known::Answered { length, sound: false };
    let (none, lost) = (Known::Unanswered, Known::Lost);
    let one = |known: &[Known]| known.iter().map(|known| (0, *known)).collect::<Vec<(usize, Known)>>();
    let stripe = Stripe::new(1, 0).expect("one column needs no cell");
    let ends = |length, parts: &[Has], is_damaged| Ending::Ends(End { length, parts: parts.to_vec(), is_damaged });
    let waits = Ending::Waits(vec![0]);
    for (floor, known, expected) in [
        (0, vec![sound(7), none, none], ends(7, &[Has::All, Has::Unknown, Has::Unknown], false)),
        (0, vec![sound(7), other(9), sound(0)], ends(9, &[Has::Less, Has::All, Has::Less], false)),
        (0, vec![other(9), other(7), none], waits.clone()),
        (0, vec![other(9), other(7), lost], ends(9, &[Has::All, Has::Less, Has::Unknown], false)),
        (8, vec![sound(7), none, none], waits.clone()),
        (8, vec![sound(7), other(9), none], waits),
        (8, vec![sound(7), other(9), other(8)], ends(9, &[Has::Less, Has::All, Has::Less], false)),
        (8, vec![sound(7), other(3), lost], ends(7, &[Has::All, Has::Less, Has::Unknown], true)),
        (8, vec![lost, lost, lost], ends(0, &[Has::Unknown; 3], true)),
        (0, vec![sound(0)], ends(0, &[Has::All], false)),
    ] {
        assert_eq!(ending(stripe, floor, &one(&known)), expected, "{known:?} with {floor} synced");
    }
    // Of what is behind the first byte that a column lacks no replica needs anything.
    let stripe = Stripe::new(2, 10).expect("cells go round two columns");
    let two = [(0, sound(20)), (1, other(4)), (1, sound(3)), (0, other(12)), (0, sound(9))];
    let parts = [Has::All, Has::All, Has::Less, Has::All, Has::Less];
    assert_eq!(ending(stripe, 13, &two), ends(14, &parts, false));
    assert_eq!(ending(stripe, 14, &two), ends(14, &parts, false), "all of the second column have answered");
    let three = [(0, sound(20)), (1, other(4)), (1, sound(3)), (1, none)];
    assert_eq!(ending(stripe, 14, &three), Ending::Waits(vec![1]), "its sound one lacks a synced byte");
    assert_eq!(ending(stripe, 13, &three), ends(14, &[Has::All, Has::All, Has::Less, Has::Unknown], false));
    assert_eq!(ending(stripe, 0, &[(0, none), (1, sound(3))]), Ending::Waits(vec![0]));
    assert_eq!(ending(stripe, 0, &[(0, other(5)), (1, none)]), Ending::Waits(vec![1]));
}

/// Two replicas, with all that may happen.
#[test]
fn one_column_of_two() {
    survives(World { looks: true, passes_over: true, gives_up: true, fills: true, ..WORLD });
    survives(World { deletes: true, ..WORLD });
    survives(World { deletes: true, copies: 3, at_once: true, ..WORLD });
}

#[test]
fn one_column_of_three() {
    let three = World { copies: 3, ..WORLD };
    survives(World { fills: true, ..three });
    survives(World { looks: true, appends: 3, ..three });
    survives(World { looks: true, at_once: true, passes_over: true, ..three });
    survives(World { looks: true, at_once: true, gives_up: true, appends: 3, ..three });
}

#[test]
fn two_columns_of_two() {
    let four = World { columns: 2, ..WORLD };
    survives(World { appends: 2, ..four });
    survives(World { looks: true, at_once: true, ..four });
}

/// The search can fail: whatever is done wrong is found.
#[test]
fn what_is_wrong_is_found() {
    let (cut, late, seen) = ("acknowledged and cut", "acknowledged after the end", "seen after the end");
    let short = "a named replica has less than its part";
    for (wrong, what) in [
        (Wrong::LeastCounts, late),
        (Wrong::RestartedIsSound, late),
        (Wrong::UnsoundDecides, late),
        (Wrong::EndsWithoutFence, late),
        (Wrong::AcknowledgesBeforeStrike, cut),
        (Wrong::NamesShort, short),
        (Wrong::NamesGivenUp, short),
    ] {
        breaks(World { wrong, ..WORLD }, what);
        breaks(World { wrong, copies: 3, at_once: true, ..WORLD }, what);
    }
    for wrong in [Wrong::SeenOfOne, Wrong::SilentLeftOut, Wrong::FencedLeftOut, Wrong::HeardStaysSound] {
        breaks(World { looks: true, passes_over: wrong == Wrong::HeardStaysSound, wrong, ..WORLD }, seen);
    }
    breaks(World { deletes: true, wrong: Wrong::NoFloor, ..WORLD }, "recorded as synced and cut");
}
