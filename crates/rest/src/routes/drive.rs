//! Drives.

use crate::{
    extract::{Body, Path},
    failure::{ChangeProblems, Failure},
    server::Server,
};
use axum::{extract::State, response::Json};
use quoin_api::{Drive, EmulateDrive};

/// Have an emulated drive fail, be slow, hang, be corrupted or detached, or return
#[utoipa::path(
    post, operation_id = "emulate_drive", path = "/drives/{drive}/emulate", tag = "drives",
    params(("drive" = String, Path, description = "The path of the drive as the status shows it, or the end of that path",
            example = "drive-1")),
    request_body = EmulateDrive,
    responses((status = 200, description = "Done", body = Drive), ChangeProblems)
)]
pub(crate) async fn emulate(
    State(server): State<Server>,
    Path(drive): Path<String>,
    Body(request): Body<EmulateDrive>,
) -> Result<Json<Drive>, Failure> {
    Ok(Json(server.change(async move |array| array.emulate_drive(&drive, request).await).await?))
}
