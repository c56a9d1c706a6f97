//! The rule of the end of a group, in a table.

use super::{End, Ending, Has, Known, ending};
use crate::stripe::Stripe;

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
