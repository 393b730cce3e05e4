//! SCSI reservations: what hosts have reserved of volumes.

use crate::{
    extract::{Path, Query},
    failure::{ChangeProblems, Failure, ReadProblems},
    list::{List, PageParameters},
    routes::Forced,
    server::Server,
};
use axum::{
    extract::State,
    http::StatusCode,
    response::{Json, Response},
};
use quoin_api::Reservations;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};

/// Which are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filters {
    /// Only volumes that this host is registered with.
    host: Option<String>,
}

pub(crate) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show, clear))
}

/// List the volumes that hosts have reserved or are registered with, by name
#[utoipa::path(
    get, operation_id = "list_reservations", path = "/reservations", tag = "reservations",
    params(Filters, PageParameters), responses((status = 200, body = [Reservations]), ReadProblems)
)]
pub(crate) async fn list(
    State(server): State<Server>,
    List { filters: Filters { host }, page }: List<Filters>,
) -> Result<Response, Failure> {
    let mut all = server.array.list_reservations()?;
    all.retain(|one| {
        host.is_none() || one.registrations.iter().any(|registration| registration.host == host)
    });
    page.of(all, |one| one.volume.clone())
}

/// What hosts have reserved of a volume, and who is registered
#[utoipa::path(
    get, operation_id = "show_reservations", path = "/volumes/{name}/reservations", tag = "reservations",
    params(("name" = String, Path, description = "The volume")),
    responses((status = 200, body = Reservations), ReadProblems)
)]
pub(crate) async fn show(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Reservations>, Failure> {
    Ok(Json(server.array.show_reservations(&name)?))
}

/// Remove all registrations and reservations of a volume; hosts that had any learn of it
#[utoipa::path(
    delete, operation_id = "clear_reservations", path = "/volumes/{name}/reservations", tag = "reservations",
    params(("name" = String, Path, description = "The volume"), Forced),
    responses((status = 204, description = "Cleared"), ChangeProblems)
)]
pub(crate) async fn clear(
    State(server): State<Server>,
    Path(name): Path<String>,
    Query(Forced { force }): Query<Forced>,
) -> Result<StatusCode, Failure> {
    server.change(async move |array| array.clear_reservations(&name, force).await).await?;
    Ok(StatusCode::NO_CONTENT)
}
