//! Volumes.

use crate::{
    extract::{Body, Query},
    failure::{ChangeProblems, Failure, ReadProblems},
    routes::Deletion,
    server::Server,
};
use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Json,
};
use quoin_api::{Volume, VolumeCreate, VolumeUpdate};

/// All volumes, oldest first
#[utoipa::path(
    get, operation_id = "list_volumes", path = "/volumes", tag = "volumes",
    params(("tag" = Option<Vec<String>>, Query, description = "Only volumes with this tag, as KEY=VALUE, or KEY for \
            any value; repeatable, then all must be there", example = "app=db1")),
    responses((status = 200, body = [Volume]), ReadProblems)
)]
pub(crate) async fn list(
    State(server): State<Server>,
    Query(parameters): Query<Vec<(String, String)>>,
) -> Result<Json<Vec<Volume>>, Failure> {
    if let Some((name, _)) = parameters.iter().find(|(name, _)| name != "tag") {
        return Err(Failure::query(&format!("unknown field `{name}`, expected `tag`")));
    }
    let mut volumes = server.array.list_volumes()?;
    volumes.retain(|volume| {
        parameters.iter().all(|(_, tag)| match tag.split_once('=') {
            Some((key, value)) => volume.tags.get(key).is_some_and(|own| own == value),
            None => volume.tags.contains_key(tag),
        })
    });
    Ok(Json(volumes))
}

/// Create a volume
#[utoipa::path(
    post, operation_id = "create_volume", path = "/volumes", tag = "volumes", request_body = VolumeCreate,
    responses((status = 201, description = "Created", body = Volume), ChangeProblems)
)]
pub(crate) async fn create(
    State(server): State<Server>,
    Body(request): Body<VolumeCreate>,
) -> Result<(StatusCode, Json<Volume>), Failure> {
    let volume = server.change(async move |array| array.create_volume(request).await).await?;
    Ok((StatusCode::CREATED, Json(volume)))
}

/// One volume
#[utoipa::path(
    get, operation_id = "show_volume", path = "/volumes/{name}", tag = "volumes", params(("name" = String, Path, description = "The volume")),
    responses((status = 200, body = Volume), ReadProblems)
)]
pub(crate) async fn show(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Volume>, Failure> {
    Ok(Json(server.array.show_volume(&name)?))
}

/// Change a volume: name, size, tags, and whether the pool keeps space for it
#[utoipa::path(
    patch, operation_id = "change_volume", path = "/volumes/{name}", tag = "volumes", request_body = VolumeUpdate,
    params(("name" = String, Path, description = "The volume")),
    responses((status = 200, description = "Changed", body = Volume), ChangeProblems)
)]
pub(crate) async fn change(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<VolumeUpdate>,
) -> Result<Json<Volume>, Failure> {
    let volume = server.change(async move |array| array.change_volume(&name, request).await).await?;
    Ok(Json(volume))
}

/// Delete a volume and all data in it
#[utoipa::path(
    delete, operation_id = "delete_volume", path = "/volumes/{name}", tag = "volumes",
    params(("name" = String, Path, description = "The volume"), Deletion),
    responses((status = 204, description = "Deleted"), ChangeProblems)
)]
pub(crate) async fn delete(
    State(server): State<Server>,
    Path(name): Path<String>,
    Query(deletion): Query<Deletion>,
) -> Result<StatusCode, Failure> {
    server.change(async move |array| array.delete_volume(&name, deletion.unmap).await).await?;
    Ok(StatusCode::NO_CONTENT)
}
