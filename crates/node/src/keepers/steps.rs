//! What other keepers of the metadata say to this one, and whether it is they who say it.

use super::seating::Seating;
use crate::metadata::Metadata;
use base::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use meta::{KeeperId, KeeperMessage};
use net::message::Done;
use net::message::keeper::Step;
use net::{Asker, Call, Payload};

/// Messages that are said at once, at the most: keepers send as many as wait with them, which is less.
const PARTS_MAX: usize = 256;

/// Takes a `Step` for the keeper that has this number of these seats: all that it says is handed to the metadata's thread, or nothing if anything
/// of it is wrong. It never waits.
pub fn take_step(mut call: Call, seating: &Seating, own: KeeperId, metadata: &Metadata) {
    let asker = call.asker;
    let heard = call.ask::<Step>().and_then(|step| {
        let payload = std::mem::take(&mut call.payload);
        read(&step, asker, payload, (seating, own))
    });
    match heard {
        Ok(messages) => {
            messages.into_iter().for_each(|(message, bytes)| metadata.step(message, bytes));
            call.respond.answer(Done {}, Payload::empty());
        }
        Err(error) => call.respond.fail(error),
    }
}

/// The messages of a `Step`, and how many bytes each has.
fn read(
    step: &Step,
    asker: Asker,
    payload: Payload,
    (seating, own): (&Seating, KeeperId),
) -> Result<Vec<(KeeperMessage, usize)>> {
    check(step, asker, (seating, own))?;
    let bytes: u64 = step.parts.iter().copied().map(u64::from).sum();
    if step.parts.len() > PARTS_MAX || bytes != payload.length() as u64 {
        let (parts, came) = (step.parts.len(), payload.length());
        return Err(wrong(&format!(
            "{parts} messages of {bytes} bytes were announced, of {PARTS_MAX} at the most, and {came} bytes came"
        )));
    }
    let (mut rest, _) = payload.into_verified()?;
    let mut messages = Vec::with_capacity(step.parts.len());
    for length in step.parts.iter().map(|length| *length as usize) {
        // Copied: the log keeps entries until it is merged, or another keeper that is away has them, and the memory of the payload, which is all
        // that keepers may send, would be theirs for as long.
        let message = KeeperMessage::read(&Bytes::copy_from_slice(&rest.split_to(length)));
        match message.filter(|message| message.from().0 == step.from) {
            Some(message) => messages.push((message, length)),
            None => return Err(wrong(&format!("{length} bytes are no message of keeper {}", step.from))),
        }
    }
    Ok(messages)
}

/// Whether it is from another keeper of the store, and for this one.
fn check(step: &Step, asker: Asker, (seating, own): (&Seating, KeeperId)) -> Result<()> {
    if step.store.value() != seating.store.0 {
        return Err(wrong("it is of another store"));
    }
    if step.to != own.0 {
        return Err(wrong(&format!("it is for keeper {}, and this is keeper {}", step.to, own.0)));
    }
    let Some(seat) = seating.of_number(KeeperId(step.from)).filter(|seat| seat.number != own) else {
        return Err(wrong(&format!("keeper {} is none of the others of this store", step.from)));
    };
    if !matches!(asker, Asker::Node { node, .. } if node == seat.node) {
        return Err(wrong(&format!(
            "keeper {} is on node {}, and it is not that one that says it",
            step.from, seat.node
        )));
    }
    if step.draw.value() != seat.draw {
        return Err(wrong(&format!("it is of another directory than that of keeper {}", step.from)));
    }
    Ok(())
}

fn wrong(why: &str) -> Error {
    let text = format!(
        "what a keeper of the metadata said was not heard: {why}; what was acknowledged is safe; look which nodes have the store's secret, and \
         whether one runs with a copy of a keeper's directory, or an old one"
    );
    Error::new(ErrorKind::Invalid, text)
}

#[cfg(test)]
mod tests;
