//! The task set of a session (SAM-5 §8): its tasks, the order in which they run, and what they hold in
//! memory.
//!
//! Each session is a task set of its own (TST = 001b in the control mode page), and order is kept by unit
//! within it. A HEAD OF QUEUE task runs at once. An ORDERED task waits for the older ones and for those HEAD
//! OF QUEUE; a SIMPLE task for older ORDERED ones and for those HEAD OF QUEUE. A task that still waits for
//! memory does not hold others up as a HEAD OF QUEUE task. Memory is given in the order of arrival, but a task
//! that waits for limits comes to wait for memory only when they let it through. So those that have their memory
//! may all wait for one that has none yet: then the next that waits for memory has to be let in.
//!
//! Example, all of one unit: SIMPLE 1 runs, ORDERED 2 waits for 1, SIMPLE 3 waits for 2. Now HEAD OF QUEUE 4
//! comes and runs at once; when 1 has ended, 2 still waits for 4.
//!
//! Invariants:
//! 1. `memory_bytes` is what the admitted tasks may hold, `early_bytes` what the others brought along.
//! 2. `waiting` names the tasks that are not admitted and do not wait for limits of their volume, each once, in the order of
//!    arrival or in that in which the limits let them through. The limits keep the order of each unit.
//! 3. `holding` counts the tasks that others may have to wait for, `dormant` those that wait for others.

use crate::{
    command::{Head, Stage, Task, Work},
    data_out::{DataOutTransfer, Ready},
    pdu::DataOut,
    task_attribute::TaskAttribute,
};
use quoin_scsi::Reply;
use quoin_target::Lun;
use quoin_volume::BlockDevice;
use quoin_world::OneShotSender;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
};
use uuid::Uuid;

pub(crate) struct TaskSet<D: BlockDevice> {
    tasks: BTreeMap<u32, Task<D>>,
    waiting: VecDeque<u32>,
    memory_bytes: u64,
    early_bytes: u64,
    holding: usize,
    dormant: usize,
    /// Tasks that wait for limits, and the part of `early_bytes` that is theirs.
    limited: usize,
    limited_bytes: u64,
    /// Commands that came, to number the tasks by age.
    received: u64,
}

/// What the tasks of one unit that were looked at so far ask of the next one.
#[derive(Clone, Copy, Default)]
struct Older {
    any: bool,
    ordered: bool,
}

