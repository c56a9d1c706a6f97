//! Sockets.

use base::error::ErrorKind;
use base::net::Net;
use os::net::TcpNet;
use std::future::poll_fn;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::Poll;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Bytes go both ways, several parts in one call.
#[test]
fn both_ways() {
    run(async {
        let mut listener = TcpNet.listen("127.0.0.1:0").await.unwrap();
        let address = listener.address();
        let (near, far) = tokio::join!(TcpNet.connect(&address), listener.accept());
        let (mut near, mut far) = (near.unwrap(), far.unwrap());
        assert_eq!(near.peer(), address);
        assert!(near.is_write_vectored());
        let count = near.write_vectored(&[IoSlice::new(b"storm"), IoSlice::new(b"well")]).await.unwrap();
        assert_eq!(count, 9);
        let mut bytes = [0; 9];
        far.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"stormwell");
        far.write_all(b"ok").await.unwrap();
        drop(far);
        let mut rest = Vec::new();
        near.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"ok");
    });
}

/// What the system holds back for an abandoned stream never arrives: the other side finds it cut off, not at its end.
#[test]
fn abandoned() {
    run(async {
        let mut listener = TcpNet.listen("127.0.0.1:0").await.unwrap();
        let address = listener.address();
        let (near, far) = tokio::join!(TcpNet.connect(&address), listener.accept());
        let (mut near, mut far) = (near.unwrap(), far.unwrap());
        let mut sent = 0;
        let bytes = vec![7; 1 << 20];
        // Nobody reads, so the buffers of both sides fill up; the last write never ends.
        poll_fn(|context| {
            while let Poll::Ready(count) = Pin::new(&mut near).poll_write(context, &bytes) {
                sent += count.unwrap();
            }
            Poll::Ready(())
        })
        .await;
        near.abandon();
        drop(near);
        let mut came = Vec::new();
        let error = far.read_to_end(&mut came).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        assert!(came.len() < sent, "{} of {sent} bytes came", came.len());
    });
}

/// A port that is taken is reported with who has it; a port where nobody listens with what to do.
#[test]
fn errors_say_who_and_what() {
    run(async {
        let listener = TcpNet.listen("127.0.0.1:0").await.unwrap();
        let address = listener.address();
        let taken = TcpNet.listen(&address).await.err().unwrap();
        assert_eq!(taken.kind(), ErrorKind::Busy);
        assert!(taken.text().contains(&format!("taken by process {} (", std::process::id())), "{taken}");
        drop(listener);
        let refused = TcpNet.connect(&address).await.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Unreachable);
        assert!(refused.text().contains("nothing listens there"), "{refused}");
        let bad = TcpNet.listen("nonsense").await.err().unwrap();
        assert_eq!(bad.kind(), ErrorKind::Invalid);
    });
}

/// A port that is taken and that no process has is waited for, as that of a process that was killed and whose writes are still on their
/// way. Here the listener is in a message that nobody has received.
#[test]
fn ports_of_the_dying_are_waited_for() {
    run(async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it has one").to_string();
        let message = sent_away(listener);
        let mut listening = std::pin::pin!(TcpNet.listen(&address));
        let early = poll_fn(|context| Poll::Ready(listening.as_mut().poll(context).is_ready())).await;
        assert!(!early, "it waits");
        drop(message);
        assert_eq!(listening.await.expect("it is free").address(), address);
    });
}

