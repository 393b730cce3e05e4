//! iSCSI portals.

use crate::{
    extract::{Body, Path, Query},
    failure::{ChangeProblems, Failure, ReadProblems},
    list::{List, PageParameters},
    routes::{Created, Forced},
    server::Server,
};
use axum::{
    extract::State,
    http::StatusCode,
    response::{Json, Response},
};
use quoin_api::{Portal, PortalCreate, PortalState, PortalUpdate};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};

/// Which portals are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filters {
    /// Only those that are up, only those that are down, or only those that are disabled.
    state: Option<PortalState>,
}

pub(crate) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(show, change, delete))
}

/// List iSCSI portals, by address
#[utoipa::path(
    get, operation_id = "list_portals", path = "/portals", tag = "portals", params(Filters, PageParameters),
    responses((status = 200, body = [Portal]), ReadProblems)
)]
pub(crate) async fn list(
    State(server): State<Server>,
    List { filters: Filters { state }, page }: List<Filters>,
) -> Result<Response, Failure> {
    let mut portals = server.array.list_portals()?;
    portals.retain(|portal| state.is_none_or(|state| portal.state == state));
    page.of(portals, |portal| portal.address.clone())
}

/// Create an iSCSI portal; hosts reach the array there at once, also after a restart
#[utoipa::path(
    post, operation_id = "create_portal", path = "/portals", tag = "portals", request_body = PortalCreate,
    responses((status = 201, description = "Created", body = Portal), ChangeProblems)
)]
pub(crate) async fn create(
    State(server): State<Server>,
    Body(request): Body<PortalCreate>,
) -> Result<Created<Portal>, Failure> {
    let portal = server.change(async move |array| array.create_portal(request).await).await?;
    Ok(Created { at: format!("/portals/{}", portal.address), body: portal })
}

/// Show an iSCSI portal
#[utoipa::path(
    get, operation_id = "show_portal", path = "/portals/{address}", tag = "portals",
    params(("address" = String, Path, description = "The address of the portal")),
    responses((status = 200, body = Portal), ReadProblems)
)]
pub(crate) async fn show(
    State(server): State<Server>,
    Path(address): Path<String>,
) -> Result<Json<Portal>, Failure> {
    Ok(Json(server.array.show_portal(&address)?))
}

/// Enable or disable an iSCSI portal; initiators that came through others notice nothing
#[utoipa::path(
    patch, operation_id = "change_portal", path = "/portals/{address}", tag = "portals",
    params(("address" = String, Path, description = "The address of the portal")), request_body = PortalUpdate,
    responses((status = 200, description = "Changed", body = Portal), ChangeProblems)
)]
pub(crate) async fn change(
    State(server): State<Server>,
    Path(address): Path<String>,
    Body(update): Body<PortalUpdate>,
) -> Result<Json<Portal>, Failure> {
    Ok(Json(server.change(async move |array| array.set_portal(&address, update).await).await?))
}

/// Delete an iSCSI portal that a client created
#[utoipa::path(
    delete, operation_id = "delete_portal", path = "/portals/{address}", tag = "portals",
    params(("address" = String, Path, description = "The address of the portal"), Forced),
    responses((status = 204, description = "Deleted"), ChangeProblems)
)]
pub(crate) async fn delete(
    State(server): State<Server>,
    Path(address): Path<String>,
    Query(Forced { force }): Query<Forced>,
) -> Result<StatusCode, Failure> {
    server.change(async move |array| array.delete_portal(&address, force).await).await?;
    Ok(StatusCode::NO_CONTENT)
}
