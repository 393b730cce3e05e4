//! Settings of the pool.

use crate::{
    extract::Body,
    failure::{ChangeProblems, Failure, ReadProblems},
    server::Server,
};
use axum::{extract::State, response::Json};
use quoin_api::{PoolExpand, PoolExpansion, PoolSettings, PoolUpdate};

/// Show the settings of the pool
#[utoipa::path(
    get, operation_id = "show_pool", path = "/pool", tag = "space",
    responses((status = 200, body = PoolSettings), ReadProblems)
)]
pub(crate) async fn show(State(server): State<Server>) -> Result<Json<PoolSettings>, Failure> {
    Ok(Json(server.array.show_pool()?))
}

/// Change settings of the pool; they hold at once
#[utoipa::path(
    patch, operation_id = "change_pool", path = "/pool", tag = "space", request_body = PoolUpdate,
    responses((status = 200, description = "Changed", body = PoolSettings), ChangeProblems)
)]
pub(crate) async fn change(
    State(server): State<Server>,
    Body(request): Body<PoolUpdate>,
) -> Result<Json<PoolSettings>, Failure> {
    Ok(Json(server.change(async move |array| array.change_pool(request).await).await?))
}

/// Grow the pool with its drives while it serves, or tell what that would come to
#[utoipa::path(
    post, operation_id = "expand_pool", path = "/pool/expand", tag = "space", request_body = PoolExpand,
    responses((status = 200, description = "Grown, or told", body = PoolExpansion), ChangeProblems)
)]
pub(crate) async fn expand(
    State(server): State<Server>,
    Body(request): Body<PoolExpand>,
) -> Result<Json<PoolExpansion>, Failure> {
    Ok(Json(server.change(async move |array| array.expand_pool(request).await).await?))
}
