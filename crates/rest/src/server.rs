//! The router, and the way from it to the array.

use crate::{
    FrontEnd, Memory, Token,
    auth::{require_metrics_token, require_token},
    document::document,
    failure::Failure,
    metrics::metrics,
    routes,
};
use axum::{
    Router,
    extract::{DefaultBodyLimit, Request},
    http::Method,
    middleware::from_fn_with_state,
    response::{IntoResponse, Json, Response},
    routing::get,
};
use quoin_api::{BASE_PATH, Problem};
use quoin_array::{Array, ArrayError};
use quoin_world::{Thread, World, one_shot};
use std::{future::Future, io, net::TcpListener, sync::Arc};

const BODY_BYTES_MAX: usize = 64 << 10;

/// What the handlers work with.
#[derive(Clone)]
pub struct Server {
    /// The array they manage.
    pub array: Arc<Array>,
    /// The world it runs on.
    pub world: Arc<dyn World>,
    /// What clients must show.
    pub token: Arc<Token>,
    /// What opens `GET /metrics`, and nothing else.
    pub metrics_token: Arc<Token>,
    /// The process's memory limit, and what sessions hold of it.
    pub memory: Memory,
    /// What the front ends count.
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
        let work = change(self.array.clone());
        self.world.spawn(Thread::Background, Box::pin(async move { sender.send(work.await) }));
        match receiver.await {
            Some(outcome) => Ok(outcome?),
            None => Err(Failure::new(Problem::new(
                "stopping",
                503,
                "outcome unknown",
                "the array",
                "the array stopped before the change was done",
                "start it again and see whether the change was made",
            ))),
        }
    }
}

/// Everything under `/api/v1`, and `/metrics`.
pub fn router(server: Server) -> Router {
    let api = routes::all().split_for_parts().0;
    let document = Json(document());
    Router::new()
        .nest(BASE_PATH, api)
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(server.clone(), require_token))
        .route("/metrics", get(metrics).layer(from_fn_with_state(server.clone(), require_metrics_token)))
        .route(&format!("{BASE_PATH}/openapi.json"), get(async move || document.clone()))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(server)
}

/// Serves the interface on `listener` until `stop` resolves and the requests that began are answered.
pub async fn serve(
    listener: TcpListener,
    server: Server,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    axum::serve(listener, router(server)).with_graceful_shutdown(stop).await
}

async fn unknown_path(request: Request) -> Response {
    let path = request.uri().path();
    let why = format!("nothing is at {path}");
    Failure::new(Problem::new("not-found", 404, "no such path", path, why, "see /api/v1/openapi.json"))
        .into_response()
}

async fn wrong_method(method: Method, request: Request) -> Response {
    let path = request.uri().path();
    let why = format!("{path} does not answer to {method}");
    Failure::new(Problem::new("method", 405, "no such method", path, why, "see /api/v1/openapi.json"))
        .into_response()
}
