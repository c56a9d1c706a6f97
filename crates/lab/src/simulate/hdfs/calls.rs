//! A client of Hadoop RPC on the simulated network. It asks again what was not answered, under the number that the call has, at the
//! same gateway or another one.

use super::{RECOVERY_MAX, format};
use crate::simulate::oracle::{Broken, Check};
use crate::simulate::scene::Scene;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::net::{Net, Stream};
use base::unit::Time;
use bytes::Bytes;
use gateway_hdfs::message::rpc::{
    AUTHENTICATION_NONE, CALL_CONTEXT, CallHeader, ConnectionContext, KIND_PROTOCOL_BUFFER, MAGIC, OPERATION_FINAL,
    RequestHeader, ResponseHeader, STATUS_SUCCESS, UserInformation, VERSION,
};
use prost::Message;
use sim::net::SimNet;
use sim::random::SimRandom;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const PROTOCOL: &str = "org.apache.hadoop.hdfs.protocol.ClientProtocol";

/// A gateway that says nothing for so long is given up, and another one asked.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// A call is given up after this long: with what is under way then less than `CALL_BOUND`.
const RETRIES_MAX: Duration = Duration::from_secs(120);

/// Longest pause before a call is asked again, in milliseconds.
const PAUSE_MAX: u64 = 400;

/// No answer is longer.
const ANSWER_MAX: usize = 1 << 20;

/// Exceptions that mean something to whoever asked. Of others it is not known whether anything was done.
const MEANINGS: [(&str, ErrorKind); 9] = [
    ("java.io.FileNotFoundException", ErrorKind::NotFound),
    ("org.apache.hadoop.fs.FileAlreadyExistsException", ErrorKind::Exists),
    ("org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException", ErrorKind::Busy),
    ("org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException", ErrorKind::Stale),
    ("org.apache.hadoop.ipc.RetriableException", ErrorKind::Unreachable),
    ("org.apache.hadoop.HadoopIllegalArgumentException", ErrorKind::Invalid),
    ("org.apache.hadoop.security.AccessControlException", ErrorKind::Invalid),
    ("org.apache.hadoop.hdfs.protocol.AclException", ErrorKind::Invalid),
    ("java.io.IOException", ErrorKind::Io),
];

/// A call as it was made.
#[derive(Clone, Default)]
pub struct Said {
    call: i32,
    method: &'static str,
    request: Vec<u8>,
}

/// One program that calls gateways.
pub struct Calls {
    scene: Arc<Scene>,
    net: SimNet,
    random: SimRandom,
    name: String,
    /// What the program is known by when it asks again.
    id: Bytes,
    call: i32,
    /// The last call that was made.
    pub said: Said,
    /// Calls that were not answered at once.
    pub doubts: u64,
    /// Where the connection is, or the next one will be.
    at: String,
    stream: Option<Box<dyn Stream>>,
}

impl Calls {
    /// A program on this host.
    pub fn new(scene: Arc<Scene>, net: SimNet, random: SimRandom, name: &str) -> Calls {
        let id = Bytes::copy_from_slice(&format::id(random.wide()));
        let (name, said, at) = (name.to_string(), Said::default(), String::new());
        let mut calls = Calls { scene, net, random, name, id, call: 0, said, doubts: 0, at, stream: None };
        calls.go_elsewhere();
        calls
    }

    /// The next call goes to any gateway.
    pub fn go_elsewhere(&mut self) {
        let gateways = self.scene.gateways();
        self.stream = None;
        if let Some(at) = gateways.get(self.random.below(gateways.len().max(1) as u64) as usize) {
            self.at.clone_from(at);
        }
    }

    /// Asks until somebody answers. Refusals come as errors of the kind that the exception means.
    pub async fn ask<A: Message + Default>(&mut self, method: &'static str, request: &impl Message) -> Result<A> {
        self.call += 1;
        let begun = self.scene.clock.now();
        let request = request.encode_length_delimited_to_vec();
        self.said = Said { call: self.call, method, request: request.clone() };
        for retry in 0.. {
            self.scene.say(|| format!("{}: {method} {} to {}", self.name, self.call, self.at));
            let error = match timeout(SILENCE_MAX, self.once((self.call, method), &request, retry)).await {
                Ok(Ok(Ok(answer))) => {
                    return A::decode_length_delimited(answer.as_slice())
                        .map_err(|error| Error::new(ErrorKind::Protocol, format!("the answer to {method}: {error}")));
                }
                Ok(Ok(Err(refusal))) if refusal.kind() != ErrorKind::Unreachable => return Err(refusal),
                Ok(Ok(Err(refusal))) => refusal,
                Ok(Err(error)) => {
                    self.go_elsewhere();
                    error
                }
                Err(_) => {
                    self.go_elsewhere();
                    Error::new(ErrorKind::Unreachable, format!("{method} was not answered"))
                }
            };
            self.scene.say(|| format!("{}: {method} {}: {error}", self.name, self.call));
            if self.scene.clock.now().since(begun) > RETRIES_MAX {
                return Err(Error::new(ErrorKind::Unreachable, error.text()));
            }
            self.doubts += 1;
            self.scene.count("hdfs calls asked again");
            tokio::time::sleep(Duration::from_millis(self.random.below(PAUSE_MAX))).await;
        }
        unreachable!("it is asked again and again")
    }

