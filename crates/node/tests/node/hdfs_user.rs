//! What the tests of the HDFS gateway share: where it is, the store's own client beside it, and users who ask it in the words of
//! Hadoop RPC.

use crate::Fixture;
use base::buffer::Pool;
use base::env::Random;
use bytes::Bytes;
use client::Client;
use gateway_hdfs::message::rpc::{CallHeader, ConnectionContext, RequestHeader, ResponseHeader, UserInformation};
use prost::Message;
use sim::random::SimRandom;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const CLIENT_PROTOCOL: &str = "org.apache.hadoop.hdfs.protocol.ClientProtocol";

/// Call number of what says who calls.
const CONTEXT: i32 = -3;

/// A user's connection to the gateway.
pub struct User {
    pub name: String,
    stream: TcpStream,
    client: Bytes,
    call: i32,
    /// How often the next call was made before, as it says.
    retry: i32,
}

/// Class and text of an exception.
pub type Refused = (String, String);

impl User {
    pub async fn connect(fixture: &Fixture, name: &str) -> User {
        User::connect_to(hdfs(fixture), name).await
    }

    /// The same at the gateway of any node.
    pub async fn connect_to(address: &str, name: &str) -> User {
        User::try_connect_to(address, name).await.expect("it listens")
    }

    /// The same at one that may not listen yet, or end the connection.
    pub async fn try_connect_to(address: &str, name: &str) -> io::Result<User> {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        stream.write_all(b"hrpc\x09\x00\x00").await?;
        // Each is a client of its own: a call that seems to be repeated would be answered from memory.
        static CLIENTS: AtomicU64 = AtomicU64::new(1);
        let client = Bytes::copy_from_slice(&u128::from(CLIENTS.fetch_add(1, Ordering::Relaxed)).to_be_bytes());
        let mut user = User { name: name.to_string(), stream, client, call: 0, retry: -1 };
        let said = UserInformation { effective: Some(name.to_string()), real: None };
        let context = ConnectionContext { user: Some(said), protocol: Some(CLIENT_PROTOCOL.to_string()) };
        user.say(CONTEXT, &context.encode_length_delimited_to_vec()).await?;
        Ok(user)
    }

    /// The user who runs the server.
    pub async fn superuser(fixture: &Fixture) -> User {
        User::connect(fixture, &os::user::current().0).await
    }

    /// From now on it is the client that the other one is, and its next call is that one's last, asked again.
    pub fn go_on_as(&mut self, other: &User) {
        (self.client, self.call, self.retry) = (other.client.clone(), other.call - 1, 1);
    }

    /// The same as if it was never asked before: as a call that was on its way for long.
    pub fn be_late_as(&mut self, other: &User) {
        (self.client, self.call, self.retry) = (other.client.clone(), other.call - 1, -1);
    }

    /// The same with the call that the other one asks next.
    pub fn will_ask_as(&mut self, other: &User) {
        (self.client, self.call, self.retry) = (other.client.clone(), other.call, 1);
    }

    async fn say(&mut self, call: i32, rest: &[u8]) -> io::Result<()> {
        let client = self.client.clone();
        let header = RequestHeader { kind: Some(2), operation: Some(0), call, client, retry: Some(self.retry) };
        let mut frame = header.encode_length_delimited_to_vec();
        frame.extend_from_slice(rest);
        self.stream.write_u32(frame.len() as u32).await?;
        self.stream.write_all(&frame).await
    }

    /// The same of a gateway that may end the connection meanwhile: none if it did.
    pub async fn try_call<M: Message + Default>(
        &mut self,
        protocol: &str,
        method: &str,
        ask: &impl Message,
    ) -> Option<Result<M, Refused>> {
        self.call += 1;
        self.put(protocol, method, ask).await.ok()?;
        self.take().await.ok()
    }

    /// Asks a call of a protocol.
    pub async fn call<M: Message + Default>(
        &mut self,
        protocol: &str,
        method: &str,
        ask: &impl Message,
    ) -> Result<M, Refused> {
        self.call += 1;
        self.put(protocol, method, ask).await.expect("sent");
        self.take().await.expect("an answer")
    }

    async fn put(&mut self, protocol: &str, method: &str, ask: &impl Message) -> io::Result<()> {
        let (named, spoken) = (Bytes::copy_from_slice(method.as_bytes()), Bytes::copy_from_slice(protocol.as_bytes()));
        let mut rest = CallHeader { method: named, protocol: spoken, version: 1 }.encode_length_delimited_to_vec();
        ask.encode_length_delimited(&mut rest).expect("room");
        self.say(self.call, &rest).await
    }

    async fn take<M: Message + Default>(&mut self) -> io::Result<Result<M, Refused>> {
        let length = self.stream.read_u32().await?;
        let mut answer = vec![0; length as usize];
        self.stream.read_exact(&mut answer).await?;
        let mut answer = answer.as_slice();
        let header = ResponseHeader::decode_length_delimited(&mut answer).expect("a header");
        assert_eq!(header.call, self.call as u32);
        if header.status != 0 {
            return Ok(Err((header.class.unwrap_or_default(), header.text.unwrap_or_default())));
        }
        Ok(Ok(M::decode_length_delimited(&mut answer).expect("a message")))
    }
}

/// Where the gateway is, `host:port`: of the node of this process, or of the one that was started as a process of its own.
pub fn hdfs(fixture: &Fixture) -> &str {
    match &fixture.running {
        Some(running) => running.hdfs.as_deref().expect("the gateway runs"),
        None => &fixture.elsewhere.as_ref().expect("it runs").hdfs,
    }
}

/// The store's own client.
pub async fn client(fixture: &Fixture) -> Client {
    client_of(fixture.address()).await
}

/// The store's own client, told of the node at this address.
pub async fn client_of(address: &str) -> Client {
    client_as(address, client::User::default()).await
}

/// The same of a user.
pub async fn client_as(address: &str, user: client::User) -> Client {
    let settings = client::Settings {
        net: Arc::new(os::net::TcpNet),
        addresses: vec![address.to_string()],
        program: "test".to_string(),
        credentials: net::Credentials::default(),
        user,
        clock: Arc::new(os::clock::SystemClock::new()),
        random: Arc::new(os::random::SystemRandom),
        pool: Pool::new(16 << 20),
        connections: 1,
        silence_max: base::limit::CALL_SILENCE_MAX,
    };
    Client::connect(settings).await.expect("it answers")
}

/// Bytes that another seed does not give.
pub fn content(length: usize, seed: u64) -> Bytes {
    let random = SimRandom::new(seed);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(length);
    Bytes::from(bytes)
}
