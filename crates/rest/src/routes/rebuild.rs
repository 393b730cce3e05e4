//! Rebuild and balancing.

use crate::{
    extract::Body,
    failure::{ChangeProblems, Failure, ReadProblems},
    server::Server,
};
use axum::{extract::State, response::Json};
use quoin_api::{Rebuild, RebuildUpdate};

/// Show how fast the pool rebuilds and moves data, how far a rebuild is, and how evenly drives are used
#[utoipa::path(
    get, operation_id = "show_rebuild", path = "/rebuild", tag = "drives",
    responses((status = 200, body = Rebuild), ReadProblems)
)]
pub(crate) async fn show(State(server): State<Server>) -> Result<Json<Rebuild>, Failure> {
    Ok(Json(server.array.show_rebuild()?))
}

/// Change how fast the pool rebuilds and moves data, and when drives are balanced
#[utoipa::path(
    patch, operation_id = "change_rebuild", path = "/rebuild", tag = "drives", request_body = RebuildUpdate,
    responses((status = 200, description = "Changed", body = Rebuild), ChangeProblems)
)]
pub(crate) async fn change(
    State(server): State<Server>,
    Body(request): Body<RebuildUpdate>,
) -> Result<Json<Rebuild>, Failure> {
    Ok(Json(server.change(async move |array| array.change_rebuild(request).await).await?))
}

/// Start to balance drives: data moves from fuller ones to emptier ones
#[utoipa::path(
    post, operation_id = "start_balance", path = "/rebuild/balance/start", tag = "drives",
    responses((status = 200, description = "Started", body = Rebuild), ChangeProblems)
)]
pub(crate) async fn start_balance(State(server): State<Server>) -> Result<Json<Rebuild>, Failure> {
    Ok(Json(server.change(async move |array| array.balance(true).await).await?))
}

/// Stop balancing drives, until it is started again or a setting is changed
#[utoipa::path(
    post, operation_id = "stop_balance", path = "/rebuild/balance/stop", tag = "drives",
    responses((status = 200, description = "Stopped", body = Rebuild), ChangeProblems)
)]
pub(crate) async fn stop_balance(State(server): State<Server>) -> Result<Json<Rebuild>, Failure> {
    Ok(Json(server.change(async move |array| array.balance(false).await).await?))
}
