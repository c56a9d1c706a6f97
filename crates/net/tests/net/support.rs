//! What the tests share: a clock that follows tokio's, a network in memory and one of sockets, services, settings.

use base::buffer::Pool;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::id::{NodeId, SessionId};
use base::net::{Boxed, Listener, Net, Stream};
use base::unit::{Time, WallTime};
use base::watched::Stop;
use net::{
    AnswerMemory, Asker, Budget, Call, Credentials, Link, LinkSettings, NetStats, Payload, Server, ServerSettings,
    Service,
};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Follows tokio's time, paused or not.
pub struct TokioClock(Instant);

impl TokioClock {
    /// A clock that begins now.
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(TokioClock(Instant::now()))
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Time {
        Time::ZERO.after(self.0.elapsed())
    }

    fn wall(&self) -> WallTime {
        WallTime(0)
    }
}

/// Numbers that look random (splitmix64) and follow from the seed.
pub struct Seeded(AtomicU64);

impl Seeded {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Seeded {
        Seeded(AtomicU64::new(seed))
    }
}

impl Random for Seeded {
    fn next(&self) -> u64 {
        let state = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// A stream of either network. While `deaf`, bytes neither come nor go, as if the cable were pulled.
struct Pipe<S> {
    inner: S,
    deaf: Arc<AtomicBool>,
    abandoned: Arc<AtomicU64>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Pipe<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        if self.deaf.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        Pin::new(&mut self.inner).poll_read(cx, space)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Pipe<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        if self.deaf.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        if self.deaf.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for Pipe<S> {
    fn peer(&self) -> String {
        "test peer".to_string()
    }

    fn abandon(&mut self) {
        self.abandoned.fetch_add(1, Ordering::Relaxed);
    }
}

/// A network in memory: addresses are names.
#[derive(Default)]
pub struct MemoryNet {
    listeners: Mutex<HashMap<String, mpsc::Sender<DuplexStream>>>,
    /// While true nothing passes.
    pub deaf: Arc<AtomicBool>,
    /// Streams of clients that were abandoned.
    pub abandoned: Arc<AtomicU64>,
}

struct MemoryListener {
    address: String,
    incoming: mpsc::Receiver<DuplexStream>,
}

impl Listener for MemoryListener {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(&mut self) -> Boxed<'_, Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let inner = self.incoming.recv().await.ok_or_else(|| Error::new(ErrorKind::Io, "the network is gone"))?;
            Ok(Box::new(Pipe { inner, deaf: Arc::default(), abandoned: Arc::default() }) as Box<dyn Stream>)
        })
    }
}

impl Net for MemoryNet {
    fn connect<'a>(&'a self, address: &'a str) -> Boxed<'a, Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let refused = || Error::new(ErrorKind::Unreachable, "connection refused");
            let listener = self.listeners.lock().unwrap().get(address).cloned().ok_or_else(refused)?;
            if self.deaf.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let (near, far) = duplex(256 << 10);
            listener.send(far).await.map_err(|_| refused())?;
            Ok(Box::new(Pipe { inner: near, deaf: self.deaf.clone(), abandoned: self.abandoned.clone() })
                as Box<dyn Stream>)
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> Boxed<'a, Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let (sender, incoming) = mpsc::channel(16);
            self.listeners.lock().unwrap().insert(address.to_string(), sender);
            Ok(Box::new(MemoryListener { address: address.to_string(), incoming }) as Box<dyn Listener>)
        })
    }
}

/// Sockets of the loopback interface.
pub struct LoopbackNet;

struct LoopbackListener(TcpListener);

impl Listener for LoopbackListener {
    fn address(&self) -> String {
        self.0.local_addr().unwrap().to_string()
    }

    fn accept(&mut self) -> Boxed<'_, Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let (inner, _) = self.0.accept().await?;
            inner.set_nodelay(true)?;
            Ok(Box::new(Pipe { inner, deaf: Arc::default(), abandoned: Arc::default() }) as Box<dyn Stream>)
        })
    }
}

impl Net for LoopbackNet {
    fn connect<'a>(&'a self, address: &'a str) -> Boxed<'a, Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let inner = TcpStream::connect(address).await?;
            inner.set_nodelay(true)?;
            Ok(Box::new(Pipe { inner, deaf: Arc::default(), abandoned: Arc::default() }) as Box<dyn Stream>)
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> Boxed<'a, Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = TcpListener::bind(address).await?;
            Ok(Box::new(LoopbackListener(listener)) as Box<dyn Listener>)
        })
    }
}

/// A service made of a function.
pub struct Doing<F>(pub F);

impl<F: Fn(Call) + Send + Sync> Service for Doing<F> {
    fn handle(&self, call: Call) {
        (self.0)(call);
    }
}

