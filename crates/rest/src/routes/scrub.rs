//! Scrubs.

use crate::{
    extract::Body,
    failure::{ChangeProblems, Failure, ReadProblems},
    server::Server,
};
use axum::{extract::State, response::Json};
use quoin_api::{ScrubStatus, ScrubUpdate};

/// Show the scrub settings, the running scrub, the result of the last one, and what is damaged
#[utoipa::path(
    get, operation_id = "show_scrub", path = "/scrub", tag = "scrub",
    responses((status = 200, body = ScrubStatus), ReadProblems)
)]
pub(crate) async fn show(State(server): State<Server>) -> Result<Json<ScrubStatus>, Failure> {
    Ok(Json(server.change(async move |array| array.scrub_status().await).await?))
}

/// Change when scrubs start automatically and how fast they read
#[utoipa::path(
    patch, operation_id = "change_scrub", path = "/scrub", tag = "scrub", request_body = ScrubUpdate,
    responses((status = 200, description = "Changed", body = ScrubStatus), ChangeProblems)
)]
pub(crate) async fn change(
    State(server): State<Server>,
    Body(request): Body<ScrubUpdate>,
) -> Result<Json<ScrubStatus>, Failure> {
    Ok(Json(server.change(async move |array| array.change_scrubs(request).await).await?))
}

/// Start a scrub
#[utoipa::path(
    post, operation_id = "start_scrub", path = "/scrub/start", tag = "scrub",
    responses((status = 200, description = "Started", body = ScrubStatus), ChangeProblems)
)]
pub(crate) async fn start(State(server): State<Server>) -> Result<Json<ScrubStatus>, Failure> {
    Ok(Json(server.change(async move |array| array.start_scrub().await).await?))
}

/// Stop the running scrub
#[utoipa::path(
    post, operation_id = "stop_scrub", path = "/scrub/stop", tag = "scrub",
    responses((status = 200, description = "Stopped", body = ScrubStatus), ChangeProblems)
)]
pub(crate) async fn stop(State(server): State<Server>) -> Result<Json<ScrubStatus>, Failure> {
    Ok(Json(server.change(async move |array| array.stop_scrub().await).await?))
}
