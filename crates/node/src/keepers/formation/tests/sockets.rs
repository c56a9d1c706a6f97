//! The same over sockets: three servers that ask each other by links.

use super::{Files, Three, node};
use crate::keepers::formation::{Formation, Given, Links, Outcome};
use crate::log::{Form, Log};
use crate::troubles::Troubles;
use base::buffer::Pool;
use base::error::{Error, ErrorKind};
use base::id::SessionId;
use base::net::Net;
use base::watched::Stop;
use meta::KeeperId;
use net::message::keeper as wire;
use net::{Ask, Asker, Budget, Call, CallNumbers, Credentials, LinkSettings, Payload, Server, ServerSettings, Service};
use os::disk::Backend;
use std::sync::Arc;
use std::time::Duration;

struct Answers(Arc<Formation>);

impl Service for Answers {
    fn handle(&self, mut call: Call) {
        let Asker::Node { node, .. } = call.asker else {
            return call.respond.fail(Error::new(ErrorKind::Denied, "only nodes may ask"));
        };
        match call.kind {
            wire::Form::KIND => match call.ask::<wire::Form>().and_then(|ask| self.0.form(node, &ask)) {
                Ok(answer) => call.respond.answer(answer, Payload::empty()),
                Err(error) => call.respond.fail(error),
            },
            _ => match call.ask::<wire::Begin>().and_then(|ask| self.0.begin(node, &ask)) {
                Ok(answer) => call.respond.answer(answer, Payload::empty()),
                Err(error) => call.respond.fail(error),
            },
        }
    }
}

#[tokio::test]
async fn three_servers() {
    let (network, mut listeners) = (Arc::new(os::net::TcpNet), Vec::new());
    for _ in 0..3 {
        listeners.push(network.listen("127.0.0.1:0").await.expect("a free port"));
    }
    let keepers: Vec<String> = listeners.iter().map(|listener| listener.address()).collect();
    let (clock, random) = (Arc::new(os::clock::SystemClock::new()), Arc::new(os::random::SystemRandom));
    let (stop, stopped) = Stop::new();
    let (mut served, mut running) = (Vec::new(), Vec::new());
    for (own, listener) in listeners.into_iter().enumerate() {
        let world = Arc::new(Files::default());
        let (directory, backend, late) = (Three::meta(), Backend::Threads, false);
        let (keepers, node) = (keepers.clone(), node(own));
        let given =
            Given { world: world.clone(), directory, backend, keepers, own, node, late, random: random.clone() };
        let formation = Arc::new(Formation::open(given).expect("it opens"));
        let settings = ServerSettings {
            node,
            incarnation: 1,
            budget: Budget::new(1 << 20),
            keepers: Budget::new(1 << 20),
            outgoing: Budget::new(1 << 20),
            messages: Budget::new(1 << 20),
            calls: Budget::new(1 << 20),
            device_calls: Budget::new(1 << 20),
            urgent: Budget::new(1 << 20),
            answers: net::AnswerMemory::default(),
            places: base::places::Places::new(64),
            credentials: Credentials::default(),
            random: random.clone(),
            pool: Pool::new(1 << 20),
            clock: clock.clone(),
            silence_max: Duration::from_secs(10),
            stats: Arc::default(),
            on_trouble: Arc::new(|_| ()),
            on_request: Arc::new(|_| ()),
        };
        let service = Arc::new(Answers(formation.clone()));
        served.push(tokio::spawn(Server::serve(listener, service, settings, stopped.clone())));
        let links = LinkSettings {
            session: SessionId(node.0),
            program: "node test".to_string(),
            connections: 1,
            silence_max: Duration::from_secs(5),
            pool: Pool::new(1 << 20),
            clock: clock.clone(),
            random: random.clone(),
            credentials: Credentials::default(),
            asker: Asker::Node { node, incarnation: 1, term: 0 },
            numbers: CallNumbers::default(),
            meant: None,
            once: false,
        };
        let (others, clock) = (Arc::new(Links::new(network.clone(), links)), clock.clone());
        let troubles = Troubles::new(Log::new(clock.clone(), Form::Text, world), clock.clone());
        running.push(tokio::spawn(async move {
            let outcome = formation.run(others.clone(), clock.as_ref(), &troubles).await;
            formation.tell(others.as_ref(), &troubles).await;
            outcome
        }));
    }
    let mut store = None;
    for (place, running) in running.into_iter().enumerate() {
        let ended = tokio::time::timeout(Duration::from_secs(30), running).await.expect("it ends").expect("it runs");
        let Outcome::Keeps { seating, own, .. } = ended else { panic!("{place} keeps: {ended:?}") };
        assert_eq!((own, &seating), (KeeperId(place as u64 + 1), &*store.get_or_insert(seating.clone())));
    }
    stop.stop();
    for served in served {
        served.await.expect("it ends");
    }
}
