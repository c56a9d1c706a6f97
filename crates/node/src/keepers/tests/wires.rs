//! Sockets of the loopback interface that are slow or cut as a test wants.

use base::error::Result;
use base::net::{Boxed, Listener, Net, Stream};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// The ways of one node to others.
#[derive(Clone, Default)]
pub struct Wires {
    /// Nothing passes on those that were made before it was cut, however long: the kernel tries ever more seldom.
    cut: Arc<Mutex<Option<Arc<AtomicBool>>>>,
    whole: Arc<Mutex<Arc<AtomicBool>>>,
    /// Bytes a second on each; zero: as many as there are.
    rate: Arc<AtomicUsize>,
    sent: Arc<AtomicUsize>,
    tried: Arc<AtomicUsize>,
}

impl Wires {
    pub fn new() -> Arc<Wires> {
        Arc::default()
    }

    pub fn cut(&self) {
        let cut = std::mem::take(&mut *self.whole.lock().expect("whole"));
        cut.store(true, Ordering::SeqCst);
        *self.cut.lock().expect("whole") = Some(cut);
    }

    pub fn mend(&self) {
        *self.cut.lock().expect("whole") = None;
    }

    pub fn slow(&self, rate: usize) {
        self.rate.store(rate, Ordering::Relaxed);
    }

    pub fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    /// How often a connection was tried.
    pub fn tried(&self) -> usize {
        self.tried.load(Ordering::Relaxed)
    }
}

struct Wire {
    inner: Box<dyn Stream>,
    of: Wires,
    is_cut: Arc<AtomicBool>,
    next: Option<Pin<Box<Sleep>>>,
}

impl Net for Wires {
    fn connect<'a>(&'a self, address: &'a str) -> Boxed<'a, Result<Box<dyn Stream>>> {
        Box::pin(async move {
            self.tried.fetch_add(1, Ordering::Relaxed);
            if self.cut.lock().expect("whole").is_some() {
                std::future::pending::<()>().await;
            }
            let inner = os::net::TcpNet.connect(address).await?;
            let is_cut = self.whole.lock().expect("whole").clone();
            Ok(Box::new(Wire { inner, of: self.clone(), is_cut, next: None }) as Box<dyn Stream>)
        })
    }

    fn listen<'a>(&'a self, _: &'a str) -> Boxed<'a, Result<Box<dyn Listener>>> {
        unreachable!("these only connect")
    }
}

impl Stream for Wire {
    fn peer(&self) -> String {
        self.inner.peer()
    }

    fn abandon(&mut self) {
        self.inner.abandon();
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        if self.is_cut.load(Ordering::SeqCst) {
            return Poll::Pending;
        }
        Pin::new(&mut self.inner).poll_read(cx, space)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        if self.is_cut.load(Ordering::SeqCst) {
            return Poll::Pending;
        }
        if let Some(next) = &mut self.next {
            ready!(next.as_mut().poll(cx));
            self.next = None;
        }
        let rate = self.of.rate.load(Ordering::Relaxed);
        let most = if rate == 0 { bytes.len() } else { bytes.len().min(16 << 10) };
        let sent = ready!(Pin::new(&mut self.inner).poll_write(cx, &bytes[..most]))?;
        self.of.sent.fetch_add(sent, Ordering::Relaxed);
        if rate > 0 {
            self.next = Some(Box::pin(sleep(Duration::from_secs_f64(sent as f64 / rate as f64))));
        }
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
