//! Consistency groups and their sets of snapshots.

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
    Deletion, Group, GroupChange, GroupCreate, GroupMember, GroupRefresh, GroupRestore, GroupSet,
    GroupSnapshotCreate, NextStep, Problem, ProblemKind, SnapshotRetain,
};
use serde::Deserialize;
use utoipa::IntoParams;

/// Which consistency groups are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filters {
    /// Only groups whose name matches: '*' stands for any characters, '?' for one.
    #[param(example = "db*")]
    name: Option<String>,
    /// Only the group that contains this volume.
    #[param(example = "db1-data")]
    volume: Option<String>,
}

/// List consistency groups, by name
#[utoipa::path(
    get, operation_id = "list_groups", path = "/groups", tag = "groups", params(Filters, PageParameters),
    responses((status = 200, body = [Group]), ReadProblems)
)]
pub(crate) async fn list(
    State(server): State<Server>,
    List { filters: Filters { name, volume }, page }: List<Filters>,
) -> Result<Response, Failure> {
    let mut groups = server.array.list_groups()?;
    groups.retain(|group| {
        fits(&name, &group.name) && volume.as_ref().is_none_or(|volume| group.volumes.contains(volume))
    });
    page.of(groups, |group| group.id.to_string())
}

/// Rename a consistency group
#[utoipa::path(
    patch, operation_id = "change_group", path = "/groups/{name}", tag = "groups", request_body = GroupChange,
    params(("name" = String, Path, description = "The group")),
    responses((status = 200, description = "Changed", body = Group), ChangeProblems)
)]
pub(crate) async fn change(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<GroupChange>,
) -> Result<Json<Group>, Failure> {
    Ok(Json(server.change(async move |array| array.change_group(&name, request).await).await?))
}

/// Show a set of snapshots
#[utoipa::path(
    get, operation_id = "show_group_snapshot", path = "/groups/{name}/sets/{set}", tag = "groups",
    params(("name" = String, Path, description = "The group"), ("set" = String, Path, description = "The set")),
    responses((status = 200, body = GroupSet), ReadProblems)
)]
pub(crate) async fn show_set(
    State(server): State<Server>,
    Path((name, set)): Path<(String, String)>,
) -> Result<Json<GroupSet>, Failure> {
    let found = server.array.show_group(&name)?.sets.into_iter().find(|of| of.name == set);
    found.map(Json).ok_or_else(|| {
        let (which, why) = (format!("set {set} of group {name}"), format!("group {name} has no set {set}"));
        let next = NextStep::ShowGroup { group: &name };
        Failure::new(Problem::new(ProblemKind::NotFound, "no such set", which, why, next))
    })
}

/// Create a consistency group
#[utoipa::path(
    post, operation_id = "create_group", path = "/groups", tag = "groups", request_body = GroupCreate,
    responses((status = 201, description = "Created", body = Group), ChangeProblems)
)]
pub(crate) async fn create(
    State(server): State<Server>,
    Body(request): Body<GroupCreate>,
) -> Result<Created<Group>, Failure> {
    let group = server.change(async move |array| array.create_group(request).await).await?;
    Ok(Created { at: format!("/groups/{}", group.name), body: group })
}

/// Show a consistency group with its sets of snapshots
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

/// Add a volume to a consistency group
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

/// Remove a volume from a consistency group
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

/// Take a set of snapshots of all volumes of a consistency group, as of one moment
#[utoipa::path(
    post, operation_id = "snapshot_group", path = "/groups/{name}/sets", tag = "groups",
    request_body = GroupSnapshotCreate, params(("name" = String, Path, description = "The group")),
    responses((status = 201, description = "Taken", body = GroupSet), ChangeProblems)
)]
pub(crate) async fn snapshot(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<GroupSnapshotCreate>,
) -> Result<Created<GroupSet>, Failure> {
    let group = name.clone();
    let set = server.change(async move |array| array.snapshot_group(&name, request).await).await?;
    Ok(Created { at: format!("/groups/{group}/sets/{}", set.name), body: set })
}

/// Restore all volumes of a consistency group from a set of snapshots
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

/// Refresh a set of snapshots from the volumes of its group, as of one moment
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

/// Make a set of snapshots immutable, or extend the time
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

/// Delete a set of snapshots: the recycle bin keeps them for a while
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
    server.change(async move |array| array.delete_group_snapshot(&name, &set, deletion).await).await?;
    Ok(StatusCode::NO_CONTENT)
}
