//! Exports of volumes over NBD.

use crate::{
    extract::{Body, Path, Query},
    failure::{ChangeProblems, Failure, ReadProblems},
    list::{List, PageParameters, fits},
    routes::{Created, Forced},
    server::Server,
};
use axum::{
    extract::State,
    http::StatusCode,
    response::{Json, Response},
};
use quoin_api::{AccessUpdate, Export, ExportCreate};
use serde::Deserialize;
use utoipa::IntoParams;

/// Which exports are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filters {
    /// Only exports whose name matches: '*' stands for any characters, '?' for one.
    #[param(example = "pg-*")]
    name: Option<String>,
    /// Only exports of this volume.
    #[param(example = "v1")]
    volume: Option<String>,
}

/// List exports, by name
#[utoipa::path(
    get, operation_id = "list_exports", path = "/exports", tag = "exports", params(Filters, PageParameters),
    responses((status = 200, body = [Export]), ReadProblems)
)]
pub(crate) async fn list(
    State(server): State<Server>,
    List { filters: Filters { name, volume }, page }: List<Filters>,
) -> Result<Response, Failure> {
    let mut exports = server.array.list_exports()?;
    exports.retain(|export| {
        fits(&name, &export.name) && volume.as_ref().is_none_or(|volume| export.volume == *volume)
    });
    page.of(exports, |export| export.name.clone())
}

/// Export a volume to NBD clients
#[utoipa::path(
    post, operation_id = "create_export", path = "/exports", tag = "exports", request_body = ExportCreate,
    responses((status = 201, description = "Created", body = Export), ChangeProblems)
)]
pub(crate) async fn create(
    State(server): State<Server>,
    Body(request): Body<ExportCreate>,
) -> Result<Created<Export>, Failure> {
    let export = server.change(async move |array| array.create_export(request).await).await?;
    Ok(Created { at: format!("/exports/{}", export.name), body: export })
}

/// Show an export
#[utoipa::path(
    get, operation_id = "show_export", path = "/exports/{name}", tag = "exports", params(("name" = String, Path, description = "The export")),
    responses((status = 200, body = Export), ReadProblems)
)]
pub(crate) async fn show(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Export>, Failure> {
    Ok(Json(server.array.show_export(&name)?))
}

/// Change the access of an export; connected clients stay connected
#[utoipa::path(
    patch, operation_id = "change_export", path = "/exports/{name}", tag = "exports",
    params(("name" = String, Path, description = "The export")), request_body = AccessUpdate,
    responses((status = 200, description = "Changed", body = Export), ChangeProblems)
)]
pub(crate) async fn change(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(update): Body<AccessUpdate>,
) -> Result<Json<Export>, Failure> {
    Ok(Json(server.change(async move |array| array.set_export(&name, update).await).await?))
}

/// Delete an export; its clients are disconnected
#[utoipa::path(
    delete, operation_id = "delete_export", path = "/exports/{name}", tag = "exports",
    params(("name" = String, Path, description = "The export"), Forced),
    responses((status = 204, description = "Deleted"), ChangeProblems)
)]
pub(crate) async fn delete(
    State(server): State<Server>,
    Path(name): Path<String>,
    Query(Forced { force }): Query<Forced>,
) -> Result<StatusCode, Failure> {
    server.change(async move |array| array.delete_export(&name, force).await).await?;
    Ok(StatusCode::NO_CONTENT)
}