    /// The same call, of which a second copy arrives at any gateway at the same time. Its answer is heard by nobody.
    pub async fn ask_twice<A: Message + Default>(&mut self, method: &'static str, request: &impl Message) -> Result<A> {
        let said = Said { call: self.call + 1, method, request: request.encode_length_delimited_to_vec() };
        let random = self.random.fork(&format!("twice {}", said.call));
        let (scene, net) = (self.scene.clone(), self.net.clone());
        let mut copy = Calls { id: self.id.clone(), ..Calls::new(scene, net, random, &self.name) };
        tokio::join!(self.ask(method, request), copy.arrives_late(&said)).0
    }

    /// A call that was answered before arrives once more, at any gateway.
    pub async fn arrives_late(&mut self, said: &Said) -> Result<()> {
        self.go_elsewhere();
        self.scene.say(|| format!("{}: {} {} arrives late at {}", self.name, said.method, said.call, self.at));
        let asked = timeout(SILENCE_MAX, self.once((said.call, said.method), &said.request, 0)).await;
        match asked {
            Ok(asked) => asked?.map(drop),
            Err(_) => Err(Error::new(ErrorKind::Unreachable, format!("{} was not answered", said.method))),
        }
    }

    /// Asks once. The outer error: nobody knows what became of it; the inner one: it was refused.
    async fn once(
        &mut self,
        (call, method): (i32, &'static str),
        request: &[u8],
        retry: i32,
    ) -> Result<Result<Vec<u8>>> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connected().await?,
        };
        let named = CallHeader { method: method.into(), protocol: PROTOCOL.into(), version: 1 };
        let rest = [named.encode_length_delimited_to_vec().as_slice(), request].concat();
        stream.write_all(&self.frame(call, retry, &rest)).await?;
        stream.flush().await?;
        if self.random.one_in(12) {
            // The answer is lost.
            tokio::time::sleep(Duration::from_millis(self.random.below(100))).await;
            return Err(Error::new(ErrorKind::Unreachable, "the connection was dropped on purpose"));
        }
        let length = stream.read_u32().await? as usize;
        if length > ANSWER_MAX {
            return Err(Error::new(ErrorKind::Protocol, format!("an answer of {length} bytes to {method}")));
        }
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer).await?;
        self.stream = Some(stream);
        let mut answer = answer.as_slice();
        let header = ResponseHeader::decode_length_delimited(&mut answer)
            .map_err(|error| Error::new(ErrorKind::Protocol, format!("the header of an answer: {error}")))?;
        if header.call != call as u32 {
            let text = format!("an answer to call {} where {call} was asked", header.call);
            return Err(Error::new(ErrorKind::Protocol, text));
        }
        if header.status == STATUS_SUCCESS {
            return Ok(Ok(answer.to_vec()));
        }
        let class = header.class.unwrap_or_default();
        let meaning = MEANINGS.iter().find(|(name, _)| *name == class).map_or(ErrorKind::Io, |(_, kind)| *kind);
        Ok(Err(Error::new(meaning, format!("{class}: {}", header.text.unwrap_or_default()))))
    }

    async fn connected(&mut self) -> Result<Box<dyn Stream>> {
        let mut stream = self.net.connect(&self.at).await?;
        let user = UserInformation { effective: Some(os::user::current().0), real: None };
        let context = ConnectionContext { user: Some(user), protocol: Some(PROTOCOL.to_string()) };
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[VERSION, 0, AUTHENTICATION_NONE]);
        bytes.extend(self.frame(CALL_CONTEXT, -1, &context.encode_length_delimited_to_vec()));
        stream.write_all(&bytes).await?;
        Ok(stream)
    }

    fn frame(&self, call: i32, retry: i32, rest: &[u8]) -> Vec<u8> {
        let (kind, operation) = (Some(KIND_PROTOCOL_BUFFER), Some(OPERATION_FINAL));
        let header = RequestHeader { kind, operation, call, client: self.id.clone(), retry: Some(retry) };
        format::frame([&header.encode_length_delimited_to_vec(), rest])
    }
}

/// Waits before something that was refused is asked again. What is refused for longer than a recovery takes, counted from `begun`,
/// is broken.
pub async fn wait_out(scene: &Scene, begun: Time, who: &str, what: &str, refusal: Error) -> Check<()> {
    if scene.clock.now().since(begun) > RECOVERY_MAX {
        return Err(Broken(format!("{who}: {what} is refused for ever: {refusal}")));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok(())
}
