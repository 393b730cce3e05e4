//! Serving the router: connections, how many there are, and how long each may take.
//!
//! Promises: a client that sends half a request, or does not take its answer, holds one place for a bounded time and
//! none that another needs; running out of descriptors neither ends the server nor keeps a processor busy.

use crate::{
    Server,
    connections::{Connections, Limits, Place, Working},
    failure::Failure,
    server::router,
};
use axum::{
    Router,
    body::{Body, Bytes, HttpBody},
    extract::{ConnectInfo, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use hyper::{
    body::{Frame, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use quoin_api::{Problem, ProblemKind};
use rustix::net::sockopt::set_tcp_user_timeout;
use std::{
    future::Future,
    io::{self, Write},
    net::{SocketAddr, TcpListener},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    net::TcpStream,
    sync::{oneshot, watch},
    task::{JoinSet, yield_now},
    time::{sleep, timeout},
};
use tower_service::Service;

/// The most a request's body may hold.
const BODY_BYTES_MAX: usize = 64 << 10;
/// How long accepting rests after it failed: that a descriptor is free again takes a while.
const REST: Duration = Duration::from_millis(50);

/// Serves the interface on `listener` until `stop` resolves and the requests that began are answered.
///
/// # Errors
/// The system's error if the listener cannot be set up for the runtime. Failures of single connections are
/// only logged.
pub async fn serve(
    listener: TcpListener,
    server: Server,
    limits: Limits,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let connections = Connections::new(limits);
    let router = router(server, limits.body_within);
    let (stopping, stops) = watch::channel(false);
    let mut open = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = open.join_next(), if !open.is_empty() => continue,
            () = &mut stop => break,
        };
        match accepted {
            Ok((stream, peer)) => match connections.admit(peer.ip()) {
                Some((place, closed)) => {
                    open.spawn(connection(
                        (stream, peer),
                        router.clone(),
                        place,
                        limits,
                        closed,
                        stops.clone(),
                    ));
                    // Lets connections that made room close before the next one takes a descriptor.
                    yield_now().await;
                }
                None => turn_away(stream),
            },
            Err(error) => {
                tracing::warn!(%error, "connection to the management interface not accepted");
                sleep(REST).await;
            }
        }
    }
    drop(listener);
    stopping.send_replace(true);
    connections.close_waiting();
    while open.join_next().await.is_some() {}
    Ok(())
}

/// Serves one connection to its end, or until it has to make room.
async fn connection(
    (stream, peer): (TcpStream, SocketAddr),
    router: Router,
    place: Place,
    limits: Limits,
    closed: oneshot::Receiver<()>,
    mut stops: watch::Receiver<bool>,
) {
    let place = Arc::new(place);
    // Fails for a socket that is closed already, which the first read reports.
    let _ = stream.set_nodelay(true);
    let _ = set_tcp_user_timeout(&stream, limits.taken_within.as_millis() as u32);
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(place.clone());
        request.extensions_mut().insert(ConnectInfo(peer));
        router.clone().call(request.map(Body::new))
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head_within);
    let mut serving = pin!(http.serve_connection(TokioIo::new(stream), service));
    let mut closed = pin!(closed);
    let mut stopping = false;
    loop {
        tokio::select! {
            ended = serving.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection to the management interface ended");
                }
                return;
            }
            Ok(()) = closed.as_mut() => return,
            _ = stops.wait_for(|stop| *stop), if !stopping => {
                stopping = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Sends the refusal of a connection for which no other one can make room, as far as the client takes it at once.
fn turn_away(stream: TcpStream) {
    let body = serde_json::to_string(&busy()).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: {}\r\nContent-Length: {}\r\nRetry-After: 1\r\n\
         Connection: close\r\n\r\n",
        quoin_api::PROBLEM_MEDIA_TYPE,
        body.len()
    );
    if let Ok(mut stream) = stream.into_std() {
        // A client that does not take it learns the same from the closed connection.
        let _ = stream.write_all((head + &body).as_bytes());
    }
    tracing::warn!("connection to the management interface refused: all that are open work on requests");
}

fn busy() -> Problem {
    Problem::new(
        ProblemKind::Busy,
        "request not taken",
        "the management interface",
        "as many requests are being worked on as the array takes at once",
        "try again in a second",
    )
}

/// Reads the body, within its time and size, and carries the request out. Comes after the check of the token: the array
/// does not wait for clients without one.
pub(crate) async fn whole_request(
    State(body_within): State<Duration>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    // Ends with its connection when that makes room.
    let bytes = match timeout(body_within, read(body)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(failure)) => return failure.into_response(),
        Err(_) => return too_slow(body_within).into_response(),
    };
    let place = parts.extensions.remove::<Arc<Place>>();
    let working = place.as_ref().map(Place::work);
    if let Some(None) = working {
        return Failure::new(busy()).into_response();
    }
    let response = next.run(Request::from_parts(parts, Body::from(bytes))).await;
    response.map(|answer| Body::new(Answer { answer, _working: working.flatten() }))
}

/// An answer on its way: the connection makes no room for others before all of it is in the connection's buffer.
struct Answer {
    answer: Body,
    _working: Option<Working>,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.answer).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.answer.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.answer.size_hint()
    }
}

async fn read(body: Body) -> Result<Bytes, Failure> {
    let refused = |kind, why: String, next: &str| {
        Failure::new(Problem::new(kind, "request refused", "the body", why, next))
    };
    let too_large = || {
        let why = format!("the body is larger than {BODY_BYTES_MAX} bytes");
        refused(ProblemKind::TooLarge, why, "send a smaller request")
    };
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let mut body = pin!(body);
    let mut bytes = Vec::new();
    loop {
        let frame = std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await;
        match frame {
            None => return Ok(bytes.into()),
            Some(Err(error)) => {
                let why = format!("the body cannot be read: {error}");
                return Err(refused(ProblemKind::UnreadableBody, why, "send all of the request"));
            }
            Some(Ok(frame)) => {
                bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
                if bytes.len() > BODY_BYTES_MAX {
                    return Err(too_large());
                }
            }
        }
    }
}

fn too_slow(body_within: Duration) -> Failure {
    let why = format!("the body did not arrive within {} s", body_within.as_secs_f64());
    let problem = Problem::new(ProblemKind::Timeout, "request refused", "the body", why, "send it at once");
    Failure::new(problem)
}
