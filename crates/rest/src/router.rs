//! Which handler answers which request, and what each request passes on its way there.

use crate::{
    auth::{require_metrics_token, require_token},
    body::whole_request,
    document::document,
    failure::Failure,
    health,
    metrics::metrics,
    pipeline::{self, Pipeline},
    routes,
    server::Server,
};
use axum::{
    Router,
    extract::Request,
    http::Method,
    middleware::from_fn_with_state,
    response::{IntoResponse, Json, Response},
    routing::get,
};
use quoin_api::{BASE_PATH, Problem, ProblemKind};
use quoin_array::RequestKey;
use std::time::Duration;

/// Everything under `/api/v1`, `/metrics`, `/healthz` and `/readyz`.
pub(crate) fn router(server: Server, body_within: Duration) -> Router {
    let document = Json(document());
    let whole = || from_fn_with_state(body_within, whole_request);
    let metrics =
        get(metrics).layer(whole()).layer(from_fn_with_state(server.clone(), require_metrics_token));
    let resources = || {
        let resources = Router::new().nest(BASE_PATH, routes::all().split_for_parts().0);
        resources.with_state::<()>(server.clone())
    };
    let array = server.array.clone();
    // The array remembers which keys of requests it carried out, also across restarts.
    let carried_out = Box::new(move |key: &RequestKey| array.carried_out(key));
    let pipeline = Pipeline::new(resources(), carried_out, server.world.clone());
    resources()
        .route_layer(from_fn_with_state(pipeline, pipeline::run))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(whole())
        .layer(from_fn_with_state(server.clone(), require_token))
        .route("/metrics", metrics.with_state(server.clone()))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready).with_state(server))
        .route(&format!("{BASE_PATH}/openapi.json"), get(async move || document.clone()))
}

async fn unknown_path(request: Request) -> Response {
    let path = request.uri().path();
    let why = format!("nothing is at {path}");
    Failure::new(Problem::new(ProblemKind::NotFound, "no such path", path, why, "see /api/v1/openapi.json"))
        .into_response()
}

async fn wrong_method(method: Method, request: Request) -> Response {
    let path = request.uri().path();
    let why = format!("{path} does not answer to {method}");
    Failure::new(Problem::new(ProblemKind::Method, "no such method", path, why, "see /api/v1/openapi.json"))
        .into_response()
}
