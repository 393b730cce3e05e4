//! Who writes to an open drive: writer sessions that begin, and fences that are raised.

use super::Drive;
use crate::{
    DriveError, Fences, LABEL_BYTES, LABEL_OFFSETS, Label, MAX_FENCES, WriterSession,
    bugs::{Bug, planted},
};
use quoin_base::{Epoch, HolderId};
use quoin_world::DiskOp;
use std::sync::Arc;

/// The writer session of a handle.
#[derive(Clone, Copy)]
pub(super) struct Own {
    pub(super) session: WriterSession,
    /// Until then nothing is written in it, whatever the drive would accept.
    pub(super) has_begun: bool,
}

impl Drive {
    /// The same drive for another holder. Its writes are refused until it takes the drive over with [`Drive::raise_epoch`], or
    /// joins those who write to it: it fences its own earlier writer sessions with [`Drive::fence`].
    pub fn attach(&self, holder: HolderId) -> Arc<Drive> {
        let session = WriterSession { holder, ..WriterSession::unnamed(Epoch::default()) };
        Self::of_writer_session(self.disk.clone(), self.state.clone(), Own { session, has_begun: false })
    }

    /// Whose its writes are, once that writer session has begun.
    pub fn writer_session(&self) -> WriterSession {
        self.own.lock().session
    }

    /// Whether its writer session was fenced after it had begun: another owner has the drive.
    pub fn is_expelled(&self) -> bool {
        let gate = self.state.gate.lock();
        let own = *self.own.lock();
        own.has_begun && !gate.fences.accept(own.session)
    }

    /// Which writer sessions may write to it.
    pub fn fences(&self) -> Fences {
        self.state.label.lock().fences.clone()
    }

    /// Takes the drive over: when this returns, `to` is durable in both labels, this writer session is of `to`, and no write of a
    /// lower epoch is in flight or begins. Refuses an epoch that is not higher than the drive's.
    ///
    /// # Errors
    /// [`DriveError::Fenced`] if `to` is not higher than the drive's epoch; [`DriveError::BadFence`] if no
    /// label can hold it. [`DriveError::Failed`], [`DriveError::NoRoom`] or [`DriveError::Disk`] if a label
    /// cannot be written: the drive may have the epoch or not.
    pub async fn raise_epoch(&self, to: Epoch) -> Result<(), DriveError> {
        let _one_at_a_time = self.state.relabelling.lock().await;
        let current = self.epoch();
        if to <= current {
            return Err(DriveError::Fenced { drive: self.name().to_owned(), current, asked: to });
        }
        let session = WriterSession { epoch: to, number: 0, ..self.writer_session() };
        self.raise(Fences { epoch: to, of: Vec::new() }, session).await
    }

    /// Fences the writer sessions of one holder below `lowest` in the drive's epoch, in the same way; all others go on. If the
    /// holder is this one, its writer session is `lowest` of the drive's epoch from now on.
    ///
    /// # Errors
    /// [`DriveError::WriterSessionFenced`] if the drive refuses writer sessions below `lowest` already,
    /// [`DriveError::TooManyFences`] if its label has no room for one more holder, [`DriveError::NoWriterSession`]
    /// if this handle never began a writer session. Errors of writing the labels are those of
    /// [`Drive::raise_epoch`].
    pub async fn fence(&self, holder: HolderId, lowest: u64) -> Result<(), DriveError> {
        let _one_at_a_time = self.state.relabelling.lock().await;
        let mut fences = self.fences();
        if lowest <= fences.lowest_of(holder) {
            let (drive, current) = (self.name().to_owned(), fences.lowest_of(holder));
            return Err(DriveError::WriterSessionFenced { drive, holder, current, asked: lowest });
        }
        // The holder's new fence takes the place of the one it had.
        fences.of.retain(|(fenced, _)| *fenced != holder);
        fences.of.push((holder, lowest));
        if fences.of.len() > MAX_FENCES {
            return Err(DriveError::TooManyFences { drive: self.name().to_owned() });
        }
        // A holder that fences its own earlier writer sessions goes on with the new one.
        let session = match *self.own.lock() {
            own if own.session.holder == holder => {
                WriterSession { epoch: fences.epoch, number: lowest, ..own.session }
            }
            own if own.has_begun => own.session,
            own => return Err(self.has_not_begun(own.session.holder)),
        };
        self.raise(fences, session).await
    }

    /// Puts fences in force. This writer session is `session` from then on.
    async fn raise(&self, fences: Fences, session: WriterSession) -> Result<(), DriveError> {
        let state = &self.state;
        let mut label = self.label();
        let epoch = label.epoch();
        assert!(fences.epoch >= epoch, "drive {} goes back to {} from {epoch}", self.name(), fences.epoch);
        label.fences = fences;
        label.generation = label.generation.next();
        // NOTE: a drive with such a label could not be opened any more.
        if let Some(why) = label.problem() {
            return Err(DriveError::BadFence { drive: self.name().to_owned(), why });
        }
        // Durable first, as writes of the new writer session: the fence that is raised does not refuse them.
        self.write_labels(&label, Some(session)).await?;

        // In force from here on; then what was let through before has to land.
        {
            let mut gate = state.gate.lock();
            gate.fences = label.fences.clone();
            *self.own.lock() = Own { session, has_begun: true };
        }
        {
            let mut current = state.label.lock();
            let (from, to) = (current.generation, label.generation);
            assert!(from < to, "the label of drive {} goes from generation {from} to {to}", self.name());
            *current = label;
        }
        if !planted(Bug::FenceWithoutDrain) {
            state.drained.until(|| state.gate.lock().is_drained().then_some(())).await;
        }
        // What was given up may be in flight still, but then the drive has failed.
        match state.failed.get() {
            Some(failure) => {
                Err(DriveError::Failed { drive: self.name().to_owned(), cause: failure.cause.clone() })
            }
            None => Ok(()),
        }
    }

    /// Writes both copies of the label, as of another writer session than this one, if one is given.
    pub(super) async fn write_labels(
        &self,
        label: &Label,
        of: Option<WriterSession>,
    ) -> Result<(), DriveError> {
        // NOTE: one copy after the other. A power failure tears one at most, and the other is intact.
        let first = (label.generation.0 % 2) as usize;
        for copy in [first, 1 - first] {
            let op = DiskOp::Write { offset: LABEL_OFFSETS[copy], data: vec![label.encode()], durable: true };
            let written = self.write(LABEL_BYTES as u64, self.depart_as(of, op)).await;
            if let Err(error @ DriveError::NoRoom { .. }) = &written {
                self.state.fail(format!("its label was not written: {error}"));
            }
            written?;
        }
        Ok(())
    }

    pub(super) fn has_not_begun(&self, holder: HolderId) -> DriveError {
        DriveError::NoWriterSession { drive: self.name().to_owned(), holder }
    }
}
