//! The HDFS gateway of this node: it stands on a link to the node itself, where a call is a function call. Where the metadata is kept by
//! one node alone its session lives as long as that serves; on another node, or if several keep it, it has one like any client, and a new one when
//! that is over.

use crate::node::Node;
use crate::service::NodeService;
use base::buffer::Pool;
use base::env::Random;
use base::error::{Error, Result};
use base::id::{NodeId, SessionId};
use base::limit::CALL_SILENCE_MAX;
use base::net::{Listener, Net};
use base::permission::{Denied, SUPERUSERS_GROUP};
use base::request::Noting;
use base::watched::{Stop, Stopped};
use client::{Client, LocalNode};
use gateway_hdfs::Gateway;
use meta::Caller;
use meta::request::User;
use net::{Credentials, Link};
use std::sync::Arc;
use std::time::Duration;

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
    /// Where the node that keeps the metadata is, `host:port`, or those that keep it together are; none: it is this one alone.
    pub keepers: Vec<String>,
    /// Least bytes in a block of a new file.
    pub min_block_size: u64,
    /// Most connections at once.
    pub connections: usize,
    /// Told why connections were refused or cut.
    pub on_trouble: Arc<dyn Fn(String) + Send + Sync>,
    /// Told of requests that were slow or failed.
    pub on_request: Arc<Noting>,
}

/// A gateway that serves.
pub struct Hdfs {
    node: Arc<Node>,
    /// The session that this node keeps open for it.
    session: Option<SessionId>,
    task: tokio::task::JoinHandle<()>,
}

/// Between two attempts to begin a session at the node that keeps the metadata, or to listen again.
const AGAIN_PAUSE: Duration = Duration::from_millis(500);

/// The session of the gateway in this start of the node: nobody needs to note it anywhere to find it at the next one.
fn session_of(node: NodeId, incarnation: u64) -> SessionId {
    // Into both halves: what devices remember is by a session's mark, and must not be taken for that of an earlier start.
    SessionId(node.0 ^ (u128::from(incarnation) << 64 | u128::from(incarnation)))
}

impl Hdfs {
    /// Serves Hadoop's clients from `listener` until `stopped` becomes true. What an earlier start left open is closed as it is, at
    /// the latest when its session is over.
    pub async fn start(given: Given, listener: Box<dyn Listener>, stopped: Stopped) -> Result<Hdfs> {
        let node = given.node.clone();
        if !given.keepers.is_empty() {
            let task = tokio::spawn(serve_as_member(given, listener, stopped));
            return Ok(Hdfs { node, session: None, task });
        }
        for before in 1..=STARTS_BEFORE.min(given.incarnation) {
            let session = session_of(node.id, given.incarnation - before);
            node.metadata()?.ask_for(Caller { session, call: 0, floor: 0 }, meta::Request::CloseSession).await?;
        }
        let session = session_of(node.id, given.incarnation);
        let (name, groups) = os::user::with_groups();
        let user = User { name, groups };
        node.metadata()?.keep_open(session);
        node.metadata()?.ask_for(Caller { session, call: 0, floor: 0 }, meta::Request::OpenSession { user }).await?;
        let client = Client::on_local_node(given.near(session), given.around());
        let task = tokio::spawn(Gateway::serve(given.settings(client), listener, stopped));
        Ok(Hdfs { node, session: Some(session), task })
    }

    /// Waits until it has ended, after `stopped` became true, and closes what it left open.
    pub async fn end(self) {
        // A panic was said on stderr; its files are closed all the same.
        let _ = self.task.await;
        if let Some(session) = self.session {
            // If the store takes nothing any more, the next start does it.
            if let Ok(metadata) = self.node.metadata() {
                let _ = metadata.ask_for(Caller { session, call: 0, floor: 0 }, meta::Request::CloseSession).await;
            }
        }
    }
}

