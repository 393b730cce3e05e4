//! What the pool's space is used for.

use crate::{
    extract::Path,
    failure::{Failure, ReadProblems},
    list::{List, PageParameters},
    server::Server,
};
use axum::{
    extract::State,
    response::{Json, Response},
};
use quoin_api::{PoolSpace, SpaceForecast, SpaceSample, VolumeSpace};
use serde::Deserialize;
use utoipa::IntoParams;

/// Show how the pool's space is used, and how much is saved
#[utoipa::path(
    get, operation_id = "show_space", path = "/space", tag = "space",
    responses((status = 200, body = PoolSpace), ReadProblems)
)]
pub(crate) async fn pool(State(server): State<Server>) -> Result<Json<PoolSpace>, Failure> {
    Ok(Json(server.array.pool_space()?))
}

/// Which samples are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HistoryFilters {
    /// Only samples from this moment on, in milliseconds since the Unix epoch.
    #[serde(default, deserialize_with = "quoin_api::int64")]
    #[param(required = false, minimum = 0)]
    since_ms: u64,
    /// Samples of each hour where they are kept, instead of the last of each day.
    #[serde(default)]
    hourly: bool,
}

/// List how the pool's space was used over time, the oldest sample first
#[utoipa::path(
    get, operation_id = "list_space_history", path = "/space/history", tag = "space",
    params(HistoryFilters, PageParameters),
    responses((status = 200, body = [SpaceSample]), ReadProblems)
)]
pub(crate) async fn history(
    State(server): State<Server>,
    List { filters: HistoryFilters { since_ms, hourly }, page }: List<HistoryFilters>,
) -> Result<Response, Failure> {
    let samples = server.array.space_history(since_ms, hourly)?;
    page.of(samples, |sample| sample.at_ms.to_string())
}

/// Show when the pool will be full if its use goes on to grow as it did within the last 30 days
#[utoipa::path(
    get, operation_id = "show_space_forecast", path = "/space/forecast", tag = "space",
    responses((status = 200, body = SpaceForecast), ReadProblems)
)]
pub(crate) async fn forecast(State(server): State<Server>) -> Result<Json<SpaceForecast>, Failure> {
    Ok(Json(server.array.space_forecast()?))
}

/// Show how much of the pool's space the volumes of a consistency group use together
#[utoipa::path(
    get, operation_id = "show_group_space", path = "/groups/{name}/space", tag = "space",
    params(("name" = String, Path, description = "The group")),
    responses((status = 200, body = VolumeSpace), ReadProblems)
)]
pub(crate) async fn group(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<VolumeSpace>, Failure> {
    Ok(Json(server.change(async move |array| array.group_space(&name).await).await?))
}

/// Show how much of the pool's space a volume uses, and what deleting it frees
#[utoipa::path(
    get, operation_id = "show_volume_space", path = "/volumes/{name}/space", tag = "space",
    params(("name" = String, Path, description = "The volume")),
    responses((status = 200, body = VolumeSpace), ReadProblems)
)]
pub(crate) async fn volume(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<VolumeSpace>, Failure> {
    Ok(Json(server.change(async move |array| array.volume_space(&name).await).await?))
}
