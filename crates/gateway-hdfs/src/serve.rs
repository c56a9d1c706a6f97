//! A gateway from its start to its end.

use crate::gateway::{Gateway, Settings};
use crate::{files, listener};
use base::limit::HDFS_SUMS_MAX;
use base::net::{Boxed, Listener};
use base::watched::Stopped;
use std::sync::Arc;
use tokio::sync::Semaphore;

impl Gateway {
    /// Takes connections from `listener` until `shutdown` comes; then ends open files as they are and returns.
    pub fn serve(settings: Settings, listener: Box<dyn Listener>, shutdown: Stopped) -> Boxed<'static, ()> {
        Box::pin(Gateway::run(settings, listener, shutdown))
    }

    async fn run(settings: Settings, listener: Box<dyn Listener>, shutdown: Stopped) {
        let Settings { client, clock, random, superuser, groups_of, on_trouble, on_request, .. } = settings;
        let Settings { min_block_size, connections, planted, .. } = settings;
        let address = listener.address();
        let started = clock.now();
        let gateway = Gateway {
            client,
            clock,
            random,
            superuser,
            groups_of,
            on_trouble,
            on_request,
            min_block_size,
            planted,
            address,
            files: Default::default(),
            started,
            cluster: Default::default(),
            rpc: Default::default(),
            known: Default::default(),
            walks: Default::default(),
            sums: Semaphore::new(HDFS_SUMS_MAX),
            compares: Semaphore::new(1),
            reads: Arc::default(),
        };
        let gateway = Arc::new(gateway);
        let leases = tokio::spawn(files::watch(Arc::downgrade(&gateway)));
        listener::run(gateway.clone(), listener, connections, shutdown).await;
        leases.abort();
        files::close_all(&gateway).await;
    }
}
