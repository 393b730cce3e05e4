//! Entity tags: which resources have one, and what goes into it.
//!
//! A tag covers what an administrator set, not figures that change by themselves: otherwise no condition would hold
//! while hosts write. It shows whether the object was changed, not whether the whole answer is the same.

use axum::{
    body::to_bytes,
    http::{
        HeaderValue, Method, StatusCode, Uri,
        header::{CONTENT_LENGTH, ETAG},
    },
    response::Response,
};
use quoin_api::BASE_PATH;
use serde_json::Value;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Collections whose members have tags.
const COLLECTIONS: [&str; 7] =
    ["volumes", "snapshots", "hosts", "exports", "groups", "schedules", "mappings"];
/// Resources there is one of.
const SINGLE: [&str; 2] = ["snapshot-reserve", "scrub"];
/// Fields that change without a change of the object.
const FIGURES: [&str; 20] = [
    "allocated_bytes",
    "clients",
    "damaged",
    "freed_by_delete_bytes",
    "held_bytes",
    "last",
    "last_run_ms",
    "limit_bytes",
    "mapped_bytes",
    "more_damaged",
    "next_ms",
    "next_run_ms",
    "offline",
    "offline_volumes",
    "reserved_bytes",
    "running",
    "sessions",
    "snapshots",
    "trimming",
    "would_delete",
];

/// The parts of a path below the base: the collection, and what follows.
fn parts(path: &str) -> Option<(&str, Vec<&str>)> {
    let mut parts = path.strip_prefix(BASE_PATH)?.split('/').skip(1);
    Some((parts.next()?, parts.collect()))
}

/// How many parts behind its collection name a resource.
fn depth(collection: &str) -> Option<usize> {
    match collection {
        "mappings" => Some(2),
        _ if COLLECTIONS.contains(&collection) => Some(1),
        _ if SINGLE.contains(&collection) => Some(0),
        _ => None,
    }
}

/// Whether the answer to a request like this shows a resource that has a tag.
pub(super) fn place(method: &Method, path: &str) -> bool {
    let Some((collection, rest)) = parts(path) else { return false };
    match *method {
        Method::POST => rest.is_empty() && COLLECTIONS.contains(&collection),
        _ => depth(collection).is_some_and(|depth| depth == rest.len()),
    }
}

/// The resource that a change at a path is of.
pub(crate) fn resource(path: &str) -> Option<Uri> {
    let (collection, rest) = parts(path)?;
    let named = rest.get(..depth(collection)?)?;
    let path = [&[collection], named].concat().join("/");
    format!("{BASE_PATH}/{path}").parse().ok()
}

/// The same answer with its tag, if it shows a resource.
pub(super) async fn tagged(response: Response) -> Response {
    if ![StatusCode::OK, StatusCode::CREATED].contains(&response.status()) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, usize::MAX).await else {
        let mut response = Response::default();
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        return response;
    };
    if let Ok(Value::Object(mut fields)) = serde_json::from_slice(&bytes) {
        fields.retain(|name, _| !FIGURES.contains(&name.as_str()));
        // The tag is a hash of what is left once figures are taken out.
        let mut shown = Value::Object(fields);
        settle(&mut shown);
        let mut hasher = DefaultHasher::new();
        shown.to_string().hash(&mut hasher);
        let tag = HeaderValue::from_str(&format!("\"{:016x}\"", hasher.finish()));
        parts.headers.extend(tag.ok().map(|tag| (ETAG, tag)));
    }
    parts.headers.insert(CONTENT_LENGTH, bytes.len().into());
    Response::from_parts(parts, bytes.into())
}

/// Reduces the end of immutability to whether there is one: expressed as wall clock time, it moves by itself.
fn settle(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if name == "retain_until_ms" {
                    *value = value.is_null().into();
                } else {
                    settle(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(settle),
        _ => {}
    }
}

/// Whether this is what `If-Match` may say: `*`, or entity tags with commas between them (RFC 9110 §13.1.1). There may be
/// none: then no object has one of them.
pub(super) fn is_condition(wanted: &HeaderValue) -> bool {
    let is_tag = |tag: &str| {
        let opaque =
            tag.strip_prefix("W/").unwrap_or(tag).strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
        opaque.is_some_and(|opaque| opaque.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"'))
    };
    wanted.to_str().is_ok_and(|wanted| {
        wanted == "*" || wanted.split(',').map(str::trim).all(|tag| tag.is_empty() || is_tag(tag))
    })
}

/// Whether what `If-Match` asks for holds of a resource with this tag (RFC 9110 §13.1.1).
pub(super) fn matches(wanted: &HeaderValue, tag: Option<&HeaderValue>) -> bool {
    let (Ok(wanted), Some(tag)) = (wanted.to_str(), tag) else { return false };
    wanted.split(',').map(str::trim).any(|wanted| wanted == "*" || wanted.as_bytes() == tag.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn resources_are_found_by_their_path() {
        let of = |path: &str| resource(path).map(|uri| uri.path().to_owned());
        assert_eq!(of("/api/v1/volumes/v1/clone").as_deref(), Some("/api/v1/volumes/v1"));
        assert_eq!(of("/api/v1/mappings/h1/v1").as_deref(), Some("/api/v1/mappings/h1/v1"));
        assert_eq!(of("/api/v1/scrub/start").as_deref(), Some("/api/v1/scrub"));
        for none in ["/api/v1/volumes", "/api/v1/copies/7", "/metrics", "/api/v1"] {
            assert_eq!(of(none), None, "{none}");
        }
        assert!(place(&Method::POST, "/api/v1/volumes") && place(&Method::PATCH, "/api/v1/scrub"));
        assert!(!place(&Method::POST, "/api/v1/volumes/v1/copy") && !place(&Method::GET, "/api/v1/hosts"));
    }

    #[test]
    fn only_what_somebody_changed_changes_the_tag() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let tag = |shown: Value| {
            let response = runtime.block_on(tagged(Response::new(shown.to_string().into())));
            response.headers()[ETAG].clone()
        };
        let first = tag(json!({ "name": "v1", "mapped_bytes": 1, "sets": [{ "retain_until_ms": 1000 }] }));
        assert_eq!(
            tag(json!({ "name": "v1", "mapped_bytes": 2, "sets": [{ "retain_until_ms": 1001 }] })),
            first
        );
        for other in [
            json!({ "name": "v2", "mapped_bytes": 1, "sets": [{ "retain_until_ms": 1000 }] }),
            json!({ "name": "v1", "mapped_bytes": 1, "sets": [{ "retain_until_ms": null }] }),
            json!({ "name": "v1", "mapped_bytes": 1, "sets": [] }),
        ] {
            assert_ne!(tag(other), first);
        }
    }

    #[test]
    fn tags_are_compared_as_they_are() {
        let (value, tag) = (HeaderValue::from_static, HeaderValue::from_static("\"a\""));
        assert!(matches(&value("\"b\", \"a\""), Some(&tag)) && matches(&value("*"), Some(&tag)));
        assert!(!matches(&value("W/\"a\""), Some(&tag)), "a weak tag never holds");
        assert!(!matches(&value(""), Some(&tag)), "none of none");
        assert!(!matches(&value("\"b\""), Some(&tag)) && !matches(&value("*"), None));
        for (text, good) in
            [("*", true), ("\"a\",W/\"b\"", true), ("a", false), ("", true), ("\"a\" \"b\"", false)]
        {
            assert_eq!(is_condition(&value(text)), good, "{text}");
        }
    }
}
