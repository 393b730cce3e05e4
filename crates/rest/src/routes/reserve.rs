//! Snapshot reserves: of the pool, of volumes and of consistency groups.

use crate::{
    extract::{Body, Path},
    failure::{ChangeProblems, Failure, ReadProblems},
    list::{List, PageParameters},
    server::Server,
};
use axum::{
    extract::State,
    response::{Json, Response},
};
use quoin_api::{Reserve, ReservePreview, ReserveScope, ReserveSet};
use quoin_array::ReserveOf;
use serde::Deserialize;
use utoipa::IntoParams;

/// Which snapshot reserves are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filters {
    /// Only that of the pool, only those of volumes, or only those of groups.
    scope: Option<ReserveScope>,
}

/// Snapshot reserves: the pool's, whether it has one or not, then those of volumes and of groups that have one
#[utoipa::path(
    get, operation_id = "list_snapshot_reserves", path = "/snapshot-reserves", tag = "snapshots",
    params(Filters, PageParameters), responses((status = 200, body = [Reserve]), ReadProblems)
)]
pub(crate) async fn list(
    State(server): State<Server>,
    List { filters: Filters { scope }, page }: List<Filters>,
) -> Result<Response, Failure> {
    let mut reserves = server.array.list_reserves()?;
    reserves.retain(|reserve| scope.is_none_or(|scope| reserve.scope == scope));
    page.of(reserves, |reserve| format!("{}/{}", reserve.scope, reserve.name.as_deref().unwrap_or_default()))
}

async fn set_of(
    server: Server,
    of: ReserveOf,
    request: Option<ReserveSet>,
) -> Result<Json<Reserve>, Failure> {
    Ok(Json(server.change(async move |array| array.set_reserve(&of, request).await).await?))
}

async fn preview_of(
    server: Server,
    of: ReserveOf,
    request: ReserveSet,
) -> Result<Json<ReservePreview>, Failure> {
    Ok(Json(server.change(async move |array| array.preview_reserve(&of, &request).await).await?))
}

/// How much of the pool snapshots may hold, and how much they do
#[utoipa::path(
    get, operation_id = "show_snapshot_reserve", path = "/snapshot-reserve", tag = "snapshots",
    responses((status = 200, body = Reserve), ReadProblems)
)]
pub(crate) async fn show(State(server): State<Server>) -> Result<Json<Reserve>, Failure> {
    Ok(Json(server.array.show_reserve(&ReserveOf::Pool)?))
}

/// Set how much of the pool snapshots may hold
#[utoipa::path(
    put, operation_id = "set_snapshot_reserve", path = "/snapshot-reserve", tag = "snapshots",
    request_body = ReserveSet, responses((status = 200, description = "Set", body = Reserve), ChangeProblems)
)]
pub(crate) async fn set(
    State(server): State<Server>,
    Body(request): Body<ReserveSet>,
) -> Result<Json<Reserve>, Failure> {
    set_of(server, ReserveOf::Pool, Some(request)).await
}

/// Let snapshots hold as much as there is
#[utoipa::path(
    delete, operation_id = "delete_snapshot_reserve", path = "/snapshot-reserve", tag = "snapshots",
    responses((status = 200, description = "Taken away", body = Reserve), ChangeProblems)
)]
pub(crate) async fn delete(State(server): State<Server>) -> Result<Json<Reserve>, Failure> {
    set_of(server, ReserveOf::Pool, None).await
}

/// What a snapshot reserve of the pool would delete or take offline at once; nothing is changed
#[utoipa::path(
    post, operation_id = "preview_snapshot_reserve", path = "/snapshot-reserve/preview", tag = "snapshots",
    request_body = ReserveSet, responses((status = 200, body = ReservePreview), ChangeProblems)
)]
pub(crate) async fn preview(
    State(server): State<Server>,
    Body(request): Body<ReserveSet>,
) -> Result<Json<ReservePreview>, Failure> {
    preview_of(server, ReserveOf::Pool, request).await
}

