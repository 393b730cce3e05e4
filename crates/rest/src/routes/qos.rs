//! Quality of service: limits of volumes, of consistency groups and of policies.

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
use quoin_api::{Qos, QosScope, QosSet};
use quoin_array::QosOf;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};

/// Which limits are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filters {
    /// Only those of volumes, only those of groups, or only those of policies.
    scope: Option<QosScope>,
}

pub(crate) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show_volume, set_volume, delete_volume))
        .routes(routes!(show_group, set_group, delete_group))
        .routes(routes!(show_policy, set_policy, delete_policy))
}

/// Limits of IOPS and bandwidth: of all volumes, groups and policies that have any
#[utoipa::path(
    get, operation_id = "list_qos", path = "/qos", tag = "qos",
    params(Filters, PageParameters), responses((status = 200, body = [Qos]), ReadProblems)
)]
pub(crate) async fn list(
    State(server): State<Server>,
    List { filters: Filters { scope }, page }: List<Filters>,
) -> Result<Response, Failure> {
    let mut all = server.array.list_qos()?;
    all.retain(|qos| scope.is_none_or(|scope| qos.scope == scope));
    page.of(all, |qos| format!("{}/{}", qos.scope, qos.name))
}

async fn set_of(server: Server, of: QosOf, request: Option<QosSet>) -> Result<Json<Qos>, Failure> {
    Ok(Json(server.change(async move |array| array.set_qos(&of, request).await).await?))
}

/// Limits of a volume, and the requests that wait for them
#[utoipa::path(
    get, operation_id = "show_volume_qos", path = "/volumes/{name}/qos", tag = "qos",
    params(("name" = String, Path, description = "The volume")),
    responses((status = 200, body = Qos), ReadProblems)
)]
pub(crate) async fn show_volume(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Qos>, Failure> {
    Ok(Json(server.array.show_qos(&QosOf::Volume(name))?))
}

/// Limit the IOPS and bandwidth of a volume
#[utoipa::path(
    put, operation_id = "set_volume_qos", path = "/volumes/{name}/qos", tag = "qos",
    params(("name" = String, Path, description = "The volume")),
    request_body = QosSet, responses((status = 200, description = "Set", body = Qos), ChangeProblems)
)]
pub(crate) async fn set_volume(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<QosSet>,
) -> Result<Json<Qos>, Failure> {
    set_of(server, QosOf::Volume(name), Some(request)).await
}

/// Remove the limits of a volume
#[utoipa::path(
    delete, operation_id = "delete_volume_qos", path = "/volumes/{name}/qos", tag = "qos",
    params(("name" = String, Path, description = "The volume")),
    responses((status = 200, description = "Removed", body = Qos), ChangeProblems)
)]
pub(crate) async fn delete_volume(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Qos>, Failure> {
    set_of(server, QosOf::Volume(name), None).await
}

/// Limits of a consistency group, and the requests that wait for them
#[utoipa::path(
    get, operation_id = "show_group_qos", path = "/groups/{name}/qos", tag = "qos",
    params(("name" = String, Path, description = "The group")),
    responses((status = 200, body = Qos), ReadProblems)
)]
pub(crate) async fn show_group(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Qos>, Failure> {
    Ok(Json(server.array.show_qos(&QosOf::Group(name))?))
}

/// Limit the IOPS and bandwidth of the volumes of a consistency group, together
#[utoipa::path(
    put, operation_id = "set_group_qos", path = "/groups/{name}/qos", tag = "qos",
    params(("name" = String, Path, description = "The group")),
    request_body = QosSet, responses((status = 200, description = "Set", body = Qos), ChangeProblems)
)]
pub(crate) async fn set_group(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<QosSet>,
) -> Result<Json<Qos>, Failure> {
    set_of(server, QosOf::Group(name), Some(request)).await
}

/// Remove the limits of a consistency group
#[utoipa::path(
    delete, operation_id = "delete_group_qos", path = "/groups/{name}/qos", tag = "qos",
    params(("name" = String, Path, description = "The group")),
    responses((status = 200, description = "Removed", body = Qos), ChangeProblems)
)]
pub(crate) async fn delete_group(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Qos>, Failure> {
    set_of(server, QosOf::Group(name), None).await
}

/// Limits of a policy, and the requests that wait for them
#[utoipa::path(
    get, operation_id = "show_policy_qos", path = "/policies/{name}/qos", tag = "qos",
    params(("name" = String, Path, description = "The policy")),
    responses((status = 200, body = Qos), ReadProblems)
)]
pub(crate) async fn show_policy(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Qos>, Failure> {
    Ok(Json(server.array.show_qos(&QosOf::Policy(name))?))
}

/// Limit the IOPS and bandwidth of each volume that has a policy
#[utoipa::path(
    put, operation_id = "set_policy_qos", path = "/policies/{name}/qos", tag = "qos",
    params(("name" = String, Path, description = "The policy")),
    request_body = QosSet, responses((status = 200, description = "Set", body = Qos), ChangeProblems)
)]
pub(crate) async fn set_policy(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<QosSet>,
) -> Result<Json<Qos>, Failure> {
    set_of(server, QosOf::Policy(name), Some(request)).await
}

/// Remove the limits of a policy
#[utoipa::path(
    delete, operation_id = "delete_policy_qos", path = "/policies/{name}/qos", tag = "qos",
    params(("name" = String, Path, description = "The policy")),
    responses((status = 200, description = "Removed", body = Qos), ChangeProblems)
)]
pub(crate) async fn delete_policy(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Qos>, Failure> {
    set_of(server, QosOf::Policy(name), None).await
}
