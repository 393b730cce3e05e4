//! The router, and the way from it to the array.

use crate::{
    FrontEnd, Memory, Token,
    auth::{require_metrics_token, require_token},
    document::document,
    failure::Failure,
    health,
    metrics::metrics,
    pipeline::{self, Pipeline},
    routes,
    serving::whole_request,
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
use quoin_array::{Array, ArrayError, RequestKey, acting, current_caller};
use quoin_world::{Thread, World, one_shot};
use std::{future::Future, sync::Arc, time::Duration};

/// The state that handlers use.
#[derive(Clone)]
pub struct Server {
    /// The array they manage.
    pub array: Arc<Array>,
    /// The world it runs on.
    pub world: Arc<dyn World>,
    /// The token that clients must show.
    pub token: Arc<Token>,
    /// The token that grants access to `GET /metrics` only.
    pub metrics_token: Arc<Token>,
    /// The process's memory limit, and what sessions hold of it.
    pub memory: Memory,
    /// The counters of the front ends.
    pub front_ends: Arc<dyn Fn() -> Vec<FrontEnd> + Send + Sync>,
}

impl Server {
    /// Runs a change on the array's background thread, where no connection of a host waits for it, to its end even if the
    /// client goes away meanwhile.
    pub(crate) async fn change<T, F>(&self, change: impl FnOnce(Arc<Array>) -> F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ArrayError>> + Send + 'static,
    {
        let (sender, receiver) = one_shot();
        let (array, work) = (self.array.clone(), change(self.array.clone()));
        let work = acting(current_caller(), async move {
            let outcome = work.await;
            if let Err(error) = &outcome {
                array.change_refused(error);
            }
            outcome
        });
        self.world.spawn(Thread::Background, Box::pin(async move { sender.send(work.await) }));
        match receiver.await {
            Some(outcome) => Ok(outcome?),
            None => Err(Failure::new(Problem::new(
                ProblemKind::Stopping,
                "outcome unknown",
                "the array",
                "the array stopped before the change was done",
                "start it again and see whether the change was made",
            ))),
        }
    }
}

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
