//! Mappings of volumes to hosts.

use crate::{
    extract::{Body, Path, Query},
    failure::{ChangeProblems, Failure, ReadProblems},
    list::{List, PageParameters},
    routes::{Created, Forced},
    server::Server,
};
use axum::{
    extract::State,
    http::StatusCode,
    response::{Json, Response},
};
use quoin_api::{AccessUpdate, Mapping, MappingCreate};
use quoin_array::{ArrayError, MappingError};
use serde::Deserialize;
use utoipa::IntoParams;

/// Which mappings are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filters {
    /// Only mappings to this host.
    #[param(example = "h1")]
    host: Option<String>,
    /// Only mappings of this volume.
    #[param(example = "v1")]
    volume: Option<String>,
}

fn key(mapping: &Mapping) -> String {
    format!("{}/{}", mapping.host, mapping.lun)
}

/// List mappings, by host and LUN
#[utoipa::path(
    get, operation_id = "list_mappings", path = "/mappings", tag = "mappings", params(Filters, PageParameters),
    responses((status = 200, body = [Mapping]), ReadProblems)
)]
pub(crate) async fn list(
    State(server): State<Server>,
    List { filters: Filters { host, volume }, page }: List<Filters>,
) -> Result<Response, Failure> {
    let mut mappings = server.array.list_mappings()?;
    mappings.retain(|mapping| {
        host.as_ref().is_none_or(|host| mapping.host == *host)
            && volume.as_ref().is_none_or(|volume| mapping.volume == *volume)
    });
    page.of(mappings, key)
}

/// Show a mapping
#[utoipa::path(
    get, operation_id = "show_mapping", path = "/mappings/{host}/{volume}", tag = "mappings",
    params(("host" = String, Path, description = "The host"), ("volume" = String, Path, description = "The volume")),
    responses((status = 200, body = Mapping), ReadProblems)
)]
pub(crate) async fn show(
    State(server): State<Server>,
    Path((host, volume)): Path<(String, String)>,
) -> Result<Json<Mapping>, Failure> {
    let mut mappings = server.array.list_mappings()?.into_iter();
    let found = mappings.find(|mapping| mapping.host == host && mapping.volume == volume);
    found.map(Json).ok_or_else(|| ArrayError::from(MappingError::NotFound { volume, host }).into())
}

/// Map a volume to a host
#[utoipa::path(
    post, operation_id = "map_volume", path = "/mappings", tag = "mappings", request_body = MappingCreate,
    responses((status = 201, description = "Mapped", body = Mapping), ChangeProblems)
)]
pub(crate) async fn create(
    State(server): State<Server>,
    Body(request): Body<MappingCreate>,
) -> Result<Created<Mapping>, Failure> {
    let mapping = server.change(async move |array| array.map(request).await).await?;
    Ok(Created { at: format!("/mappings/{}/{}", mapping.host, mapping.volume), body: mapping })
}

/// Change the access of a mapping; the host stays logged in
#[utoipa::path(
    patch, operation_id = "change_mapping", path = "/mappings/{host}/{volume}", tag = "mappings",
    params(("host" = String, Path, description = "The host"), ("volume" = String, Path, description = "The volume")),
    request_body = AccessUpdate, responses((status = 200, description = "Changed", body = Mapping), ChangeProblems)
)]
pub(crate) async fn change(
    State(server): State<Server>,
    Path((host, volume)): Path<(String, String)>,
    Body(update): Body<AccessUpdate>,
) -> Result<Json<Mapping>, Failure> {
    Ok(Json(server.change(async move |array| array.set_mapping(&host, &volume, update).await).await?))
}

/// Unmap a volume from a host
#[utoipa::path(
    delete, operation_id = "unmap_volume", path = "/mappings/{host}/{volume}", tag = "mappings",
    params(("host" = String, Path, description = "The host"), ("volume" = String, Path, description = "The volume"), Forced),
    responses((status = 204, description = "Unmapped"), ChangeProblems)
)]
pub(crate) async fn delete(
    State(server): State<Server>,
    Path((host, volume)): Path<(String, String)>,
    Query(Forced { force }): Query<Forced>,
) -> Result<StatusCode, Failure> {
    server.change(async move |array| array.unmap(&host, &volume, force).await).await?;
    Ok(StatusCode::NO_CONTENT)
}
