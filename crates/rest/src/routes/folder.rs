//! Folders of volumes.

use crate::{
    failure::{Failure, ReadProblems},
    list::{List, PageParameters, fits},
    server::Server,
};
use axum::{extract::State, response::Response};
use quoin_api::Folder;
use serde::Deserialize;
use utoipa::IntoParams;

/// Which folders are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filters {
    /// Only folders whose path matches: '*' stands for any characters, '?' for one.
    #[param(example = "prod*")]
    path: Option<String>,
}

/// List all folders: the top first, each after its parent
#[utoipa::path(
    get, operation_id = "list_folders", path = "/folders", tag = "volumes", params(Filters, PageParameters),
    responses((status = 200, body = [Folder]), ReadProblems)
)]
pub(crate) async fn list(
    State(server): State<Server>,
    List { filters: Filters { path }, page }: List<Filters>,
) -> Result<Response, Failure> {
    let mut folders = server.array.list_folders()?;
    folders.retain(|folder| fits(&path, &folder.path));
    page.of(folders, |folder| folder.path.clone())
}
