//! What the pool's space is used for.

use crate::{
    extract::Path,
    failure::{Failure, ReadProblems},
    server::Server,
};
use axum::{extract::State, response::Json};
use quoin_api::{PoolSpace, VolumeSpace};

/// Show how the pool's space is used, and how much is saved
#[utoipa::path(
    get, operation_id = "show_space", path = "/space", tag = "space",
    responses((status = 200, body = PoolSpace), ReadProblems)
)]
pub(crate) async fn pool(State(server): State<Server>) -> Result<Json<PoolSpace>, Failure> {
    Ok(Json(server.array.pool_space()?))
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
    Ok(Json(server.array.group_space(&name).await?))
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
    Ok(Json(server.array.volume_space(&name).await?))
}
