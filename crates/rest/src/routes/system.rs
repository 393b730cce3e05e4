//! Status, events and sessions.

use crate::{
    failure::{Failure, ReadProblems},
    list::{List, PageParameters},
    server::Server,
};
use axum::{
    extract::State,
    response::{Json, Response},
};
use quoin_api::{Event, Session, Severity, Stats, Status};
use quoin_array::EventSelection;
use serde::Deserialize;
use utoipa::IntoParams;

/// So many events are shown unless a limit is given.
const EVENTS_DEFAULT: usize = 100;

/// Show the status of the array
#[utoipa::path(get, path = "/status", tag = "system", responses((status = 200, body = Status), ReadProblems))]
pub(crate) async fn status(State(server): State<Server>) -> Json<Status> {
    Json(server.array.status())
}

/// Show counters of the volumes' requests
#[utoipa::path(get, path = "/stats", tag = "system", responses((status = 200, body = Stats), ReadProblems))]
pub(crate) async fn stats(State(server): State<Server>) -> Json<Stats> {
    Json(server.array.stats())
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Selection {
    /// Only events of this severity or a higher one.
    #[serde(default = "default_severity")]
    #[param(required = false)]
    severity: Severity,
    /// Only events at this time or later, in milliseconds since the Unix epoch.
    #[serde(default, deserialize_with = "quoin_api::int64")]
    #[param(required = false, minimum = 0)]
    since_ms: u64,
    /// Only events with a number above this one.
    #[serde(default, deserialize_with = "quoin_api::int64")]
    #[param(required = false, minimum = 0)]
    after: u64,
    /// Only changes made by clients, and refused tokens, logins and changes.
    #[serde(default)]
    #[param(required = false)]
    audit: bool,
    /// Only events whose actor has this text in its token, name, address or user.
    #[param(example = "ann")]
    actor: Option<String>,
    /// Only events about this object, given with its kind or by its name alone.
    #[param(example = "volume v1")]
    object: Option<String>,
}

fn default_severity() -> Severity {
    Severity::Info
}

/// List events, newest first; 100 unless `limit` says otherwise
#[utoipa::path(
    get, path = "/events", tag = "system", params(Selection, PageParameters),
    responses((status = 200, body = [Event]), ReadProblems)
)]
pub(crate) async fn events(
    State(server): State<Server>,
    List { filters, page }: List<Selection>,
) -> Result<Response, Failure> {
    let Selection { severity, since_ms, after, audit, actor, object } = filters;
    let limit = usize::MAX;
    let selection = EventSelection { limit, severity, since_ms, after, audit, actor, object };
    page.or_limit(EVENTS_DEFAULT).of(server.array.events(selection), |event| event.number.to_string())
}

/// Which sessions are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SessionFilters {
    /// Only sessions of this host.
    #[param(example = "h1")]
    host: Option<String>,
    /// Only sessions of this initiator.
    #[param(example = "iqn.2026-11.test:h1")]
    initiator: Option<String>,
}

/// List iSCSI sessions
#[utoipa::path(
    get, path = "/sessions", tag = "system", params(SessionFilters, PageParameters),
    responses((status = 200, body = [Session]), ReadProblems)
)]
pub(crate) async fn sessions(
    State(server): State<Server>,
    List { filters: SessionFilters { host, initiator }, page }: List<SessionFilters>,
) -> Result<Response, Failure> {
    let mut sessions = server.array.list_sessions();
    sessions.retain(|session| {
        (host.is_none() || session.host == host)
            && initiator.as_ref().is_none_or(|wanted| session.initiator == wanted.to_lowercase())
    });
    page.of(sessions, |session| format!("{} {}", session.initiator, session.peer))
}
