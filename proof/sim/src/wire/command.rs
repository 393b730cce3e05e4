//! Commands of a host over iSCSI: their data, their answers, and their end before an answer.

use super::{
    initiator::{Connection, Solicited},
    shared::{Trouble, What},
};
use crate::stamp;
use quoin_base::SECTOR_BYTES;
use quoin_iscsi::pdu::{
    DataIn, DataOut, FINAL, IMMEDIATE, NO_TAG, NopOut, R2t, READ, STATUS, ScsiCommand, ScsiResponse,
    TaskRequest, TaskResponse, WRITE, opcode,
};
use quoin_world::Slice;
use rand::RngExt;
use std::sync::atomic::Ordering;

const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 2;
const BUSY: u8 = 8;
const TASK_SET_FULL: u8 = 0x28;
/// Sense keys.
const UNIT_ATTENTION: u8 = 6;
const DATA_PROTECT: u8 = 7;
/// "Bus device reset function occurred".
const RESET_OCCURRED: (u8, u8) = (0x29, 3);

const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const LUN_RESET: u8 = 5;

/// Answers to task management.
const COMPLETE: u8 = 0;
const NO_SUCH_TASK: u8 = 1;

/// A command that is not answered.
pub(super) struct Task {
    pub(super) unit: usize,
    pub(super) what: What,
    /// What it writes.
    data: Vec<u8>,
    /// Resets of the unit that had ended before.
    resets: u64,
}

/// A task management function that is not answered.
pub(super) struct Function {
    code: u8,
    unit: usize,
    /// The tasks it is to end.
    tasks: Vec<u32>,
}

fn wire(unit: usize) -> [u8; 8] {
    [0, unit as u8, 0, 0, 0, 0, 0, 0]
}

