//! The one port: the first bytes of a connection say whether it carries calls, data, or a person with a browser.

use crate::gateway::Gateway;
use base::net::Listener;
use std::sync::Arc;
use tokio::sync::watch;

/// Takes connections until `shutdown` becomes true.
pub async fn run(_gateway: Arc<Gateway>, _listener: Box<dyn Listener>, mut shutdown: watch::Receiver<bool>) {
    drop(shutdown.wait_for(|stop| *stop).await);
}
