//! What the pool's space is used for.

use crate::{
    extract::Path,
    failure::{Failure, ReadProblems},
    server::Server,
};
use axum::{extract::State, response::Json};
use quoin_api::{PoolSpace, VolumeSpace};

/// What the pool's space is used for, and what is saved
#[utoipa::path(
    get, operation_id = "show_space", path = "/space", tag = "space",
    responses((status = 200, body = PoolSpace), ReadProblems)
)]
pub(crate) async fn pool(State(server): State<Server>) -> Result<Json<PoolSpace>, Failure> {
    Ok(Json(server.array.pool_space()?))
}

/// What the volumes of a consistency group have of the pool's space, all together
#[utoipa::path(
    get, operation_id = "show_group_space", path = "/groups/{name}/space", tag = "space",
    params(("name" = String, Path, description = "The group")),
    responses((status = 200, body = VolumeSpace), ReadProblems)
)]
pub(crate) async fn group(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<VolumeSpace>, Failure> {
    Ok(Json(server.array.group_space(&name)?))
}

/// What a volume has of the pool's space, and what deleting it frees
#[utoipa::path(
    get, operation_id = "show_volume_space", path = "/volumes/{name}/space", tag = "space",
    params(("name" = String, Path, description = "The volume")),
    responses((status = 200, body = VolumeSpace), ReadProblems)
)]
pub(crate) async fn volume(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<VolumeSpace>, Failure> {
    Ok(Json(server.array.volume_space(&name)?))
}
