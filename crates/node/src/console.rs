//! The port for people's tools: `/metrics`, `/health/live`, `/health/ready`, over HTTP/1.1. Reads only; nothing here changes
//! the store.

use crate::health::{self, Health};
use crate::metrics;
use crate::node::Node;
use base::fault::contained;
use base::net::{Listener, Stream};
use base::places::{Place, Places};
use base::watched::Stopped;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinSet;

/// A request is whole after this long.
const REQUEST_MAX: Duration = Duration::from_secs(5);

/// A connection is closed after this long, and after its answer; whoever wants more connects again. So nobody can hold any for ever.
const CONNECTION_MAX: Duration = Duration::from_secs(60);

/// Bytes of a request. The least that the library takes; ours need some hundred.
const REQUEST_BYTES_MAX: usize = 8192;

/// After a failed accept the next one waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Answers until the node stops.
///
/// A quarter of `places` may be without a whole request; the oldest of those goes when another comes, so that whoever asks is heard,
/// however many others only connect.
pub async fn run(mut listener: Box<dyn Listener>, node: Arc<Node>, places: Arc<Places>, stopped: Stopped) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stopped.until() => return,
            Some(ended) = connections.join_next() => {
                if ended.is_err_and(|error| error.is_panic()) {
                    node.troubles.tell("console", "a connection ended by a fault in Stormwell (its task panicked); others go on", &[]);
                }
            }
            accepted = listener.accept() => match accepted {
                // One that has no place is closed: there is no request yet that could be answered.
                Ok(stream) => if let Ok(place) = places.enter(stream.is_near()) {
                    drop(connections.spawn(contained(converse(stream, node.clone(), place))));
                },
                Err(error) => {
                    node.troubles.tell("console", error.text(), &[]);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
        places.let_leave().await;
    }
}

async fn converse(stream: Box<dyn Stream>, node: Arc<Node>, place: Place) {
    let place = Arc::new(Mutex::new(place));
    let (asking, asked) = (place.clone(), Arc::new(AtomicBool::new(false)));
    let heard = asked.clone();
    let answer = service_fn(move |request: Request<Incoming>| {
        let node = node.clone();
        // From here on others do not push it out. Where there is no room for it, it may still be pushed out.
        let _ = lock(&asking).prove();
        heard.store(true, Ordering::Relaxed);
        async move { Ok::<_, Infallible>(answer(&node, &request).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(REQUEST_BYTES_MAX)
        .serve_connection(Wire(stream), answer);
    let late = async {
        tokio::time::sleep(REQUEST_MAX).await;
        if asked.load(Ordering::Relaxed) {
            tokio::time::sleep(CONNECTION_MAX).await;
        }
    };
    tokio::select! {
        // What has come is heard before the place is given up: a request that is there is answered.
        biased;
        // A client that goes away, or speaks something else, is no news.
        _ = connection => (),
        () = late => (),
        _ = poll_fn(|context| lock(&place).poll_leave(context)) => (),
    }
}

fn lock(place: &Mutex<Place>) -> MutexGuard<'_, Place> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(node: &Node, request: &Request<Incoming>) -> Response<Whole> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "this port only answers GET\n".to_string());
    }
    let json = request
        .headers()
        .get(ACCEPT)
        .is_some_and(|accept| accept.to_str().is_ok_and(|accept| accept.contains("application/json")));
    match request.uri().path() {
        "/metrics" => match metrics::page::page(node).await {
            Ok(page) => whole(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", page),
            Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
        },
        "/health/live" => text(StatusCode::OK, "live\n".to_string()),
        "/health/ready" => {
            let health = health::look(node).await;
            let status = if health.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            if json { whole(status, "application/json", as_json(&health)) } else { text(status, as_text(&health)) }
        }
        "/" => text(StatusCode::OK, "stormwell\n\n/metrics\n/health/live\n/health/ready\n".to_string()),
        _ => text(StatusCode::NOT_FOUND, "there are /metrics, /health/live and /health/ready\n".to_string()),
    }
}

fn as_text(health: &Health) -> String {
    let mut text = if health.ready { "ready\n".to_string() } else { "not ready\n".to_string() };
    for trouble in &health.troubles {
        text.push_str(&format!("{trouble}\n"));
    }
    text
}

fn as_json(health: &Health) -> String {
    serde_json::json!({ "ready": health.ready, "troubles": health.troubles }).to_string() + "\n"
}

fn text(status: StatusCode, text: String) -> Response<Whole> {
    whole(status, "text/plain; charset=utf-8", text)
}

fn whole(status: StatusCode, kind: &'static str, text: String) -> Response<Whole> {
    let mut response = Response::new(Whole(Some(Bytes::from(text))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}

/// A body that is there at once.
struct Whole(Option<Bytes>);

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// A stream as hyper wants it. Requests are short, so they may be copied once.
struct Wire(Box<dyn Stream>);

impl hyper::rt::Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut cursor: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let mut room = [0; 4096];
        let most = room.len().min(cursor.remaining());
        let mut buffer = ReadBuf::new(&mut room[..most]);
        ready!(Pin::new(&mut self.0).poll_read(context, &mut buffer))?;
        cursor.put_slice(buffer.filled());
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Wire {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
