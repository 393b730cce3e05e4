//! Policies of volumes.

use crate::{
    extract::{Body, Path},
    failure::{ChangeProblems, Failure, ReadProblems},
    list::{List, PageParameters, fits},
    routes::Created,
    server::Server,
};
use axum::{
    extract::State,
    http::StatusCode,
    response::{Json, Response},
};
use quoin_api::{Policy, PolicyCreate, PolicyUpdate};
use serde::Deserialize;
use utoipa::IntoParams;

/// Which policies are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filters {
    /// Only policies whose name matches: '*' stands for any characters, '?' for one.
    #[param(example = "gold*")]
    name: Option<String>,
}

/// List policies: the default one, then the others by name
#[utoipa::path(
    get, operation_id = "list_policies", path = "/policies", tag = "policies", params(Filters, PageParameters),
    responses((status = 200, body = [Policy]), ReadProblems)
)]
pub(crate) async fn list(
    State(server): State<Server>,
    List { filters: Filters { name }, page }: List<Filters>,
) -> Result<Response, Failure> {
    let mut policies = server.array.list_policies()?;
    policies.retain(|policy| fits(&name, &policy.name));
    page.of(policies, |policy| policy.name.clone())
}

/// Create a policy
#[utoipa::path(
    post, operation_id = "create_policy", path = "/policies", tag = "policies", request_body = PolicyCreate,
    responses((status = 201, description = "Created", body = Policy), ChangeProblems)
)]
pub(crate) async fn create(
    State(server): State<Server>,
    Body(request): Body<PolicyCreate>,
) -> Result<Created<Policy>, Failure> {
    let policy = server.change(async move |array| array.create_policy(request).await).await?;
    Ok(Created { at: format!("/policies/{}", policy.name), body: policy })
}

/// Show a policy
#[utoipa::path(
    get, operation_id = "show_policy", path = "/policies/{name}", tag = "policies",
    params(("name" = String, Path, description = "The policy")),
    responses((status = 200, body = Policy), ReadProblems)
)]
pub(crate) async fn show(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<Json<Policy>, Failure> {
    Ok(Json(server.array.show_policy(&name)?))
}

/// Change a policy; its volumes are converted in the background
#[utoipa::path(
    patch, operation_id = "change_policy", path = "/policies/{name}", tag = "policies",
    request_body = PolicyUpdate, params(("name" = String, Path, description = "The policy")),
    responses((status = 200, description = "Changed", body = Policy), ChangeProblems)
)]
pub(crate) async fn change(
    State(server): State<Server>,
    Path(name): Path<String>,
    Body(request): Body<PolicyUpdate>,
) -> Result<Json<Policy>, Failure> {
    Ok(Json(server.change(async move |array| array.change_policy(&name, request).await).await?))
}

/// Delete a policy that no volume has
#[utoipa::path(
    delete, operation_id = "delete_policy", path = "/policies/{name}", tag = "policies",
    params(("name" = String, Path, description = "The policy")),
    responses((status = 204, description = "Deleted"), ChangeProblems)
)]
pub(crate) async fn delete(
    State(server): State<Server>,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    server.change(async move |array| array.delete_policy(&name).await).await?;
    Ok(StatusCode::NO_CONTENT)
}
