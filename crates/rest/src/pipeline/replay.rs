//! Requests that are sent again: the answer to each key.
//!
//! This process knows its own answers and repeats them. Requests that an earlier process carried out are known only
//! from the array's notes, and answered with the current state of the object.

use crate::failure::Failure;
use axum::{
    body::{Body, Bytes, to_bytes},
    extract::Request,
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header::LOCATION},
    response::{IntoResponse, Response},
};
use parking_lot::Mutex;
use quoin_api::{BASE_PATH, Problem, ProblemKind};
use quoin_array::{CarriedOut, RequestKey, utc_text};
use quoin_world::Nanos;
use sha2::{Digest, Sha256};
use std::{collections::HashMap, sync::Arc, time::Duration};

/// How long an answer is known, and how many are: beyond that the oldest is forgotten.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
const KEPT_MOST: usize = 1000;
const KEY_MOST: usize = 255;

/// The answers to requests that were carried out, and the requests that are being carried out, by key.
#[derive(Default)]
pub(super) struct Replays(Mutex<HashMap<String, Entry>>);

struct Entry {
    fingerprint: String,
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

/// A request with its key and what distinguishes it from others.
#[allow(clippy::result_large_err, reason = "the answer is sent at once")]
pub(super) async fn keyed(key: &HeaderValue, request: Request) -> Result<(Request, RequestKey), Response> {
    let Some(key) = key.to_str().ok().filter(|key| is_key(key)) else {
        let why = "it is not 1 to 255 visible ASCII characters";
        return Err(refused(ProblemKind::Invalid, why, "send a random key, such as a UUID"));
    };
    let (parts, body) = request.into_parts();
    // The body is in memory already, within its limit.
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let query = parts.uri.query().unwrap_or_default();
    // The same key with another path, query or body is another request.
    let fingerprint = digest(&[parts.uri.path().as_bytes(), query.as_bytes(), &bytes]);
    let key = RequestKey { key: digest(&[key.as_bytes()]), fingerprint };
    Ok((Request::from_parts(parts, Body::from(bytes)), key))
}

/// The first half of the SHA-256 of texts, in hexadecimal. It is kept on the drives: it may never change.
fn digest(texts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update((text.len() as u64).to_be_bytes());
        hasher.update(text);
    }
    hasher.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// The object that a request made or changed: where it is now, and the answer to the request.
pub(super) struct Made {
    pub(super) shown: Uri,
    status: StatusCode,
    location: Option<String>,
}

/// Finds the object that a request to `path` made or changed, as the array calls it: `volume v1`.
pub(super) fn made(path: &str, object: &str) -> Option<Made> {
    let (kind, name) = object.split_once(' ')?;
    // Where the object is shown.
    let place = match kind {
        "volume" | "snapshot" | "host" | "export" | "group" | "schedule" | "mapping" | "job" => {
            format!("{kind}s/{name}")
        }
        "set" => {
            let (group, set) = name.split_once('/')?;
            format!("groups/{group}/sets/{set}")
        }
        "copy" => format!("copies/{name}"),
        _ => return None,
    };
    let shown = format!("{BASE_PATH}/{place}").parse().ok()?;
    let parts: Vec<_> = path.strip_prefix(BASE_PATH)?.split('/').skip(1).collect();
    // What the request that made it was answered.
    let (status, location) = match parts[..] {
        [_] | [_, _, "clone"] | ["groups", _, "sets"] => (StatusCode::CREATED, Some(place)),
        [_, _, "reduce"] => (StatusCode::ACCEPTED, Some(place)),
        [_, _, "copy"] => (StatusCode::ACCEPTED, Some(format!("jobs/copy-{name}"))),
        _ => (StatusCode::OK, None),
    };
    let location = location.map(|place| format!("{BASE_PATH}/{place}"));
    Some(Made { shown, status, location })
}

impl Made {
    /// The answer to a request that was carried out before this process started: the current state of the object.
    /// `None` if the object is gone.
    pub(super) fn answer(self, shown: Response) -> Option<Response> {
        if !shown.status().is_success() {
            return None;
        }
        let mut response = shown;
        *response.status_mut() = self.status;
        let location = self.location.and_then(|location| HeaderValue::from_str(&location).ok());
        response.headers_mut().extend(location.map(|location| (LOCATION, location)));
        replayed(&mut response);
        Some(response)
    }
}

fn replayed(response: &mut Response) {
    response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
}

/// The key was sent with another request.
pub(super) fn reused() -> Response {
    let why = "the key was sent with another request before";
    refused(ProblemKind::KeyReused, why, "send each request with a key of its own")
}

/// The object that the request made no longer exists.
pub(super) fn gone(done: &CarriedOut) -> Response {
    let why = format!(
        "the request was carried out on {}, and {} is not there any more under this name",
        utc_text(done.at_ms),
        done.object
    );
    refused(
        ProblemKind::CarriedOut,
        &why,
        "send the request with a new key if it is to be carried out once more",
    )
}

fn refused(kind: ProblemKind, why: &str, next: &str) -> Response {
    let problem = Problem::new(kind, "request refused", "the header Idempotency-Key", why, next);
    Failure::new(problem).into_response()
}

fn is_key(key: &str) -> bool {
    (1..=KEY_MOST).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
}

impl Replays {
    /// Begins a request, or returns the earlier answer to it.
    #[allow(clippy::result_large_err, reason = "the answer is sent at once")]
    pub(super) fn begin(self: &Arc<Self>, request: &RequestKey, now: Nanos) -> Result<Running, Response> {
        let RequestKey { key, fingerprint } = request;
        let mut entries = self.0.lock();
        let fresh = |answer: &Answer| now.since(answer.at) < KEPT_FOR;
        entries.retain(|_, entry| entry.answer.as_ref().is_none_or(fresh));
        match entries.get(key) {
            Some(entry) if entry.fingerprint != *fingerprint => Err(reused()),
            Some(Entry { answer: None, .. }) => Err(refused(
                ProblemKind::InProgress,
                "the request with this key is being carried out",
                "wait a moment, and send it again to get its answer",
            )),
            Some(Entry { answer: Some(answer), .. }) => Err(answer.again()),
            None => {
                entries.insert(key.clone(), Entry { fingerprint: fingerprint.clone(), answer: None });
                Ok(Running { replays: self.clone(), key: key.clone() })
            }
        }
    }
}

impl Answer {
    fn again(&self) -> Response {
        let mut response = (self.status, self.headers.clone(), self.body.clone()).into_response();
        replayed(&mut response);
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
        // The oldest answer makes room; requests under way have none.
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

    fn key(key: &str, fingerprint: &str) -> RequestKey {
        RequestKey { key: key.to_owned(), fingerprint: fingerprint.to_owned() }
    }

    #[test]
    fn a_key_is_of_one_request_for_a_day() {
        let replays = Arc::new(Replays::default());
        let (own, other) = (key("k1", "1"), key("k1", "2"));
        let status =
            |outcome: Result<Running, Response>| outcome.err().map(|response| response.status().as_u16());
        let running = replays.begin(&own, Nanos(0)).ok().unwrap();
        assert_eq!(status(replays.begin(&own, Nanos(0))), Some(409));
        assert_eq!(status(replays.begin(&other, Nanos(0))), Some(422));
        drop(running);
        let running = replays.begin(&own, Nanos(0)).ok().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let response = (StatusCode::CREATED, "made").into_response();
        runtime.block_on(running.settle(response, Nanos(5)));
        let again = replays.begin(&own, Nanos(SECOND)).err().unwrap();
        assert_eq!(
            (again.status().as_u16(), &again.headers()["idempotency-replayed"]),
            (201, &HeaderValue::from_static("true"))
        );
        assert_eq!(status(replays.begin(&other, Nanos(SECOND))), Some(422));
        assert!(replays.begin(&other, Nanos(25 * 3600 * SECOND)).is_ok(), "the day is over");
    }

    #[test]
    fn keys_are_visible_characters_and_requests_are_told_apart() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let keyed = |key: &'static str, uri: &str, body: &'static str| {
            let request = Request::builder().uri(uri).body(Body::from(body)).unwrap();
            let key = HeaderValue::from_static(key);
            runtime
                .block_on(keyed(&key, request))
                .map(|(_, key)| key)
                .map_err(|refused| refused.status().as_u16())
        };
        assert_eq!(keyed("", "/a", ""), Err(422));
        let first = keyed("k", "/a", "x").unwrap();
        assert_eq!(first.key, "42d9f8b63022a2b1a4f0869d68680ebb", "what is on drives stays valid");
        assert_eq!(keyed("k", "/a", "x"), Ok(first.clone()));
        for (uri, body) in [("/b", "x"), ("/a?x", ""), ("/ax", ""), ("/a", "y")] {
            let other = keyed("k", uri, body).unwrap();
            assert!(other.key == first.key && other.fingerprint != first.fingerprint, "{uri} {body}");
        }
    }

