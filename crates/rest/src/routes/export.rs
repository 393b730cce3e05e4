//! Exports of volumes over NBD.

use crate::{
    extract::Body,
    failure::{ChangeProblems, Failure, ReadProblems},
    server::Server,
};
use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Json,
};
use quoin_api::{Export, ExportCreate};

/// All exports, by name
#[utoipa::path(get, operation_id = "list_exports", path = "/exports", tag = "exports", responses((status = 200, body = [Export]), ReadProblems))]
pub(crate) async fn list(State(server): State<Server>) -> Result<Json<Vec<Export>>, Failure> {
    Ok(Json(server.array.list_exports()?))
}

/// Show a volume to NBD clients
#[utoipa::path(
    post, operation_id = "create_export", path = "/exports", tag = "exports", request_body = ExportCreate,
    responses((status = 201, description = "Created", body = Export), ChangeProblems)
)]
pub(crate) async fn create(
    State(server): State<Server>,
    Body(request): Body<ExportCreate>,
) -> Result<(StatusCode, Json<Export>), Failure> {
    let export = server.change(async move |array| array.create_export(request).await).await?;
    Ok((StatusCode::CREATED, Json(export)))
}

/// One export
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

/// Take an export away; its clients are disconnected
#[utoipa::path(
    delete, operation_id = "delete_export", path = "/exports/{name}", tag = "exports",
    params(("name" = String, Path, description = "The export")),
    responses((status = 204, description = "Deleted"), ChangeProblems)
)]
pub(crate) async fn delete(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    server.change(async move |array| array.delete_export(&name).await).await?;
    Ok(StatusCode::NO_CONTENT)
}
