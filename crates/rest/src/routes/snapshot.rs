//! Snapshots and clones.

use crate::{
    extract::{Body, Path, Query},
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
use quoin_api::{
    CloneCreate, Deletion, SnapshotCreate, SnapshotRefresh, SnapshotRestore, SnapshotRetain, Volume,
};
use quoin_array::SnapshotSelection;
use serde::Deserialize;
use utoipa::IntoParams;

/// Which snapshots are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Selection {
    /// Only snapshots whose name matches: '*' stands for any characters, '?' for one.
    #[param(example = "v1.*")]
    name: Option<String>,
    /// Only snapshots of this volume.
    #[param(example = "v1")]
    of: Option<String>,
    /// Only snapshots in the sets of this consistency group.
    #[param(example = "db1")]
    group: Option<String>,
}

/// List snapshots, oldest first
#[utoipa::path(
    get, operation_id = "list_snapshots", path = "/snapshots", tag = "snapshots", params(Selection, PageParameters),
    responses((status = 200, body = [Volume]), ReadProblems)
)]
pub(crate) async fn list(
    State(server): State<Server>,
    List { filters: Selection { name, of, group }, page }: List<Selection>,
) -> Result<Response, Failure> {
    let mut snapshots = server.array.list_snapshots(&SnapshotSelection { of, group })?;
    snapshots.retain(|snapshot| fits(&name, &snapshot.name));
    page.of(snapshots, |snapshot| snapshot.uuid.to_string())
}

/// Take a snapshot of a volume
#[utoipa::path(
    post, operation_id = "create_snapshot", path = "/snapshots", tag = "snapshots", request_body = SnapshotCreate,
    responses((status = 201, description = "Taken", body = Volume), ChangeProblems)
)]
pub(crate) async fn create(
    State(server): State<Server>,
    Body(request): Body<SnapshotCreate>,
) -> Result<Created<Volume>, Failure> {
    let snapshot = server.change(async move |array| array.create_snapshot(request).await).await?;
    Ok(Created { at: format!("/snapshots/{}", snapshot.name), body: snapshot })
}

/// Clone a volume, snapshot or clone
#[utoipa::path(
    post, operation_id = "clone_volume", path = "/volumes/{name}/clone", tag = "volumes", request_body = CloneCreate,
    params(("name" = String, Path, description = "The source")),
    responses((status = 201, description = "Made", body = Volume), ChangeProblems)
)]
pub(crate) async fn clone(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<CloneCreate>,
) -> Result<Created<Volume>, Failure> {
    let clone = server.change(async move |array| array.clone_volume(&name, request).await).await?;
    Ok(Created { at: format!("/volumes/{}", clone.name), body: clone })
}

/// Show a snapshot or clone
#[utoipa::path(
    get, operation_id = "show_snapshot", path = "/snapshots/{name}", tag = "snapshots",
    params(("name" = String, Path, description = "The snapshot or clone")),
    responses((status = 200, body = Volume), ReadProblems)
)]
pub(crate) async fn show(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Volume>, Failure> {
    Ok(Json(server.array.show_snapshot(&name)?))
}

/// Restore a volume from a snapshot; returns the volume
#[utoipa::path(
    post, operation_id = "restore_snapshot", path = "/snapshots/{name}/restore", tag = "snapshots",
    request_body = SnapshotRestore, params(("name" = String, Path, description = "The snapshot or clone")),
    responses((status = 200, description = "Restored", body = Volume), ChangeProblems)
)]
pub(crate) async fn restore(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<SnapshotRestore>,
) -> Result<Json<Volume>, Failure> {
    Ok(Json(server.change(async move |array| array.restore_snapshot(&name, request).await).await?))
}

/// Refresh a snapshot or clone from its source
#[utoipa::path(
    post, operation_id = "refresh_snapshot", path = "/snapshots/{name}/refresh", tag = "snapshots",
    request_body = SnapshotRefresh, params(("name" = String, Path, description = "The snapshot or clone")),
    responses((status = 200, description = "Refreshed", body = Volume), ChangeProblems)
)]
pub(crate) async fn refresh(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<SnapshotRefresh>,
) -> Result<Json<Volume>, Failure> {
    Ok(Json(server.change(async move |array| array.refresh_snapshot(&name, request).await).await?))
}

/// Promote a snapshot or clone: remove the link to its source
#[utoipa::path(
    post, operation_id = "promote_snapshot", path = "/snapshots/{name}/promote", tag = "snapshots",
    params(("name" = String, Path, description = "The snapshot or clone")),
    responses((status = 200, description = "Promoted", body = Volume), ChangeProblems)
)]
pub(crate) async fn promote(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Volume>, Failure> {
    Ok(Json(server.change(async move |array| array.promote_snapshot(&name).await).await?))
}

/// Make a snapshot immutable, or extend the time
#[utoipa::path(
    post, operation_id = "retain_snapshot", path = "/snapshots/{name}/retain", tag = "snapshots",
    request_body = SnapshotRetain, params(("name" = String, Path, description = "The snapshot")),
    responses((status = 200, description = "Immutable", body = Volume), ChangeProblems)
)]
pub(crate) async fn retain(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<SnapshotRetain>,
) -> Result<Json<Volume>, Failure> {
    Ok(Json(server.change(async move |array| array.retain_snapshot(&name, request).await).await?))
}

/// Delete a snapshot or clone: the recycle bin keeps it for a while
#[utoipa::path(
    delete, operation_id = "delete_snapshot", path = "/snapshots/{name}", tag = "snapshots",
    params(("name" = String, Path, description = "The snapshot or clone"), Deletion),
    responses((status = 204, description = "Deleted"), ChangeProblems)
)]
pub(crate) async fn delete(
    State(server): State<Server>,
    Path(name): Path<String>,
    Query(deletion): Query<Deletion>,
) -> Result<StatusCode, Failure> {
    server.change(async move |array| array.delete_snapshot(&name, deletion).await).await?;
    Ok(StatusCode::NO_CONTENT)
}
