//! Who is behind a change and by which request, known to everything that the change does.
//!
//! Management runs a request on one task, from its check to its commit. That task carries its caller, so that no function
//! on the way has to pass it on: an event that is recorded while the task runs names the actor, and the transaction of the
//! change notes the request's key.

use crate::RequestKey;
use quoin_api::Actor;
use std::{
    cell::RefCell,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

thread_local! {
    static CURRENT: RefCell<Caller> = const { RefCell::new(Caller { actor: None, request: None }) };
}

/// On whose behalf a task runs.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// Who asked for it; `None` for what the array does by itself.
    pub actor: Option<Arc<Actor>>,
    /// The request that it carries out, if that has a key.
    pub request: Option<Arc<RequestKey>>,
}

impl From<Option<Arc<Actor>>> for Caller {
    fn from(actor: Option<Arc<Actor>>) -> Self {
        Self { actor, request: None }
    }
}

/// On whose behalf the task that runs does so.
pub fn current_caller() -> Caller {
    CURRENT.with_borrow(Clone::clone)
}

/// The actor of the task that runs; `None` for what the array does by itself.
pub fn current_actor() -> Option<Arc<Actor>> {
    CURRENT.with_borrow(|caller| caller.actor.clone())
}

/// The request that the task that runs carries out, if that has a key.
pub(crate) fn current_request() -> Option<Arc<RequestKey>> {
    CURRENT.with_borrow(|caller| caller.request.clone())
}

/// Runs a task on behalf of a caller.
pub fn acting<F: Future>(caller: impl Into<Caller>, task: F) -> Acting<F> {
    Acting { caller: caller.into(), task: Box::pin(task) }
}

/// A task that runs on behalf of a caller.
#[derive(Debug)]
pub struct Acting<F> {
    caller: Caller,
    task: Pin<Box<F>>,
}

/// Restores the previous caller, also when the task panics.
struct Before(Caller);

impl Drop for Before {
    fn drop(&mut self) {
        CURRENT.set(mem::take(&mut self.0));
    }
}

impl<F: Future> Future for Acting<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let caller = self.caller.clone();
        let _before = Before(CURRENT.with_borrow_mut(|current| mem::replace(current, caller)));
        self.task.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, future::join};

    fn name() -> Option<String> {
        current_actor().and_then(|actor| actor.name.clone())
    }

    fn actor(name: &str) -> Option<Arc<Actor>> {
        Some(Arc::new(Actor { name: Some(name.to_owned()), ..Actor::default() }))
    }

    /// Two tasks take turns on one thread; each sees its own actor only, and afterwards there is none.
    #[test]
    fn each_task_has_its_own_actor() {
        let task = |own: &'static str| async move {
            let before = name();
            let mut polled = false;
            std::future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            assert_eq!((before.as_deref(), name().as_deref()), (Some(own), Some(own)));
        };
        let mut both = Box::pin(join(acting(actor("a"), task("a")), acting(actor("b"), task("b"))));
        while both.as_mut().now_or_never().is_none() {
            assert_eq!(name(), None);
        }
        let nested = acting(actor("a"), async { acting(Caller::default(), async { name() }).now_or_never() });
        assert_eq!(nested.now_or_never(), Some(Some(None)));
        assert_eq!(name(), None);
    }
}
