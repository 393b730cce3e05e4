//! `GET /metrics`: everything the array counts, in Prometheus' text format (version 0.0.4).
//!
//! Promises: names follow Prometheus' conventions (base units, `_total` for counters); labels take values from the
//! configuration only (volumes, drives, hosts and their initiators), so that clients from outside cannot create series;
//! each request looks at the array once, and nothing is kept between requests. [`catalogue`] is the whole list of
//! metrics; `docs/metrics.md` is made from it.

mod catalogue;
mod exposition;
mod process;

#[cfg(test)]
mod tests;

use crate::{failure::Failure, server::Server};
use axum::{
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use quoin_api::{Problem, ProblemKind};

pub use catalogue::{CutOff, FrontEnd, Memory};

fn text_of(server: &Server) -> prometheus::Result<String> {
    catalogue::expose(&server.array.figures(), &(server.front_ends)(), &server.memory).encode()
}

/// Everything the array counts, as text.
pub(crate) async fn metrics(State(server): State<Server>) -> Response {
    match text_of(&server) {
        Ok(text) => ([(CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => Failure::new(Problem::new(
            ProblemKind::Internal,
            "no metrics",
            "/metrics",
            error.to_string(),
            "this is a defect: report it with the version of the software",
        ))
        .into_response(),
    }
}
