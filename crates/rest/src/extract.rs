//! Bodies and query strings, refused in the form all refusals have.

use crate::failure::Failure;
use axum::{
    extract::{FromRequest, FromRequestParts, Request, rejection::JsonRejection},
    http::request::Parts,
    response::Json,
};
use quoin_api::Problem;
use serde::de::DeserializeOwned;

/// A JSON body.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(body)) => Ok(Self(body)),
            Err(rejection) => Err(body_refused(&rejection)),
        }
    }
}

fn body_refused(rejection: &JsonRejection) -> Failure {
    let (kind, next) = match rejection {
        JsonRejection::JsonDataError(_) => {
            ("invalid", "correct the field; /api/v1/openapi.json lists them all")
        }
        JsonRejection::MissingJsonContentType(_) => ("not-json", "send Content-Type: application/json"),
        JsonRejection::JsonSyntaxError(_) => ("not-json", "send one JSON object"),
        _ => ("unreadable", "send a smaller request, all of it"),
    };
    let text = rejection.body_text();
    let why = text.split_once("target type: ").map_or(text.as_str(), |(_, cause)| cause);
    Failure::new(Problem::new(kind, rejection.status().as_u16(), "request refused", "the body", why, next))
}

/// A query string.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match axum::extract::Query::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(query)) => Ok(Self(query)),
            Err(rejection) => {
                let text = rejection.body_text();
                let why = text.split_once("string: ").map_or(text.as_str(), |(_, cause)| cause);
                Err(Failure::query(why))
            }
        }
    }
}
