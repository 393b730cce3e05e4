//! A batch of records, and waiting until it is hardened.

use super::JournalPlace;
use crate::bugs::{Bug, planted};
use quoin_world::{
    Event, Mutex,
    atomic::{AtomicU8, Ordering},
};
use std::sync::Arc;

const OPEN: u8 = 0;
pub(super) const HARDENED: u8 = 1;
pub(super) const FAILED: u8 = 2;

/// Records that are hardened together.
#[derive(Default)]
pub(crate) struct Batch {
    state: AtomicU8,
    done: Event,
    /// Where its first payload is; known once it is sent.
    payload: Mutex<Option<JournalPlace>>,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch(hardened: {})", self.is_hardened())
    }
}

impl Batch {
    /// One whose records were read back from the journal.
    pub(crate) fn recovered() -> Arc<Self> {
        Arc::new(Self { state: AtomicU8::new(HARDENED), ..Self::default() })
    }

    pub(crate) fn is_hardened(&self) -> bool {
        self.state.load(Ordering::Acquire) == HARDENED
    }

    /// Waits until it is hardened (true) or has failed (false).
    pub(crate) async fn outcome(&self) -> bool {
        self.done
            .until(|| match self.state.load(Ordering::Acquire) {
                OPEN => None,
                state => Some(state == HARDENED),
            })
            .await
    }

    /// Where the journal has its payloads, one after the other; `None` before it is sent.
    pub(crate) fn payload_place(&self) -> Option<JournalPlace> {
        self.payload.lock().clone()
    }

    /// Notes that it is sent, with its payloads there.
    pub(super) fn sent_to(&self, place: JournalPlace) {
        *self.payload.lock() = Some(place);
    }

    /// Notes that it is hardened, or has failed, and wakes what waits for it.
    pub(crate) fn end(&self, hardened: bool) {
        self.resolve(if hardened { HARDENED } else { FAILED });
    }

    pub(super) fn resolve(&self, state: u8) {
        if planted(Bug::TellBeforeHardened) {
            self.done.notify();
        }
        let before = self.state.swap(state, Ordering::AcqRel);
        assert!(
            before == OPEN || before == state || planted(Bug::EarlyAcknowledge),
            "a batch that ended as {before} ends as {state}"
        );
        if !planted(Bug::TellBeforeHardened) {
            self.done.notify();
        }
    }
}
