//! Task attributes (SAM-5 §8.6). Each session is a task set of its own (TST = 001b in the control mode page), and
//! order is kept by unit within it.
//!
//! A HEAD OF QUEUE task runs at once. An ORDERED task waits for the older ones and for those HEAD OF QUEUE; a
//! SIMPLE task for older ORDERED ones and for those HEAD OF QUEUE. A task that still waits for memory is not in the
//! task set yet. As memory is given in the order of arrival, whoever waits here waits for tasks that have theirs, and
//! of those one always waits for none.

use crate::{
    command::{Stage, Task, Work},
    session::Session,
};
use quoin_target::Lun;
use quoin_volume::BlockDevice;
use std::collections::{BTreeMap, BTreeSet};

/// A task attribute (RFC 7143 §11.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TaskAttribute {
    Simple,
    Ordered,
    HeadOfQueue,
    Aca,
}

/// ATTR of a SCSI Command's flags, and its values. Untagged counts as simple.
const ATTR: u8 = 0x07;
const UNTAGGED: u8 = 0;
const SIMPLE: u8 = 1;
const ORDERED: u8 = 2;
const HEAD_OF_QUEUE: u8 = 3;
const ACA: u8 = 4;

impl TaskAttribute {
    /// Of the flags of a SCSI Command; `None` for a reserved one.
    pub(crate) fn of(flags: u8) -> Option<Self> {
        match flags & ATTR {
            UNTAGGED | SIMPLE => Some(Self::Simple),
            ORDERED => Some(Self::Ordered),
            HEAD_OF_QUEUE => Some(Self::HeadOfQueue),
            ACA => Some(Self::Aca),
            _ => None,
        }
    }

    /// Others may have to wait for it. (An ACA task is answered at once: there is never such a condition.)
    pub(crate) fn holds_others(self) -> bool {
        matches!(self, Self::Ordered | Self::HeadOfQueue)
    }
}

/// What the tasks of one unit that were looked at so far ask of the next one.
#[derive(Clone, Copy, Default)]
struct Older {
    any: bool,
    ordered: bool,
}

impl<D: BlockDevice> Session<D> {
    /// Starts a task's work, or puts it by until its turn comes.
    pub(crate) fn start_in_turn(&mut self, itt: u32, work: Work<D>) {
        let Some(task) = self.tasks.get_mut(&itt) else { return };
        if self.holding == 0 || task.head.attribute == TaskAttribute::HeadOfQueue {
            return self.started.push(work);
        }
        task.stage = Stage::Dormant(work);
        self.dormant += 1;
        self.wake_dormant();
    }

    /// Starts the tasks put by whose turn has come.
    pub(crate) fn wake_dormant(&mut self) {
        if self.dormant == 0 {
            return;
        }
        for itt in self.in_turn() {
            let Some(task) = self.tasks.get_mut(&itt) else { continue };
            if let Stage::Dormant(work) = std::mem::replace(&mut task.stage, Stage::Running) {
                self.dormant -= 1;
                self.started.push(work);
            }
        }
    }

    /// The dormant tasks that wait for nothing any more.
    fn in_turn(&self) -> Vec<u32> {
        let is_head = |task: &&Task<D>| task.is_admitted && task.head.attribute == TaskAttribute::HeadOfQueue;
        let heads: BTreeSet<_> = self.tasks.values().filter(is_head).map(|task| task.head.unit).collect();
        let mut by_age: Vec<(&u32, &Task<D>)> = self.tasks.iter().collect();
        by_age.sort_unstable_by_key(|(_, task)| task.head.number);
        let mut units: BTreeMap<Option<Lun>, Older> = BTreeMap::new();
        let mut in_turn = Vec::new();
        for (itt, task) in by_age {
            let older = units.entry(task.head.unit).or_default();
            let is_ordered = task.head.attribute == TaskAttribute::Ordered;
            let waits = heads.contains(&task.head.unit) || older.ordered || is_ordered && older.any;
            if matches!(task.stage, Stage::Dormant(_)) && !waits {
                in_turn.push(*itt);
            }
            older.any = true;
            older.ordered |= is_ordered;
        }
        in_turn
    }
}
