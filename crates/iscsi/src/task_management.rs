//! Task management (RFC 7143 §11.5): aborts and resets.
//!
//! A task that is still awaits data or waits for its turn is dropped; one that the device has runs to its end
//! unanswered, and the management response waits for that end. So does, in a session whose unit another one reset, the
//! unit attention that tells of it.

use crate::{
    command::Work,
    pdu::{Bhs, FINAL, TaskRequest, TaskResponse, opcode},
    session::{End, RejectReason, Session},
};
use quoin_scsi::Reply;
use quoin_target::Lun;
use quoin_volume::BlockDevice;
use quoin_world::{OneShot, OneShotSender, one_shot};
use std::rc::Rc;
use uuid::Uuid;

/// Management requests a session may have outstanding.
const MAX_ABORTS: usize = 64;

/// Responses (§11.6.1).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Response {
    Complete = 0,
    NoSuchTask = 1,
    NoSuchLun = 2,
    NoReassignment = 4,
    NotSupported = 5,
}

/// Functions (§11.5.1).
mod function {
    pub(super) const ABORT_TASK: u8 = 1;
    pub(super) const ABORT_TASK_SET: u8 = 2;
    /// As every initiator has a task set of its own (TST 001b), what ABORT TASK SET is (SAM-5 §7.5).
    pub(super) const CLEAR_TASK_SET: u8 = 4;
    pub(super) const LUN_RESET: u8 = 5;
    pub(super) const TARGET_WARM_RESET: u8 = 6;
    pub(super) const TARGET_COLD_RESET: u8 = 7;
    pub(super) const TASK_REASSIGN: u8 = 8;
    /// The bits of the second byte that are the function.
    pub(super) const MASK: u8 = 0x7F;
}

impl<D: BlockDevice> Session<D> {
    pub(crate) fn task_request(&mut self, bhs: Bhs) {
        let request = TaskRequest::from(bhs);
        self.counted.task_requests += 1;
        // A discovery session has no tasks.
        let Some(nexus) = &mut self.nexus else { return self.reject(RejectReason::Protocol, bhs) };
        if self.aborts >= MAX_ABORTS {
            return self.reject(RejectReason::TooManyImmediate, bhs);
        }
        let itt = request.itt.get();
        let code = request.flags & function::MASK;
        match code {
            function::ABORT_TASK => {
                let referenced = request.referenced.get();
                let unit = Lun::from_wire(request.lun);
                match self.tasks.get(referenced).filter(|task| task.head.unit == unit) {
                    Some(_) => self.abort(itt, vec![referenced], Vec::new(), false),
                    None => self.respond_task(itt, Response::NoSuchTask),
                }
            }
            function::ABORT_TASK_SET | function::CLEAR_TASK_SET | function::LUN_RESET => {
                // The unit must be one that the initiator sees.
                let Some(unit) = nexus.unit(request.lun) else {
                    return self.respond_task(itt, Response::NoSuchLun);
                };
                if code != function::LUN_RESET {
                    let tasks = self.tasks.of_luns(Lun::from_wire(request.lun).as_slice());
                    return self.abort(itt, tasks, Vec::new(), false);
                }
                // A reset concerns the unit in all sessions, and in this one under all its numbers.
                let ended = nexus.unit_reset(unit, true);
                let luns = nexus.luns_of(unit);
                let tasks = self.tasks.of_luns(&luns);
                self.abort(itt, tasks, ended, false);
            }
            function::TARGET_WARM_RESET | function::TARGET_COLD_RESET => {
                // An initiator resets what it sees, not what belongs to others.
                let units = nexus.units();
                let ended = units.into_iter().flat_map(|unit| nexus.unit_reset(unit, true)).collect();
                let tasks = self.tasks.iter().map(|(itt, _)| itt).collect();
                self.abort(itt, tasks, ended, code == function::TARGET_COLD_RESET);
            }
            function::TASK_REASSIGN => self.respond_task(itt, Response::NoReassignment),
            _ => self.respond_task(itt, Response::NotSupported),
        }
    }

    /// Aborts tasks of this session. Once they and all of `ended` are over, request `itt` is answered.
    fn abort(&mut self, itt: u32, tasks: Vec<u32>, mut ended: Vec<OneShot<()>>, close: bool) {
        let (sender, over) = one_shot();
        self.mute(tasks, sender);
        ended.push(over);
        self.aborts += 1;
        self.started.push(Work::Abort { itt, ended, close });
    }

    /// Sees to it that tasks are not answered; `done` is dropped when the last of them has ended.
    fn mute(&mut self, tasks: Vec<u32>, done: OneShotSender<()>) {
        // Each task that still runs holds a part of `done`: it is dropped with the last of them.
        let done = Rc::new(done);
        for itt in tasks {
            if !self.tasks.mute(itt, &done) {
                drop(self.remove_task(itt));
            }
        }
        self.tasks.wake_dormant(&mut self.started);
    }

    /// Another session reset a unit; `done` is dropped when nothing of this one runs on it any more.
    pub(crate) fn reset_elsewhere(&mut self, unit: Uuid, done: OneShotSender<()>) {
        let Some(nexus) = &mut self.nexus else { return };
        nexus.unit_reset(unit, false);
        let luns = nexus.luns_of(unit);
        let tasks = self.tasks.of_luns(&luns);
        self.mute(tasks, done);
    }

    /// Another session preempted this one and aborts its tasks of a unit. It does not wait for those that run: it knows that none
    /// of them writes any more. (Were it to wait, two sessions that preempt one another would wait for one another.)
    pub(crate) fn abort_elsewhere(&mut self, unit: Uuid, done: OneShotSender<()>) {
        let Some(nexus) = &self.nexus else { return };
        let luns = nexus.luns_of(unit);
        let tasks = self.tasks.of_luns(&luns);
        let (nobody, _) = one_shot();
        self.mute(tasks, nobody);
        drop(done);
    }

    /// Answers a task that does not run. Its answer may be the first that tells of a reset of its unit: whatever the reset
    /// ended has ended before.
    pub(crate) fn respond_in_turn(&mut self, itt: u32, reply: Reply) {
        let unit = self.tasks.get(itt).and_then(|task| task.head.unit);
        let ending = self.tasks.ending_of(unit);
        if ending.is_empty() {
            return self.finish_task(itt, reply);
        }
        // The tasks that a reset ended still run: the answer waits for them.
        let (sender, ended) = one_shot();
        self.mute(ending, sender);
        self.started.push(Work::Respond { itt, reply, ended });
    }

    pub(crate) fn task_aborted(&mut self, itt: u32, close: bool) {
        assert!(self.aborts > 0, "iSCSI session: task management request {itt:#010x} ended twice");
        self.aborts -= 1;
        self.respond_task(itt, Response::Complete);
        if close {
            self.end_with(End::TargetReset);
        }
    }

    fn respond_task(&mut self, itt: u32, response: Response) {
        let (exp_cmd_sn, max_cmd_sn) = self.numbers.window();
        let response = TaskResponse {
            opcode: opcode::TASK_RESPONSE,
            flags: FINAL,
            response: response as u8,
            itt: itt.into(),
            stat_sn: self.numbers.take_stat_sn().into(),
            exp_cmd_sn: exp_cmd_sn.into(),
            max_cmd_sn: max_cmd_sn.into(),
            ..TaskResponse::default()
        };
        self.out.push(response, []);
    }
}
