//! A connection of the data transfer protocol and its place among all: bytes that were read and not used yet, messages with their length
//! before them, and writes of several parts at once.

use crate::memory::is_too_slow;
use crate::message::transfer::OperationAnswer;
use crate::ticket::Ticket;
use base::error::{Error, ErrorKind, Result};
use base::limit::HDFS_MESSAGE_MAX;
use base::net::Stream;
use base::places::Taken;
use prost::Message;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{sleep, timeout};

/// Bytes that are kept ready at first, and while nothing larger comes: operations are small.
const STAGING: usize = 1024;

/// Longest varint that a length may be.
const LENGTH_MAX: usize = 5;

/// A client that neither takes nor gives anything for this long in the middle of an operation is given up, as in HDFS.
pub const SILENCE_MAX: Duration = Duration::from_secs(480);

/// How often a client that takes nothing is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A connection. Its errors: `Unreachable` if the client went away, which is no trouble; `Protocol` if it sent nonsense; `Busy` if it
/// rested, and others wanted its place.
pub struct Connection {
    /// The socket. Whoever reads from it must take what is staged first.
    pub stream: Box<dyn Stream>,
    /// Its place.
    pub ticket: Ticket,
    /// What was read: `staging[start..end]` is not used yet.
    staging: Vec<u8>,
    start: usize,
    end: usize,
}

impl Connection {
    /// A connection that has said `begun` so far.
    pub fn new(stream: Box<dyn Stream>, ticket: Ticket, begun: Vec<u8>) -> Connection {
        let end = begun.len();
        Connection { stream, ticket, staging: begun, start: 0, end }
    }

    /// Who is at the other end, for people.
    pub fn peer(&self) -> String {
        self.stream.peer()
    }

    /// What was read and is not used yet.
    pub fn staged(&self) -> &[u8] {
        &self.staging[self.start..self.end]
    }

