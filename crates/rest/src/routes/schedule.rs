//! Schedules of snapshots.

use crate::{
    extract::Body,
    failure::{ChangeProblems, Failure, ReadProblems},
    server::Server,
};
use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Json,
};
use quoin_api::{Schedule, ScheduleCreate, ScheduleUpdate};

/// All schedules, by name
#[utoipa::path(
    get, operation_id = "list_schedules", path = "/schedules", tag = "schedules",
    responses((status = 200, body = [Schedule]), ReadProblems)
)]
pub(crate) async fn list(State(server): State<Server>) -> Result<Json<Vec<Schedule>>, Failure> {
    Ok(Json(server.array.list_schedules()?))
}

/// Create a schedule
#[utoipa::path(
    post, operation_id = "create_schedule", path = "/schedules", tag = "schedules", request_body = ScheduleCreate,
    responses((status = 201, description = "Created", body = Schedule), ChangeProblems)
)]
pub(crate) async fn create(
    State(server): State<Server>,
    Body(request): Body<ScheduleCreate>,
) -> Result<(StatusCode, Json<Schedule>), Failure> {
    let schedule = server.change(async move |array| array.create_schedule(request).await).await?;
    Ok((StatusCode::CREATED, Json(schedule)))
}

/// One schedule
#[utoipa::path(
    get, operation_id = "show_schedule", path = "/schedules/{name}", tag = "schedules",
    params(("name" = String, Path, description = "The schedule")),
    responses((status = 200, body = Schedule), ReadProblems)
)]
pub(crate) async fn show(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Schedule>, Failure> {
    Ok(Json(server.array.show_schedule(&name)?))
}

/// Let a schedule rest, or go on
#[utoipa::path(
    patch, operation_id = "change_schedule", path = "/schedules/{name}", tag = "schedules",
    request_body = ScheduleUpdate, params(("name" = String, Path, description = "The schedule")),
    responses((status = 200, description = "Changed", body = Schedule), ChangeProblems)
)]
pub(crate) async fn change(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<ScheduleUpdate>,
) -> Result<Json<Schedule>, Failure> {
    Ok(Json(server.change(async move |array| array.update_schedule(&name, request).await).await?))
}

/// Take the snapshots of a schedule's first rule now
#[utoipa::path(
    post, operation_id = "run_schedule", path = "/schedules/{name}/run", tag = "schedules",
    params(("name" = String, Path, description = "The schedule")),
    responses((status = 200, description = "Taken", body = Schedule), ChangeProblems)
)]
pub(crate) async fn run(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Schedule>, Failure> {
    Ok(Json(server.change(async move |array| array.run_schedule(&name).await).await?))
}

/// Delete a schedule; its snapshots stay
#[utoipa::path(
    delete, operation_id = "delete_schedule", path = "/schedules/{name}", tag = "schedules",
    params(("name" = String, Path, description = "The schedule")),
    responses((status = 204, description = "Deleted"), ChangeProblems)
)]
pub(crate) async fn delete(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    server.change(async move |array| array.delete_schedule(&name).await).await?;
    Ok(StatusCode::NO_CONTENT)
}
