//! The body of a request: all of it is read, within its time and size, before the request is carried out.

use crate::{
    connections::{Place, Working},
    failure::Failure,
};
use axum::{
    body::{Body, Bytes, HttpBody},
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use hyper::body::{Frame, SizeHint};
use quoin_api::{Problem, ProblemKind};
use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::timeout;

/// The most a request's body may hold.
const BODY_BYTES_MAX: usize = 64 << 10;

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
    // From here on the connection keeps its place until its answer is sent, unless it lost it already.
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
    // A body whose stated length is too large is not read at all.
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

/// The refusal of a request while as many are worked on as there may be.
pub(crate) fn busy() -> Problem {
    Problem::new(
        ProblemKind::Busy,
        "request not taken",
        "the management interface",
        "as many requests are being worked on as the array takes at once",
        "try again in a second",
    )
}
