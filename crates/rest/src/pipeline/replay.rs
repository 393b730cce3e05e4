//! Requests that are sent again: what was answered to which key.

use crate::failure::Failure;
use axum::{
    body::{Body, Bytes, to_bytes},
    extract::Request,
    http::{HeaderMap, HeaderValue, StatusCode},
    response::{IntoResponse, Response},
};
use parking_lot::Mutex;
use quoin_api::Problem;
use quoin_world::Nanos;
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

/// How long an answer is known, and how many are: beyond that the oldest is forgotten.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
const KEPT_MOST: usize = 1000;
const KEY_MOST: usize = 255;

/// The answers to requests that were carried out, and the requests that are being carried out, by key.
#[derive(Default)]
pub(super) struct Replays(Mutex<HashMap<String, Entry>>);

struct Entry {
    /// Of the request: its path and body.
    fingerprint: u64,
    /// None while it is being carried out.
    answer: Option<Answer>,
}

struct Answer {
    at: Nanos,
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

/// A request that is being carried out. Forgotten with this, unless it is settled.
pub(super) struct Running {
    replays: Arc<Replays>,
    key: String,
}

/// A request, and what tells it from another one.
pub(super) async fn fingerprinted(request: Request) -> (Request, u64) {
    let (parts, body) = request.into_parts();
    // The body is in memory already, within its limit.
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    (parts.uri.path(), parts.uri.query(), &bytes[..]).hash(&mut hasher);
    (Request::from_parts(parts, Body::from(bytes)), hasher.finish())
}

fn refused(status: u16, kind: &str, why: &str, next: &str) -> Response {
    let problem = Problem::new(kind, status, "request refused", "the header Idempotency-Key", why, next);
    Failure::new(problem).into_response()
}

fn is_key(key: &str) -> bool {
    (1..=KEY_MOST).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
}

impl Replays {
    /// Begins a request, or tells what was answered to it.
    #[allow(clippy::result_large_err, reason = "the answer is sent at once")]
    pub(super) fn begin(
        self: &Arc<Self>,
        key: &HeaderValue,
        fingerprint: u64,
        now: Nanos,
    ) -> Result<Running, Response> {
        let Some(key) = key.to_str().ok().filter(|key| is_key(key)) else {
            let why = "it is not 1 to 255 visible ASCII characters";
            return Err(refused(422, "invalid", why, "send a random key, such as a UUID"));
        };
        let mut entries = self.0.lock();
        let fresh = |answer: &Answer| now.since(answer.at) < KEPT_FOR;
        entries.retain(|_, entry| entry.answer.as_ref().is_none_or(fresh));
        match entries.get(key) {
            Some(entry) if entry.fingerprint != fingerprint => Err(refused(
                422,
                "key-reused",
                "the key was sent with another request before",
                "send each request with a key of its own",
            )),
            Some(Entry { answer: None, .. }) => Err(refused(
                409,
                "in-progress",
                "the request with this key is being carried out",
                "wait a moment, and send it again to get its answer",
            )),
            Some(Entry { answer: Some(answer), .. }) => Err(answer.again()),
            None => {
                entries.insert(key.to_owned(), Entry { fingerprint, answer: None });
                Ok(Running { replays: self.clone(), key: key.to_owned() })
            }
        }
    }
}

impl Answer {
    fn again(&self) -> Response {
        let mut response = (self.status, self.headers.clone(), self.body.clone()).into_response();
        response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
        response
    }
}

impl Running {
    /// Keeps the answer if something was done; a request that was refused may be sent again.
    pub(super) async fn settle(self, response: Response, now: Nanos) -> Response {
        if !response.status().is_success() {
            return response;
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap_or_default();
        let again = (status, headers.clone(), body.clone()).into_response();
        let mut entries = self.replays.0.lock();
        if let Some(entry) = entries.get_mut(&self.key) {
            entry.answer = Some(Answer { at: now, status, headers, body });
        }
        if entries.len() > KEPT_MOST {
            let age = |(key, entry): (&String, &Entry)| Some((entry.answer.as_ref()?.at, key.clone()));
            if let Some((_, oldest)) = entries.iter().filter_map(age).min() {
                entries.remove(&oldest);
            }
        }
        again
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut entries = self.replays.0.lock();
        if entries.get(&self.key).is_some_and(|entry| entry.answer.is_none()) {
            entries.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_key_is_of_one_request_for_a_day() {
        let replays = Arc::new(Replays::default());
        let key = HeaderValue::from_static("k1");
        let status =
            |outcome: Result<Running, Response>| outcome.err().map(|response| response.status().as_u16());
        let running = replays.begin(&key, 1, Nanos(0)).ok().unwrap();
        assert_eq!(status(replays.begin(&key, 1, Nanos(0))), Some(409));
        assert_eq!(status(replays.begin(&key, 2, Nanos(0))), Some(422));
        drop(running);
        let running = replays.begin(&key, 1, Nanos(0)).ok().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let response = (StatusCode::CREATED, "made").into_response();
        runtime.block_on(running.settle(response, Nanos(5)));
        let again = replays.begin(&key, 1, Nanos(SECOND)).err().unwrap();
        assert_eq!(
            (again.status().as_u16(), &again.headers()["idempotency-replayed"]),
            (201, &HeaderValue::from_static("true"))
        );
        assert_eq!(status(replays.begin(&key, 2, Nanos(SECOND))), Some(422));
        assert!(replays.begin(&key, 2, Nanos(25 * 3600 * SECOND)).is_ok(), "the day is over");
        assert_eq!(status(replays.begin(&HeaderValue::from_static(""), 1, Nanos(0))), Some(422));
    }

    #[test]
    fn the_oldest_answer_is_forgotten_and_refusals_are_not_kept() {
        let replays = Arc::new(Replays::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for number in 0..=KEPT_MOST as u64 {
            let key = HeaderValue::from_str(&number.to_string()).unwrap();
            let running = replays.begin(&key, 1, Nanos(number)).ok().unwrap();
            runtime.block_on(running.settle(StatusCode::CREATED.into_response(), Nanos(number)));
        }
        let key = HeaderValue::from_static;
        assert!(replays.begin(&key("1"), 1, Nanos(2000)).is_err());
        let running = replays.begin(&key("0"), 1, Nanos(2000)).ok().unwrap();
        runtime.block_on(running.settle(StatusCode::CONFLICT.into_response(), Nanos(2000)));
        assert!(replays.begin(&key("0"), 1, Nanos(2000)).is_ok());
    }
}
