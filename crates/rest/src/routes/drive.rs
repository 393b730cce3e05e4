//! Drives.

use crate::{
    extract::{Body, Path},
    failure::{ChangeProblems, Failure, ReadProblems},
    list::{List, PageParameters, fits},
    routes::Created,
    server::Server,
};
use axum::{
    extract::State,
    response::{Json, Response},
};
use quoin_api::{Drive, DriveAdd, DriveEvacuate, DriveReplace, DriveState, EmulateDrive};
use serde::Deserialize;
use utoipa::IntoParams;

/// Which drives are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filters {
    /// Only drives whose path matches: '*' stands for any characters, '?' for one.
    #[param(example = "*/drive-*")]
    path: Option<String>,
    /// Only drives in the fault domain of this name.
    #[param(example = "shelf-1")]
    domain: Option<String>,
    /// Only drives in this state.
    state: Option<DriveState>,
}

/// List drives, those of the configuration in its order
#[utoipa::path(
    get, operation_id = "list_drives", path = "/drives", tag = "drives", params(Filters, PageParameters),
    responses((status = 200, body = [Drive]), ReadProblems)
)]
pub(crate) async fn list(
    State(server): State<Server>,
    List { filters: Filters { path, domain, state }, page }: List<Filters>,
) -> Result<Response, Failure> {
    let mut drives = server.array.list_drives();
    drives.retain(|drive| {
        fits(&path, &drive.path)
            && (domain.is_none() || drive.domain == domain)
            && state.is_none_or(|state| drive.state == state)
    });
    page.of(drives, |drive| drive.path.clone())
}

/// Show a drive
#[utoipa::path(
    get, operation_id = "show_drive", path = "/drives/{drive}", tag = "drives",
    params(("drive" = String, Path, description = "The path of the drive as the list shows it, or the end of that path",
            example = "drive-1")),
    responses((status = 200, body = Drive), ReadProblems)
)]
pub(crate) async fn show(
    State(server): State<Server>,
    Path(drive): Path<String>,
) -> Result<Json<Drive>, Failure> {
    Ok(Json(server.array.show_drive(&drive)?))
}

/// Add a drive for data while the array serves, and to its configuration
#[utoipa::path(
    post, operation_id = "add_drive", path = "/drives", tag = "drives", request_body = DriveAdd,
    responses((status = 201, description = "Added", body = Drive), ChangeProblems)
)]
pub(crate) async fn add(
    State(server): State<Server>,
    Body(request): Body<DriveAdd>,
) -> Result<Created<Drive>, Failure> {
    let drive = server.change(async move |array| array.add_drive(request).await).await?;
    let name = drive.path.replace('%', "%25").replace('/', "%2F");
    Ok(Created { at: format!("/drives/{name}"), body: drive })
}

/// Take a drive out for good, as if it had failed; refused if data would be lost
#[utoipa::path(
    post, operation_id = "fail_drive", path = "/drives/{drive}/fail", tag = "drives",
    params(("drive" = String, Path, description = "The path of the drive as the list shows it, or the end of that path",
            example = "drive-1")),
    responses((status = 200, description = "Taken out", body = Drive), ChangeProblems)
)]
pub(crate) async fn fail(
    State(server): State<Server>,
    Path(drive): Path<String>,
) -> Result<Json<Drive>, Failure> {
    Ok(Json(server.change(async move |array| array.fail_drive(&drive).await).await?))
}

/// Have a drive leave: what it holds moves to the others while hosts use the pool
#[utoipa::path(
    post, operation_id = "evacuate_drive", path = "/drives/{drive}/evacuate", tag = "drives",
    params(("drive" = String, Path, description = "The path of the drive as the list shows it, or the end of that path",
            example = "drive-1")),
    request_body = DriveEvacuate,
    responses((status = 200, description = "It leaves", body = Drive), ChangeProblems)
)]
pub(crate) async fn evacuate(
    State(server): State<Server>,
    Path(drive): Path<String>,
    Body(request): Body<DriveEvacuate>,
) -> Result<Json<Drive>, Failure> {
    Ok(Json(server.change(async move |array| array.evacuate_drive(&drive, request).await).await?))
}

/// Have a drive that leaves stay
#[utoipa::path(
    delete, operation_id = "cancel_evacuation", path = "/drives/{drive}/evacuate", tag = "drives",
    params(("drive" = String, Path, description = "The path of the drive as the list shows it, or the end of that path",
            example = "drive-1")),
    responses((status = 200, description = "It stays", body = Drive), ChangeProblems)
)]
pub(crate) async fn cancel_evacuation(
    State(server): State<Server>,
    Path(drive): Path<String>,
) -> Result<Json<Drive>, Failure> {
    Ok(Json(server.change(async move |array| array.cancel_evacuation(&drive).await).await?))
}

/// Remove a drive: it is evacuated first, unless it failed, and is gone when nothing is left on it
#[utoipa::path(
    post, operation_id = "remove_drive", path = "/drives/{drive}/remove", tag = "drives",
    params(("drive" = String, Path, description = "The path of the drive as the list shows it, or the end of that path",
            example = "drive-1")),
    request_body = DriveEvacuate,
    responses((status = 200, description = "It leaves, or is removed already", body = Drive), ChangeProblems)
)]
pub(crate) async fn remove(
    State(server): State<Server>,
    Path(drive): Path<String>,
    Body(request): Body<DriveEvacuate>,
) -> Result<Json<Drive>, Failure> {
    Ok(Json(server.change(async move |array| array.remove_drive(&drive, request).await).await?))
}

/// Replace a drive: another one is added in its fault domain, and it is removed when nothing is left on it
#[utoipa::path(
    post, operation_id = "replace_drive", path = "/drives/{drive}/replace", tag = "drives",
    params(("drive" = String, Path, description = "The path of the drive as the list shows it, or the end of that path",
            example = "drive-1")),
    request_body = DriveReplace,
    responses((status = 200, description = "It leaves, or is removed already", body = Drive), ChangeProblems)
)]
pub(crate) async fn replace(
    State(server): State<Server>,
    Path(drive): Path<String>,
    Body(request): Body<DriveReplace>,
) -> Result<Json<Drive>, Failure> {
    Ok(Json(server.change(async move |array| array.replace_drive(&drive, request).await).await?))
}

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
