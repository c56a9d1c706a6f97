//! What the tests that feed damaged bytes to decoders are made of, and how long they go on.
#![allow(clippy::disallowed_methods)] // Real time bounds real work here; no history depends on it.

use crate::random::SimRandom;
use base::env::Random;
use std::time::{Duration, Instant};

/// Seeds for such a test: `count` of them, and then more until `STORMWELL_FUZZ_SECONDS` (if set) have passed.
pub fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let seconds = std::env::var("STORMWELL_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let (start, length) = (Instant::now(), Duration::from_secs(seconds));
    (0..).take_while(move |seed| *seed < count || start.elapsed() < length)
}

/// The bytes of a message that a decoder takes, made without a schema: of random fields those that it does not refuse. `reads`: whether
/// it takes these bytes.
pub fn readable(random: &SimRandom, fields: u64, mut reads: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut message = Vec::new();
    for _ in 0..fields {
        let length = message.len();
        field(random, 3, &mut message);
        if !reads(&message) {
            message.truncate(length);
        }
    }
    message
}

/// Changes bytes as a disk, a network or a stranger may: turns a bit over, cuts them, or adds others.
pub fn damage(random: &SimRandom, bytes: &mut Vec<u8>) {
    let at = random.below(bytes.len() as u64 + 1) as usize;
    match random.below(5) {
        0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
        1 => bytes.truncate(at),
        2 => bytes.insert(at, random.next() as u8),
        3 => bytes.extend_from_within(at..),
        _ => field(random, 3, bytes),
    }
}

/// Appends a field of a protobuf message: a tag, a wire type, and what such a field may hold, other fields among that.
fn field(random: &SimRandom, depth: u64, out: &mut Vec<u8>) {
    let kind = [0, 1, 2, 2, 2, 5][random.below(6) as usize];
    varint((1 + random.below(30)) << 3 | kind, out);
    match kind {
        0 => varint(random.next() >> random.below(64), out),
        1 => out.extend(random.next().to_le_bytes()),
        5 => out.extend((random.next() as u32).to_le_bytes()),
        _ => {
            let mut inside = Vec::new();
            if depth > 0 && random.one_in(2) {
                (0..random.below(4)).for_each(|_| field(random, depth - 1, &mut inside));
            } else {
                let length = [0, 1, 7, 16, 300][random.below(5) as usize];
                inside.extend((0..length).map(|at: usize| b"/a\0.\x7F x"[at % 7]));
            }
            varint(inside.len() as u64, out);
            out.append(&mut inside);
        }
    }
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7F {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
