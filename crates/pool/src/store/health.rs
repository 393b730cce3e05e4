//! Whether the pool serves. It goes offline at the first failed write or flush and stays so until reopened:
//! after such a failure nobody knows what the drive holds.

use crate::error::PoolError;
use quoin_world::{
    Event, Mutex,
    atomic::{AtomicBool, Ordering},
};
use std::sync::Arc;

/// Whether a pool serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolState {
    /// It serves.
    Online,
    /// It does not, until it is opened again.
    Offline {
        /// The first failure.
        reason: String,
    },
}

#[derive(Default)]
pub(crate) struct Health {
    failed: AtomicBool,
    reason: Mutex<Option<String>>,
    /// Notified when the pool goes offline, and with [`Health::notify`].
    changed: Event,
    /// What is notified with it.
    also: Mutex<Vec<Arc<Event>>>,
}

impl Health {
    pub(crate) fn check(&self) -> Result<(), PoolError> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(self.error())
    }

    pub(crate) fn error(&self) -> PoolError {
        let reason = self.reason.lock().clone().unwrap_or_else(|| "it was closed".into());
        PoolError::Offline { reason }
    }

    pub(crate) fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Takes the pool offline because something failed; the first reason stays.
    pub(crate) fn fail(&self, reason: String) {
        if self.end(reason.clone()) {
            tracing::error!(%reason, "the pool goes offline");
        }
    }

    /// Takes the pool offline as asked.
    pub(crate) fn close(&self) {
        self.end("it was closed".into());
    }

    /// True if it was online until now.
    fn end(&self, reason: String) -> bool {
        {
            let mut first = self.reason.lock();
            if first.is_some() {
                return false;
            }
            *first = Some(reason);
            self.failed.store(true, Ordering::Release);
        }
        self.notify();
        true
    }

    /// Wakes everybody who waits and looks at the store's state meanwhile.
    pub(crate) fn notify(&self) {
        self.changed.notify();
        for event in self.also.lock().iter() {
            event.notify();
        }
    }

    /// Waits for what is told by [`Health::notify`], or by the pool's going offline.
    pub(crate) async fn until<T>(&self, told: impl Fn() -> Option<T>) -> T {
        self.changed.until(told).await
    }

    /// Notifies `event` too when the pool goes offline, and with [`Health::notify`].
    pub(crate) fn wake_also(&self, event: Arc<Event>) {
        self.also.lock().push(event);
    }

    /// Resolves once the pool is offline, to the reason.
    pub(crate) async fn failed(&self) -> String {
        self.changed.until(|| self.reason.lock().clone()).await
    }

    pub(crate) fn state(&self) -> PoolState {
        match self.reason.lock().clone() {
            Some(reason) => PoolState::Offline { reason },
            None => PoolState::Online,
        }
    }
}