    #[test]
    fn what_a_request_made_is_found() {
        let of = |path: &str, object: &str| {
            let made = made(&format!("{BASE_PATH}/{path}"), object)?;
            let below = |path: &str| path.strip_prefix("/api/v1/").unwrap().to_owned();
            let location = made.location.as_deref().map(below).unwrap_or_default();
            Some((below(made.shown.path()), made.status.as_u16(), location))
        };
        for (path, object, shown, status, location) in [
            ("volumes", "volume v1", "volumes/v1", 201, "volumes/v1"),
            ("snapshots", "snapshot v1.a", "snapshots/v1.a", 201, "snapshots/v1.a"),
            ("mappings", "mapping h1/v1", "mappings/h1/v1", 201, "mappings/h1/v1"),
            ("volumes/v1/clone", "volume v2", "volumes/v2", 201, "volumes/v2"),
            ("groups/g1/sets", "set g1/s1", "groups/g1/sets/s1", 201, "groups/g1/sets/s1"),
            ("volumes/v1/copy", "copy 7", "copies/7", 202, "jobs/copy-7"),
            ("volumes/v1/reduce", "job reduce-7", "jobs/reduce-7", 202, "jobs/reduce-7"),
            ("snapshots/v1.a/restore", "volume v1", "volumes/v1", 200, ""),
            ("groups/g1/sets/s1/restore", "group g1", "groups/g1", 200, ""),
            ("schedules/n1/run", "schedule n1", "schedules/n1", 200, ""),
        ] {
            assert_eq!(of(path, object), Some((shown.to_owned(), status, location.to_owned())), "{path}");
        }
        assert_eq!(of("scrub/start", "pool lab"), None);
    }

    #[test]
    fn the_oldest_answer_is_forgotten_and_refusals_are_not_kept() {
        let replays = Arc::new(Replays::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for number in 0..=KEPT_MOST as u64 {
            let running = replays.begin(&key(&number.to_string(), "1"), Nanos(number)).ok().unwrap();
            runtime.block_on(running.settle(StatusCode::CREATED.into_response(), Nanos(number)));
        }
        let (first, second) = (key("0", "1"), key("1", "1"));
        assert!(replays.begin(&second, Nanos(2000)).is_err());
        let running = replays.begin(&first, Nanos(2000)).ok().unwrap();
        runtime.block_on(running.settle(StatusCode::CONFLICT.into_response(), Nanos(2000)));
        assert!(replays.begin(&first, Nanos(2000)).is_ok());
    }
}