/// Serves under one session after another until `stopped` becomes true. While the node that keeps the metadata cannot be reached,
/// connections wait.
async fn serve_as_member(given: Given, listener: Box<dyn Listener>, stopped: Stopped) {
    let (address, mut listener) = (listener.address(), Some(listener));
    let mut is_told = false;
    loop {
        let session = SessionId(given.random.wide());
        let begun = async {
            let client = Client::on_member(given.near(session), given.around()).await?;
            if !is_told && let Some(trouble) = cannot_speak(&client).await {
                is_told = true;
                (given.on_trouble)(trouble);
            }
            match listener.take() {
                Some(listener) => Ok((client, listener)),
                None => given.net.listen(&address).await.map(|listener| (client, listener)),
            }
        };
        let begun = tokio::select! {
            biased;
            () = stopped.until() => return,
            begun = begun => begun,
        };
        let Ok((client, listening)) = begun else {
            // That the node waits for its cluster, and why, is in its log.
            tokio::select! {
                biased;
                () = stopped.until() => return,
                () = tokio::time::sleep(AGAIN_PAUSE) => continue,
            }
        };
        let (end, ending) = Stop::new();
        let serving = tokio::spawn(Gateway::serve(given.settings(client.clone()), listening, ending));
        let over = tokio::select! {
            biased;
            () = stopped.until() => false,
            () = client.session_over() => true,
        };
        end.stop();
        // A panic was said on stderr.
        let _ = serving.await;
        if !over {
            return;
        }
        let text = "the node that keeps the metadata was away for so long that the gateway's session is over: files that were being \
                    written end as they are; it goes on in a new session";
        (given.on_trouble)(text.to_string());
    }
}

/// Why the gateway cannot ask for its clients, if the store says so: then it refuses all that they ask, and only here is said why.
async fn cannot_speak(client: &Client) -> Option<String> {
    let (name, groups) = os::user::with_groups();
    let user = client::User { name, groups };
    let asked = client.asking_for(Arc::new(user)).lookup("/", 0).await;
    asked.err().and_then(|error| no_superuser(&error))
}

fn no_superuser(error: &Error) -> Option<String> {
    let Some(Denied::Superuser { user }) = Denied::read(error) else { return None };
    Some(format!(
        "user {user}, who runs this node, is no superuser of the node that keeps the metadata, so the HDFS gateway here may not ask for \
         its clients, and whatever they ask is refused; run this node as the user who runs that one, or take {user} into the group \
         {SUPERUSERS_GROUP} on this machine, and start it again"
    ))
}

impl Given {
    fn near(&self, session: SessionId) -> LocalNode {
        let link = Link::local(Arc::new(NodeService(self.node.clone())), session);
        LocalNode { node: self.node.id, link, session }
    }

    fn around(&self) -> client::Settings {
        let (name, groups) = os::user::with_groups();
        client::Settings {
            net: self.net.clone(),
            addresses: self.keepers.clone(),
            program: "stormwell serve (hdfs)".to_string(),
            credentials: self.credentials.clone(),
            user: client::User { name, groups },
            clock: self.node.clock.clone(),
            random: self.random.clone(),
            pool: self.pool.clone(),
            connections: CONNECTIONS,
            silence_max: CALL_SILENCE_MAX,
        }
    }

    fn settings(&self, client: Client) -> gateway_hdfs::Settings {
        let groups = os::user::Groups::new(self.node.clock.clone());
        gateway_hdfs::Settings {
            client,
            clock: self.node.clock.clone(),
            random: self.random.clone(),
            superuser: os::user::current().0,
            groups_of: Arc::new(move |user| groups.of(user)),
            on_trouble: self.on_trouble.clone(),
            on_request: self.on_request.clone(),
            min_block_size: self.min_block_size,
            connections: self.connections,
            planted: self.node.planted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{no_superuser, session_of};
    use base::error::{Error, ErrorKind};
    use base::id::NodeId;
    use base::permission::Denied;
    use std::collections::BTreeSet;

    /// Who may not ask for others is told how he may; nothing else is taken for that.
    #[test]
    fn members_are_superusers() {
        let denied = |user: &str| Error::from(Denied::Superuser { user: user.to_string() });
        let trouble = no_superuser(&denied("ada")).expect("it is one");
        assert!(trouble.starts_with("user ada, who runs this node, is no superuser"), "{trouble}");
        assert!(!trouble.contains("  "), "{trouble}");
        assert_eq!(no_superuser(&Error::new(ErrorKind::Unreachable, denied("ada").text())), None);
        assert_eq!(no_superuser(&Denied::Giver { user: "ada".to_string() }.into()), None);
    }

    /// The sessions of a node's starts differ, and so do their marks, by which devices remember what was pushed.
    #[test]
    fn each_start_has_a_mark() {
        let node = NodeId(0x1234_5678_9abc_def0_0fed_cba9_8765_4321);
        let sessions: BTreeSet<_> = (1..=1000).map(|start| session_of(node, start)).collect();
        let marks: BTreeSet<u64> = sessions.iter().map(|session| session.mark()).collect();
        assert_eq!((sessions.len(), marks.len()), (1000, 1000));
    }
}
