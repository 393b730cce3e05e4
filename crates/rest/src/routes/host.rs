//! Hosts.

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
use quoin_api::{Host, HostChange, HostCreate};
use serde::Deserialize;
use utoipa::IntoParams;

/// Whether a host that sees volumes is deleted.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Deletion {
    /// Remove its mappings too. Otherwise a host that has any is not deleted.
    #[serde(default)]
    #[param(required = false)]
    unmap: bool,
    /// Delete it although it is logged in.
    #[serde(default)]
    #[param(required = false)]
    force: bool,
}

/// Which hosts are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filters {
    /// Only hosts whose name matches: '*' stands for any characters, '?' for one.
    #[param(example = "db*")]
    name: Option<String>,
    /// Only the host with this initiator.
    #[param(example = "iqn.2026-11.test:h1")]
    initiator: Option<String>,
    /// Only hosts that see this volume.
    #[param(example = "v1")]
    volume: Option<String>,
}

/// List hosts, by name
#[utoipa::path(
    get, operation_id = "list_hosts", path = "/hosts", tag = "hosts", params(Filters, PageParameters),
    responses((status = 200, body = [Host]), ReadProblems)
)]
pub(crate) async fn list(
    State(server): State<Server>,
    List { filters: Filters { name, initiator, volume }, page }: List<Filters>,
) -> Result<Response, Failure> {
    let mut hosts = server.array.list_hosts()?;
    hosts.retain(|host| {
        fits(&name, &host.name)
            && initiator.as_ref().is_none_or(|wanted| host.initiators.contains(&wanted.to_lowercase()))
            && volume.as_ref().is_none_or(|wanted| host.mappings.iter().any(|m| m.volume == *wanted))
    });
    page.of(hosts, |host| host.name.clone())
}

/// Create a host
#[utoipa::path(
    post, operation_id = "create_host", path = "/hosts", tag = "hosts", request_body = HostCreate,
    responses((status = 201, description = "Created", body = Host), ChangeProblems)
)]
pub(crate) async fn create(
    State(server): State<Server>,
    Body(request): Body<HostCreate>,
) -> Result<Created<Host>, Failure> {
    let host = server.change(async move |array| array.create_host(request).await).await?;
    Ok(Created { at: format!("/hosts/{}", host.name), body: host })
}

/// Show a host
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
    Query(Deletion { unmap, force }): Query<Deletion>,
) -> Result<StatusCode, Failure> {
    server.change(async move |array| array.delete_host(&name, unmap, force).await).await?;
    Ok(StatusCode::NO_CONTENT)
}
