//! What became of the copies that a session asked for.

use parking_lot::Mutex;
use quoin_scsi::{CopyStatus, Sense, TokenOutcome};
use std::collections::BTreeMap;

/// The copies of a session, by list identifier: those under way, and those whose status nobody has asked for.
#[derive(Default)]
pub(crate) struct Copies(Mutex<BTreeMap<u8, CopyStatus>>);

impl Copies {
    /// Notes that a copy begins; one that is over is forgotten for it.
    pub(crate) fn begin(&self, id: u8) -> Result<(), Sense> {
        let mut copies = self.0.lock();
        if copies.get(&id).is_some_and(|copy| copy.succeeded.is_none()) {
            return Err(Sense::OPERATION_IN_PROGRESS);
        }
        copies.insert(id, CopyStatus { succeeded: None, segments: 0, bytes: 0 });
        Ok(())
    }

    pub(crate) fn note(&self, id: u8, status: CopyStatus) {
        self.0.lock().insert(id, status);
    }

    /// The status of a copy, which is told once when it is over.
    pub(crate) fn tell(&self, id: u8) -> Result<CopyStatus, Sense> {
        let mut copies = self.0.lock();
        let status = *copies.get(&id).ok_or(Sense::INVALID_FIELD_IN_CDB)?;
        if status.succeeded.is_some() {
            copies.remove(&id);
        }
        Ok(status)
    }
}

/// What became of a session's last copies by token, by list identifier, until it is asked for.
#[derive(Default)]
pub(crate) struct Outcomes(Mutex<BTreeMap<u32, TokenOutcome>>);

const OUTCOMES_MAX: usize = 64;

impl Outcomes {
    pub(crate) fn note(&self, id: u32, outcome: TokenOutcome) {
        let mut outcomes = self.0.lock();
        if outcomes.len() >= OUTCOMES_MAX {
            outcomes.pop_first();
        }
        outcomes.insert(id, outcome);
    }

    pub(crate) fn get(&self, id: u32) -> Option<TokenOutcome> {
        self.0.lock().get(&id).cloned()
    }
}
