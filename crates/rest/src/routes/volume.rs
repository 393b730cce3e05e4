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
use quoin_api::{Volume, VolumeCreate};

/// All volumes, oldest first
#[utoipa::path(get, operation_id = "list_volumes", path = "/volumes", tag = "volumes", responses((status = 200, body = [Volume]), ReadProblems))]
pub(crate) async fn list(State(server): State<Server>) -> Result<Json<Vec<Volume>>, Failure> {
    Ok(Json(server.array.list_volumes()?))
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
