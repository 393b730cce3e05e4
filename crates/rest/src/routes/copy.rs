//! Copies of ranges.

use crate::{
    extract::{Body, Path},
    failure::{ChangeProblems, Failure, ReadProblems},
    list::{List, PageParameters},
    server::Server,
};
use axum::{
    extract::State,
    http::{HeaderName, StatusCode, header::LOCATION},
    response::{AppendHeaders, Json, Response},
};
use quoin_api::{BASE_PATH, CopyCreate, CopyState, NextStep, Problem, ProblemKind, VolumeCopy};
use serde::Deserialize;
use utoipa::IntoParams;

/// Copy a range of a volume to another volume or within the volume, in the background
#[utoipa::path(
    post, operation_id = "copy_volume", path = "/volumes/{name}/copy", tag = "volumes", request_body = CopyCreate,
    params(("name" = String, Path, description = "The source")),
    responses((status = 202, description = "Started", body = VolumeCopy), ChangeProblems)
)]
pub(crate) async fn create(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<CopyCreate>,
) -> Result<(StatusCode, AppendHeaders<[(HeaderName, String); 1]>, Json<VolumeCopy>), Failure> {
    let copy = server.change(async move |array| array.copy_volume(&name, request).await).await?;
    let location = AppendHeaders([(LOCATION, format!("{BASE_PATH}/jobs/copy-{}", copy.id))]);
    Ok((StatusCode::ACCEPTED, location, Json(copy)))
}

/// Which copies are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filters {
    /// Only copies in this state.
    state: Option<CopyState>,
    /// Only copies from or to this volume.
    #[param(example = "v1")]
    volume: Option<String>,
}

/// List running copies and the last that ended, oldest first
#[utoipa::path(
    get, operation_id = "list_copies", path = "/copies", tag = "copies", params(Filters, PageParameters),
    responses((status = 200, body = [VolumeCopy]), ReadProblems)
)]
pub(crate) async fn list(
    State(server): State<Server>,
    List { filters: Filters { state, volume }, page }: List<Filters>,
) -> Result<Response, Failure> {
    let mut copies = server.array.list_copies()?;
    copies.retain(|copy| {
        state.is_none_or(|state| copy.state == state)
            && volume.as_ref().is_none_or(|volume| [&copy.source, &copy.target].contains(&volume))
    });
    page.of(copies, |copy| copy.id.to_string())
}

/// Show a copy
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

/// Cancel a running copy; what was copied stays
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
        Failure::new(Problem::new(ProblemKind::NotFound, "no such copy", which, why, NextStep::ListCopies))
    })
}