    /// Marks the first `count` staged bytes as used.
    pub fn take(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "{count} bytes were not there");
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.staging.len() > STAGING {
                // It was a large message; the next ones are small.
                self.staging = Vec::new();
            }
        }
    }

    /// Waits for others, while nothing is under way here: the connection rests until then, and gives way to whoever needs its place.
    pub async fn rest_until<T>(&mut self, wait: impl Future<Output = T>) -> Result<T> {
        self.ticket.rest();
        let come = tokio::select! {
            biased;
            come = wait => come,
            gone = self.gone() => return Err(gone),
        };
        self.ticket.work().map_err(|taken| gave_way(&taken))?;
        Ok(come)
    }

    /// Waits until the client is gone, or gives way. What it says meanwhile is kept, as far as there is room for it.
    pub async fn gone(&mut self) -> Error {
        loop {
            let wanted = self.end - self.start + 1;
            if wanted > STAGING {
                return gave_way(&poll_fn(|context| self.ticket.poll_leave(context)).await);
            }
            if let Err(error) = self.stage(wanted).await {
                return error;
            }
        }
    }

    /// Waits until at least `count` bytes are staged and shows what is. `count` is at most `base::limit::HDFS_MESSAGE_MAX`
    /// and some: the caller has compared it.
    pub async fn stage(&mut self, count: usize) -> Result<&[u8]> {
        while self.end - self.start < count {
            self.make_room(count);
            let got = tokio::select! {
                biased;
                got = self.stream.read(&mut self.staging[self.end..]) => got.map_err(gone)?,
                taken = poll_fn(|context| self.ticket.poll_leave(context)) => return Err(gave_way(&taken)),
            };
            if got == 0 {
                return Err(Error::new(ErrorKind::Unreachable, "the client closed the connection"));
            }
            self.end += got;
        }
        Ok(self.staged())
    }

    /// Room for `count` bytes from `start` on.
    fn make_room(&mut self, count: usize) {
        if self.start > 0 && self.staging.len() - self.start < count.max(STAGING) {
            self.staging.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = count.max(STAGING);
        if self.staging.len() < room {
            self.staging.resize(room, 0);
        }
    }

    /// Says that nothing more comes, and throws away what the client still sends until it has heard that: closing with something unread
    /// could overtake what it was told. Nothing is under way meanwhile.
    pub async fn end(&mut self) {
        self.take(self.end - self.start);
        self.ticket.rest();
        let ending = async {
            self.stream.shutdown().await?;
            let mut rest = vec![0; STAGING];
            while self.stream.read(&mut rest).await? > 0 {}
            Ok::<(), io::Error>(())
        };
        // One that is gone has heard what it could, and one that never is has had as long as a silent one has.
        tokio::select! {
            biased;
            _ended = timeout(SILENCE_MAX, ending) => (),
            _taken = poll_fn(|context| self.ticket.poll_leave(context)) => (),
        }
    }

    /// Waits for a message with its length before it.
    pub async fn read_message<M: Message + Default>(&mut self) -> Result<M> {
        let mut wanted = 1;
        let (head, length) = loop {
            let staged = self.stage(wanted).await?;
            match read_length(staged) {
                Some(found) => break found,
                None if staged.len() >= LENGTH_MAX => return Err(nonsense("a message has no length")),
                None => wanted = staged.len() + 1,
            }
        };
        if length > HDFS_MESSAGE_MAX as u64 {
            return Err(nonsense(format!("a message of {length} bytes came; {HDFS_MESSAGE_MAX} is the most")));
        }
        let whole = head + length as usize;
        let bytes = &self.stage(whole).await?[head..whole];
        let message = M::decode(bytes).map_err(|error| nonsense(format!("a message cannot be read: {error}")))?;
        self.take(whole);
        Ok(message)
    }

    /// Answers with nothing but a status and a text for people.
    pub async fn answer(&mut self, status: i32, text: &str) -> Result<()> {
        let text = (!text.is_empty()).then(|| text.to_string());
        self.write_message(&OperationAnswer { status, text, ..OperationAnswer::default() }).await
    }

    /// Sends a message with its length before it.
    pub async fn write_message<M: Message>(&mut self, message: &M) -> Result<()> {
        let bytes = message.encode_length_delimited_to_vec();
        self.write_all(&mut [IoSlice::new(&bytes)], || false).await
    }

    /// Sends these parts one after another. An error if the client takes nothing for too long, or too little while others want the memory
    /// that is held until it has: `wanted` is asked that while it takes too little. One that takes too little for a while rests: a
    /// client that is only paused finds its connection, unless others need the place.
    pub async fn write_all(&mut self, mut parts: &mut [IoSlice<'_>], mut wanted: impl FnMut() -> bool) -> Result<()> {
        IoSlice::advance_slices(&mut parts, 0);
        let mut look = pin!(sleep(LOOK_EVERY));
        let (mut taken, mut waited, mut silent, mut rested) = (0, Duration::ZERO, Duration::ZERO, false);
        while !parts.is_empty() {
            let write = poll_fn(|context| Pin::new(&mut self.stream).poll_write_vectored(context, parts));
            let written = tokio::select! {
                biased;
                written = write => written.map_err(gone)?,
                () = &mut look => {
                    look.set(sleep(LOOK_EVERY));
                    waited += LOOK_EVERY;
                    silent += LOOK_EVERY;
                    let slow = is_too_slow(waited, taken, true);
                    if silent >= SILENCE_MAX || slow && wanted() {
                        let text = format!("the client took {taken} bytes in {} s", waited.as_secs());
                        return Err(Error::new(ErrorKind::Unreachable, text));
                    }
                    if slow {
                        self.ticket.rest();
                        rested = true;
                    }
                    continue;
                }
                leave = poll_fn(|context| self.ticket.poll_leave(context)) => return Err(gave_way(&leave)),
            };
            taken += written as u64;
            silent = Duration::ZERO;
            if written == 0 {
                return Err(gone(io::Error::from(io::ErrorKind::WriteZero)));
            }
            IoSlice::advance_slices(&mut parts, written);
        }
        if rested { self.ticket.work().map_err(|taken| gave_way(&taken)) } else { Ok(()) }
    }
}

/// The length at the start of these bytes and how many bytes it takes. None: it does not end here.
fn read_length(bytes: &[u8]) -> Option<(usize, u64)> {
    let mut length = 0;
    for (place, byte) in bytes.iter().take(LENGTH_MAX).enumerate() {
        length |= u64::from(byte & 0x7F) << (7 * place);
        if byte & 0x80 == 0 {
            return Some((place + 1, length));
        }
    }
    None
}

/// The socket's error as one that says that the client is gone.
pub fn gone(error: io::Error) -> Error {
    Error::new(ErrorKind::Unreachable, format!("the connection ended: {error}"))
}

/// Others wanted the place of a connection that rested.
fn gave_way(taken: &Taken) -> Error {
    Error::new(ErrorKind::Busy, taken.to_string())
}

/// The client broke the protocol.
pub fn nonsense(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Protocol, text)
}

