//! How a link's connections are made: connected, greeted, and asked for again when a node has no place just now.

use super::greeting::{Welcomed, greet};
use super::slot::Shared;
use crate::decode::Decoder;
use crate::frame;
use crate::message::Failure;
use base::error::{Error, ErrorKind, Result};
use base::id::NodeId;
use base::limit::RECONNECT_WAIT;
use base::net::Stream;
use bytes::Bytes;
use prost::Message;
use std::time::Duration;
use tokio::time::sleep;

/// A link's first connection is made anew so often if it ends without a word before it is welcomed: nobody who means us may be there.
const CUT_MAX: u32 = 3;

/// A connection that has been welcomed.
pub(super) struct Made {
    pub(super) stream: Box<dyn Stream>,
    pub(super) decoder: Decoder,
    pub(super) welcomed: Welcomed,
    /// In which turn of the leader's addresses; zero on other links.
    pub(super) turn: u64,
}

/// Connects and greets.
pub(super) async fn make(shared: &Shared, address: &str) -> Result<Made> {
    let stream = shared.net.connect(address).await?;
    greeted(shared, address, stream).await
}

/// Greets whoever took the connection.
async fn greeted(shared: &Shared, address: &str, mut stream: Box<dyn Stream>) -> Result<Made> {
    let settings = &shared.settings;
    let mut decoder = Decoder::new(settings.pool.clone());
    let welcomed = greet(&mut stream, &mut decoder, settings).await.map_err(|error| match error.kind() {
        ErrorKind::Refused | ErrorKind::Unsupported | ErrorKind::Protocol => error.during(address),
        _ => error,
    })?;
    let Welcomed { node, incarnation } = welcomed;
    let is_meant =
        |(meant, start): (NodeId, u64)| node == meant && (start == 0 || incarnation == 0 || incarnation == start);
    if settings.meant.is_some_and(|meant| !is_meant(meant)) {
        return Err(shared.found_anew());
    }
    // Who takes a connection does not lead for that.
    if shared.leader.is_none() {
        shared.hear(settings.clock.now());
    }
    Ok(Made { stream, decoder, welcomed, turn: 0 })
}

/// The first connection of a link. That nothing listens is said at once; a node that has no place for a newcomer in this moment, or no
/// time to say so before it ends the connection, is asked again.
/// `busy` keeps what it said last, for whom has waited long enough.
pub(super) async fn make_first(shared: &Shared, busy: &mut Option<Error>) -> Result<Made> {
    let (mut wait, wait_max) = RECONNECT_WAIT;
    let mut cut = 0;
    loop {
        let stream = shared.net.connect(&shared.address).await?;
        match greeted(shared, &shared.address, stream).await {
            Err(error) if error.kind() == ErrorKind::Busy => *busy = Some(error),
            ended if shared.is_anew() => return ended,
            Err(error) if matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Io) && cut < CUT_MAX => cut += 1,
            ended => return ended,
        }
        // Between half and all of the wait, so that those who were sent away together do not come back at once.
        let half = wait / 2;
        sleep(half + Duration::from_nanos(shared.settings.random.below(half.as_nanos() as u64 + 1))).await;
        wait = (wait * 2).min(wait_max);
    }
}

/// The error in a failure's message.
pub(super) fn failure(message: &Bytes) -> Error {
    match Failure::decode(message.clone()) {
        Ok(failure) => failure.into(),
        Err(error) => frame::broken(format!("a refusal that cannot be read: {error}")),
    }
}
