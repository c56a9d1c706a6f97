//! A way to a server that passes questions on and now and then no answers: what a network does whose way back has failed.

use base::error::Result;
use base::net::{Boxed, Listener, Net, Stream};
use os::net::TcpNet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

/// Bytes that are passed on at once.
const PIECE: usize = 64 << 10;

/// What those who use a proxy and those who rule it share.
struct Shared {
    swallows: AtomicBool,
    /// Bytes of answers that nobody got.
    swallowed: AtomicU64,
    /// Rises with each cut: connections of before end.
    cuts: watch::Sender<u64>,
}

/// A proxy on loopback, as long as its runtime lives.
pub struct Proxy {
    /// Where it listens.
    address: String,
    shared: Arc<Shared>,
}

impl Proxy {
    /// A proxy before the server at this address.
    pub async fn before(server: &str) -> Result<Proxy> {
        let mut listener = TcpNet.listen("127.0.0.1:0").await?;
        let address = listener.address();
        let (cuts, _) = watch::channel(0);
        let shared = Arc::new(Shared { swallows: AtomicBool::new(false), swallowed: AtomicU64::new(0), cuts });
        let (server, mine) = (server.to_string(), shared.clone());
        tokio::spawn(async move { accept(&mut *listener, &server, &mine).await });
        Ok(Proxy { address, shared })
    }

    /// The network of somebody who reaches the server only through this proxy, whatever address it is told.
    pub fn net(&self) -> Arc<dyn Net> {
        Arc::new(OnlyThrough(self.address.clone()))
    }

    /// From now on no answer arrives; questions do.
    pub fn swallow(&self) {
        self.shared.swallows.store(true, Ordering::Relaxed);
    }

    /// Cuts every connection; those that are made next pass everything.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
        self.shared.swallows.store(false, Ordering::Relaxed);
    }

    /// Bytes of answers that nobody got.
    pub fn swallowed(&self) -> u64 {
        self.shared.swallowed.load(Ordering::Relaxed)
    }
}

async fn accept(listener: &mut dyn Listener, server: &str, shared: &Arc<Shared>) {
    while let Ok(near) = listener.accept().await {
        let (server, shared) = (server.to_string(), shared.clone());
        tokio::spawn(async move {
            let mut cut = shared.cuts.subscribe();
            let Ok(far) = TcpNet.connect(&server).await else { return };
            let (ask, near_answers) = tokio::io::split(near);
            let (answers, far_asks) = tokio::io::split(far);
            // Both ends close with what is dropped here.
            tokio::select! {
                _ = cut.changed() => {}
                () = pass(ask, far_asks, None) => {}
                () = pass(answers, near_answers, Some(&shared)) => {}
            }
        });
    }
}

/// Passes bytes on until one side ends, or swallows them.
async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, swallows: Option<&Arc<Shared>>) {
    let mut piece = vec![0; PIECE];
    // A connection on which something was swallowed passes nothing more: what follows would be half a frame.
    let mut broken = false;
    loop {
        let Ok(length @ 1..) = from.read(&mut piece).await else { return };
        broken |= swallows.is_some_and(|shared| shared.swallows.load(Ordering::Relaxed));
        match swallows {
            Some(shared) if broken => {
                shared.swallowed.fetch_add(length as u64, Ordering::Relaxed);
            }
            _ if to.write_all(&piece[..length]).await.is_err() => return,
            _ => {}
        }
    }
}

/// Connects to one address only.
struct OnlyThrough(String);

impl Net for OnlyThrough {
    fn connect<'a>(&'a self, _address: &'a str) -> Boxed<'a, Result<Box<dyn Stream>>> {
        TcpNet.connect(&self.0)
    }

    fn listen<'a>(&'a self, address: &'a str) -> Boxed<'a, Result<Box<dyn Listener>>> {
        TcpNet.listen(address)
    }
}
