//! How far SANITIZE has come with a unit, and which commands the unit refuses meanwhile.

use crate::settings::Completion;
use parking_lot::Mutex;
use quoin_scsi::{Command, Sanitize, SanitizeAction, Sense};
use quoin_world::Event;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A session's number.
type SessionId = u64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Idle,
    /// How far it has come, and which session's command waits for its end.
    Running {
        progress: u16,
        waits: Option<SessionId>,
    },
    /// The last operation failed.
    Failed(Completion),
}

/// The operation of a unit, one for all who see it.
pub(crate) struct Sanitizing {
    phase: Mutex<Phase>,
    /// As the phase says: most requests look at nothing else.
    is_idle: AtomicBool,
    changed: Event,
    /// What the device keeps: there from before the first change until all is done.
    kept: Mutex<Option<Completion>>,
}

impl Sanitizing {
    /// As after a restart: an operation that has not come to its end has failed.
    pub(crate) fn from_kept(kept: Option<Completion>) -> Self {
        let phase = kept.map_or(Phase::Idle, Phase::Failed);
        let is_idle = AtomicBool::new(phase == Phase::Idle);
        Self { phase: Mutex::new(phase), is_idle, changed: Event::new(), kept: Mutex::new(kept) }
    }

    pub(crate) fn kept(&self) -> Option<Completion> {
        *self.kept.lock()
    }

    /// To be called when it is hardened.
    pub(crate) fn set_kept(&self, kept: Option<Completion>) {
        *self.kept.lock() = kept;
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.is_idle.load(SeqCst)
    }

    /// What REQUEST SENSE tells of it, and what most commands are refused with.
    pub(crate) fn sense(&self) -> Option<Sense> {
        if self.is_idle() {
            return None;
        }
        match *self.phase.lock() {
            Phase::Idle => None,
            Phase::Running { progress, .. } => Some(Sense::SANITIZE_IN_PROGRESS.with_progress(progress)),
            Phase::Failed(_) => Some(Sense::SANITIZE_COMMAND_FAILED),
        }
    }

    /// Why a command is refused, if it is; `None` stands for one that the unit does not know.
    /// INQUIRY, REPORT LUNS and REQUEST
    /// SENSE are always let in, and after a failure also what ends it.
    pub(crate) fn refusal(&self, command: Option<&Command>) -> Option<Sense> {
        if self.is_idle() {
            return None;
        }
        match command {
            Some(Command::Inquiry { .. } | Command::ReportLuns { .. } | Command::RequestSense { .. }) => None,
            Some(Command::Sanitize(request)) => self.refusal_of_another(request),
            _ => self.sense(),
        }
    }

    /// Why a SANITIZE is refused, if it is. A restricted one that failed lets only another
    /// restricted one follow.
    pub(crate) fn refusal_of_another(&self, request: &Sanitize) -> Option<Sense> {
        let exits = request.action == SanitizeAction::ExitFailureMode;
        match *self.phase.lock() {
            Phase::Failed(Completion::Restricted) if exits || request.unrestricted => {
                Some(Sense::INVALID_FIELD_IN_CDB)
            }
            Phase::Running { progress, .. } => Some(Sense::SANITIZE_IN_PROGRESS.with_progress(progress)),
            Phase::Idle | Phase::Failed(_) => None,
        }
    }

    pub(crate) fn set(&self, phase: Phase) {
        {
            let mut current = self.phase.lock();
            *current = phase;
            self.is_idle.store(phase == Phase::Idle, SeqCst);
        }
        self.changed.notify();
    }

    pub(crate) fn note_progress(&self, done: u64, total: u64) {
        let parts = (u128::from(done) << 16) / u128::from(total.max(1));
        if let Phase::Running { progress, .. } = &mut *self.phase.lock() {
            *progress = u16::try_from(parts).unwrap_or(u16::MAX);
        }
    }

    /// A session's command is not answered any more: it does not wait for the operation's end.
    pub(crate) fn let_go(&self, session: SessionId) {
        if self.is_idle() {
            return;
        }
        if let Phase::Running { waits, .. } = &mut *self.phase.lock() {
            waits.take_if(|waiting| *waiting == session);
        }
        self.changed.notify();
    }

    /// Waits for the end of the operation for which a session's command waits.
    pub(crate) async fn end(&self, session: SessionId) -> Result<(), Sense> {
        let ended = || match *self.phase.lock() {
            Phase::Running { waits, .. } if waits == Some(session) => None,
            Phase::Failed(_) => Some(Err(Sense::SANITIZE_COMMAND_FAILED)),
            // Let go: nobody hears the answer.
            Phase::Running { progress, .. } => Some(Err(Sense::SANITIZE_IN_PROGRESS.with_progress(progress))),
            Phase::Idle => Some(Ok(())),
        };
        self.changed.until(ended).await
    }
}
