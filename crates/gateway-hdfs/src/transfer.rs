//! The data transfer protocol: connections that carry the bytes of blocks.

mod checksum;
pub(crate) mod connection;
pub(crate) mod gathering;
mod read;
pub(crate) mod source;
mod write;

use crate::gateway::Gateway;
use crate::message::transfer::{
    BlockChecksum, ERROR, ERROR_UNSUPPORTED, HANDSHAKE_ERROR, HandshakeAnswer, ReadBlock, SUCCESS, WriteBlock,
};
use crate::ticket::Ticket;
use base::error::{Error, ErrorKind, Result};
use base::id::RequestId;
use base::limit::HELLO_WAIT_MAX;
use base::net::Stream;
use base::request::{Notable, current, is_failure, named, within};
use connection::{Connection, nonsense};
pub use read::suspect;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The version of the protocol: the first two bytes of every operation.
const VERSION: u16 = 28;

/// What a client that wants SASL or encryption sends first.
const SASL: u32 = 0xDEAD_BEEF;

/// After an operation the connection is kept this long for the next one. Clients throw theirs away after three seconds.
const KEEP_ALIVE: Duration = Duration::from_secs(4);

/// What a client wants done.
enum Request {
    Write(Box<WriteBlock>),
    Read(ReadBlock),
    Checksum(BlockChecksum),
    Transfer,
    Refused(&'static str),
}

/// Serves a connection whose first bytes, `begun`, say that it carries data, until it ends.
pub async fn converse(gateway: Arc<Gateway>, stream: Box<dyn Stream>, ticket: Ticket, begun: Vec<u8>) {
    let mut connection = Connection::new(stream, ticket, begun);
    // A client that goes away is no trouble, whenever it does, and neither is one that rested and gave way.
    if let Err(error) = serve(&gateway, &mut connection).await
        && !matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Busy)
    {
        (gateway.on_trouble)(format!("data connection from {}: {}", connection.peer(), error.text()));
    }
}

/// Serves operations one after another until one of them is the last.
async fn serve(gateway: &Arc<Gateway>, connection: &mut Connection) -> Result<()> {
    let mut wait = HELLO_WAIT_MAX;
    loop {
        // Silence between two operations is how connections end.
        let Ok(request) = timeout(wait, read_request(connection)).await else { return Ok(()) };
        let request = match request {
            Err(error) if error.kind() == ErrorKind::Busy => return connection.answer(ERROR, error.text()).await,
            other => other?,
        };
        let ticket = &mut connection.ticket;
        if let Err(taken) = ticket.known().and_then(|()| ticket.work()) {
            return connection.answer(ERROR, &taken.to_string()).await;
        }
        let name = gateway.client.new_request();
        match request {
            Request::Write(request) => {
                return within(name, write::write_block(gateway, connection, *request)).await;
            }
            Request::Read(request) => {
                if !within(name, read::read_block(gateway, connection, &request)).await? {
                    return Ok(());
                }
            }
            Request::Checksum(request) => {
                within(name, checksum::block_checksum(gateway, connection, &request)).await?;
            }
            // Everything is on this gateway already.
            Request::Transfer => return connection.answer(SUCCESS, "").await,
            Request::Refused(what) => {
                let text = format!("{what} is not served; read and write blocks over this connection instead");
                return connection.answer(ERROR_UNSUPPORTED, &text).await;
            }
        }
        wait = KEEP_ALIVE;
        connection.ticket.rest();
    }
}

/// Answers that the store could not do what the client wants, or does not do it.
async fn fail(gateway: &Gateway, connection: &mut Connection, what: &str, error: Error) -> Result<()> {
    let request = current();
    note(gateway, connection, (request, what), &error);
    connection.answer(ERROR, named(error, request).text()).await
}

/// Tells of an operation that failed for a reason that is not the client's.
fn note(gateway: &Gateway, connection: &Connection, (request, what): (RequestId, &str), error: &Error) {
    if is_failure(error.kind()) {
        let (from, error) = (&connection.peer(), Some(error.text()));
        (gateway.on_request)(&Notable { request, what, from, took: None, error });
    }
}

/// Waits for what a client wants.
async fn read_request(connection: &mut Connection) -> Result<Request> {
    let staged = connection.stage(3).await?;
    let (version, operation) = (u16::from_be_bytes([staged[0], staged[1]]), staged[2]);
    if version != VERSION {
        return Err(wrong_version(version, connection).await);
    }
    connection.take(3);
    Ok(match operation {
        80 => Request::Write(Box::new(connection.read_message().await?)),
        81 => Request::Read(connection.read_message().await?),
        85 => Request::Checksum(connection.read_message().await?),
        83 | 84 => refused(connection, "moving blocks").await?,
        86 => {
            connection.read_message::<()>().await?;
            Request::Transfer
        }
        87 => refused(connection, "a short-circuit read").await?,
        88 | 89 => refused(connection, "memory shared with clients").await?,
        90 => refused(connection, "the checksum of striped blocks").await?,
        other => return Err(nonsense(format!("operation {other} is not known"))),
    })
}

/// What is refused is read all the same: closing a connection with something unread could overtake our answer.
async fn refused(connection: &mut Connection, what: &'static str) -> Result<Request> {
    connection.read_message::<()>().await?;
    Ok(Request::Refused(what))
}

/// Why another version was spoken.
async fn wrong_version(version: u16, connection: &mut Connection) -> Error {
    if version == (SASL >> 16) as u16 && connection.stage(4).await.is_ok_and(|staged| staged[..4] == SASL.to_be_bytes())
    {
        connection.take(4);
        let text = "it wants SASL or encryption, which is not served; unset dfs.data.transfer.protection and \
                    dfs.encrypt.data.transfer there";
        // What it said first is read: closing with something unread could overtake the answer.
        let told = async {
            connection.read_message::<()>().await?;
            connection.write_message(&HandshakeAnswer { status: HANDSHAKE_ERROR, text: Some(text.to_string()) }).await
        };
        // One that went away has heard enough.
        let _gone = told.await;
        return nonsense(text);
    }
    nonsense(format!("it speaks version {version} of the data transfer protocol; {VERSION} is served"))
}
