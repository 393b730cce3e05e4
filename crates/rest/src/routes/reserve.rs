//! The snapshot reserve.

use crate::{
    extract::Body,
    failure::{ChangeProblems, Failure, ReadProblems},
    server::Server,
};
use axum::{extract::State, response::Json};
use quoin_api::{Reserve, ReserveSet};

/// How much of the pool snapshots may hold, and how much they do
#[utoipa::path(
    get, operation_id = "show_snapshot_reserve", path = "/snapshot-reserve", tag = "snapshots",
    responses((status = 200, body = Reserve), ReadProblems)
)]
pub(crate) async fn show(State(server): State<Server>) -> Result<Json<Reserve>, Failure> {
    Ok(Json(server.array.show_reserve()?))
}

/// Set how much of the pool snapshots may hold
#[utoipa::path(
    put, operation_id = "set_snapshot_reserve", path = "/snapshot-reserve", tag = "snapshots",
    request_body = ReserveSet, responses((status = 200, description = "Set", body = Reserve), ChangeProblems)
)]
pub(crate) async fn set(
    State(server): State<Server>,
    Body(request): Body<ReserveSet>,
) -> Result<Json<Reserve>, Failure> {
    Ok(Json(server.change(async move |array| array.set_reserve(Some(request)).await).await?))
}

/// Let snapshots hold as much as there is
#[utoipa::path(
    delete, operation_id = "delete_snapshot_reserve", path = "/snapshot-reserve", tag = "snapshots",
    responses((status = 200, description = "Taken away", body = Reserve), ChangeProblems)
)]
pub(crate) async fn delete(State(server): State<Server>) -> Result<Json<Reserve>, Failure> {
    Ok(Json(server.change(async move |array| array.set_reserve(None).await).await?))
}
