//! Hosts.

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
use quoin_api::{Host, HostChange, HostCreate};

/// All hosts, by name
#[utoipa::path(get, operation_id = "list_hosts", path = "/hosts", tag = "hosts", responses((status = 200, body = [Host]), ReadProblems))]
pub(crate) async fn list(State(server): State<Server>) -> Result<Json<Vec<Host>>, Failure> {
    Ok(Json(server.array.list_hosts()?))
}

/// Create a host
#[utoipa::path(
    post, operation_id = "create_host", path = "/hosts", tag = "hosts", request_body = HostCreate,
    responses((status = 201, description = "Created", body = Host), ChangeProblems)
)]
pub(crate) async fn create(
    State(server): State<Server>,
    Body(request): Body<HostCreate>,
) -> Result<(StatusCode, Json<Host>), Failure> {
    let host = server.change(async move |array| array.create_host(request).await).await?;
    Ok((StatusCode::CREATED, Json(host)))
}

/// One host
#[utoipa::path(
    get, operation_id = "show_host", path = "/hosts/{name}", tag = "hosts", params(("name" = String, Path, description = "The host")),
    responses((status = 200, body = Host), ReadProblems)
)]
pub(crate) async fn show(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Host>, Failure> {
    Ok(Json(server.array.show_host(&name)?))
}

/// Change a host
#[utoipa::path(
    patch, operation_id = "change_host", path = "/hosts/{name}", tag = "hosts", params(("name" = String, Path, description = "The host")),
    request_body = HostChange, responses((status = 200, description = "Changed", body = Host), ChangeProblems)
)]
pub(crate) async fn change(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(change): Body<HostChange>,
) -> Result<Json<Host>, Failure> {
    Ok(Json(server.change(async move |array| array.change_host(&name, change).await).await?))
}

/// Delete a host
#[utoipa::path(
    delete, operation_id = "delete_host", path = "/hosts/{name}", tag = "hosts",
    params(("name" = String, Path, description = "The host"), Deletion),
    responses((status = 204, description = "Deleted"), ChangeProblems)
)]
pub(crate) async fn delete(
    State(server): State<Server>,
    Path(name): Path<String>,
    Query(deletion): Query<Deletion>,
) -> Result<StatusCode, Failure> {
    server.change(async move |array| array.delete_host(&name, deletion.unmap).await).await?;
    Ok(StatusCode::NO_CONTENT)
}
