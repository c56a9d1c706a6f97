//! Sockets.

use base::error::ErrorKind;
use base::net::Net;
use os::net::TcpNet;
use std::future::poll_fn;
use std::io::IoSlice;
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
/// way. Here a thread has it whose descriptors are not those of its process.
#[test]
fn ports_of_the_dying_are_waited_for() {
    run(async {
        let (told, address) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let holder = std::thread::spawn(move || {
            // SAFETY: from here on the thread has its own table of descriptors, and nobody else uses it.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
            told.send(listener.local_addr().expect("it has one")).expect("somebody listens");
            released.recv().expect("it is said when");
        });
        let address = address.recv().expect("it has a port").to_string();
        let mut listening = std::pin::pin!(TcpNet.listen(&address));
        let early = poll_fn(|context| Poll::Ready(listening.as_mut().poll(context).is_ready())).await;
        assert!(!early, "it waits");
        release.send(()).expect("it is there");
        holder.join().expect("no panic");
        assert_eq!(listening.await.expect("it is free").address(), address);
    });
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
