//! Consistency groups and their sets of snapshots.

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
use quoin_api::{
    Group, GroupCreate, GroupMember, GroupRefresh, GroupRestore, GroupSet, GroupSnapshotCreate,
    SnapshotRetain,
};

/// All consistency groups, by name
#[utoipa::path(get, operation_id = "list_groups", path = "/groups", tag = "groups", responses((status = 200, body = [Group]), ReadProblems))]
pub(crate) async fn list(State(server): State<Server>) -> Result<Json<Vec<Group>>, Failure> {
    Ok(Json(server.array.list_groups()?))
}

/// Create a consistency group
#[utoipa::path(
    post, operation_id = "create_group", path = "/groups", tag = "groups", request_body = GroupCreate,
    responses((status = 201, description = "Created", body = Group), ChangeProblems)
)]
pub(crate) async fn create(
    State(server): State<Server>,
    Body(request): Body<GroupCreate>,
) -> Result<(StatusCode, Json<Group>), Failure> {
    let group = server.change(async move |array| array.create_group(request).await).await?;
    Ok((StatusCode::CREATED, Json(group)))
}

/// One consistency group, with its sets of snapshots
#[utoipa::path(
    get, operation_id = "show_group", path = "/groups/{name}", tag = "groups", params(("name" = String, Path, description = "The group")),
    responses((status = 200, body = Group), ReadProblems)
)]
pub(crate) async fn show(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Group>, Failure> {
    Ok(Json(server.array.show_group(&name)?))
}

/// Delete a consistency group; its volumes and their snapshots stay
#[utoipa::path(
    delete, operation_id = "delete_group", path = "/groups/{name}", tag = "groups",
    params(("name" = String, Path, description = "The group")),
    responses((status = 204, description = "Deleted"), ChangeProblems)
)]
pub(crate) async fn delete(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    server.change(async move |array| array.delete_group(&name).await).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Put a volume into a consistency group
#[utoipa::path(
    post, operation_id = "add_to_group", path = "/groups/{name}/volumes", tag = "groups", request_body = GroupMember,
    params(("name" = String, Path, description = "The group")),
    responses((status = 200, description = "Added", body = Group), ChangeProblems)
)]
pub(crate) async fn add(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<GroupMember>,
) -> Result<Json<Group>, Failure> {
    Ok(Json(server.change(async move |array| array.add_to_group(&name, &request.volume).await).await?))
}

/// Take a volume out of a consistency group
#[utoipa::path(
    delete, operation_id = "remove_from_group", path = "/groups/{name}/volumes/{volume}", tag = "groups",
    params(("name" = String, Path, description = "The group"), ("volume" = String, Path, description = "The volume")),
    responses((status = 200, description = "Removed", body = Group), ChangeProblems)
)]
pub(crate) async fn remove(
    State(server): State<Server>,
    Path((name, volume)): Path<(String, String)>,
) -> Result<Json<Group>, Failure> {
    Ok(Json(server.change(async move |array| array.remove_from_group(&name, &volume).await).await?))
}

/// Take snapshots of all volumes of a consistency group, as of one moment
#[utoipa::path(
    post, operation_id = "snapshot_group", path = "/groups/{name}/sets", tag = "groups",
    request_body = GroupSnapshotCreate, params(("name" = String, Path, description = "The group")),
    responses((status = 201, description = "Taken", body = GroupSet), ChangeProblems)
)]
pub(crate) async fn snapshot(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<GroupSnapshotCreate>,
) -> Result<(StatusCode, Json<GroupSet>), Failure> {
    let set = server.change(async move |array| array.snapshot_group(&name, request).await).await?;
    Ok((StatusCode::CREATED, Json(set)))
}

/// Make all volumes of a consistency group what a set of snapshots is
#[utoipa::path(
    post, operation_id = "restore_group", path = "/groups/{name}/sets/{set}/restore", tag = "groups",
    request_body = GroupRestore,
    params(("name" = String, Path, description = "The group"), ("set" = String, Path, description = "The set")),
    responses((status = 200, description = "Restored", body = Group), ChangeProblems)
)]
pub(crate) async fn restore(
    State(server): State<Server>,
    Path((name, set)): Path<(String, String)>,
    Body(request): Body<GroupRestore>,
) -> Result<Json<Group>, Failure> {
    Ok(Json(server.change(async move |array| array.restore_group(&name, &set, request).await).await?))
}

/// Make a set of snapshots what the volumes of its group are now, as of one moment
#[utoipa::path(
    post, operation_id = "refresh_group", path = "/groups/{name}/sets/{set}/refresh", tag = "groups",
    request_body = GroupRefresh,
    params(("name" = String, Path, description = "The group"), ("set" = String, Path, description = "The set")),
    responses((status = 200, description = "Refreshed", body = GroupSet), ChangeProblems)
)]
pub(crate) async fn refresh(
    State(server): State<Server>,
    Path((name, set)): Path<(String, String)>,
    Body(request): Body<GroupRefresh>,
) -> Result<Json<GroupSet>, Failure> {
    Ok(Json(server.change(async move |array| array.refresh_group(&name, &set, request).await).await?))
}

/// Make a set of snapshots immutable, or for longer than it is
#[utoipa::path(
    post, operation_id = "retain_group_snapshot", path = "/groups/{name}/sets/{set}/retain", tag = "groups",
    request_body = SnapshotRetain,
    params(("name" = String, Path, description = "The group"), ("set" = String, Path, description = "The set")),
    responses((status = 200, description = "Immutable", body = GroupSet), ChangeProblems)
)]
pub(crate) async fn retain(
    State(server): State<Server>,
    Path((name, set)): Path<(String, String)>,
    Body(request): Body<SnapshotRetain>,
) -> Result<Json<GroupSet>, Failure> {
    Ok(Json(server.change(async move |array| array.retain_group_snapshot(&name, &set, request).await).await?))
}

/// Delete a set of snapshots
#[utoipa::path(
    delete, operation_id = "delete_group_snapshot", path = "/groups/{name}/sets/{set}", tag = "groups",
    params(
        ("name" = String, Path, description = "The group"),
        ("set" = String, Path, description = "The set"),
        Deletion
    ),
    responses((status = 204, description = "Deleted"), ChangeProblems)
)]
pub(crate) async fn delete_set(
    State(server): State<Server>,
    Path((name, set)): Path<(String, String)>,
    Query(deletion): Query<Deletion>,
) -> Result<StatusCode, Failure> {
    server.change(async move |array| array.delete_group_snapshot(&name, &set, deletion.unmap).await).await?;
    Ok(StatusCode::NO_CONTENT)
}
