//! How a connection that was made begins: says who connects, and proves the cluster's secret to a node that has proved it first.

use super::LinkSettings;
use super::making::failure;
use crate::call::{bounded_failure, encode};
use crate::connection::exchange;
use crate::decode::{Decoder, Frame};
use crate::frame::{self, CLOSING, FAILURE, HELLO, Header, PROVE, REPLY, VERSION_MAX, VERSION_MIN};
use crate::message::session::{Challenge, Hello, Proof, Role, Welcome};
use crate::secret::{Asker, NONCE_LENGTH, Secret, Side, Transcript, nonce, refused};
use base::error::{Error, ErrorKind, Result};
use base::id::{ClusterId, NodeId};
use base::limit::HELLO_WAIT_MAX;
use base::net::Stream;
use bytes::Bytes;
use prost::Message;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

/// Why a greeting did not succeed.
enum Ended {
    /// The other side is gone or has said so itself.
    There(Error),
    /// We do not go on, and the other side does not know yet.
    Here(Error),
}

/// Who welcomed us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Welcomed {
    pub(super) node: NodeId,
    /// Which start of it; zero: an older node that does not say.
    pub(super) incarnation: u64,
}

/// Greets the node at the other end. `Refused`, `Unsupported`: one of both does not want the other.
pub(super) async fn greet(
    stream: &mut Box<dyn Stream>,
    decoder: &mut Decoder,
    settings: &LinkSettings,
) -> Result<Welcomed> {
    match timeout(HELLO_WAIT_MAX, converse(stream, decoder, settings)).await {
        Ok(Ok(welcomed)) => Ok(welcomed),
        Ok(Err(Ended::There(error))) => Err(error),
        Ok(Err(Ended::Here(error))) => {
            // Told for the people over there; if it does not arrive, there is nobody to tell.
            drop(timeout(HELLO_WAIT_MAX, leave(stream, &error)).await);
            Err(error)
        }
        Err(_) => {
            let text = format!("it did not finish its greeting within {} s", HELLO_WAIT_MAX.as_secs());
            Err(Error::new(ErrorKind::Unreachable, text))
        }
    }
}

async fn converse(
    stream: &mut Box<dyn Stream>,
    decoder: &mut Decoder,
    settings: &LinkSettings,
) -> std::result::Result<Welcomed, Ended> {
    let secret = settings.credentials.secret.as_ref();
    let hello = Bytes::from(hello(settings).encode_to_vec());
    let greeting = Header { kind: HELLO, ..Header::default() };
    let mut frame = ask(stream, decoder, greeting, &hello).await.map_err(Ended::There)?;
    let mut proved = None;
    if let Some(secret) = secret {
        let (proof, prover) = answer(&frame, hello, secret).map_err(Ended::Here)?;
        let header = Header { kind: PROVE, flags: REPLY, ..Header::default() };
        frame = ask(stream, decoder, header, &Bytes::from(proof.encode_to_vec())).await.map_err(Ended::There)?;
        proved = Some(prover);
    }
    welcomed(&frame, settings, proved).map_err(Ended::Here)
}

fn hello(settings: &LinkSettings) -> Hello {
    let credentials = &settings.credentials;
    let (role, node, incarnation, term) = match settings.asker {
        Asker::Client => (Role::Client, None, 0, 0),
        Asker::Node { node, incarnation, term } => (Role::Node, Some(node.0.into()), incarnation, term),
    };
    Hello {
        version_min: VERSION_MIN.into(),
        version_max: VERSION_MAX.into(),
        session: settings.session.0.into(),
        program: settings.program.chars().take(200).collect(),
        cluster: credentials.cluster.map(|cluster| cluster.0.into()),
        nonce: credentials.secret.as_ref().map_or(Bytes::new(), |_| nonce(settings.random.as_ref())),
        role: role as i32,
        node,
        incarnation,
        term,
    }
}

/// One message there and one back. A refusal comes back as the error it says.
async fn ask(stream: &mut Box<dyn Stream>, decoder: &mut Decoder, header: Header, message: &Bytes) -> Result<Frame> {
    let frame = exchange(stream, decoder, header, |bytes| bytes.extend_from_slice(message)).await?;
    if frame.header.flags & FAILURE != 0 {
        return Err(failure(&frame.message));
    }
    Ok(frame)
}

/// Judges a node's challenge; our proof for it, and which start of which node it has proved to be.
fn answer(frame: &Frame, hello: Bytes, secret: &Secret) -> Result<(Proof, Welcomed)> {
    if frame.header.kind == HELLO {
        return Err(refused(
            "the node keeps no secret, so it may be anybody's, and this program was given one; nothing was sent; correct \
             the address, start the node with the cluster's secret, or ask without one",
        ));
    }
    let challenge = Challenge::decode(frame.message.clone())
        .ok()
        .filter(|challenge| frame.header.kind == PROVE && challenge.nonce.len() == NONCE_LENGTH)
        .ok_or_else(|| frame::broken("it did not answer the greeting with a challenge"))?;
    let (node, incarnation) = (NodeId(challenge.node.value()), challenge.incarnation);
    let transcript = Transcript { hello, nonce: challenge.nonce, node, incarnation };
    if !transcript.proves(secret, Side::Answering, &challenge.proof) {
        return Err(refused(
            "the node does not know the secret that this program was given; nothing was sent; correct the address, or give \
             both the file that `stormwell init` wrote for their cluster (--secret-file FILE or STORMWELL_SECRET_FILE)",
        ));
    }
    Ok((Proof { proof: transcript.prove(secret, Side::Asking) }, Welcomed { node, incarnation }))
}

