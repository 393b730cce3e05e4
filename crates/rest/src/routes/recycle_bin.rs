//! The recycle bin.

use crate::{
    extract::{Body, Path},
    failure::{ChangeProblems, Failure, ReadProblems},
    list::{List, PageParameters, fits},
    server::Server,
};
use axum::{
    extract::State,
    http::StatusCode,
    response::{Json, Response},
};
use quoin_api::{DeletedVolume, RecycleBin, RecycleBinRestore, RecycleBinSet, Volume};
use serde::Deserialize;
use utoipa::IntoParams;

/// Which deleted volumes are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Selection {
    /// Only those whose name fits: '*' stands for any characters, '?' for one.
    #[param(example = "v1*")]
    name: Option<String>,
}

/// How long deleted volumes are kept, and what the recycle bin holds
#[utoipa::path(
    get, operation_id = "show_recycle_bin", path = "/recycle-bin", tag = "recycle-bin",
    responses((status = 200, body = RecycleBin), ReadProblems)
)]
pub(crate) async fn show(State(server): State<Server>) -> Result<Json<RecycleBin>, Failure> {
    Ok(Json(server.array.show_recycle_bin()?))
}

/// Set how long deleted volumes are kept
#[utoipa::path(
    put, operation_id = "set_recycle_bin", path = "/recycle-bin", tag = "recycle-bin",
    request_body = RecycleBinSet, responses((status = 200, description = "Set", body = RecycleBin), ChangeProblems)
)]
pub(crate) async fn set(
    State(server): State<Server>,
    Body(request): Body<RecycleBinSet>,
) -> Result<Json<RecycleBin>, Failure> {
    Ok(Json(server.change(async move |array| array.set_recycle_bin(request).await).await?))
}

/// Deleted volumes and snapshots that can be restored, oldest deletion first
#[utoipa::path(
    get, operation_id = "list_deleted_volumes", path = "/recycle-bin/volumes", tag = "recycle-bin",
    params(Selection, PageParameters), responses((status = 200, body = [DeletedVolume]), ReadProblems)
)]
pub(crate) async fn list(
    State(server): State<Server>,
    List { filters: Selection { name }, page }: List<Selection>,
) -> Result<Response, Failure> {
    let mut volumes = server.array.list_deleted()?;
    volumes.retain(|volume| fits(&name, &volume.name));
    page.of(volumes, |volume| volume.uuid.to_string())
}

/// One deleted volume
#[utoipa::path(
    get, operation_id = "show_deleted_volume", path = "/recycle-bin/volumes/{volume}", tag = "recycle-bin",
    params(("volume" = String, Path, description = "Its UUID, or the name it had")),
    responses((status = 200, body = DeletedVolume), ReadProblems)
)]
pub(crate) async fn show_volume(
    State(server): State<Server>,
    Path(volume): Path<String>,
) -> Result<Json<DeletedVolume>, Failure> {
    Ok(Json(server.array.show_deleted(&volume)?))
}

/// Restore a deleted volume; it is mapped to no host and in no group
#[utoipa::path(
    post, operation_id = "restore_deleted_volume", path = "/recycle-bin/volumes/{volume}/restore",
    tag = "recycle-bin", request_body = RecycleBinRestore,
    params(("volume" = String, Path, description = "Its UUID, or the name it had")),
    responses((status = 200, description = "Restored", body = Volume), ChangeProblems)
)]
pub(crate) async fn restore(
    State(server): State<Server>,
    Path(volume): Path<String>,
    Body(request): Body<RecycleBinRestore>,
) -> Result<Json<Volume>, Failure> {
    Ok(Json(server.change(async move |array| array.restore_deleted(&volume, request).await).await?))
}

/// Delete for good a volume that is in the recycle bin
#[utoipa::path(
    delete, operation_id = "purge_deleted_volume", path = "/recycle-bin/volumes/{volume}", tag = "recycle-bin",
    params(("volume" = String, Path, description = "Its UUID, or the name it had")),
    responses((status = 204, description = "Deleted for good"), ChangeProblems)
)]
pub(crate) async fn purge(
    State(server): State<Server>,
    Path(volume): Path<String>,
) -> Result<StatusCode, Failure> {
    server.change(async move |array| array.purge_deleted(&volume).await).await?;
    Ok(StatusCode::NO_CONTENT)
}