/// Answers `Push` with the payload that came, `waiting` being the `bag` asked for.
pub fn echo(mut call: Call) {
    match call.ask::<net::message::bag::Push>() {
        Ok(push) => echo_to(push.bag, call),
        Err(error) => call.respond.fail(error),
    }
}

/// The same of a call whose `bag` was asked for already.
pub fn echo_to(bag: u64, call: Call) {
    let answer = net::message::bag::PushAnswer { waiting: bag, under_way: None, refused: None };
    call.respond.answer(answer, call.payload);
}

/// A push of this bag number.
pub fn push(bag: u64) -> net::message::bag::Push {
    net::message::bag::Push { bag, device: 7.into(), chunk: 9.into(), floor: 0 }
}

/// `length` bytes that follow from `seed`, with their checksum.
pub fn payload(seed: u64, length: usize) -> Payload {
    let bytes: Vec<u8> = (0..length as u64).map(|at| (at.wrapping_mul(seed | 1) >> 3) as u8).collect();
    Payload::new(bytes.into())
}

/// A server in its own task, what it was troubled by, and what ends it.
pub struct Serving {
    /// Where it listens.
    pub address: String,
    /// Why it cut connections.
    pub troubles: Arc<Mutex<Vec<String>>>,
    /// What it counted.
    pub stats: Arc<NetStats>,
    /// Its budget for payloads that came in.
    pub budget: Budget,
    /// Its budget for questions that are worked on.
    pub calls: Budget,
    /// Its memory for large answers.
    pub answers: AnswerMemory,
    /// Ends it in order when true is sent.
    pub shutdown: Stop,
    /// Its task. Aborting it is a kill.
    pub task: JoinHandle<()>,
}

/// Serves `service` at `address` with so many bytes of budget.
pub async fn serve(net: &dyn Net, address: &str, budget: u64, service: Arc<dyn Service>) -> Serving {
    serve_to(net, address, budget, service, Credentials::default()).await
}

/// As `serve`, but only to those who know this much.
pub async fn serve_to(
    net: &dyn Net,
    address: &str,
    budget: u64,
    service: Arc<dyn Service>,
    credentials: Credentials,
) -> Serving {
    serve_as(net, address, budget, service, |settings| settings.credentials = credentials).await
}

/// As `serve`, with settings that are changed like this.
pub async fn serve_as(
    net: &dyn Net,
    address: &str,
    budget: u64,
    service: Arc<dyn Service>,
    change: impl FnOnce(&mut ServerSettings),
) -> Serving {
    let listener = net.listen(address).await.unwrap();
    let address = listener.address();
    let troubles = Arc::new(Mutex::new(Vec::new()));
    let told = troubles.clone();
    let stats = Arc::new(NetStats::default());
    let (budget, calls, answers) = (Budget::new(budget), Budget::new(24 << 20), AnswerMemory::default());
    let mut settings = ServerSettings {
        node: NodeId(42),
        incarnation: 1,
        budget: budget.clone(),
        keepers: Budget::new(32 << 20),
        outgoing: Budget::new(32 << 20),
        messages: Budget::new(24 << 20),
        calls: calls.clone(),
        device_calls: Budget::new(24 << 20),
        urgent: Budget::new(16 << 20),
        answers: answers.clone(),
        places: base::places::Places::new(64),
        credentials: Credentials::default(),
        random: Arc::new(Seeded::new(42)),
        pool: Pool::new(64 << 20),
        clock: TokioClock::shared(),
        silence_max: Duration::from_secs(10),
        stats: stats.clone(),
        on_trouble: Arc::new(move |trouble| told.lock().unwrap().push(trouble)),
        on_request: Arc::new(|_| ()),
    };
    change(&mut settings);
    let (shutdown, stop) = Stop::new();
    let task = tokio::spawn(Server::serve(listener, service, settings, stop));
    Serving { address, troubles, stats, budget, calls, answers, shutdown, task }
}

/// How the tests connect.
pub fn link_settings(session: u128, connections: usize) -> LinkSettings {
    LinkSettings {
        session: SessionId(session),
        program: "test".to_string(),
        connections,
        silence_max: Duration::from_secs(10),
        pool: Pool::new(64 << 20),
        clock: TokioClock::shared(),
        random: Arc::new(Seeded::new(session as u64)),
        credentials: Credentials::default(),
        asker: Asker::Client,
        numbers: net::CallNumbers::default(),
        meant: None,
        once: false,
    }
}

/// A link of session 1 with two connections.
pub async fn link(net: Arc<dyn Net>, address: &str) -> Link {
    Link::connect(net, address, link_settings(1, 2)).await.unwrap()
}
