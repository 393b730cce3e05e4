//! Jobs.

use crate::{
    extract::Path,
    failure::{ChangeProblems, Failure, ReadProblems},
    list::{List, PageParameters},
    server::Server,
};
use axum::{
    extract::State,
    response::{Json, Response},
};
use quoin_api::{Job, JobKind, JobState};
use serde::Deserialize;
use utoipa::IntoParams;

/// Which jobs are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filters {
    /// Only jobs of this kind.
    kind: Option<JobKind>,
    /// Only jobs in this state.
    state: Option<JobState>,
}

/// List running jobs and the last that ended
#[utoipa::path(
    get, operation_id = "list_jobs", path = "/jobs", tag = "jobs", params(Filters, PageParameters),
    responses((status = 200, body = [Job]), ReadProblems)
)]
pub(crate) async fn list(
    State(server): State<Server>,
    List { filters: Filters { kind, state }, page }: List<Filters>,
) -> Result<Response, Failure> {
    let mut jobs = server.change(async move |array| array.list_jobs().await).await?;
    jobs.retain(|job| {
        kind.is_none_or(|kind| job.kind == kind) && state.is_none_or(|state| job.state == state)
    });
    page.of(jobs, |job| job.id.clone())
}

/// Show a job
#[utoipa::path(
    get, operation_id = "show_job", path = "/jobs/{id}", tag = "jobs",
    params(("id" = String, Path, description = "The job")),
    responses((status = 200, body = Job), ReadProblems)
)]
pub(crate) async fn show(State(server): State<Server>, Path(id): Path<String>) -> Result<Json<Job>, Failure> {
    Ok(Json(server.change(async move |array| array.show_job(&id).await).await?))
}

/// Cancel a job; what was done stays
#[utoipa::path(
    delete, operation_id = "cancel_job", path = "/jobs/{id}", tag = "jobs",
    params(("id" = String, Path, description = "The job")),
    responses((status = 200, description = "Cancelled", body = Job), ChangeProblems)
)]
pub(crate) async fn cancel(
    State(server): State<Server>,
    Path(id): Path<String>,
) -> Result<Json<Job>, Failure> {
    Ok(Json(server.change(async move |array| array.cancel_job(&id).await).await?))
}
