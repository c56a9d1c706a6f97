//! TCP under `base::net`.
#![allow(clippy::disallowed_methods)] // The real sockets.

mod holder;

use crate::process::{Ending, is_ending};
use base::error::{Error, ErrorKind, Result};
use base::net::{AtOnce, Boxed, Listener, Net, Stream};
use holder::{Holder, holder_of};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::sleep;

/// Connections that may wait to be accepted. The kernel cuts it to net.core.somaxconn, which is this much where nobody said otherwise; one
/// that finds no room is not told, and asks again after a second.
const BACKLOG: u32 = 4096;

/// TCP with TCP_NODELAY, and buffers that the kernel sizes itself. Needs a tokio runtime with I/O enabled.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpNet;

struct TcpPeer {
    stream: TcpStream,
    peer: SocketAddr,
    open: Arc<Open>,
}

/// The descriptor of a socket for as long as it is open.
struct Open(Mutex<Option<RawFd>>);

impl AtOnce for Open {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(descriptor) = *open else { return Ok(0) };
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the descriptor is open while this lock is held, and the kernel reads the bytes before the call returns.
        let sent = unsafe { libc::send(descriptor, bytes.as_ptr().cast(), bytes.len(), flags) };
        match usize::try_from(sent) {
            Ok(sent) => Ok(sent),
            Err(_) => match io::Error::last_os_error() {
                error if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
                error => Err(error),
            },
        }
    }
}

impl Drop for TcpPeer {
    /// Before the socket is closed and its descriptor another's.
    fn drop(&mut self) {
        *self.open.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

struct Listening {
    listener: TcpListener,
    address: SocketAddr,
}

impl TcpPeer {
    fn boxed(stream: TcpStream, peer: SocketAddr) -> io::Result<Box<dyn Stream>> {
        // Frames are written whole; holding them back for more would only delay them.
        stream.set_nodelay(true)?;
        let open = Arc::new(Open(Mutex::new(Some(stream.as_raw_fd()))));
        Ok(Box::new(TcpPeer { stream, peer, open }))
    }
}

impl Net for TcpNet {
    fn connect<'a>(&'a self, address: &'a str) -> Boxed<'a, Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let connected = async {
                let stream = connect(address).await?;
                let peer = stream.peer_addr()?;
                TcpPeer::boxed(stream, peer)
            };
            connected.await.map_err(|error| connect_error(address, &error))
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> Boxed<'a, Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host(address).await;
            let addresses: Vec<SocketAddr> = found.map_err(|error| name_error(address, &error))?.collect();
            let mut last = name_error(address, &io::Error::other("the name has no address"));
            for candidate in addresses {
                match bind_when_free(candidate).await {
                    Ok(listening) => return Ok(Box::new(listening) as Box<dyn Listener>),
                    Err(error) => last = error,
                }
            }
            Err(last)
        })
    }

    /// A name that is no address is not looked up, which could take seconds: it is here if it is the name that the machine has itself.
    fn is_here(&self, address: &str) -> bool {
        let Some((host, _)) = address.rsplit_once(':') else { return false };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match host.parse::<IpAddr>() {
            Ok(ip) if ip.is_loopback() => true,
            // Only a machine's own addresses can be bound to.
            Ok(ip) => !ip.is_unspecified() && UdpSocket::bind((ip, 0)).is_ok(),
            Err(_) => host == "localhost" || is_own_name(host),
        }
    }
}

/// Whether the kernel knows this machine by this name.
fn is_own_name(host: &str) -> bool {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    !host.is_empty() && name.trim_end().eq_ignore_ascii_case(host)
}

