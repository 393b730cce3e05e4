//! Schedules of snapshots.

use crate::{
    extract::{Body, Path},
    failure::{ChangeProblems, Failure, ReadProblems},
    list::{List, PageParameters, fits},
    routes::Created,
    server::Server,
};
use axum::{
    extract::State,
    http::StatusCode,
    response::{Json, Response},
};
use quoin_api::{Schedule, ScheduleCreate, ScheduleUpdate};
use serde::Deserialize;
use utoipa::IntoParams;

/// Which schedules are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filters {
    /// Only schedules whose name matches: '*' stands for any characters, '?' for one.
    #[param(example = "night*")]
    name: Option<String>,
    /// Only schedules for this volume.
    #[param(example = "v1")]
    volume: Option<String>,
    /// Only schedules for this consistency group.
    #[param(example = "db1")]
    group: Option<String>,
    /// Only paused schedules, or only those that are not paused.
    paused: Option<bool>,
}

/// List schedules, by name
#[utoipa::path(
    get, operation_id = "list_schedules", path = "/schedules", tag = "schedules", params(Filters, PageParameters),
    responses((status = 200, body = [Schedule]), ReadProblems)
)]
pub(crate) async fn list(
    State(server): State<Server>,
    List { filters: Filters { name, volume, group, paused }, page }: List<Filters>,
) -> Result<Response, Failure> {
    let mut schedules = server.array.list_schedules()?;
    schedules.retain(|schedule| {
        fits(&name, &schedule.name)
            && (volume.is_none() || schedule.volume == volume)
            && (group.is_none() || schedule.group == group)
            && paused.is_none_or(|paused| schedule.paused == paused)
    });
    page.of(schedules, |schedule| schedule.name.clone())
}

/// Create a schedule
#[utoipa::path(
    post, operation_id = "create_schedule", path = "/schedules", tag = "schedules", request_body = ScheduleCreate,
    responses((status = 201, description = "Created", body = Schedule), ChangeProblems)
)]
pub(crate) async fn create(
    State(server): State<Server>,
    Body(request): Body<ScheduleCreate>,
) -> Result<Created<Schedule>, Failure> {
    let schedule = server.change(async move |array| array.create_schedule(request).await).await?;
    Ok(Created { at: format!("/schedules/{}", schedule.name), body: schedule })
}

/// Show a schedule
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

/// Pause or resume a schedule
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

/// Run a schedule now: take the snapshots of its first rule
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
