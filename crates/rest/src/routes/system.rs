//! Status, events and sessions.

use crate::{
    extract::Query,
    failure::{Failure, ReadProblems},
    server::Server,
};
use axum::{extract::State, response::Json};
use quoin_api::{Event, Session, Severity, Stats, Status};
use quoin_array::EventSelection;
use serde::Deserialize;
use utoipa::IntoParams;

/// How the array is
#[utoipa::path(get, path = "/status", tag = "system", responses((status = 200, body = Status), ReadProblems))]
pub(crate) async fn status(State(server): State<Server>) -> Json<Status> {
    Json(server.array.status())
}

/// What hosts asked of the volumes, in numbers that only grow
#[utoipa::path(get, path = "/stats", tag = "system", responses((status = 200, body = Stats), ReadProblems))]
pub(crate) async fn stats(State(server): State<Server>) -> Json<Stats> {
    Json(server.array.stats())
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Selection {
    /// At most so many: 100 if it is not given.
    #[serde(default = "default_limit")]
    #[param(required = false, minimum = 0)]
    limit: u32,
    /// Only of this severity or a higher one.
    #[serde(default = "default_severity")]
    #[param(required = false)]
    severity: Severity,
    /// Only those that happened at this time or later, in milliseconds since the Unix epoch.
    #[serde(default)]
    #[param(required = false, minimum = 0)]
    since_ms: u64,
    /// Only those with a number above this one.
    #[serde(default)]
    #[param(required = false, minimum = 0)]
    after: u64,
}

fn default_limit() -> u32 {
    100
}

fn default_severity() -> Severity {
    Severity::Info
}

/// What happened, newest first
#[utoipa::path(
    get, path = "/events", tag = "system", params(Selection),
    responses((status = 200, body = [Event]), ReadProblems)
)]
pub(crate) async fn events(
    State(server): State<Server>,
    Query(selection): Query<Selection>,
) -> Result<Json<Vec<Event>>, Failure> {
    let Selection { limit, severity, since_ms, after } = selection;
    Ok(Json(server.array.events(EventSelection { limit: limit as usize, severity, since_ms, after })))
}

/// Who is logged in
#[utoipa::path(get, path = "/sessions", tag = "system", responses((status = 200, body = [Session]), ReadProblems))]
pub(crate) async fn sessions(State(server): State<Server>) -> Json<Vec<Session>> {
    Json(server.array.list_sessions())
}
