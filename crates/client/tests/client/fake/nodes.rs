//! The fake as several nodes of one cluster, which a client reaches over a network: each answers for its own devices only, and
//! one of them for everything else.

use super::{Fake, FakeService, asked};
use base::buffer::Pool;
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use base::id::NodeId;
use base::net::Net;
use base::watched::Stop;
use client::{Client, Settings};
use net::message::cluster::{Member, Node, ViewAnswer};
use net::message::{Ask, Id, bag, chunk, cluster};
use net::{Budget, Call, Credentials, NetStats, Server, ServerSettings};
use sim::net::{Gone, SimNet};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The node that keeps the metadata.
pub const KEEPER: u128 = 1;

/// The network that they are on.
pub struct Nodes {
    fake: Arc<Fake>,
    net: SimNet,
    /// Which host listens at an address: one that is gone does not come back.
    hosts: Mutex<BTreeMap<String, SimNet>>,
}

impl Nodes {
    /// Nodes 1 to `count`, each with the device of its number, at `node1`, `node2`, …
    pub async fn new(fake: &Arc<Fake>, count: u128) -> Nodes {
        let nodes =
            Nodes { fake: fake.clone(), net: SimNet::new(1, fake.clock.clone(), "client"), hosts: Mutex::default() };
        fake.state().view =
            ViewAnswer { epoch: 0, keeper: KEEPER.into(), members: Vec::new(), ..ViewAnswer::default() };
        fake.state().devices = 0;
        for node in 1..=count {
            nodes.join(node, &format!("node{node}")).await;
        }
        nodes
    }

    /// A node comes, with the device of its number, or comes back at another address.
    pub async fn join(&self, node: u128, address: &str) {
        let host = self.net.host(&format!("{address} of {}", self.fake.random.next()));
        let listener = host.listen(address).await.expect("nobody listens there");
        self.hosts.lock().expect("no panic").insert(address.to_string(), host);
        let settings = ServerSettings {
            credentials: Credentials::default(),
            random: Arc::new(self.fake.random.fork(&format!("node {node}"))),
            node: NodeId(node),
            incarnation: 1,
            budget: Budget::new(64 << 20),
            keepers: Budget::new(64 << 20),
            outgoing: Budget::new(64 << 20),
            messages: Budget::new(64 << 20),
            calls: Budget::new(64 << 20),
            device_calls: Budget::new(64 << 20),
            urgent: Budget::new(64 << 20),
            answers: net::AnswerMemory::default(),
            places: base::places::Places::new(64),
            pool: Pool::new(64 << 20),
            clock: self.fake.clock.clone(),
            silence_max: Duration::from_secs(10),
            stats: Arc::new(NetStats::default()),
            on_trouble: Arc::new(|_| ()),
            on_request: Arc::new(|_| ()),
        };
        let (stop, stopped) = Stop::new();
        let service = Arc::new(FakeService { fake: self.fake.clone(), node: Some(NodeId(node)) });
        tokio::spawn(async move {
            let _until_the_test_ends = stop;
            Server::serve(listener, service, settings, stopped).await;
        });
        let mut state = self.fake.state();
        state.devices = state.devices.max(node as u64);
        for bag in state.bags.values_mut().filter(|bag| !bag.sealed) {
            bag.members.entry(node).or_default();
        }
        let about =
            Node { node: node.into(), name: format!("n{node}"), address: address.to_string(), ..Node::default() };
        let view = &mut state.view;
        view.epoch += 1;
        view.members.retain(|member| member.node.node.value() != node);
        view.members.push(Member { node: about, devices: vec![node.into()], silent: false, keeping: String::new() });
    }

    /// The host at this address is gone: its connections end.
    pub fn kill(&self, address: &str) {
        self.hosts.lock().expect("no panic").remove(address).expect("it listens").leave(Gone::Reset);
    }

    /// A client that was told of this node.
    pub async fn client(&self, address: &str) -> Client {
        let settings = Settings {
            net: Arc::new(self.net.clone()),
            addresses: vec![address.to_string()],
            program: "test".to_string(),
            credentials: Credentials::default(),
            user: Default::default(),
            clock: self.fake.clock.clone(),
            random: Arc::new(self.fake.random.fork(address)),
            pool: Pool::new(64 << 20),
            connections: 2,
            silence_max: Duration::from_secs(10),
        };
        Client::connect(settings).await.expect("it answers")
    }
}

/// The device that a call is about; none for what is asked of the whole store.
pub fn device_of(call: &Call) -> Result<Option<Id>> {
    Ok(Some(match call.kind {
        chunk::Append::KIND => asked::<chunk::Append>(call)?.device,
        chunk::Read::KIND => asked::<chunk::Read>(call)?.device,
        chunk::Seal::KIND => asked::<chunk::Seal>(call)?.device,
        chunk::Stat::KIND => asked::<chunk::Stat>(call)?.device,
        bag::Push::KIND => asked::<bag::Push>(call)?.device,
        bag::Pull::KIND => asked::<bag::Pull>(call)?.device,
        bag::Acknowledge::KIND => asked::<bag::Acknowledge>(call)?.device,
        bag::RenewGrants::KIND => asked::<bag::RenewGrants>(call)?.device,
        _ => return Ok(None),
    }))
}

impl Fake {
    /// Refuses, and counts, what this node should not have been asked.
    pub fn check_place(&self, node: NodeId, call: &Call) -> Result<()> {
        let device = device_of(call)?;
        let mut state = self.state();
        let right = match device {
            _ if call.kind == cluster::View::KIND => true,
            Some(device) => {
                let has = |member: &Member| member.node.node.value() == node.0 && member.devices.contains(&device);
                state.view.members.iter().any(has)
            }
            None => node.0 == state.view.keeper.value(),
        };
        if right {
            return Ok(());
        }
        state.astray += 1;
        Err(Error::new(ErrorKind::NotFound, format!("kind {} was asked of the wrong node {node}", call.kind)))
    }
}
