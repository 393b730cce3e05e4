//! Copies of ranges.

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
use quoin_api::{CopyCreate, Problem, VolumeCopy};

/// Copy a range of a volume into another, or into itself, in the background
#[utoipa::path(
    post, operation_id = "copy_volume", path = "/volumes/{name}/copy", tag = "volumes", request_body = CopyCreate,
    params(("name" = String, Path, description = "What to copy from")),
    responses((status = 202, description = "Begun", body = VolumeCopy), ChangeProblems)
)]
pub(crate) async fn create(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<CopyCreate>,
) -> Result<(StatusCode, Json<VolumeCopy>), Failure> {
    let copy = server.change(async move |array| array.copy_volume(&name, request).await).await?;
    Ok((StatusCode::ACCEPTED, Json(copy)))
}

/// The copies that run, and the last that ended, oldest first
#[utoipa::path(
    get, operation_id = "list_copies", path = "/copies", tag = "copies",
    responses((status = 200, body = [VolumeCopy]), ReadProblems)
)]
pub(crate) async fn list(State(server): State<Server>) -> Result<Json<Vec<VolumeCopy>>, Failure> {
    Ok(Json(server.array.list_copies()?))
}

/// One copy
#[utoipa::path(
    get, operation_id = "show_copy", path = "/copies/{id}", tag = "copies",
    params(("id" = u32, Path, description = "The copy")),
    responses((status = 200, body = VolumeCopy), ReadProblems)
)]
pub(crate) async fn show(
    State(server): State<Server>,
    Path(id): Path<String>,
) -> Result<Json<VolumeCopy>, Failure> {
    Ok(Json(server.array.show_copy(number(&id)?)?))
}

/// Cancel a copy that runs; what is copied stays
#[utoipa::path(
    delete, operation_id = "cancel_copy", path = "/copies/{id}", tag = "copies",
    params(("id" = u32, Path, description = "The copy")),
    responses((status = 204, description = "Cancelled"), ChangeProblems)
)]
pub(crate) async fn cancel(
    State(server): State<Server>,
    Path(id): Path<String>,
) -> Result<StatusCode, Failure> {
    let id = number(&id)?;
    server.change(async move |array| array.cancel_copy(id).await).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn number(id: &str) -> Result<u32, Failure> {
    id.parse().map_err(|_| {
        let (which, why) = (format!("copy {id}"), format!("there is no copy {id}: copies have numbers"));
        let next = "see which there are: quoin volume copies";
        Failure::new(Problem::new("not-found", 404, "no such copy", which, why, next))
    })
}