impl Connection<'_> {
    /// Resets of a unit, by anybody, that were asked for, and those of them that have ended.
    fn resets(&self, unit: usize) -> (u64, u64) {
        let (asked, ended) = &self.host.array.resets[unit];
        (asked.load(Ordering::Relaxed), ended.load(Ordering::Relaxed))
    }

    /// Sends some command.
    pub(super) fn command(&mut self) {
        let array = self.array();
        let (unit, first, sectors) = array.range(&mut self.host.rng);
        let shown = array.units[unit];
        let (block, blocks) = (u64::from(first / shown.block_sectors), sectors / shown.block_sectors);
        let bytes = sectors as usize * SECTOR_BYTES as usize;
        let sixteen = |code: u8| {
            let mut cdb = [0; 16];
            cdb[0] = code;
            cdb[2..10].copy_from_slice(&block.to_be_bytes());
            cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
            cdb
        };
        match self.host.rng.random_range(0..100) {
            0..=54 => {
                let (op, value) = {
                    let mut history = array.shared.history.lock();
                    let op = history.begin(shown.volume, 0, first, sectors, false);
                    (op, history.value(op))
                };
                let data: Slice = stamp::content(value, shown.volume, u64::from(first), sectors);
                self.send_command(unit, sixteen(0x8A), What::Write(op), data.to_vec(), 0);
            }
            55..=60 => {
                let op = array.shared.history.lock().begin(shown.volume, 0, first, sectors, true);
                let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
                list.extend_from_slice(&block.to_be_bytes());
                list.extend_from_slice(&blocks.to_be_bytes());
                list.extend_from_slice(&[0; 4]);
                let mut cdb = [0; 16];
                (cdb[0], cdb[8]) = (0x42, list.len() as u8);
                self.send_command(unit, cdb, What::Write(op), list, 0);
            }
            61..=93 => {
                let begun = array.shared.history.lock().begin_read();
                let what = What::Read { begun, first, data: vec![0; bytes], received: 0 };
                self.send_command(unit, sixteen(0x88), what, Vec::new(), bytes);
            }
            94..=96 => self.send_command(unit, [0; 16], What::Other, Vec::new(), 0),
            _ => {
                let itt = self.take_itt();
                let ping = NopOut {
                    opcode: opcode::NOP_OUT | IMMEDIATE,
                    flags: FINAL,
                    itt: itt.into(),
                    ttt: NO_TAG.into(),
                    cmd_sn: self.cmd_sn.into(),
                    exp_stat_sn: self.stat_sn.into(),
                    ..NopOut::default()
                };
                self.push(ping, b"ping");
            }
        }
    }

    fn send_command(&mut self, unit: usize, cdb: [u8; 16], what: What, data: Vec<u8>, in_bytes: usize) {
        let itt = self.take_itt();
        let agreed = self.agreed.clone();
        let immediate = if agreed.immediate_data && self.host.rng.random_bool(0.8) {
            let most = data.len().min(agreed.first_burst_bytes).min(agreed.segment_bytes);
            if self.host.rng.random() { most } else { self.host.rng.random_range(0..=most) }
        } else {
            0
        };
        let burst = data.len().min(agreed.first_burst_bytes);
        let follows = !agreed.initial_r2t && immediate < burst && self.host.rng.random_bool(0.8);
        let attribute = if self.host.rng.random_bool(0.9) { 1 } else { self.host.rng.random_range(1..=3) };
        let direction = match (data.is_empty(), in_bytes) {
            (false, _) => WRITE,
            (true, 0) => 0,
            _ => READ,
        };
        let command = ScsiCommand {
            opcode: opcode::SCSI_COMMAND,
            flags: attribute | direction | if follows { 0 } else { FINAL },
            lun: wire(unit),
            itt: itt.into(),
            expected_bytes: (data.len().max(in_bytes) as u32).into(),
            cmd_sn: self.cmd_sn.into(),
            exp_stat_sn: self.stat_sn.into(),
            cdb,
            ..ScsiCommand::default()
        };
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        self.push(command, &data[..immediate]);
        if follows {
            let mut job = Solicited { itt, ttt: NO_TAG, offset: immediate, end: burst, data_sn: 0 };
            while job.offset < job.end {
                self.send_data(&mut job, &data);
                self.host.array.shared.totals.lock().unsolicited += 1;
            }
        }
        let (_, resets) = self.resets(unit);
        self.tasks.insert(itt, Task { unit, what, data, resets });
    }

    /// Sends the next part of some data.
    fn send_data(&mut self, job: &mut Solicited, data: &[u8]) {
        let most = (job.end - job.offset).min(self.agreed.segment_bytes);
        let len = if self.host.rng.random_bool(0.7) { most } else { self.host.rng.random_range(1..=most) };
        let is_last = job.offset + len == job.end;
        let out = DataOut {
            opcode: opcode::DATA_OUT,
            flags: if is_last { FINAL } else { 0 },
            itt: job.itt.into(),
            ttt: job.ttt.into(),
            exp_stat_sn: self.stat_sn.into(),
            data_sn: job.data_sn.into(),
            offset: (job.offset as u32).into(),
            ..DataOut::default()
        };
        self.push(out, &data[job.offset..job.offset + len]);
        job.offset += len;
        job.data_sn += 1;
    }

    /// Sends a part of what was asked for, of any task; of one task in the order in which it was.
    pub(super) fn send_solicited(&mut self) {
        let picked = self.host.rng.random_range(0..self.solicited.len());
        let itt = self.solicited[picked].itt;
        let Some(at) = self.solicited.iter().position(|job| job.itt == itt) else { return };
        let mut job = self.solicited.remove(at);
        let Some(data) = self.tasks.get_mut(&itt).map(|task| std::mem::take(&mut task.data)) else { return };
        self.send_data(&mut job, &data);
        self.host.array.shared.totals.lock().solicited += 1;
        if let Some(task) = self.tasks.get_mut(&itt) {
            task.data = data;
        }
        if job.offset < job.end {
            self.solicited.insert(at, job);
        }
    }

    pub(super) fn asked(&mut self, r2t: R2t) -> Result<(), Trouble> {
        let itt = r2t.itt.get();
        let (offset, bytes) = (r2t.offset.get() as usize, r2t.desired_bytes.get() as usize);
        let asked = self.solicited.iter().filter(|job| job.itt == itt).count();
        match self.tasks.get(&itt) {
            Some(_) if bytes > self.agreed.burst_bytes || asked >= self.agreed.outstanding_r2ts => {
                let what = format!("it asks for more than was agreed on, with {asked} R2Ts open: {r2t:?}");
                Err(Trouble::Violation(what))
            }
            Some(task) if bytes > 0 && offset + bytes <= task.data.len() => {
                let ttt = r2t.ttt.get();
                self.solicited.push(Solicited { itt, ttt, offset, end: offset + bytes, data_sn: 0 });
                Ok(())
            }
            // Its request may have crossed with what ended the task here.
            None => Ok(()),
            Some(_) => Err(Trouble::Violation(format!("it asks for data that is not there: {r2t:?}"))),
        }
    }

    pub(super) fn data_in(&mut self, pdu: DataIn, bytes: &[u8]) -> Result<(), Trouble> {
        let itt = pdu.itt.get();
        let at = pdu.offset.get() as usize;
        match self.tasks.get_mut(&itt).map(|task| &mut task.what) {
            Some(What::Read { data, received, .. }) if at == *received && at + bytes.len() <= data.len() => {
                data[at..at + bytes.len()].copy_from_slice(bytes);
                *received += bytes.len();
            }
            _ => return Err(Trouble::Violation(format!("data that nobody waits for: {pdu:?}"))),
        }
        match pdu.flags & STATUS {
            0 => Ok(()),
            _ => self.end_task(itt, pdu.status, &[]),
        }
    }

    pub(super) fn answered(&mut self, response: ScsiResponse, data: &[u8]) -> Result<(), Trouble> {
        if response.response != 0 {
            return Err(Trouble::Violation(format!("a command failed at the target: {response:?}")));
        }
        self.end_task(response.itt.get(), response.status, data)
    }

    fn end_task(&mut self, itt: u32, status: u8, sense: &[u8]) -> Result<(), Trouble> {
        let array = self.array();
        let Some(task) = self.tasks.remove(&itt) else {
            let what = format!("task {itt} is answered {status:#x}, and was answered or ended before");
            return Err(Trouble::Violation(what));
        };
        self.solicited.retain(|job| job.itt != itt);
        if status != GOOD {
            task.what.give_up(&array.shared);
            return self.refused(itt, task.unit, status, sense);
        }
        task.what.succeeded(&array, task.unit)
    }

    /// A command was refused: for a reason that may be, or not.
    fn refused(&mut self, itt: u32, unit: usize, status: u8, sense: &[u8]) -> Result<(), Trouble> {
        let array = self.array();
        let byte = |at: usize| sense.get(at + 2).copied().unwrap_or(0);
        // Fixed or descriptor format.
        let (key, code) = match byte(0) & 0x7F {
            0x70 | 0x71 => (byte(2) & 0xF, (byte(12), byte(13))),
            _ => (byte(1) & 0xF, (byte(2), byte(3))),
        };
        match (status, key) {
            (BUSY | TASK_SET_FULL, _) => Ok(()),
            (CHECK_CONDITION, UNIT_ATTENTION) => {
                array.shared.totals.lock().attentions += 1;
                if code == RESET_OCCURRED {
                    self.reset_elsewhere(itt, unit);
                }
                Ok(())
            }
            (CHECK_CONDITION, DATA_PROTECT) => {
                array.shared.totals.lock().refused_full += 1;
                Ok(())
            }
            _ if array.shared.is_over() => Ok(()),
            _ => Err(Trouble::Violation(format!("task {itt} ended with {status:#x}, sense {sense:02x?}"))),
        }
    }

    /// The unit was reset, as task `itt` was told: older ones are never answered.
    fn reset_elsewhere(&mut self, itt: u32, unit: usize) {
        let older = self.tasks.range(..itt).filter(|(_, task)| task.unit == unit);
        let older: Vec<_> = older.map(|(itt, _)| *itt).collect();
        self.host.array.shared.totals.lock().reset_by_others += older.len() as u64;
        self.end_tasks(&older);
    }

    /// Forgets tasks that were ended; how many there were.
    fn end_tasks(&mut self, itts: &[u32]) -> u64 {
        let mut ended = 0;
        for itt in itts {
            let Some(task) = self.tasks.remove(itt) else { continue };
            self.solicited.retain(|job| job.itt != *itt);
            task.what.give_up(&self.host.array.shared);
            ended += 1;
        }
        ended
    }

    fn send_function(&mut self, code: u8, unit: usize, referenced: u32, tasks: Vec<u32>) {
        let itt = self.take_itt();
        let request = TaskRequest {
            opcode: opcode::TASK_REQUEST | IMMEDIATE,
            flags: FINAL | code,
            lun: wire(unit),
            itt: itt.into(),
            referenced: referenced.into(),
            cmd_sn: self.cmd_sn.into(),
            exp_stat_sn: self.stat_sn.into(),
            ..TaskRequest::default()
        };
        self.push(request, &[]);
        self.functions.insert(itt, Function { code, unit, tasks });
    }

    /// Aborts any of the tasks.
    pub(super) fn abort_something(&mut self) {
        if self.tasks.is_empty() || self.functions.len() > 8 {
            return;
        }
        let picked = self.host.rng.random_range(0..self.tasks.len());
        let Some((&itt, task)) = self.tasks.iter().nth(picked) else { return };
        let unit = task.unit;
        self.send_function(ABORT_TASK, unit, itt, vec![itt]);
    }

    /// Resets a unit, or aborts all tasks there.
    pub(super) fn manage_unit(&mut self) {
        let array = self.array();
        let unit = self.host.rng.random_range(0..array.units.len());
        let code = if self.host.rng.random() { LUN_RESET } else { ABORT_TASK_SET };
        if code == LUN_RESET {
            array.resets[unit].0.fetch_add(1, Ordering::Relaxed);
        }
        let tasks = self.tasks.iter().filter(|(_, task)| task.unit == unit).map(|(itt, _)| *itt).collect();
        self.send_function(code, unit, NO_TAG, tasks);
    }

    pub(super) fn function_ended(&mut self, response: TaskResponse) -> Result<(), Trouble> {
        let Some(Function { code, unit, tasks }) = self.functions.remove(&response.itt.get()) else {
            return Err(Trouble::Violation(format!("a function that nobody asked for: {response:?}")));
        };
        let array = self.array();
        match (response.response, code) {
            (COMPLETE, _) => {
                let ended = self.end_tasks(&tasks);
                if code == LUN_RESET {
                    array.resets[unit].1.fetch_add(1, Ordering::Relaxed);
                }
                let mut totals = array.shared.totals.lock();
                *(if code == ABORT_TASK { &mut totals.aborted } else { &mut totals.reset }) += ended;
                Ok(())
            }
            (NO_SUCH_TASK, ABORT_TASK) => {
                array.shared.totals.lock().aborted_too_late += 1;
                let Some(task) = tasks.first().and_then(|itt| self.tasks.get(itt)) else { return Ok(()) };
                // Another function is ending it, and will say when it has.
                if self.functions.values().any(|other| other.tasks.contains(&tasks[0])) {
                    return Ok(());
                }
                if self.resets(task.unit).0 == task.resets {
                    let what = format!("task {} is said to have ended, and was not answered", tasks[0]);
                    return Err(Trouble::Violation(what));
                }
                // Somebody else's reset ended it.
                self.end_tasks(&tasks);
                Ok(())
            }
            _ => Err(Trouble::Violation(format!("function {code} failed: {response:?}"))),
        }
    }
}
