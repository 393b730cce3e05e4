//! Mappings of volumes to hosts.

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
use quoin_api::{Mapping, MappingCreate};

/// All mappings, by host and LUN
#[utoipa::path(get, operation_id = "list_mappings", path = "/mappings", tag = "mappings", responses((status = 200, body = [Mapping]), ReadProblems))]
pub(crate) async fn list(State(server): State<Server>) -> Result<Json<Vec<Mapping>>, Failure> {
    Ok(Json(server.array.list_mappings()?))
}

/// Show a volume to a host
#[utoipa::path(
    post, operation_id = "map_volume", path = "/mappings", tag = "mappings", request_body = MappingCreate,
    responses((status = 201, description = "Mapped", body = Mapping), ChangeProblems)
)]
pub(crate) async fn create(
    State(server): State<Server>,
    Body(request): Body<MappingCreate>,
) -> Result<(StatusCode, Json<Mapping>), Failure> {
    let mapping = server.change(async move |array| array.map(request).await).await?;
    Ok((StatusCode::CREATED, Json(mapping)))
}

/// Take a volume away from a host
#[utoipa::path(
    delete, operation_id = "unmap_volume", path = "/mappings/{host}/{volume}", tag = "mappings",
    params(("host" = String, Path, description = "The host"), ("volume" = String, Path, description = "The volume")),
    responses((status = 204, description = "Unmapped"), ChangeProblems)
)]
pub(crate) async fn delete(
    State(server): State<Server>,
    Path((host, volume)): Path<(String, String)>,
) -> Result<StatusCode, Failure> {
    server.change(async move |array| array.unmap(&host, &volume).await).await?;
    Ok(StatusCode::NO_CONTENT)
}