/// A server starts on a port that a connection of ours has, or had a moment ago, as its own; one that another program's connection has is
/// said at once: it will be taken for a minute.
#[test]
fn ports_of_connections() {
    run(async {
        // The kernel may give a connection a port that one of another program to somewhere else has, too, or had a minute ago, as thousands
        // do after the tests of other crates: then it is not shared. Ports to one place come one after another, so ask at another one.
        let mut shared = None;
        for _ in 0..100 {
            let mut listener = TcpNet.listen("127.0.0.1:0").await.expect("a free port");
            let address = listener.address();
            let (near, far) = tokio::join!(TcpNet.connect(&address), listener.accept());
            let (near, far) = (near.expect("connected"), far.expect("accepted"));
            let own = far.peer();
            if TcpNet.listen(&own).await.map(drop).is_err() {
                continue;
            }
            drop(near);
            drop(far);
            if TcpNet.listen(&own).await.map(drop).is_ok() {
                shared = Some((listener, address));
                break;
            }
        }
        let (_listener, address) =
            shared.expect("a listener shares the port of our connection, and of what is left of it");
        let other = std::net::TcpStream::connect(&address).expect("connected");
        let own = other.local_addr().expect("it has one").to_string();
        let mut listening = std::pin::pin!(TcpNet.listen(&own));
        let asked = poll_fn(|context| Poll::Ready(listening.as_mut().poll(context))).await;
        let Poll::Ready(Err(taken)) = asked else { panic!("it waits, or listens") };
        assert_eq!(taken.kind(), ErrorKind::Busy);
        assert!(taken.text().contains("own port of a connection"), "{taken}");
    });
}

/// Where nobody listens nobody answers: the kernel gives a connection a port by chance, now and then the one that it goes to.
#[test]
fn nobody_meets_himself() {
    run(async {
        // Connections are given even ports as long as there are such (Linux since 4.2), and those that are listened on odd ones.
        let even = || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").ok()?;
            let near = std::net::TcpStream::connect(listener.local_addr().ok()?).ok()?;
            let (far, _) = listener.accept().ok()?;
            let port = near.local_addr().ok()?.port();
            // Closed from the other side first, the port is free at once.
            drop(far);
            drop(near);
            Some(port)
        };
        let address = format!("127.0.0.1:{}", even().expect("a port"));
        for _ in 0..40_000 {
            let refused = TcpNet.connect(&address).await.err().expect("nobody listens there");
            assert_eq!(refused.kind(), ErrorKind::Unreachable);
        }
    });
}

/// Sends a descriptor, closes it, and returns the two ends of the stream on which it is under way: it lives as long as they do. See
/// unix(7), `SCM_RIGHTS`.
fn sent_away(listener: std::net::TcpListener) -> (UnixStream, UnixStream) {
    let ends = UnixStream::pair().expect("a pair of sockets");
    let mut byte = [0_u8; 1];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
    // 64 bytes, aligned for the header of 16 bytes and the descriptor of 4.
    let mut control = [0_u64; 8];
    // SAFETY: the header is all zero but for what is set here: one part and one control message, which lie in this function's memory, and
    // `CMSG_FIRSTHDR` gives the start of `control`, which has room for both.
    let count = unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as usize;
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        (*first).cmsg_level = libc::SOL_SOCKET;
        (*first).cmsg_type = libc::SCM_RIGHTS;
        (*first).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
        libc::CMSG_DATA(first).cast::<RawFd>().write_unaligned(listener.as_raw_fd());
        libc::sendmsg(ends.0.as_raw_fd(), &raw const header, 0)
    };
    assert_eq!(count, 1, "{}", std::io::Error::last_os_error());
    ends
}

/// A machine knows its own addresses and its own name, whatever listens there; other names and machines are not here.
#[test]
fn own_addresses() {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("every Linux has one");
    assert!(TcpNet.is_here(&format!("{}:7400", name.trim().to_uppercase())), "{name}");
    for own in ["127.0.0.1:7400", "127.8.8.8:1", "[::1]:7400", "localhost:7400"] {
        assert!(TcpNet.is_here(own), "{own}");
    }
    // 192.0.2.0/24 is for examples: no machine has an address of it.
    for other in ["192.0.2.1:7400", "0.0.0.0:7400", "[::]:7400", "example.org:7400", "", "127.0.0.1"] {
        assert!(!TcpNet.is_here(other), "{other}");
    }
}
