//! The engine's answers as the wire has them.

use base::error::Result;
use chunk::{Cell, ChunkStat, Reply};
use net::message::chunk as wire;
use net::{Payload, Piece, Responder};

/// Sends an engine's answer over the wire in the form that its kind has there.
pub fn answer_wire(respond: Responder, result: Result<Reply>, piece: Option<Piece>) {
    match result {
        Ok(Reply::Appended { length }) => respond.answer(wire::AppendAnswer { length }, Payload::empty()),
        Ok(Reply::Data { parts, crc, blocks, cells, chunk_length, sealed }) => {
            let payload: Payload = Payload::with_crc(parts, crc);
            let payload = match piece {
                Some(piece) => payload.with_piece(piece),
                None => payload,
            };
            let cells = cells.into_iter().map(wire_cell).collect();
            respond.answer(wire::ReadAnswer { chunk_length, sealed, blocks, cells }, payload);
        }
        Ok(Reply::Sealed { length, crc }) => respond.answer(wire::SealAnswer { length, crc }, Payload::empty()),
        Ok(Reply::Stat(ChunkStat { length, generation, sealed, crc, .. })) => {
            let answer = wire::StatAnswer { length, sealed, generation: generation.0, crc: Some(crc), start: 0 };
            respond.answer(answer, Payload::empty());
        }
        Ok(Reply::Length(_) | Reply::Done | Reply::Acknowledged { .. } | Reply::List { .. }) => {
            unreachable!("the wire does not ask for this")
        }
        Err(error) => respond.fail(error),
    }
}

/// A cell as the wire has it.
pub fn wire_cell(cell: Cell) -> wire::Cell {
    wire::Cell { offset: cell.offset, length: cell.length, stored: cell.stored }
}
