//! Takes connections and serves calls: the accept loop and its settings.

mod greeting;
mod parked;
mod serving;
mod wishes;

use crate::call::{Outlet, Service, bounded_failure, encode};
use crate::connection::{Connection, is_said};
use crate::credit::Budget;
use crate::decode::Decoder;
use crate::frame::{self, CLOSING, FAILURE, Header};
use crate::secret::Credentials;
use crate::stats::{NetStats, count};
use base::buffer::Pool;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind};
use base::fault::contained;
use base::id::NodeId;
use base::net::{Listener, Stream};
use base::places::Places;
use base::request::Noting;
use base::watched::Stopped;
pub use parked::AnswerMemory;
use serving::Serving;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// What a server needs to know.
#[derive(Clone)]
pub struct ServerSettings {
    /// Which node this is.
    pub node: NodeId,
    /// Rises with every start of the node.
    pub incarnation: u64,
    /// Bounds the large payloads that clients may have sent and the service still holds. Node-wide: share it between servers.
    pub budget: Budget,
    /// The same for what keepers of the metadata tell each other (`keeper::Step`), from nodes. What clients sent waits for it: a chunk's append
    /// holds its payload until its session is found, which the keepers have to agree on.
    pub keepers: Budget,
    /// Bounds the payload of answers that are not written to their socket yet (`Responder::outgoing_budget`).
    pub outgoing: Budget,
    /// Bounds the large messages that clients have begun to send and the service still holds.
    pub messages: Budget,
    /// Bounds what the questions that are worked on take once they are decoded (`limit::call_memory`). A call that finds none waits, and its
    /// connection is not read.
    pub calls: Budget,
    /// The same for questions that devices answer (`message::is_for_device`): one that stands still keeps nobody from names.
    pub device_calls: Budget,
    /// The same for questions that others may wait for: of nodes, and what keeps clients' claims alive. Never one with the others: a circle of
    /// waits would not end.
    pub urgent: Budget,
    /// Bounds answers: large ones before they are made, all while they wait to be written.
    pub answers: AnswerMemory,
    /// Who may be connected. Of a server's own: what two share, the strangers of one take from the other.
    pub places: Arc<Places>,
    /// What is wanted of who connects, and shown to them.
    pub credentials: Credentials,
    /// Makes each greeting another one.
    pub random: Arc<dyn Random>,
    /// Where buffers for payloads come from.
    pub pool: Pool,
    /// Measures silence.
    pub clock: Arc<dyn Clock>,
    /// A peer that takes no bytes, or leaves a frame unfinished, for this long is disconnected. `limit::CALL_SILENCE_MAX`.
    pub silence_max: Duration,
    /// Counters.
    pub stats: Arc<NetStats>,
    /// Told, in a sentence for people, why a connection was refused or cut.
    pub on_trouble: Arc<dyn Fn(String) + Send + Sync>,
    /// Told, on whichever thread answers it, of a request that was slow or failed for a reason that is not its caller's.
    pub on_request: Arc<Noting>,
}

/// The serving side.
pub struct Server;

/// After a failed accept (no file descriptors left, for instance) the next one waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Server {
    /// Takes connections from `listener` and hands their calls to `service`, until `shutdown` comes (its `Stop` says so, or is
    /// dropped); then answers what is being worked on, for `silence_max` at most, and returns. Dropping the future cuts all
    /// connections at once.
    pub async fn serve(
        mut listener: Box<dyn Listener>,
        service: Arc<dyn Service>,
        settings: ServerSettings,
        shutdown: Stopped,
    ) {
        let settings = Arc::new(settings);
        let turns = Arc::new(Semaphore::new(1));
        let mut connections = JoinSet::new();
        let mut stop = Box::pin(shutdown.until());
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                Some(ended) = connections.join_next() => {
                    if let Err(error) = ended && error.is_panic() {
                        (settings.on_trouble)("a connection ended by a fault in Stormwell (its task panicked); others go on".to_string());
                    }
                }
                accepted = listener.accept() => match accepted {
                    Ok(stream) => match settings.places.enter(stream.is_near()) {
                        Ok(place) => {
                            let who = (place, stream.peer());
                            let role = Serving::new(service.clone(), settings.clone(), turns.clone(), shutdown.clone(), who);
                            connections.spawn(contained(converse(stream, role, settings.clone())));
                        }
                        Err(taken) => {
                            count(&settings.stats.refused_connections, 1);
                            (settings.on_trouble)(format!("{}: refused: {taken}", stream.peer()));
                            tell(stream, &Error::new(ErrorKind::Busy, taken.to_string()));
                        }
                    },
                    Err(error) => {
                        (settings.on_trouble)(format!("no connection could be taken: {error}"));
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
            settings.places.let_leave().await;
        }
        drop(listener);
        let finish = async { while connections.join_next().await.is_some() {} };
        drop(tokio::time::timeout(settings.silence_max, finish).await);
    }
}

/// Says why a connection is not taken, as far as that can be done without waiting for anything.
fn tell(mut stream: Box<dyn Stream>, error: &Error) {
    let mut bytes = Vec::new();
    let header = Header { kind: CLOSING, flags: FAILURE, ..Header::default() };
    frame::append(&mut bytes, header, |bytes| encode(&bounded_failure(error.clone()), bytes));
    let mut context = Context::from_waker(Waker::noop());
    // If it does not arrive, the end of the connection does.
    let _ = Pin::new(&mut stream).poll_write(&mut context, &bytes);
    let _ = Pin::new(&mut stream).poll_shutdown(&mut context);
}

/// Closes a connection's queue of answers when its task ends, however it does: what is still worked on for it is dropped then.
struct Closing(Arc<Outlet>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.outbound.close();
    }
}

/// Counts an open connection for as long as it lives, also when its task is cut.
struct Open(Arc<NetStats>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections_open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One connection from its first byte to its last.
async fn converse(stream: Box<dyn Stream>, role: Serving, settings: Arc<ServerSettings>) {
    let stats = settings.stats.clone();
    count(&stats.connections, 1);
    count(&stats.connections_open, 1);
    let _open = Open(stats.clone());
    let peer = stream.peer();
    let _closing = Closing(role.outlet());
    let connection = Connection {
        stream,
        decoder: Decoder::new(settings.pool.clone()),
        outlet: role.outlet(),
        role,
        clock: settings.clock.clone(),
        stats: stats.clone(),
    };
    if let Err(error) = connection.run().await {
        if is_said(error.kind()) {
            let busy = error.kind() == ErrorKind::Busy;
            count(if busy { &stats.refused_connections } else { &stats.refused_frames }, 1);
        }
        if !was_reset(&error) {
            (settings.on_trouble)(format!("{peer}: disconnected: {error}"));
        }
    }
}

/// Whether the other side just went: a link that leaves for the node that leads does so, and a program that is killed. Nothing is wrong here.
fn was_reset(error: &Error) -> bool {
    // ECONNRESET.
    *error == std::io::Error::from_raw_os_error(104).into()
}
