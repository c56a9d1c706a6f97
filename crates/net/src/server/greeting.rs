//! How a connection that was taken begins: who connects, what it may speak, and whether it knows the cluster's secret.

use super::ServerSettings;
use crate::frame::{self, HELLO, Header, PROVE, REPLY, VERSION_MAX, VERSION_MIN};
use crate::message::session::{Challenge, Hello, Proof, Role, Welcome};
use crate::secret::{Asker, NONCE_LENGTH, Secret, Side, Transcript, nonce, refused};
use base::error::Result;
use base::id::{ClusterId, NodeId, SessionId};
use base::limit::GREETING_MAX;
use bytes::Bytes;
use prost::Message;

/// Longest part of a program's name that is repeated to people.
const NAME_SHOWN: usize = 60;

/// Who is at the other end, once it has said so and, if the node has a secret, proved that it belongs here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) session: SessionId,
    pub(super) asker: Asker,
}

/// How far a greeting is.
#[derive(Default)]
pub(super) enum Greeting {
    /// Nothing came yet.
    #[default]
    Awaited,
    /// A proof is wanted.
    Challenged(Box<Challenged>),
    /// Calls may come.
    Over(Known),
}

/// What is remembered between a challenge and its proof.
pub(super) struct Challenged {
    known: Known,
    program: String,
    version: u32,
    transcript: Transcript,
    secret: Secret,
}

/// What is answered to a message of the greeting.
pub(super) enum Answer {
    Challenge(Challenge),
    Welcome(Welcome),
}

impl Greeting {
    pub(super) fn known(&self) -> Option<Known> {
        match self {
            Greeting::Over(known) => Some(*known),
            Greeting::Awaited | Greeting::Challenged(_) => None,
        }
    }

    /// Judges the header of a message that comes before the greeting is over.
    pub(super) fn admit(&self, header: &Header) -> Result<()> {
        let (kind, flags, what) = match self {
            Greeting::Challenged(_) => (PROVE, REPLY, "the second frame must be a proof"),
            Greeting::Awaited | Greeting::Over(_) => (HELLO, 0, "the first frame must be a greeting"),
        };
        let leaves = matches!(self, Greeting::Challenged(_)) && header.kind == frame::CLOSING;
        let fits = header.message_length as usize <= GREETING_MAX && header.payload_length == 0;
        if !fits || (!leaves && (header.kind != kind || header.flags != flags)) {
            return Err(frame::broken(what));
        }
        Ok(())
    }

    /// Takes the next message. An error ends the connection, and its text is for the people at both ends.
    pub(super) fn hear(&mut self, message: &Bytes, settings: &ServerSettings) -> Result<Answer> {
        match std::mem::take(self) {
            Greeting::Awaited => self.begin(message, settings),
            Greeting::Challenged(challenged) => self.end(message, *challenged, settings),
            Greeting::Over(_) => Err(frame::broken("a second greeting")),
        }
    }

    fn begin(&mut self, message: &Bytes, settings: &ServerSettings) -> Result<Answer> {
        let hello = Hello::decode(message.clone())
            .map_err(|error| frame::broken(format!("the first message cannot be read: {error}")))?;
        let version = hello.version_max.min(u32::from(VERSION_MAX));
        if version < hello.version_min || version < u32::from(VERSION_MIN) {
            return Err(frame::wrong_version(hello.version_min, hello.version_max));
        }
        let program = shown(&hello.program);
        let credentials = &settings.credentials;
        check_cluster(&program, hello.cluster.map(|id| ClusterId(id.value())), credentials.cluster)?;
        let known = Known { session: SessionId(hello.session.value()), asker: asker(&hello)? };
        let Some(secret) = &credentials.secret else {
            *self = Greeting::Over(known);
            return Ok(Answer::Welcome(welcome(version, settings)));
        };
        if hello.nonce.is_empty() {
            return Err(refused(format!(
                "{program} gave no secret, and this node speaks only to those who know its cluster's; nothing was taken; \
                 name the file that holds it with --secret-file FILE or STORMWELL_SECRET_FILE"
            )));
        }
        if hello.nonce.len() != NONCE_LENGTH {
            return Err(frame::broken(format!(
                "a greeting with {} random bytes, not {NONCE_LENGTH}",
                hello.nonce.len()
            )));
        }
        let nonce = nonce(settings.random.as_ref());
        let (node, incarnation) = (settings.node, settings.incarnation);
        let transcript = Transcript { hello: message.clone(), nonce: nonce.clone(), node, incarnation };
        let proof = transcript.prove(secret, Side::Answering);
        let secret = secret.clone();
        *self = Greeting::Challenged(Box::new(Challenged { known, program, version, transcript, secret }));
        Ok(Answer::Challenge(Challenge { nonce, proof, node: node.0.into(), incarnation }))
    }

    fn end(&mut self, message: &Bytes, challenged: Challenged, settings: &ServerSettings) -> Result<Answer> {
        let Challenged { known, program, version, transcript, secret } = challenged;
        let proof = Proof::decode(message.clone())
            .map_err(|error| frame::broken(format!("a proof cannot be read: {error}")))?;
        if !transcript.proves(&secret, Side::Asking, &proof.proof) {
            return Err(refused(format!(
                "{program} does not know the secret of this node's cluster; nothing was taken; if it belongs here give it \
                 the file that `stormwell init` wrote, with --secret-file FILE or STORMWELL_SECRET_FILE"
            )));
        }
        *self = Greeting::Over(known);
        Ok(Answer::Welcome(welcome(version, settings)))
    }
}

fn welcome(version: u32, settings: &ServerSettings) -> Welcome {
    Welcome {
        version,
        node: settings.node.0.into(),
        incarnation: settings.incarnation,
        cluster: settings.credentials.cluster.map(|cluster| cluster.0.into()),
    }
}

/// A program's name, of which strangers choose every byte.
fn shown(program: &str) -> String {
    let name: String = program.chars().take(NAME_SHOWN).flat_map(char::escape_debug).collect();
    format!("the program '{name}'")
}

fn asker(hello: &Hello) -> Result<Asker> {
    match (Role::try_from(hello.role), hello.node) {
        (Ok(Role::Client), _) => Ok(Asker::Client),
        (Ok(Role::Node), Some(node)) => {
            Ok(Asker::Node { node: NodeId(node.value()), incarnation: hello.incarnation, term: hello.term })
        }
        (Ok(Role::Node), None) => Err(frame::broken("a node that does not say which")),
        (Err(_), _) => Err(frame::broken(format!("a program of a kind that is not known here: {}", hello.role))),
    }
}

fn check_cluster(program: &str, meant: Option<ClusterId>, ours: Option<ClusterId>) -> Result<()> {
    match (meant, ours) {
        (Some(meant), Some(ours)) if meant != ours => Err(refused(format!(
            "{program} means cluster {meant}, and this node belongs to cluster {ours}; nothing was taken; correct its \
             address, or `cluster` in its settings"
        ))),
        (Some(meant), None) => Err(refused(format!(
            "{program} means cluster {meant}, and this node belongs to none; nothing was taken; correct its address, or \
             start the node with the cluster's settings: stormwell serve --config FILE"
        ))),
        _ => Ok(()),
    }
}