#[cfg(test)]
mod tests {
    use super::{Connection, SILENCE_MAX, STAGING};
    use crate::message::transfer::{OperationAnswer, ReadStatus};
    use crate::ticket::Ticket;
    use base::error::ErrorKind;
    use base::limit::{HDFS_RATE_MIN, HDFS_STALL_MAX, HDFS_STALL_MAX_PRESSED};
    use base::net::Stream;
    use base::places::Places;
    use std::io::{self, IoSlice};
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};

    struct End(DuplexStream);

    impl Stream for End {
        fn peer(&self) -> String {
            "test".to_string()
        }
    }

    impl AsyncRead for End {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            out: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(context, out)
        }
    }

    impl AsyncWrite for End {
        fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(context, bytes)
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(context)
        }
    }

    /// Messages and plain bytes come out as they went in, however the stream is cut.
    #[tokio::test]
    async fn any_cut_is_the_same() {
        let bytes: Vec<u8> = [&[2, 8, 6, 2, 8, 0][..], &[9; 3000], &[2, 8, 1]].concat();
        for step in [1, 2, 5, 999, 5000] {
            let (here, mut there) = duplex(step);
            let mut connection = Connection::new(Box::new(End(here)), Ticket::alone(), bytes[..1].to_vec());
            let rest = bytes[1..].to_vec();
            let sending = tokio::spawn(async move { there.write_all(&rest).await.map(|()| there) });
            for status in [6, 0] {
                assert_eq!(connection.read_message::<ReadStatus>().await.expect("a message"), ReadStatus { status });
            }
            assert_eq!(connection.stage(3000).await.expect("bytes")[..3000], [9; 3000]);
            connection.take(3000);
            assert_eq!(connection.read_message::<ReadStatus>().await.expect("a message"), ReadStatus { status: 1 });
            drop(sending.await.expect("no panic").expect("sent"));
            let error = connection.stage(1).await.expect_err("it ended");
            assert_eq!(error.kind(), ErrorKind::Unreachable);
        }
    }

    /// Absurd lengths are refused before anything is allocated for them, and so is a message that is none.
    #[tokio::test]
    async fn absurd_lengths_are_refused() {
        for begun in
            [&[0xFF; 5][..], &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F], &[0x81, 0x80, 0x04], &[3, 0x08, 0xFF, 0xFF], &[5]]
        {
            let mut connection = Connection::new(Box::new(End(duplex(10).0)), Ticket::alone(), begun.to_vec());
            let error = connection.read_message::<ReadStatus>().await.expect_err("nonsense");
            let expected = if *begun == [5] { ErrorKind::Unreachable } else { ErrorKind::Protocol };
            assert_eq!(error.kind(), expected, "{begun:?}: {}", error.text());
        }
    }

    /// A client that takes nothing while others want what is held for it is sent away within seconds; if nobody wants it, only after HDFS's
    /// own time. One that takes enough is kept.
    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "it is the runtime's paused time that is looked at")]
    async fn who_takes_nothing_gives_up() {
        for (wanted, least, most) in
            [(true, HDFS_STALL_MAX_PRESSED, HDFS_STALL_MAX), (false, SILENCE_MAX, 2 * SILENCE_MAX)]
        {
            let (here, _there) = duplex(100);
            let mut connection = Connection::new(Box::new(End(here)), Ticket::alone(), Vec::new());
            let began = tokio::time::Instant::now();
            let error =
                connection.write_all(&mut [IoSlice::new(&[1; 101])], || wanted).await.expect_err("it takes 100");
            assert_eq!(error.kind(), ErrorKind::Unreachable);
            assert!((least..most).contains(&began.elapsed()), "{wanted}: {:?}", began.elapsed());
        }
        let (here, mut there) = duplex(HDFS_RATE_MIN as usize);
        let mut connection = Connection::new(Box::new(End(here)), Ticket::alone(), Vec::new());
        let reading = tokio::spawn(async move {
            let mut some = vec![0; HDFS_RATE_MIN as usize];
            while there.read_exact(&mut some).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let bytes = vec![1; 20 * HDFS_RATE_MIN as usize];
        connection.write_all(&mut [IoSlice::new(&bytes)], || true).await.expect("it takes enough");
        reading.abort();
    }

    /// A client that takes nothing, or that never ends its half, keeps nobody out: its place is another's as soon as somebody needs it.
    /// One that goes on before has its place again.
    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_gives_way() {
        for ending in [false, true] {
            let places = Places::new(16);
            let (here, _there) = duplex(100);
            let mut connection = Connection::new(Box::new(End(here)), Ticket::among(&places), Vec::new());
            // Those of other machines have 14 places.
            let _others: Vec<Ticket> = (1..14).map(|_| Ticket::among(&places)).collect();
            let stalled = async {
                if ending {
                    connection.end().await;
                    return ErrorKind::Busy;
                }
                connection.write_all(&mut [IoSlice::new(&[1; 101])], || false).await.expect_err("it gave way").kind()
            };
            let newcomer = async {
                let mut newcomer = places.enter(false).expect("newcomers are let in");
                while newcomer.prove().is_err() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                newcomer
            };
            let both = async { tokio::join!(stalled, newcomer) };
            let (kind, _newcomer) = tokio::time::timeout(HDFS_STALL_MAX, both).await.expect("within seconds");
            assert_eq!(kind, ErrorKind::Busy, "ending: {ending}");
        }
        let places = Places::new(16);
        let (here, mut there) = duplex(100);
        let mut connection = Connection::new(Box::new(End(here)), Ticket::among(&places), Vec::new());
        let _others: Vec<Ticket> = (1..14).map(|_| Ticket::among(&places)).collect();
        let mut parts = [IoSlice::new(&[1; 101])];
        let taking = async {
            tokio::time::sleep(2 * HDFS_STALL_MAX).await;
            there.read_exact(&mut [0; 101]).await
        };
        let (sent, taken) = tokio::join!(connection.write_all(&mut parts, || false), taking);
        assert!(sent.is_ok() && taken.is_ok());
        assert!(places.enter(false).expect("newcomers are let in").prove().is_err(), "nobody rests any more");
    }

    /// That a client is gone is seen while nothing is written to it; what it said before is kept.
    #[tokio::test]
    async fn gone_while_it_waits() {
        let (here, mut there) = duplex(5000);
        let mut connection = Connection::new(Box::new(End(here)), Ticket::alone(), Vec::new());
        there.write_all(&[7; 20]).await.expect("sent");
        let staged = async {
            while connection.staged().len() < 20 {
                let waiting = tokio::time::timeout(Duration::from_millis(1), connection.gone()).await;
                assert!(waiting.is_err(), "it is there");
            }
        };
        staged.await;
        drop(there);
        assert_eq!(connection.gone().await.kind(), ErrorKind::Unreachable);
        assert_eq!(connection.staged(), [7; 20]);
        let (here, mut there) = duplex(5000);
        let mut connection = Connection::new(Box::new(End(here)), Ticket::alone(), Vec::new());
        there.write_all(&[7; 5000]).await.expect("sent");
        drop(there);
        let waiting = tokio::time::timeout(Duration::from_millis(1), connection.gone()).await;
        assert!(waiting.is_err() && connection.staged().len() <= STAGING, "no more than there is room for");
    }

    /// All parts of a write arrive in their order, also when the socket takes a few bytes at a time.
    #[tokio::test]
    async fn parts_arrive_in_order() {
        let (here, mut there) = duplex(7);
        let mut connection = Connection::new(Box::new(End(here)), Ticket::alone(), Vec::new());
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            there.read_to_end(&mut all).await.map(|_| all)
        });
        let (a, b) = (vec![1; 50], vec![2; 33]);
        let mut parts = [IoSlice::new(&a), IoSlice::new(&[]), IoSlice::new(&b)];
        connection.write_all(&mut parts, || false).await.expect("sent");
        let answer = OperationAnswer { first_bad_link: Some(String::new()), ..OperationAnswer::default() };
        connection.write_message(&answer).await.expect("sent");
        drop(connection);
        let all = reading.await.expect("no panic").expect("read");
        assert_eq!(all, [&a[..], &b, &[4, 8, 0, 18, 0]].concat());
    }
}
