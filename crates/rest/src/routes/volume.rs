//! Volumes.

use crate::{
    extract::{Body, Path, Query},
    failure::{ChangeProblems, Failure, ReadProblems},
    list::{List, PageParameters},
    routes::Created,
    server::Server,
};
use axum::{
    extract::State,
    http::{HeaderName, StatusCode, header::LOCATION},
    response::{AppendHeaders, Json, Response},
};
use quoin_api::{
    BASE_PATH, Deletion, Job, UnreadableFrom, UnreadableRanges, Volume, VolumeCreate, VolumeKind,
    VolumeUpdate,
};
use quoin_array::VolumeSelection;

/// List the volumes that match all filters; oldest first unless sorted otherwise
#[utoipa::path(
    get, operation_id = "list_volumes", path = "/volumes", tag = "volumes",
    params(
        ("name" = Option<String>, Query, description = "Only volumes whose name matches: '*' stands for any characters, \
            '?' for one", example = "pg-*"),
        ("folder" = Option<String>, Query, description = "Only volumes in this folder or below it", example = "prod"),
        ("tag" = Option<Vec<String>>, Query, description = "Only volumes with this tag, as KEY=VALUE, or KEY for \
            any value; repeatable: all must match", example = "app=db1"),
        ("kind" = Option<Vec<VolumeKind>>, Query, description = "Only volumes of this kind; repeatable: any may match"),
        ("source" = Option<String>, Query, description = "Only snapshots and clones of this volume", example = "v1"),
        ("host" = Option<String>, Query, description = "Only volumes mapped to this host", example = "h1"),
        ("sort" = Option<String>, Query, description = "By name, folder, size, allocated or created; with a '-' before \
            it, largest first", example = "-size"),
        PageParameters),
    responses((status = 200, body = [Volume]), ReadProblems)
)]
pub(crate) async fn list(
    State(server): State<Server>,
    List { filters, page }: List<Vec<(String, String)>>,
) -> Result<Response, Failure> {
    let selection = VolumeSelection::parse(&filters).map_err(|why| Failure::query(&why))?;
    page.of(selection.of(server.array.list_volumes()?), |volume| volume.uuid.to_string())
}

/// Create a volume
#[utoipa::path(
    post, operation_id = "create_volume", path = "/volumes", tag = "volumes", request_body = VolumeCreate,
    responses((status = 201, description = "Created", body = Volume), ChangeProblems)
)]
pub(crate) async fn create(
    State(server): State<Server>,
    Body(request): Body<VolumeCreate>,
) -> Result<Created<Volume>, Failure> {
    let volume = server.change(async move |array| array.create_volume(request).await).await?;
    Ok(Created { at: format!("/volumes/{}", volume.name), body: volume })
}

/// Show a volume
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

/// Change a volume: name, size, tags, folder, provisioning, write protection, or whether it is a template
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

/// Compress and deduplicate what a volume has, as it is set, in the background
#[utoipa::path(
    post, operation_id = "reduce_volume", path = "/volumes/{name}/reduce", tag = "volumes",
    params(("name" = String, Path, description = "The volume, snapshot or clone")),
    responses((status = 202, description = "Started, or running already", body = Job), ChangeProblems)
)]
pub(crate) async fn reduce(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<(StatusCode, AppendHeaders<[(HeaderName, String); 1]>, Json<Job>), Failure> {
    let job = server.change(async move |array| array.reduce_volume(&name).await).await?;
    let location = AppendHeaders([(LOCATION, format!("{BASE_PATH}/jobs/{}", job.id))]);
    Ok((StatusCode::ACCEPTED, location, Json(job)))
}

/// Delete a volume: the recycle bin keeps it for a while
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
    server.change(async move |array| array.delete_volume(&name, deletion).await).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List the ranges of a volume that cannot be read now: a part of the volume at a time
#[utoipa::path(
    get, operation_id = "list_unreadable_ranges", path = "/volumes/{name}/unreadable", tag = "volumes",
    params(("name" = String, Path, description = "The volume, snapshot or clone"), UnreadableFrom),
    responses((status = 200, body = UnreadableRanges), ReadProblems)
)]
pub(crate) async fn unreadable(
    State(server): State<Server>,
    Path(name): Path<String>,
    Query(from): Query<UnreadableFrom>,
) -> Result<Json<UnreadableRanges>, Failure> {
    // What does not exist is no change that was refused.
    server.array.volume(&name)?;
    Ok(Json(server.change(async move |array| array.unreadable_ranges(&name, from).await).await?))
}
