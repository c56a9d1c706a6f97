//! Takes connections and serves calls: the accept loop and its settings.

mod greeting;
mod serving;

use crate::call::Service;
use crate::connection::Connection;
use crate::credit::Budget;
use crate::decode::Decoder;
use crate::secret::Credentials;
use crate::stats::{NetStats, count};
use base::buffer::Pool;
use base::env::{Clock, Random};
use base::error::ErrorKind;
use base::id::NodeId;
use base::limit::CONNECTIONS_MAX;
use base::net::{Listener, Stream};
use serving::Serving;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
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
    /// Bounds the payload of answers that are not written to their socket yet (`Responder::outgoing_budget`).
    pub outgoing: Budget,
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
}

/// The serving side.
pub struct Server;

/// After a failed accept (no file descriptors left, for instance) the next one waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Server {
    /// Takes connections from `listener` and hands their calls to `service`, until `shutdown` becomes true (or its sender is
    /// dropped); then answers what is being worked on, for `silence_max` at most, and returns. Dropping the future cuts all
    /// connections at once.
    pub async fn serve(
        mut listener: Box<dyn Listener>,
        service: Arc<dyn Service>,
        settings: ServerSettings,
        shutdown: watch::Receiver<bool>,
    ) {
        let settings = Arc::new(settings);
        let mut connections = JoinSet::new();
        let mut stop = Box::pin(stopped(shutdown.clone()));
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
                    Ok(stream) if connections.len() >= CONNECTIONS_MAX => {
                        count(&settings.stats.refused_frames, 1);
                        (settings.on_trouble)(format!("{}: refused, {CONNECTIONS_MAX} connections are open", stream.peer()));
                    }
                    Ok(stream) => {
                        connections.spawn(converse(stream, service.clone(), settings.clone(), shutdown.clone()));
                    }
                    Err(error) => {
                        (settings.on_trouble)(format!("no connection could be taken: {error}"));
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        let finish = async { while connections.join_next().await.is_some() {} };
        drop(tokio::time::timeout(settings.silence_max, finish).await);
    }
}

/// Ready once `shutdown` is true or nobody is left to say so.
async fn stopped(mut shutdown: watch::Receiver<bool>) {
    drop(shutdown.wait_for(|stop| *stop).await);
}

/// Counts an open connection for as long as it lives, also when its task is cut.
struct Open(Arc<NetStats>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections_open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One connection from its first byte to its last.
async fn converse(
    stream: Box<dyn Stream>,
    service: Arc<dyn Service>,
    settings: Arc<ServerSettings>,
    shutdown: watch::Receiver<bool>,
) {
    let stats = settings.stats.clone();
    count(&stats.connections, 1);
    count(&stats.connections_open, 1);
    let _open = Open(stats.clone());
    let peer = stream.peer();
    let role = Serving::new(service, settings.clone(), shutdown);
    let connection = Connection {
        stream,
        decoder: Decoder::new(settings.pool.clone()),
        outlet: role.outlet(),
        role,
        clock: settings.clock.clone(),
        stats: stats.clone(),
    };
    if let Err(error) = connection.run().await {
        if matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Unsupported | ErrorKind::Refused) {
            count(&stats.refused_frames, 1);
        }
        (settings.on_trouble)(format!("{peer}: disconnected: {error}"));
    }
}