impl<D: BlockDevice> TaskSet<D> {
    pub(crate) fn new() -> Self {
        Self {
            tasks: BTreeMap::new(),
            waiting: VecDeque::new(),
            memory_bytes: 0,
            early_bytes: 0,
            holding: 0,
            dormant: 0,
            limited: 0,
            limited_bytes: 0,
            received: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    pub(crate) fn get(&self, itt: u32) -> Option<&Task<D>> {
        self.tasks.get(&itt)
    }

    /// All tasks, by tag.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Task<D>)> {
        self.tasks.iter().map(|(itt, task)| (*itt, task))
    }

    pub(crate) fn of_luns(&self, luns: &[Lun]) -> Vec<u32> {
        let of_luns = self.iter().filter(|(_, task)| task.head.unit.is_some_and(|unit| luns.contains(&unit)));
        of_luns.map(|(itt, _)| itt).collect()
    }

    /// Returns the aborted tasks of a unit that the device still has.
    pub(crate) fn ending_of(&self, unit: Option<Lun>) -> Vec<u32> {
        let ending = self.iter().filter(|(_, task)| task.head.unit == unit && !task.aborted.is_empty());
        ending.map(|(itt, _)| itt).collect()
    }

    /// Bytes that admitted tasks may hold.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Bytes that waiting tasks brought along.
    pub(crate) fn early_bytes(&self) -> u64 {
        self.early_bytes
    }

    /// Returns the number of a command that comes now, by which tasks are ordered.
    pub(crate) fn take_number(&mut self) -> u64 {
        let number = self.received;
        self.received += 1;
        number
    }

    /// Takes a command in, that may have to wait for the limits of a volume first. Returns true if it has to wait; a refused
    /// one needs no memory.
    pub(crate) fn insert(
        &mut self,
        head: Head,
        transfer: DataOutTransfer<D>,
        limited_by: Option<Uuid>,
    ) -> bool {
        let (itt, is_refused) = (head.itt, transfer.is_refused());
        let cost_bytes = transfer.cost_bytes(&head);
        self.holding += usize::from(head.attribute.holds_others());
        let (stage, aborted) = (Stage::AwaitingData(transfer), Vec::new());
        let task = Task { head, cost_bytes, stage, is_admitted: is_refused, limited_by, aborted };
        // It waits for memory behind those that came before; what it brought along counts at once.
        if !is_refused {
            self.early_bytes += task.early_bytes();
            match limited_by {
                None => self.waiting.push_back(itt),
                Some(_) => self.note_limited(task.early_bytes()),
            }
        }
        let before = self.tasks.insert(itt, task);
        assert!(before.is_none(), "iSCSI task {itt:#010x} is in the set twice");
        !is_refused
    }

    fn note_limited(&mut self, early_bytes: u64) {
        self.limited += 1;
        self.limited_bytes += early_bytes;
    }

    /// How many wait for limits of volumes, and the bytes they brought along.
    pub(crate) fn limited(&self) -> (usize, u64) {
        (self.limited, self.limited_bytes)
    }

    /// Ends a task's wait for limits, if it waits for any. Returns of which volume.
    pub(crate) fn end_limit(&mut self, itt: u32) -> Option<Uuid> {
        let task = self.tasks.get_mut(&itt)?;
        let volume = task.limited_by.take()?;
        self.limited -= 1;
        self.limited_bytes -= task.early_bytes();
        Some(volume)
    }

    /// Has a task that limits let through wait for memory.
    pub(crate) fn wait_for_memory(&mut self, itt: u32) {
        if self.end_limit(itt).is_some() {
            self.waiting.push_back(itt);
        }
    }

    /// The tasks that wait for limits.
    pub(crate) fn all_limited(&self) -> Vec<u32> {
        self.iter().filter(|(_, task)| task.limited_by.is_some()).map(|(itt, _)| itt).collect()
    }

    /// Returns the task that is admitted next, and the bytes it may hold then.
    pub(crate) fn next_waiting(&self) -> Option<(u32, u64)> {
        let itt = *self.waiting.front()?;
        Some((itt, self.tasks.get(&itt).map_or(0, |task| task.cost_bytes)))
    }

    /// True if each admitted task waits for others, so that none of them gives its memory back by itself.
    pub(crate) fn is_stuck(&self) -> bool {
        let is_dormant = |task: &Task<D>| matches!(task.stage, Stage::Dormant(_));
        self.dormant > 0 && self.tasks.values().all(|task| !task.is_admitted || is_dormant(task))
    }

    /// Admits the task that [`TaskSet::next_waiting`] names.
    pub(crate) fn admit_next(&mut self) {
        let Some(task) = self.waiting.pop_front().and_then(|itt| self.tasks.get_mut(&itt)) else { return };
        assert!(!task.is_admitted, "iSCSI task {:#010x} waits and is admitted", task.head.itt);
        self.early_bytes -= task.early_bytes();
        self.memory_bytes += task.cost_bytes;
        task.is_admitted = true;
    }

    pub(crate) fn is_admitted(&self, itt: u32) -> bool {
        self.tasks.get(&itt).is_some_and(|task| task.is_admitted)
    }

    /// Returns the transfer of a task that awaits data.
    pub(crate) fn transfer(&mut self, itt: u32) -> Option<(&Head, &mut DataOutTransfer<D>)> {
        let Task { head, stage: Stage::AwaitingData(transfer), .. } = self.tasks.get_mut(&itt)? else {
            return None;
        };
        Some((head, transfer))
    }

    /// Has a task that awaits data end with `reply`, once what is on its way, `pdu` included, has come.
    pub(crate) fn fail(&mut self, itt: u32, pdu: &DataOut, reply: Reply) {
        let Some(task) = self.tasks.get_mut(&itt) else { return };
        let Stage::AwaitingData(transfer) = &mut task.stage else { return };
        if !task.is_admitted {
            self.early_bytes -= transfer.held_bytes();
            self.waiting.retain(|waiting| *waiting != itt);
            (task.is_admitted, task.cost_bytes) = (true, 0);
        }
        // NOTE: drops what the transfer holds, which is counted above.
        transfer.fail(pdu, reply);
    }

    /// Has a task whose data is all there leave its transfer. Returns what follows; `None` while data is
    /// missing.
    pub(crate) fn finish_transfer(&mut self, itt: u32) -> Option<Ready<D>> {
        let task = self.tasks.get_mut(&itt)?;
        if !matches!(&task.stage, Stage::AwaitingData(transfer) if transfer.is_complete()) {
            return None;
        }
        match std::mem::replace(&mut task.stage, Stage::Running) {
            Stage::AwaitingData(transfer) => Some(transfer.finish(&task.head)),
            Stage::Dormant(_) | Stage::Running => None,
        }
    }

    /// Puts a task's work into `started`, or by until its turn comes.
    pub(crate) fn start_in_turn(&mut self, itt: u32, work: Work<D>, started: &mut Vec<Work<D>>) {
        let Some(task) = self.tasks.get_mut(&itt) else { return };
        if self.holding == 0 || task.head.attribute == TaskAttribute::HeadOfQueue {
            return started.push(work);
        }
        // Put by first: its turn may have come already, which is looked at for all dormant tasks alike.
        task.stage = Stage::Dormant(work);
        self.dormant += 1;
        self.wake_dormant(started);
    }

    /// Puts the work of those tasks into `started` that were put by and whose turn has come.
    pub(crate) fn wake_dormant(&mut self, started: &mut Vec<Work<D>>) {
        if self.dormant == 0 {
            return;
        }
        for itt in self.in_turn() {
            let Some(task) = self.tasks.get_mut(&itt) else { continue };
            if let Stage::Dormant(work) = std::mem::replace(&mut task.stage, Stage::Running) {
                assert!(self.dormant > 0, "iSCSI task {itt:#010x} is dormant and is not counted so");
                self.dormant -= 1;
                started.push(work);
            }
        }
    }

    /// The dormant tasks that wait for nothing any more.
    fn in_turn(&self) -> Vec<u32> {
        let is_head = |task: &&Task<D>| task.is_admitted && task.head.attribute == TaskAttribute::HeadOfQueue;
        let heads: BTreeSet<_> = self.tasks.values().filter(is_head).map(|task| task.head.unit).collect();
        // Tasks go by the order in which their commands came, each unit by itself.
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

    /// Notes that a task is not to be answered, if the device has it: `done` is dropped when it has ended.
    /// Returns false for any other task, which may be removed at once.
    pub(crate) fn mute(&mut self, itt: u32, done: &Rc<OneShotSender<()>>) -> bool {
        match self.tasks.get_mut(&itt) {
            Some(task) if matches!(task.stage, Stage::Running) => {
                task.aborted.push(done.clone());
                true
            }
            _ => false,
        }
    }

    /// Counts a tick. Returns for how many a task has waited for the same data, at most.
    pub(crate) fn tick(&mut self) -> usize {
        let awaiting = self.tasks.values_mut().filter_map(|task| match &mut task.stage {
            Stage::AwaitingData(transfer) => Some(transfer.tick()),
            Stage::Dormant(_) | Stage::Running => None,
        });
        awaiting.max().unwrap_or(0)
    }

    /// Takes a task out, and what it counts for.
    pub(crate) fn remove(&mut self, itt: u32) -> Option<Task<D>> {
        assert!(
            self.tasks.get(&itt).is_none_or(|task| task.limited_by.is_none()),
            "iSCSI task {itt:#010x} is removed while it waits for a limit"
        );
        let task = self.tasks.remove(&itt)?;
        // Its bytes come off the sum in which they were counted.
        if task.is_admitted {
            assert!(self.memory_bytes >= task.cost_bytes, "iSCSI task {itt:#010x} holds more than all tasks");
            self.memory_bytes -= task.cost_bytes;
        } else {
            assert!(
                self.early_bytes >= task.early_bytes(),
                "iSCSI task {itt:#010x} holds more than all tasks"
            );
            self.early_bytes -= task.early_bytes();
            self.waiting.retain(|waiting| *waiting != itt);
        }
        let (held, was_dormant) =
            (task.head.attribute.holds_others(), matches!(task.stage, Stage::Dormant(_)));
        assert!(
            self.holding >= usize::from(held) && self.dormant >= usize::from(was_dormant),
            "iSCSI task {itt:#010x} counts more than all tasks"
        );
        self.holding -= usize::from(held);
        self.dormant -= usize::from(was_dormant);
        Some(task)
    }

    /// Tasks that wait, bytes held, bytes held early, tasks that hold others, tasks that are held.
    #[cfg(test)]
    pub(crate) fn figures(&self) -> (usize, u64, u64, usize, usize) {
        (self.waiting.len(), self.memory_bytes, self.early_bytes, self.holding, self.dormant)
    }
}
