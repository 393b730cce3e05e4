//! What handlers work with, and their way to the array.

use crate::{FrontEnd, Memory, Token, failure::Failure};
use quoin_api::{Problem, ProblemKind};
use quoin_array::{Array, ArrayError, acting, current_caller};
use quoin_world::{Thread, World, one_shot};
use std::{future::Future, sync::Arc};

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
        // The task goes on without a client that waits for it, and reports a refusal to the event log.
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
