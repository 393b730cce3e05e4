//! Refusals as responses.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Json, Response},
};
use quoin_api::{PROBLEM_MEDIA_TYPE, Problem, ProblemKind};
use quoin_array::ArrayError;
use std::collections::BTreeMap;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ContentBuilder, Ref, RefOr, Response as Documented, ResponseBuilder},
};

/// A problem on its way to the client.
#[derive(Debug)]
pub(crate) struct Failure(Box<Problem>);

impl Failure {
    pub(crate) fn new(problem: Problem) -> Self {
        Self(Box::new(problem))
    }

    /// The query string is wrong.
    pub(crate) fn query(why: &str) -> Self {
        let next = "correct the parameter; /api/v1/openapi.json lists them all";
        Self::new(Problem::new(ProblemKind::Invalid, "request refused", "the query", why, next))
    }
}

impl From<ArrayError> for Failure {
    fn from(error: ArrayError) -> Self {
        Self::new(error.problem())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.0)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_MEDIA_TYPE));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"quoin\""));
        }
        response
    }
}

/// The problems a request that changes something can meet, for the document.
pub(crate) struct ChangeProblems;

/// The problems a request that reads can meet, for the document.
pub(crate) struct ReadProblems;

impl utoipa::IntoResponses for ChangeProblems {
    fn responses() -> BTreeMap<String, RefOr<Documented>> {
        documented(&[
            (400, "The request is not well-formed"),
            (401, "The token is missing or wrong"),
            (404, "No such object"),
            (409, "Something is in the way"),
            (413, "The request is too large"),
            (415, "The body is not JSON"),
            (422, "The request asks for something that cannot be"),
            (500, "The array failed"),
            (503, "The pool is offline"),
            (507, "The pool has no space"),
        ])
    }
}

impl utoipa::IntoResponses for ReadProblems {
    fn responses() -> BTreeMap<String, RefOr<Documented>> {
        documented(&[
            (401, "The token is missing or wrong"),
            (404, "No such object"),
            (422, "The request asks for something that cannot be"),
            (503, "The pool is offline and was not open yet"),
        ])
    }
}

fn documented(statuses: &[(u16, &str)]) -> BTreeMap<String, RefOr<Documented>> {
    let schema = Ref::from_schema_name(Problem::name());
    let response = |description: &str| {
        let content = ContentBuilder::new().schema(Some(schema.clone())).build();
        ResponseBuilder::new().description(description).content(PROBLEM_MEDIA_TYPE, content).build()
    };
    statuses.iter().map(|(status, text)| (status.to_string(), response(text).into())).collect()
}

/// Keeps the schema of [`Problem`] in the document.
pub(crate) fn problem_schema() -> (String, RefOr<utoipa::openapi::Schema>) {
    (Problem::name().into_owned(), Problem::schema())
}
