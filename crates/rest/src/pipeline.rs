//! What all requests to the interface have in common, around the resource that answers: entity tags, conditions, and
//! requests that are sent again.
//!
//! Promises: 1. between the look that decides whether `If-Match` holds and the change it guards, no other request of this
//! interface changes anything; 2. a request with an `Idempotency-Key` that was carried out is not carried out again while
//! the key is known. Neither outlives the process: docs/api.md says what that means to clients.

mod replay;
mod tag;

use crate::failure::Failure;
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{
        Method, StatusCode, Uri,
        header::{ETAG, IF_MATCH},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use quoin_api::Problem;
use quoin_array::{acting, current_actor};
use quoin_world::World;
use replay::Replays;
use std::sync::Arc;
use tokio::sync::RwLock;
use tower_service::Service;

pub(crate) use tag::resource;

/// The header with a key of the client's choice.
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// What requests share on their way to their resources.
pub(crate) struct Pipeline {
    /// The resources themselves, to look at what a condition is about.
    resources: Router,
    /// Held by changes; alone, by those that depend on a condition.
    turns: RwLock<()>,
    replays: Arc<Replays>,
    world: Arc<dyn World>,
}

impl Pipeline {
    pub(crate) fn new(resources: Router, world: Arc<dyn World>) -> Arc<Self> {
        Arc::new(Self { resources, turns: RwLock::default(), replays: Arc::default(), world })
    }

    /// What a resource shows now.
    async fn look(&self, path: Uri) -> Response {
        let mut look = Request::new(Body::empty());
        *look.uri_mut() = path;
        match self.resources.clone().call(look).await {
            Ok(response) => tag::tagged(response).await,
            Err(never) => match never {},
        }
    }

    /// Carries out a change, if its condition holds.
    async fn change(&self, request: Request, next: Next) -> Response {
        let Some(wanted) = request.headers().get(IF_MATCH).cloned() else {
            let _turn = self.turns.read().await;
            return answer(request, next).await;
        };
        if !tag::is_condition(&wanted) {
            let (which, why) =
                ("the header If-Match", "it is neither '*' nor a list of entity tags in quotes");
            let next = "send the ETag of the answer that the change is based on, as it is";
            return Failure::new(Problem::new("invalid", 422, "request refused", which, why, next))
                .into_response();
        }
        let _alone = self.turns.write().await;
        let current = match tag::resource(request.uri().path()) {
            Some(path) => self.look(path).await,
            None => return unmet(request.uri().path(), None).into_response(),
        };
        if !current.status().is_success() {
            return current;
        }
        let tag = current.headers().get(ETAG);
        match tag::matches(&wanted, tag) {
            true => answer(request, next).await,
            false => {
                let mut response =
                    unmet(request.uri().path(), tag.and_then(|tag| tag.to_str().ok())).into_response();
                response.headers_mut().extend(tag.map(|tag| (ETAG, tag.clone())));
                response
            }
        }
    }
}

fn unmet(path: &str, current: Option<&str>) -> Failure {
    let why = match current {
        Some(tag) => format!("it was changed meanwhile: its entity tag is {tag}"),
        None => "it has no entity tag".to_owned(),
    };
    let next = "read it again, and send the change with the ETag of that answer if it is still wanted";
    Failure::new(Problem::new("changed", 412, "nothing changed", path, why, next))
}

/// What the resource answers, with its entity tag if it shows one that has one.
async fn answer(request: Request, next: Next) -> Response {
    let shows = tag::place(request.method(), request.uri().path());
    let response = next.run(request).await;
    if shows { tag::tagged(response).await } else { response }
}

/// Takes a request to its resource. Comes after the path and the method were found to be there.
pub(crate) async fn run(State(pipeline): State<Arc<Pipeline>>, request: Request, next: Next) -> Response {
    if ![Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(request.method()) {
        return answer(request, next).await;
    }
    let key = match request.headers().get(IDEMPOTENCY_KEY) {
        Some(key) if request.method() == Method::POST => key.clone(),
        _ => return pipeline.change(request, next).await,
    };
    let now = pipeline.world.now();
    let (request, fingerprint) = replay::fingerprinted(request).await;
    let running = match pipeline.replays.begin(&key, fingerprint, now) {
        Ok(running) => running,
        Err(answered) => return answered,
    };
    // Goes on if the client leaves: when it asks again, it gets the answer to this.
    let task = tokio::spawn(acting(current_actor(), async move {
        let response = pipeline.change(request, next).await;
        running.settle(response, pipeline.world.now()).await
    }));
    task.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}
