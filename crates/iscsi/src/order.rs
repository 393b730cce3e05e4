//! Task attributes (SAM-5 §8.6). Each session is a task set of its own (TST = 1 in the control mode page), and
//! order is kept by unit within it.
//!
//! A HEAD OF QUEUE task runs at once. An ORDERED task waits for all older ones; a SIMPLE task waits for the older
//! ones that are not SIMPLE. Who waits, waits for older tasks only: there is always one that waits for none.

use crate::{
    command::{Stage, Task, Work},
    session::Session,
};
use quoin_volume::BlockDevice;

/// A task attribute (RFC 7143 §11.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attribute {
    Simple,
    Ordered,
    HeadOfQueue,
    Aca,
}

impl Attribute {
    /// Of the flags of a SCSI Command; `None` for a reserved one.
    pub(crate) fn of(flags: u8) -> Option<Self> {
        match flags & 7 {
            // Untagged counts as simple.
            0 | 1 => Some(Self::Simple),
            2 => Some(Self::Ordered),
            3 => Some(Self::HeadOfQueue),
            4 => Some(Self::Aca),
            _ => None,
        }
    }

    /// Others may have to wait for it.
    pub(crate) fn holds_others(self) -> bool {
        self != Self::Simple
    }
}

/// Whether the task may run beside `others` of its session.
fn may_run<'a, D: 'a>(task: &Task<D>, others: impl Iterator<Item = &'a Task<D>>) -> bool {
    let mut older = others.filter(|o| o.head.lun == task.head.lun && o.head.number < task.head.number);
    match task.head.attribute {
        Attribute::HeadOfQueue | Attribute::Aca => true,
        Attribute::Ordered => older.next().is_none(),
        Attribute::Simple => !older.any(|other| other.head.attribute.holds_others()),
    }
}

impl<D: BlockDevice> Session<D> {
    /// Starts a task's work, or puts it by until its turn comes.
    pub(crate) fn start_in_turn(&mut self, itt: u32, work: Work<D>) {
        let in_turn =
            self.holding == 0 || self.tasks.get(&itt).is_none_or(|task| may_run(task, self.tasks.values()));
        match self.tasks.get_mut(&itt) {
            Some(task) if !in_turn => {
                task.stage = Stage::Dormant(work);
                self.dormant += 1;
            }
            _ => self.started.push(work),
        }
    }

    /// Starts those whose turn has come, now that a task is gone.
    pub(crate) fn wake_dormant(&mut self) {
        if self.dormant == 0 {
            return;
        }
        let is_ready =
            |task: &Task<D>| matches!(task.stage, Stage::Dormant(_)) && may_run(task, self.tasks.values());
        let ready: Vec<u32> =
            self.tasks.iter().filter(|(_, task)| is_ready(task)).map(|(itt, _)| *itt).collect();
        for itt in ready {
            let Some(task) = self.tasks.get_mut(&itt) else { continue };
            if let Stage::Dormant(work) = std::mem::replace(&mut task.stage, Stage::Running) {
                self.dormant -= 1;
                self.started.push(work);
            }
        }
    }
}
