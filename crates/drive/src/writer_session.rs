//! Writer sessions: who writes to a drive, and who must not any more.
//!
//! A holder is who writes: one array. It does so in writer sessions, which belong to an epoch and are counted within it. A drive
//! keeps, durably in its label, the lowest epoch that it accepts, and for holders that were fenced in that epoch the lowest
//! writer session that it accepts. Any other write or flush is refused.
//!
//! "A drive" is one opening of it here: writer sessions that [attach](crate::Drive::attach) to it are fenced from each other.
//! The label is read when it is opened, and what another opening of the same disk raises there is not seen. The world keeps
//! other processes out, with a lock on the file or device.
//!
//! Invariants:
//! 1. Fences only rise: a raised epoch refuses all writer sessions before it, and takes the place of the fences within the one
//!    before.
//! 2. A raise is answered when it is durable and nothing of a writer session that it refuses is in flight any more.

use crate::{
    bugs::{Bug, planted},
    label::COUNTERS_END,
};
use quoin_base::{Epoch, HolderId};
use std::fmt;
use uuid::Uuid;

/// The most holders that are fenced in an epoch.
pub const MAX_FENCES: usize = 32;

/// Whose a write is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriterSession {
    /// Who writes.
    pub holder: HolderId,
    /// The term of the pool's owner in which it does.
    pub epoch: Epoch,
    /// Which writer session of this holder it is in that epoch.
    pub number: u64,
}

impl WriterSession {
    /// The first writer session in an epoch of a holder without a name.
    pub fn unnamed(epoch: Epoch) -> Self {
        Self { holder: HolderId(Uuid::nil()), epoch, number: 0 }
    }
}

impl fmt::Display for WriterSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "writer session {} of holder {} in epoch {}", self.number, self.holder, self.epoch)
    }
}

/// What a drive accepts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fences {
    /// The lowest epoch accepted.
    pub epoch: Epoch,
    /// Holders that were fenced in this epoch, and the lowest writer session accepted from each.
    pub of: Vec<(HolderId, u64)>,
}

impl Fences {
    /// The lowest writer session accepted from a holder in the lowest epoch.
    pub fn lowest_of(&self, holder: HolderId) -> u64 {
        self.of.iter().find(|(fenced, _)| *fenced == holder).map_or(0, |(_, lowest)| *lowest)
    }

    /// Whether writes of a writer session are accepted.
    pub fn accept(&self, session: WriterSession) -> bool {
        (session.epoch, session.number) >= (self.epoch, self.lowest_of(session.holder))
    }

    /// Why no drive can have these, if so.
    pub(crate) fn problem(&self) -> Option<String> {
        let is_first = |at: usize| self.of[..at].iter().all(|(holder, _)| *holder != self.of[at].0);
        let is_sound = |at: usize| self.of[at].1 < COUNTERS_END && is_first(at);
        let sound = self.of.len() <= MAX_FENCES && (0..self.of.len()).all(is_sound);
        (!sound).then(|| "its fences are impossible".to_owned())
    }
}

/// The fences of an open drive, and what is in flight of each writer session.
#[derive(Default)]
pub(crate) struct Gate {
    pub(crate) fences: Fences,
    in_flight: Vec<(WriterSession, u64)>,
}

impl Gate {
    pub(crate) fn new(fences: Fences) -> Self {
        Self { fences, in_flight: Vec::new() }
    }

    /// Counts a write or flush of a writer session.
    pub(crate) fn enter(&mut self, session: WriterSession) {
        let is_accepted = self.fences.accept(session) || planted(Bug::AcceptExpelled);
        assert!(is_accepted, "{session} is refused, and something of it is let in");
        match self.in_flight.iter_mut().find(|(of, _)| *of == session) {
            Some((_, count)) => *count += 1,
            None => self.in_flight.push((session, 1)),
        }
    }

    /// The same has ended. True if it was the last one of a writer session that is refused now.
    pub(crate) fn leave(&mut self, session: WriterSession) -> bool {
        let at = self.in_flight.iter().position(|(of, _)| *of == session);
        let Some(at) = at else { unreachable!("what has ended was counted") };
        self.in_flight[at].1 -= 1;
        let is_last = self.in_flight[at].1 == 0;
        if is_last {
            self.in_flight.swap_remove(at);
        }
        is_last && !self.fences.accept(session)
    }

    /// Whether nothing of a writer session that is refused is in flight.
    pub(crate) fn is_drained(&self) -> bool {
        self.in_flight.iter().all(|(session, _)| self.fences.accept(*session))
    }
}

#[cfg(test)]
mod tests;
