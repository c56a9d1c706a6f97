//! The HDFS gateway of this node: it stands on a link to the node itself, where a call is a function call, under a session that
//! lives as long as the node serves.

use crate::service::{Node, NodeService};
use base::buffer::Pool;
use base::env::Random;
use base::error::Result;
use base::id::SessionId;
use base::limit::CALL_SILENCE_MAX;
use base::net::{Listener, Net};
use client::{Client, Near};
use gateway_hdfs::Gateway;
use meta::Caller;
use meta::request::User;
use net::{Credentials, Link};
use std::sync::Arc;
use tokio::sync::watch;

/// Starts of the node before this one whose sessions are ended: a few may have failed before theirs began.
const STARTS_BEFORE: u64 = 8;

/// Connections to each other node, as the commands have.
const CONNECTIONS: usize = 2;

/// What the gateway is given by the node that runs it.
pub struct Given {
    /// The node.
    pub node: Arc<Node>,
    /// How often it was started.
    pub incarnation: u64,
    /// Where aligned memory comes from.
    pub pool: Pool,
    /// Chance.
    pub random: Arc<dyn Random>,
    /// The network, to other nodes.
    pub net: Arc<dyn Net>,
    /// What other nodes want to be shown.
    pub credentials: Credentials,
    /// Told why connections were refused or cut.
    pub on_trouble: Arc<dyn Fn(String) + Send + Sync>,
}

/// A gateway that serves.
pub struct Hdfs {
    node: Arc<Node>,
    session: SessionId,
    task: tokio::task::JoinHandle<()>,
}

/// The session of the gateway in this start of the node: nobody needs to note it anywhere to find it at the next one.
fn session_of(node: &Node, incarnation: u64) -> SessionId {
    SessionId(node.id.0 ^ u128::from(incarnation))
}

impl Hdfs {
    /// Serves Hadoop's clients from `listener` until `stopped` becomes true. What an earlier start left open is closed as it is.
    pub async fn start(given: Given, listener: Box<dyn Listener>, stopped: watch::Receiver<bool>) -> Result<Hdfs> {
        let Given { node, incarnation, pool, random, net, credentials, on_trouble } = given;
        for before in 1..=STARTS_BEFORE.min(incarnation) {
            let session = session_of(&node, incarnation - before);
            node.metadata.ask_for(Caller { session, call: 0 }, meta::Request::CloseSession).await?;
        }
        let session = session_of(&node, incarnation);
        let (superuser, group) = os::user::current();
        let user = User { owner: superuser.clone(), group: group.clone() };
        node.metadata.keep_open(session);
        node.metadata.ask_for(Caller { session, call: 0 }, meta::Request::OpenSession { user }).await?;
        let link = Link::local(Arc::new(NodeService(node.clone())), session);
        let groups = os::user::Groups::new(node.clock.clone());
        let near = Near { node: node.id, link, session };
        let around = client::Settings {
            net,
            address: String::new(),
            program: "stormwell serve (hdfs)".to_string(),
            credentials,
            user: (superuser.clone(), group.clone()),
            clock: node.clock.clone(),
            random: random.clone(),
            pool,
            connections: CONNECTIONS,
            silence_max: CALL_SILENCE_MAX,
        };
        let settings = gateway_hdfs::Settings {
            client: Client::over(near, around),
            clock: node.clock.clone(),
            random,
            superuser,
            groups_of: Arc::new(move |user| groups.of(user)),
            on_trouble,
        };
        let task = tokio::spawn(Gateway::serve(settings, listener, stopped));
        Ok(Hdfs { node, session, task })
    }

    /// Waits until it has ended, after `stopped` became true, and closes what it left open.
    pub async fn end(self) {
        // A panic was said on stderr; its files are closed all the same.
        let _ = self.task.await;
        let caller = Caller { session: self.session, call: 0 };
        // If the store takes nothing any more, the next start does it.
        let _ = self.node.metadata.ask_for(caller, meta::Request::CloseSession).await;
    }
}