/// How much the snapshots of a volume may hold, and how much they do
#[utoipa::path(
    get, operation_id = "show_volume_snapshot_reserve", path = "/volumes/{name}/snapshot-reserve", tag = "snapshots",
    params(("name" = String, Path, description = "The volume")),
    responses((status = 200, body = Reserve), ReadProblems)
)]
pub(crate) async fn show_volume(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Reserve>, Failure> {
    Ok(Json(server.array.show_reserve(&ReserveOf::Volume(name))?))
}

/// Set how much the snapshots of a volume may hold
#[utoipa::path(
    put, operation_id = "set_volume_snapshot_reserve", path = "/volumes/{name}/snapshot-reserve", tag = "snapshots",
    params(("name" = String, Path, description = "The volume")),
    request_body = ReserveSet, responses((status = 200, description = "Set", body = Reserve), ChangeProblems)
)]
pub(crate) async fn set_volume(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<ReserveSet>,
) -> Result<Json<Reserve>, Failure> {
    set_of(server, ReserveOf::Volume(name), Some(request)).await
}

/// Remove the snapshot reserve of a volume
#[utoipa::path(
    delete, operation_id = "delete_volume_snapshot_reserve", path = "/volumes/{name}/snapshot-reserve",
    tag = "snapshots", params(("name" = String, Path, description = "The volume")),
    responses((status = 200, description = "Removed", body = Reserve), ChangeProblems)
)]
pub(crate) async fn delete_volume(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Reserve>, Failure> {
    set_of(server, ReserveOf::Volume(name), None).await
}

/// What a snapshot reserve of a volume would delete or take offline at once; nothing is changed
#[utoipa::path(
    post, operation_id = "preview_volume_snapshot_reserve", path = "/volumes/{name}/snapshot-reserve/preview",
    tag = "snapshots", params(("name" = String, Path, description = "The volume")),
    request_body = ReserveSet, responses((status = 200, body = ReservePreview), ChangeProblems)
)]
pub(crate) async fn preview_volume(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<ReserveSet>,
) -> Result<Json<ReservePreview>, Failure> {
    preview_of(server, ReserveOf::Volume(name), request).await
}

/// How much the snapshots of a group's volumes may hold, and how much they do
#[utoipa::path(
    get, operation_id = "show_group_snapshot_reserve", path = "/groups/{name}/snapshot-reserve", tag = "snapshots",
    params(("name" = String, Path, description = "The group")),
    responses((status = 200, body = Reserve), ReadProblems)
)]
pub(crate) async fn show_group(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Reserve>, Failure> {
    Ok(Json(server.array.show_reserve(&ReserveOf::Group(name))?))
}

/// Set how much the snapshots of a group's volumes may hold
#[utoipa::path(
    put, operation_id = "set_group_snapshot_reserve", path = "/groups/{name}/snapshot-reserve", tag = "snapshots",
    params(("name" = String, Path, description = "The group")),
    request_body = ReserveSet, responses((status = 200, description = "Set", body = Reserve), ChangeProblems)
)]
pub(crate) async fn set_group(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<ReserveSet>,
) -> Result<Json<Reserve>, Failure> {
    set_of(server, ReserveOf::Group(name), Some(request)).await
}

/// Remove the snapshot reserve of a group
#[utoipa::path(
    delete, operation_id = "delete_group_snapshot_reserve", path = "/groups/{name}/snapshot-reserve",
    tag = "snapshots", params(("name" = String, Path, description = "The group")),
    responses((status = 200, description = "Removed", body = Reserve), ChangeProblems)
)]
pub(crate) async fn delete_group(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Reserve>, Failure> {
    set_of(server, ReserveOf::Group(name), None).await
}

/// What a snapshot reserve of a group would delete or take offline at once; nothing is changed
#[utoipa::path(
    post, operation_id = "preview_group_snapshot_reserve", path = "/groups/{name}/snapshot-reserve/preview",
    tag = "snapshots", params(("name" = String, Path, description = "The group")),
    request_body = ReserveSet, responses((status = 200, body = ReservePreview), ChangeProblems)
)]
pub(crate) async fn preview_group(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<ReserveSet>,
) -> Result<Json<ReservePreview>, Failure> {
    preview_of(server, ReserveOf::Group(name), request).await
}