/// Connects to the first address of this name that answers.
async fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
    for candidate in tokio::net::lookup_host(address).await? {
        let socket = socket_for(candidate)?;
        match socket.connect(candidate).await {
            // Where nobody listens on a port that connections take theirs from, the kernel may choose that one, and the socket meets itself.
            Ok(stream) if stream.local_addr()? == stream.peer_addr()? => last = io::ErrorKind::ConnectionRefused.into(),
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A socket that shares its port. A server that starts again must not wait for old connections to be forgotten, neither its own nor those that
/// we made from this machine with its port by chance: for a minute after they are closed the kernel would keep it from the server.
fn socket_for(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    Ok(socket)
}

/// Listens there. A port that is taken, and on which no process listens but one that is ending, is waited for.
async fn bind_when_free(address: SocketAddr) -> Result<Listening> {
    let (mut ending, mut was_connection) = (Ending::new(true), false);
    loop {
        match bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            bound => return bound.map_err(|error| bind_error(address, &error)),
        }
        let holder = holder_of(address.port());
        let pause = match &holder {
            Holder::Process(process, _) if is_ending(*process) => ending.pause(Some(*process)),
            Holder::Process(..) => None,
            Holder::Unseen => ending.pause(None),
            Holder::Connection if was_connection => None,
            Holder::Connection => {
                // Who listened may have gone since then, and left connections that share the port.
                was_connection = true;
                continue;
            }
        };
        let Some(pause) = pause else { return Err(taken_error(address, holder)) };
        sleep(pause).await;
    }
}

fn bind(address: SocketAddr) -> io::Result<Listening> {
    let socket = socket_for(address)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    Ok(Listening { listener, address })
}

fn connect_error(address: &str, error: &io::Error) -> Error {
    let advice = match error.kind() {
        io::ErrorKind::ConnectionRefused => "; nothing listens there: start the node or correct the address",
        io::ErrorKind::InvalidInput => "; write HOST:PORT",
        _ => "; check the address and that the host is up",
    };
    let kind = if error.kind() == io::ErrorKind::InvalidInput { ErrorKind::Invalid } else { ErrorKind::Unreachable };
    Error::new(kind, format!("cannot connect to {address}: {error}{advice}"))
}

fn name_error(address: &str, error: &io::Error) -> Error {
    Error::new(ErrorKind::Invalid, format!("'{address}' is no address to listen on ({error}); write HOST:PORT"))
}

fn bind_error(address: SocketAddr, error: &io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot listen on {address}: {error}; choose another address"))
}

fn taken_error(address: SocketAddr, holder: Holder) -> Error {
    let text = match holder {
        Holder::Process(process, name) => {
            format!("{address} is taken by process {process} ({name}); stop it or choose another port")
        }
        Holder::Unseen => format!("{address} is taken by a process that cannot be seen from here; choose another port"),
        Holder::Connection => format!(
            "{address} is the own port of a connection that was made from this machine, and will be until a minute after that ends; choose a \
             port that connections do not take (outside of net.ipv4.ip_local_port_range), or try again then"
        ),
    };
    Error::new(ErrorKind::Busy, text)
}

impl Listener for Listening {
    fn address(&self) -> String {
        self.address.to_string()
    }

    fn accept(&mut self) -> Boxed<'_, Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let accepted = async {
                let (stream, peer) = self.listener.accept().await?;
                TcpPeer::boxed(stream, peer)
            };
            accepted.await.map_err(|error| Error::from(error).during(format!("cannot accept on {}", self.address)))
        })
    }
}

impl Stream for TcpPeer {
    fn peer(&self) -> String {
        self.peer.to_string()
    }

    fn is_near(&self) -> bool {
        self.peer.ip().to_canonical().is_loopback()
    }

    fn at_once(&self) -> Option<Arc<dyn AtOnce>> {
        Some(self.open.clone())
    }

    fn abandon(&mut self) {
        // The system would go on to send what it holds for a quarter of an hour after the socket is closed. It refuses this only
        // for a socket that is none.
        let _ = self.stream.set_zero_linger();
    }
}

impl AsyncRead for TcpPeer {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, out)
    }
}

impl AsyncWrite for TcpPeer {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