/// Judges a node's welcome. `proved`: which start of which node it has proved to be.
fn welcomed(frame: &Frame, settings: &LinkSettings, proved: Option<Welcomed>) -> Result<Welcomed> {
    let welcome = Welcome::decode(frame.message.clone())
        .ok()
        .filter(|welcome| frame.header.kind == HELLO && welcome.version == u32::from(VERSION_MAX))
        .ok_or_else(|| frame::broken("it did not answer the greeting with a welcome"))?;
    let (node, incarnation) = (NodeId(welcome.node.value()), welcome.incarnation);
    if proved.is_some_and(|proved| proved.node != node) {
        return Err(frame::broken(format!("it proved to be another node than {node}, which welcomed us")));
    }
    if proved.is_some_and(|proved| proved.incarnation != incarnation) {
        return Err(frame::broken(format!("it proved to be another start of {node} than the one that welcomed us")));
    }
    let meant = settings.credentials.cluster;
    let there = welcome.cluster.map(|cluster| ClusterId(cluster.value()));
    if meant.is_some() && meant != there {
        let belongs = there.map_or("to none".to_string(), |there| format!("to cluster {there}"));
        let meant = meant.unwrap_or_default();
        return Err(refused(format!(
            "cluster {meant} is meant, and the node belongs {belongs}; nothing was sent; correct the address, or `cluster` \
             in the settings"
        )));
    }
    Ok(Welcomed { node, incarnation })
}

/// Says why we go.
async fn leave(stream: &mut Box<dyn Stream>, error: &Error) -> Result<()> {
    let mut bytes = Vec::new();
    let header = Header { kind: CLOSING, flags: FAILURE, ..Header::default() };
    frame::append(&mut bytes, header, |bytes| encode(&bounded_failure(error.clone()), bytes));
    stream.write_all(&bytes).await?;
    stream.shutdown().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Welcomed, answer, welcomed};
    use crate::decode::Frame;
    use crate::frame::{HELLO, Header, PROVE, VERSION_MAX};
    use crate::link::{CallNumbers, LinkSettings};
    use crate::message::session::{Challenge, Welcome};
    use crate::payload::Payload;
    use crate::secret::{Asker, Credentials, NONCE_LENGTH, Secret, Side, Transcript};
    use base::buffer::Pool;
    use base::env::Random;
    use base::id::{ClusterId, NodeId, SessionId};
    use bytes::Bytes;
    use prost::Message;
    use sim::clock::SimClock;
    use sim::random::SimRandom;
    use std::sync::Arc;
    use std::time::Duration;

    const NODE: NodeId = NodeId(7);

    fn settings(cluster: Option<ClusterId>) -> LinkSettings {
        LinkSettings {
            session: SessionId(1),
            program: "test".to_string(),
            connections: 1,
            silence_max: Duration::from_secs(1),
            pool: Pool::new(0),
            clock: Arc::new(SimClock::new()),
            random: Arc::new(SimRandom::new(1)),
            credentials: Credentials { cluster, ..Credentials::default() },
            asker: Asker::Client,
            numbers: CallNumbers::default(),
            meant: None,
            once: false,
        }
    }

    fn frame(kind: u16, message: Vec<u8>) -> Frame {
        Frame { header: Header { kind, ..Header::default() }, message: message.into(), payload: Payload::empty() }
    }

    /// Whatever a node answers to a greeting is read or refused. A challenge that anybody changed proves nothing, and a welcome is none of
    /// another cluster's than the one that is meant, nor of another node than has proved itself.
    #[test]
    fn fuzz_greetings() {
        let secret = Secret::from_hex(&"5a".repeat(32)).expect("a secret");
        let (hello, nonce) = (Bytes::from_static(b"hello"), Bytes::from(vec![3; NONCE_LENGTH]));
        let transcript = Transcript { hello: hello.clone(), nonce: nonce.clone(), node: NODE, incarnation: 5 };
        let proof = transcript.prove(&secret, Side::Answering);
        let challenge = Challenge { nonce, proof, node: NODE.0.into(), incarnation: 5 };
        let cluster = ClusterId(9);
        let welcome = Welcome {
            version: VERSION_MAX.into(),
            node: NODE.0.into(),
            incarnation: 5,
            cluster: Some(cluster.0.into()),
        };
        assert!(answer(&frame(PROVE, challenge.encode_to_vec()), hello.clone(), &secret).is_ok());
        for seed in sim::fuzz::seeds(5_000) {
            let random = SimRandom::new(seed);
            let mut challenged = challenge.encode_to_vec();
            let mut welcoming = welcome.encode_to_vec();
            for _ in 0..=random.below(3) {
                sim::fuzz::damage(&random, &mut challenged);
                sim::fuzz::damage(&random, &mut welcoming);
            }
            let kind = if random.one_in(9) { HELLO } else { PROVE };
            if answer(&frame(kind, challenged.clone()), hello.clone(), &secret).is_ok() {
                assert_eq!(Challenge::decode(challenged.as_slice()), Ok(challenge.clone()), "seed {seed}");
            }
            let meant = settings(random.one_in(2).then_some(cluster));
            let proved = random.one_in(2).then_some(Welcomed { node: NODE, incarnation: 5 });
            if let Ok(there) = welcomed(&frame(HELLO, welcoming.clone()), &meant, proved) {
                let read = Welcome::decode(welcoming.as_slice()).expect("it was read");
                let said = Welcomed { node: NodeId(read.node.value()), incarnation: read.incarnation };
                assert!(there == said && proved.is_none_or(|proved| proved == there), "seed {seed}");
                assert!(meant.credentials.cluster.is_none() || read.cluster == welcome.cluster, "seed {seed}");
            }
        }
    }
}
