//! Commands that wait for the limits of their volume (quality of service).
//!
//! A command that has to wait is in the task set with what came along with it, and asks the initiator for nothing: no R2T is
//! sent, no memory is given to it. Once it is let through it goes on as if it came only then. It keeps its place in the
//! order of its unit.
//!
//! So that limits never become timeouts at a host, a command that would wait for long is answered TASK SET FULL or, if its
//! session has none before it, BUSY: the host tries again later, and sends fewer at a time.
//!
//! Invariant: whichever volume's commands wait, a session has room in its window, and for what comes unsolicited, for commands
//! of others.

use crate::{
    command::{Head, Work},
    sequence::QUEUE_DEPTH,
    session::Session,
};
use quoin_qos::{Crowd, Line};
use quoin_scsi::{Reply, Status};
use quoin_target::{Admission, Nexus, Request};
use quoin_volume::BlockDevice;
use std::{collections::BTreeMap, rc::Rc};
use uuid::Uuid;

/// Commands of a session that may wait for limits.
const MOST_LIMITED: usize = QUEUE_DEPTH as usize * 3 / 4;
/// Bytes that these may have brought along.
const MOST_LIMITED_BYTES: u64 = 4 << 20;

/// The lines of a session, by volume.
#[derive(Default)]
pub(crate) struct Lines(BTreeMap<Uuid, Waiting>);

#[cfg(test)]
impl Lines {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

struct Waiting {
    line: Rc<Line>,
    /// Its commands that wait.
    commands: usize,
    /// [`Work::Throttle`] is under way.
    is_awaited: bool,
}

/// What the limits say of a command.
enum Gate {
    Open,
    Wait(Uuid),
    Refuse(Status),
}

impl<D: BlockDevice> Session<D> {
    /// Has a command that is to run wait for the limits of its volume, if it must. Returns what becomes of it, and for the
    /// limits of which volume it waits.
    pub(crate) fn keep_to_limits(
        &mut self,
        head: &Head,
        admission: Admission<D>,
        early_bytes: u64,
    ) -> (Admission<D>, Option<Uuid>) {
        let Admission::Run(request) = admission else { return (admission, None) };
        match self.gate(head, &request, early_bytes) {
            Gate::Open => (Admission::Run(request), None),
            Gate::Wait(volume) => (Admission::Run(request), Some(volume)),
            Gate::Refuse(status) => (Admission::Done(Reply { status, ..Reply::good() }), None),
        }
    }

    fn gate(&mut self, head: &Head, request: &Request<D>, early_bytes: u64) -> Gate {
        let Some((throttle, cost)) = request.limits() else { return Gate::Open };
        if !throttle.is_limited() && self.lines().0.is_empty() {
            return Gate::Open;
        }
        let (volume, now) = (request.volume(), self.now());
        let waits = self.lines().0.get(&volume).is_some_and(|waiting| waiting.commands > 0);
        if !throttle.is_limited() && !waits {
            self.lines().0.remove(&volume);
            return Gate::Open;
        }
        let (limited, limited_bytes) = self.tasks.limited();
        let new = || Waiting { line: Rc::new(throttle.line()), commands: 0, is_awaited: false };
        let waiting = self.lines().0.entry(volume).or_insert_with(new);
        match waiting.line.crowd(now) {
            Some(Crowd::Own) => return Gate::Refuse(Status::TaskSetFull),
            Some(Crowd::Others) => return Gate::Refuse(Status::Busy),
            None => {}
        }
        let is_much = limited >= MOST_LIMITED || limited_bytes + early_bytes > MOST_LIMITED_BYTES;
        if is_much && waiting.commands > 0 {
            return Gate::Refuse(Status::TaskSetFull);
        }
        if waiting.line.admit(head.itt.into(), cost, now) {
            return Gate::Open;
        }
        waiting.commands += 1;
        self.await_limits(volume);
        Gate::Wait(volume)
    }

    /// Has someone wait for a line in which commands wait.
    fn await_limits(&mut self, volume: Uuid) {
        let waiting = self.lines().0.get_mut(&volume);
        if let Some(waiting) = waiting.filter(|waiting| waiting.commands > 0 && !waiting.is_awaited) {
            waiting.is_awaited = true;
            let line = waiting.line.clone();
            self.started.push(Work::Throttle { volume, line });
        }
    }

    /// Limits let these through. NOTE: the caller pumps.
    pub(crate) fn limits_passed(&mut self, volume: Uuid, itts: Vec<u32>) {
        if let Some(waiting) = self.lines().0.get_mut(&volume) {
            waiting.is_awaited = false;
            waiting.commands -= itts.len();
        }
        itts.into_iter().for_each(|itt| self.tasks.wait_for_memory(itt));
        self.await_limits(volume);
    }

    /// Drops the lines of volumes that the session does not see any more. NOTE: those of others stay while they rest: a line
    /// remembers when its turn is, and one that begins anew would come before lines that took turns with it.
    pub(crate) fn drop_lines_of_volumes_gone(&mut self) {
        if self.lines().0.is_empty() {
            return;
        }
        let shown = self.nexus.as_mut().map(Nexus::units).unwrap_or_default();
        let is_used = |volume: &Uuid, waiting: &mut Waiting| {
            shown.contains(volume) || waiting.commands > 0 || waiting.is_awaited
        };
        self.lines().0.retain(is_used);
    }

    /// Ends a task's wait for limits, if it waits for any: it will not run.
    pub(crate) fn end_limit(&mut self, itt: u32) {
        let limited_by = self.tasks.end_limit(itt);
        self.withdraw(itt, limited_by);
    }

    /// Takes a command out of the line of a volume.
    pub(crate) fn withdraw(&mut self, itt: u32, limited_by: Option<Uuid>) {
        let Some(waiting) = limited_by.and_then(|volume| self.lines().0.get_mut(&volume)) else { return };
        if waiting.line.withdraw(itt.into()) {
            waiting.commands -= 1;
        }
    }

    /// The connection is gone: what waits for limits will not run.
    pub(crate) fn give_up_limited(&mut self) {
        for itt in self.tasks.all_limited() {
            drop(self.remove_task(itt));
        }
    }
}
