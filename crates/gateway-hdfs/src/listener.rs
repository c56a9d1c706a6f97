//! The one port: the first bytes of a connection say whether it carries calls, data, or a person with a browser.

use crate::gateway::Gateway;
use crate::message::rpc::{CALL_UNKNOWN, FATAL_UNKNOWN};
use crate::refusal::{RETRIABLE, Refusal};
use crate::ticket::Ticket;
use crate::{rpc, transfer};
use base::fault::contained;
use base::limit::{CALL_SILENCE_MAX, HELLO_WAIT_MAX};
use base::net::{Listener, Stream};
use base::places::{Places, Taken};
use base::watched::Stopped;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// After a failed accept (no file descriptors left, for instance) the next one waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a connection that we end is kept for the other side to hear why.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Bytes that say what a connection is for.
const FIRST_BYTES: usize = 4;

/// Connections at once that hear why there is no place for them; further ones are closed without a word.
const REFUSED_MAX: usize = 64;

/// What a browser sees.
const FOR_PEOPLE: &str = "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n\
    This is the HDFS port of Stormwell. It speaks Hadoop RPC and Hadoop's data transfer protocol, not HTTP.\n\
    Set fs.defaultFS to hdfs:// and this host and port in core-site.xml, then use `hdfs dfs`.\n";

/// Takes connections, `most` at once, until `shutdown` comes (its `Stop` says so, or is dropped); then lets what is under way end, for
/// `CALL_SILENCE_MAX` at most, and returns.
pub async fn run(gateway: Arc<Gateway>, mut listener: Box<dyn Listener>, most: usize, shutdown: Stopped) {
    let places = Places::new(most);
    let mut connections = JoinSet::new();
    let mut stop = Box::pin(shutdown.until());
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended && error.is_panic() {
                    (gateway.on_trouble)("a connection ended by a fault in Stormwell (its task panicked); others go on".to_string());
                }
            }
            accepted = listener.accept() => match accepted {
                Ok(stream) => match places.enter(stream.is_near()) {
                    Ok(place) => {
                        let ticket = Ticket::new(place, places.clone());
                        drop(connections.spawn(contained(converse(gateway.clone(), stream, ticket, shutdown.clone()))));
                    }
                    Err(taken) => {
                        (gateway.on_trouble)(format!("{}: refused: {taken}", stream.peer()));
                        if connections.len() < most + REFUSED_MAX {
                            drop(connections.spawn(contained(refuse(stream, taken))));
                        }
                    }
                },
                Err(error) => {
                    (gateway.on_trouble)(format!("no connection could be taken: {error}"));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
        places.let_leave().await;
    }
    drop(listener);
    let finish = async { while connections.join_next().await.is_some() {} };
    drop(timeout(CALL_SILENCE_MAX, finish).await);
}

/// One connection from its first byte to its last.
async fn converse(gateway: Arc<Gateway>, mut stream: Box<dyn Stream>, ticket: Ticket, shutdown: Stopped) {
    let accepted = gateway.clock.now();
    let begun = tokio::select! {
        biased;
        begun = timeout(HELLO_WAIT_MAX, first_bytes(&mut stream)) => begun,
        taken = poll_fn(|context| ticket.poll_leave(context)) => return say_why(&mut stream, &taken).await,
    };
    // A connection that says nothing at first is closed; nobody needs to be told.
    let Ok(Some(begun)) = begun else { return };
    match begun.as_slice() {
        // The second form wants to prove who it is before data comes; it is told that this is not served.
        [0, ..] | [0xDE, 0xAD, 0xBE, 0xEF] => {
            let data = Box::pin(transfer::converse(gateway, stream, ticket, begun));
            tokio::select! {
                biased;
                () = shutdown.until() => (),
                () = data => (),
            }
        }
        b"GET " | b"HEAD" => {
            // Whoever goes away first is no news.
            let _gone = stream.write_all(FOR_PEOPLE.as_bytes()).await;
            linger(&mut stream).await;
        }
        // What nobody knows is told so in the words of Hadoop RPC.
        _ => Box::pin(rpc::Connection::new(gateway, stream, (accepted, ticket), begun, shutdown).run()).await,
    }
}

/// Tells one that has no place why, and waits a little for the word to arrive.
async fn refuse(mut stream: Box<dyn Stream>, taken: Taken) {
    say_why(&mut stream, &taken).await;
    linger(&mut stream).await;
}

/// Says in the words of Hadoop RPC why there is no place: what the connection is for is not known yet, and a client of the data
/// transfer protocol takes this for the end. A place is not kept for them to arrive: others want it.
async fn say_why(stream: &mut Box<dyn Stream>, taken: &Taken) {
    let mut words = Vec::new();
    rpc::append_fatal(&mut words, CALL_UNKNOWN, &Refusal::new(RETRIABLE, taken.to_string()), FATAL_UNKNOWN);
    // Whoever goes away first is no news.
    drop(timeout(LAST_WORDS, stream.write_all(&words)).await);
}

/// The first bytes of a connection. `None`: it ended before.
async fn first_bytes(stream: &mut Box<dyn Stream>) -> Option<Vec<u8>> {
    let mut begun = vec![0; FIRST_BYTES];
    stream.read_exact(&mut begun).await.ok()?;
    Some(begun)
}

/// Ends our half of a connection and waits a little for the other half to end: closing at once, with bytes unread, could
/// overtake our last words.
pub async fn linger(stream: &mut Box<dyn Stream>) {
    let words = async {
        stream.flush().await?;
        stream.shutdown().await?;
        // On the heap: this future lies in the task of every connection.
        let mut discarded = vec![0; 4096];
        while stream.read(&mut discarded).await? > 0 {}
        std::io::Result::Ok(())
    };
    // However it ends: the connection is over.
    drop(timeout(LAST_WORDS, words).await);
}
