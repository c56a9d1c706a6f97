//! Takes connections and serves calls: the accept loop and its settings.

use crate::call::Service;
use crate::credit::Budget;
use crate::stats::NetStats;
use base::buffer::Pool;
use base::env::Clock;
use base::id::NodeId;
use base::net::Listener;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

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

impl Server {
    /// Takes connections from `listener` and hands their calls to `service`, until `shutdown` becomes true (or its sender is
    /// dropped); then answers what is being worked on, for `silence_max` at most, and returns. Dropping the future cuts all connections at once.
    pub async fn serve(
        listener: Box<dyn Listener>,
        service: Arc<dyn Service>,
        settings: ServerSettings,
        shutdown: watch::Receiver<bool>,
    ) {
        let _ = (listener, service, settings, shutdown);
    }
}
