//! `GET /healthz` and `GET /readyz`, without a token, for monitoring of the process. They say only whether it lives and
//! whether it serves.

use crate::{failure::Failure, server::Server};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use quoin_api::{NextStep, Problem, ProblemKind};

/// The process answers.
pub(crate) async fn alive() -> &'static str {
    "ok\n"
}

/// The pool is open and hosts are served.
pub(crate) async fn ready(State(server): State<Server>) -> Response {
    if server.array.status().ready {
        "ready\n".into_response()
    } else {
        Failure::new(Problem::new(
            ProblemKind::NotReady,
            "not ready",
            "the array",
            "the pool is not open",
            NextStep::AwaitDrives,
        ))
        .into_response()
    }
}
