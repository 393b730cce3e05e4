//! Serving the router: connections, how many there are, and how long each may take.
//!
//! Promises: a client that sends half a request, or does not take its answer, holds one place for a bounded time and
//! none that another needs; running out of descriptors neither ends the server nor keeps a processor busy.

use crate::{
    Server,
    body::busy,
    connections::{Connections, Limits, Place},
    router::router,
};
use axum::{Router, body::Body, extract::ConnectInfo};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::set_tcp_user_timeout;
use std::{
    future::Future,
    io::{self, Write},
    net::{SocketAddr, TcpListener},
    pin::pin,
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::TcpStream,
    sync::{oneshot, watch},
    task::{JoinSet, yield_now},
    time::sleep,
};
use tower_service::Service;

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
        // The next connection, the end of one, or the end of serving.
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
    // Connections whose requests are being worked on end when those are answered; the others end now.
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
    // Each request knows its connection, to hold its place, and where it came from.
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
