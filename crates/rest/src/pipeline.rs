//! What all requests to the interface have in common, around the resource that answers: entity tags, conditions, and
//! requests that are sent again.
//!
//! Promises: 1. between the comparison that decides whether `If-Match` holds and the change it guards, no other request to
//! this interface changes anything, even if the client goes away meanwhile; 2. a request with an `Idempotency-Key` that was
//! carried out is not carried out again while the key is known, over restarts and crashes too: the array notes the key in
//! the transaction of the change.

mod replay;
mod tag;

use crate::failure::Failure;
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{
        HeaderValue, Method, StatusCode, Uri,
        header::{ETAG, IF_MATCH},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use quoin_api::{Problem, ProblemKind};
use quoin_array::{ArrayError, Caller, CarriedOut, RequestKey, acting, current_caller};
use quoin_world::World;
use replay::Replays;
use std::sync::Arc;
use tokio::sync::RwLock;
use tower_service::Service;

pub(crate) use tag::resource;

/// The header with a key of the client's choice.
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The outcome of a request that was carried out within the last day.
type CarriedOutBefore = Box<dyn Fn(&RequestKey) -> Result<Option<CarriedOut>, ArrayError> + Send + Sync>;

/// The state that requests share on their way to their resources.
pub(crate) struct Pipeline {
    /// The resources themselves, to look up the object of a condition.
    resources: Router,
    /// Held by changes; alone, by those that depend on a condition.
    turns: RwLock<()>,
    replays: Arc<Replays>,
    carried_out: CarriedOutBefore,
    world: Arc<dyn World>,
}

impl Pipeline {
    pub(crate) fn new(resources: Router, carried_out: CarriedOutBefore, world: Arc<dyn World>) -> Arc<Self> {
        Arc::new(Self { resources, turns: RwLock::default(), replays: Arc::default(), carried_out, world })
    }

    /// The current state of a resource.
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
            return Failure::new(Problem::new(ProblemKind::Invalid, "request refused", which, why, next))
                .into_response();
        }
        // NOTE: no other change from the look to the change itself.
        let _alone = self.turns.write().await;
        let current = match tag::resource(request.uri().path()) {
            Some(path) => self.look(path).await,
            None => return unmet(request.uri().path(), None).into_response(),
        };
        if !current.status().is_success() {
            return current;
        }
        let tag = current.headers().get(ETAG);
        if tag::matches(&wanted, tag) {
            answer(request, next).await
        } else {
            let mut response =
                unmet(request.uri().path(), tag.and_then(|tag| tag.to_str().ok())).into_response();
            response.headers_mut().extend(tag.map(|tag| (ETAG, tag.clone())));
            response
        }
    }
}

impl Pipeline {
    /// Carries out a request with a key, unless that was done before.
    async fn once(&self, key: &HeaderValue, caller: Caller, request: Request, next: Next) -> Response {
        let path = request.uri().path().to_owned();
        let (request, key) = match replay::keyed(key, request).await {
            Ok(keyed) => keyed,
            Err(refused) => return refused,
        };
        // This process may know the answer, or be at it.
        let running = match self.replays.begin(&key, self.world.now()) {
            Ok(running) => running,
            Err(answered) => return answered,
        };
        // An earlier process may have carried it out.
        match (self.carried_out)(&key) {
            Err(error) => return Failure::from(error).into_response(),
            Ok(Some(done)) if done.fingerprint != key.fingerprint => return replay::reused(),
            Ok(Some(done)) => {
                let Some(made) = replay::made(&path, &done.object) else { return replay::gone(&done) };
                let shown = self.look(made.shown.clone()).await;
                return made.answer(shown).unwrap_or_else(|| replay::gone(&done));
            }
            Ok(None) => {}
        }
        // It is new: the array notes the key together with the change.
        let caller = Caller { request: Some(Arc::new(key)), ..caller };
        let response = acting(caller, self.change(request, next)).await;
        running.settle(response, self.world.now()).await
    }
}

fn unmet(path: &str, current: Option<&str>) -> Failure {
    let why = match current {
        Some(tag) => format!("it was changed meanwhile: its entity tag is {tag}"),
        None => "it has no entity tag".to_owned(),
    };
    let next = "read it again, and send the change with the ETag of that answer if it is still wanted";
    Failure::new(Problem::new(ProblemKind::Changed, "nothing changed", path, why, next))
}

/// The answer of the resource, with an entity tag if it shows an object that has one.
async fn answer(request: Request, next: Next) -> Response {
    let shows = tag::place(request.method(), request.uri().path());
    let response = next.run(request).await;
    if shows { tag::tagged(response).await } else { response }
}

/// Takes a request to its resource. Comes after the path and the method were found to be there.
pub(crate) async fn run(State(pipeline): State<Arc<Pipeline>>, request: Request, next: Next) -> Response {
    // Requests that only read pass at once.
    if ![Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(request.method()) {
        return answer(request, next).await;
    }
    let caller = current_caller();
    // A task of its own keeps its turn to the end of the change, even if the client disconnects: the change itself
    // continues.
    let task = match request.headers().get(IDEMPOTENCY_KEY) {
        Some(key) if request.method() == Method::POST => {
            let key = key.clone();
            tokio::spawn(async move { pipeline.once(&key, caller, request, next).await })
        }
        _ => tokio::spawn(acting(caller, async move { pipeline.change(request, next).await })),
    };
    task.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{middleware::from_fn_with_state, routing::get};
    use quoin_world_linux::LinuxWorld;
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };
    use tokio::{sync::Semaphore, time::sleep};

    const PATH: &str = "/api/v1/volumes/v1";

    fn patch(condition: Option<&HeaderValue>) -> Request {
        let request = Request::builder().method(Method::PATCH).uri(PATH);
        let request = match condition {
            Some(condition) => request.header(IF_MATCH, condition),
            None => request,
        };
        request.body(Body::empty()).unwrap()
    }

    /// A change continues in the background after its client disconnected. A request that depends on an earlier read is
    /// handled after that change.
    #[test]
    fn a_change_keeps_its_turn_though_its_client_leaves() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let world = LinuxWorld::start(1).unwrap();
        let (changes, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let resources = || {
            let (shown, made, gate) = (changes.clone(), changes.clone(), gate.clone());
            let show = move || async move { format!("{{\"changes\":{}}}", shown.load(Ordering::Relaxed)) };
            let change = move || async move {
                let work = async move {
                    gate.acquire().await.unwrap().forget();
                    made.fetch_add(1, Ordering::Relaxed);
                };
                tokio::spawn(work).await.unwrap();
            };
            Router::new().route(PATH, get(show).patch(change))
        };
        let pipeline = Pipeline::new(resources(), Box::new(|_| Ok(None)), world.clone());
        let mut router = resources().route_layer(from_fn_with_state(pipeline, run));
        runtime.block_on(async {
            let read = router.call(Request::get(PATH).body(Body::empty()).unwrap()).await.unwrap();
            let tag = read.headers()[ETAG].clone();
            let leaves = tokio::spawn(router.call(patch(None)));
            sleep(Duration::from_millis(20)).await;
            leaves.abort();
            let second = tokio::spawn(router.call(patch(Some(&tag))));
            sleep(Duration::from_millis(20)).await;
            gate.add_permits(2);
            assert_eq!(second.await.unwrap().unwrap().status(), StatusCode::PRECONDITION_FAILED);
            assert_eq!(changes.load(Ordering::Relaxed), 1);
        });
        world.shutdown();
    }
}
