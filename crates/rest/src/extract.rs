//! Bodies and query strings, refused in the form all refusals have.

mod strict;

use crate::failure::Failure;
use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Request},
    http::{header::CONTENT_TYPE, request::Parts},
};
use quoin_api::{Problem, ProblemKind};
use serde::de::DeserializeOwned;

/// A JSON body: an object, in which every field is known and given once.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        // The media type says that it is JSON.
        let media_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = media_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
        if !media_type.eq_ignore_ascii_case("application/json") && !media_type.ends_with("+json") {
            let why = match media_type {
                "" => "the request does not say of what type it is".to_owned(),
                other => format!("it is {other}"),
            };
            return Err(refused(
                ProblemKind::UnsupportedMediaType,
                &why,
                "send Content-Type: application/json",
            ));
        }
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| {
            refused(ProblemKind::UnreadableBody, &rejection.body_text(), "send all of it")
        })?;
        // What is no JSON and what is JSON of another form have different answers.
        match strict::from_slice(&bytes) {
            Ok(body) => Ok(Self(body)),
            Err(strict::Error::Syntax(why)) => {
                Err(refused(ProblemKind::NotJson, &why, "send one JSON object"))
            }
            Err(strict::Error::Data(why)) => {
                let next = "correct the field; /api/v1/openapi.json lists them all";
                Err(refused(ProblemKind::Invalid, &why, next))
            }
        }
    }
}

fn refused(kind: ProblemKind, why: &str, next: &str) -> Failure {
    Failure::new(Problem::new(kind, "request refused", "the body", why, next))
}

/// The names in a path.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(names)) => Ok(Self(names)),
            Err(rejection) => {
                let (why, next) = (rejection.body_text(), "write names as they are listed, percent-encoded");
                Err(Failure::new(Problem::new(
                    ProblemKind::InvalidPath,
                    "request refused",
                    "the path",
                    why,
                    next,
                )))
            }
        }
    }
}

/// A query string.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        query(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

/// Reads a query string.
pub(crate) fn query<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    let uri = format!("/?{text}")
        .parse()
        .map_err(|_| Failure::query("it has characters that do not belong there"))?;
    match axum::extract::Query::<T>::try_from_uri(&uri) {
        Ok(axum::extract::Query(query)) => Ok(query),
        Err(rejection) => {
            let text = rejection.body_text();
            let why = text.split_once("string: ").map_or(text.as_str(), |(_, cause)| cause);
            Err(Failure::query(why))
        }
    }
}
