//! Folders of volumes.

use crate::{
    failure::{Failure, ReadProblems},
    server::Server,
};
use axum::{extract::State, response::Json};
use quoin_api::Folder;

/// All folders: the top first, each behind the one it lies in
#[utoipa::path(
    get, operation_id = "list_folders", path = "/folders", tag = "volumes",
    responses((status = 200, body = [Folder]), ReadProblems)
)]
pub(crate) async fn list(State(server): State<Server>) -> Result<Json<Vec<Folder>>, Failure> {
    Ok(Json(server.array.list_folders()?))
}
