//! The request that a task works on, so that what it asks others carries the same id; and requests that are worth a line in a log.

use crate::error::{Error, ErrorKind};
use crate::id::RequestId;
use crate::limit::SLOW_REQUEST;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

// Not tokio's `task_local!`, whose scope costs 18 ns a turn and this one 7: an append of a few bytes is begun within two.
thread_local! {
    static CURRENT: Cell<RequestId> = const { Cell::new(RequestId::NONE) };
}

/// The request that the running task works on; `NONE` if it works on none.
pub fn current() -> RequestId {
    CURRENT.get()
}

/// Does work on a request: what it asks other nodes is a part of that. A task of its own that it starts is not, unless it is started with
/// this, too.
pub async fn within<F: Future>(request: RequestId, work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(move |context| {
        let _outside = Outside(CURRENT.replace(request));
        work.as_mut().poll(context)
    })
    .await
}

/// What was current before a turn of the work, and is so again behind it, however it ends.
struct Outside(RequestId);

impl Drop for Outside {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// A request that was slow, or failed for a reason that is not its caller's.
pub struct Notable<'a> {
    /// Which one.
    pub request: RequestId,
    /// What was asked.
    pub what: &'a str,
    /// Who asked, `host:port`.
    pub from: &'a str,
    /// From when it was there until it was answered, if that was measured.
    pub took: Option<Duration>,
    /// Why it failed.
    pub error: Option<&'a str>,
}

/// Told of requests that are worth a line.
pub type Noting = dyn Fn(&Notable<'_>) + Send + Sync;

/// Whether it took so long that somebody may want to know why.
pub fn is_slow(took: Duration) -> bool {
    took >= SLOW_REQUEST
}

/// Whether an error of this kind is one that an operator looks for: what failed is the store, or what it stands on. The others say what the
/// caller can mend, or, like a full device, have an alert of their own.
pub fn is_failure(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Io | ErrorKind::Corrupt | ErrorKind::Unreachable)
}

/// The error as the one who asked sees it: with the request's id, by which the logs of the nodes know it, if it is one to look for there.
#[must_use]
pub fn named(error: Error, request: RequestId) -> Error {
    if request.is_none() || !is_failure(error.kind()) {
        return error;
    }
    Error::new(error.kind(), format!("{} (request {request})", error.text()))
}

#[cfg(test)]
mod tests {
    use super::{current, named, within};
    use crate::error::{Error, ErrorKind};
    use crate::id::{RequestId, SessionId};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// Inside the work its request is current, each time that it goes on, and outside it is not; one within another is another's.
    #[test]
    fn inside_and_outside() {
        let (outer, inner) = (RequestId::of(SessionId(5 << 64 | 9), 7), RequestId(8));
        assert_eq!(outer.to_string(), "00000000000000050000000000000007");
        let mut context = Context::from_waker(Waker::noop());
        let mut once = false;
        let pause =
            std::future::poll_fn(|_| if std::mem::replace(&mut once, true) { Poll::Ready(()) } else { Poll::Pending });
        let mut work = pin!(within(outer, async {
            let before = current();
            pause.await;
            (before, within(inner, async { current() }).await, current())
        }));
        assert!(work.as_mut().poll(&mut context).is_pending() && current().is_none());
        assert_eq!(work.as_mut().poll(&mut context), Poll::Ready((outer, inner, outer)));
        assert!(current().is_none());
    }

    /// Only errors that an operator looks for name their request.
    #[test]
    fn named_errors() {
        let text = |kind| named(Error::new(kind, "no"), RequestId(10)).text().to_string();
        assert_eq!(text(ErrorKind::Io), "no (request 0000000000000000000000000000000a)");
        assert_eq!((text(ErrorKind::NotFound), text(ErrorKind::Stale)), ("no".to_string(), "no".to_string()));
        assert_eq!(named(Error::new(ErrorKind::Io, "no"), RequestId::NONE).text(), "no");
    }
}
