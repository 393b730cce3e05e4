//! The full feature phase as a state machine: PDUs in, PDUs and work out.
//!
//! Invariants: StatSN counts every response that carries a status, in the order of the send queue; MaxCmdSN
//! never goes back, since a command's place in the window is given back only when its answer is queued;
//! whatever a peer can make a session hold is bounded by [`QUEUE_DEPTH`], [`MEMORY_BYTES`], what may come unsolicited,
//! and the limits of the parsers; of the memory that all sessions share each may have one command's, however much the
//! others hold.

use crate::{
    command::{Finished, Stage, Task, Work},
    data_out::Ready,
    login::{Established, SessionKind},
    metrics::{Metrics, MetricsSnapshot},
    params::Params,
    pdu::{Bhs, FINAL, Framing, NO_TAG, R2t, Reject, opcode},
    receive::{Pdu, RECEIVE_BYTES},
    stall::Backlog,
    text::Text,
    transmit::Transmit,
};
use quoin_scsi::Reply;
use quoin_target::{Done, Nexus, Notice, SessionShare};
use quoin_volume::BlockDevice;
use quoin_world::{Nanos, Slice};
use std::collections::{BTreeMap, VecDeque};
use zerocopy::IntoBytes;

/// Commands a session may have outstanding.
pub(crate) const QUEUE_DEPTH: u32 = 256;
/// Bytes of commands' data a session may hold; further commands wait for their turn.
const MEMORY_BYTES: u64 = 64 << 20;
/// Bytes in the send queue from which on nothing more is read from the initiator.
const MAX_QUEUED_BYTES: usize = MEMORY_BYTES as usize + (8 << 20);
/// The same while the memory of all sessions is spent.
const FREE_QUEUED_BYTES: usize = 1 << 20;

/// Why a session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    LoggedOut,
    Reinstated,
    TargetReset,
    Protocol(&'static str),
}

/// Reasons of Reject (RFC 7143 §11.17.1).
#[derive(Clone, Copy)]
pub(crate) enum RejectReason {
    DataDigest = 0x02,
    Snack = 0x03,
    Protocol = 0x04,
    NotSupported = 0x05,
    TooManyImmediate = 0x06,
    TaskInProgress = 0x07,
    InvalidField = 0x09,
}

pub(crate) struct Session<D: BlockDevice> {
    /// None in a discovery session.
    pub(crate) nexus: Option<Nexus<D>>,
    /// Its one connection, as the initiator numbers it.
    pub(crate) cid: u16,
    pub(crate) params: Params,
    /// What SendTargets answers.
    pub(crate) targets: Text,
    pub(crate) out: Transmit,
    pub(crate) started: Vec<Work<D>>,
    pub(crate) tasks: BTreeMap<u32, Task<D>>,
    /// Tasks whose data is not being moved yet, in order.
    pub(crate) waiting: VecDeque<u32>,
    /// Bytes that tasks may hold that had their turn.
    memory_bytes: u64,
    /// Bytes that waiting tasks brought along.
    pub(crate) early_bytes: u64,
    /// Of the memory of all sessions.
    pub(crate) share: SessionShare,
    /// Tasks that others may have to wait for, and tasks that wait for others.
    pub(crate) holding: usize,
    pub(crate) dormant: usize,
    /// Commands that came.
    pub(crate) arrivals: u64,
    pub(crate) backlog: Backlog,
    pub(crate) in_window: u32,
    pub(crate) aborts: usize,
    exp_cmd_sn: u32,
    pub(crate) stat_sn: u32,
    next_ttt: u32,
    pub(crate) text: Vec<u8>,
    end: Option<End>,
    pub(crate) counted: MetricsSnapshot,
    /// When what is being taken came.
    pub(crate) now: Nanos,
    /// Commands outstanding when it last told what it did.
    told_outstanding: usize,
}

impl<D: BlockDevice> Session<D> {
    pub(crate) fn new(
        login: &Established,
        stat_sn: u32,
        nexus: Option<Nexus<D>>,
        targets: Text,
        share: SessionShare,
    ) -> Self {
        debug_assert_eq!(nexus.is_some(), login.kind == SessionKind::Normal);
        Self {
            nexus,
            cid: login.cid,
            params: login.params.clone(),
            targets,
            out: Transmit::new(&login.params),
            started: Vec::new(),
            tasks: BTreeMap::new(),
            waiting: VecDeque::new(),
            memory_bytes: 0,
            early_bytes: 0,
            share,
            holding: 0,
            dormant: 0,
            arrivals: 0,
            backlog: Backlog::default(),
            in_window: 0,
            aborts: 0,
            exp_cmd_sn: login.cmd_sn,
            stat_sn,
            next_ttt: 0,
            text: Vec::new(),
            end: None,
            counted: MetricsSnapshot::default(),
            now: Nanos::default(),
            told_outstanding: 0,
        }
    }

    pub(crate) fn framing(&self) -> Framing {
        Framing {
            header_digest: self.params.header_digest,
            data_digest: self.params.data_digest,
            max_data_bytes: crate::params::MAX_RECV_DATA_BYTES as usize,
        }
    }

    /// False while the initiator must first take what it asked for.
    pub(crate) fn may_receive(&self) -> bool {
        let queued = self.out.queued_bytes();
        let is_much = queued >= FREE_QUEUED_BYTES && !self.share.has_room(0) || queued >= MAX_QUEUED_BYTES;
        self.end.is_none() && !is_much
    }

    /// Why the session is over, once everything queued is sent.
    pub(crate) fn end(&self) -> Option<End> {
        self.end
    }

    /// Adds what it did since it last told to the server's counters and to those of the initiator.
    pub(crate) fn tell(&mut self, metrics: &Metrics) {
        if let Some(nexus) = &self.nexus {
            let outstanding = self.tasks.len();
            nexus.traffic().add(Done {
                commands: self.counted.commands,
                errors: self.counted.failures,
                read_bytes: self.counted.read_bytes,
                written_bytes: self.counted.written_bytes,
                answered: self.counted.answered,
                latency_ns: self.counted.latency_ns,
                outstanding: outstanding as i64 - self.told_outstanding as i64,
            });
            self.told_outstanding = outstanding;
        }
        metrics.add(&mut self.counted);
    }

    pub(crate) fn end_with(&mut self, end: End) {
        self.end.get_or_insert(end);
    }

    /// ExpCmdSN and MaxCmdSN.
    pub(crate) fn window(&self) -> (u32, u32) {
        (self.exp_cmd_sn, self.exp_cmd_sn.wrapping_add(QUEUE_DEPTH - 1).wrapping_sub(self.in_window))
    }

    /// The StatSN of a response that is queued now.
    pub(crate) fn take_stat_sn(&mut self) -> u32 {
        let stat_sn = self.stat_sn;
        self.stat_sn = stat_sn.wrapping_add(1);
        stat_sn
    }

    pub(crate) fn take_ttt(&mut self) -> u32 {
        self.next_ttt = self.next_ttt.wrapping_add(1) % NO_TAG;
        self.next_ttt
    }

    /// Takes a PDU.
    pub(crate) fn receive(&mut self, pdu: Pdu<'_>) {
        let Pdu { bhs, data, is_intact: intact } = pdu;
        self.counted.digest_errors += u64::from(!intact);
        if bhs.operation() == opcode::DATA_OUT {
            return self.data_out(bhs, data, intact);
        }
        if bhs.operation() == opcode::SNACK {
            return self.reject(RejectReason::Snack, bhs);
        }
        if !self.is_next(&bhs) {
            return;
        }
        if !intact {
            self.reject(RejectReason::DataDigest, bhs);
            if bhs.operation() != opcode::SCSI_COMMAND {
                return self.end_with(End::Protocol("data digest error"));
            }
        }
        match bhs.operation() {
            opcode::SCSI_COMMAND => self.scsi_command(bhs, data, intact),
            opcode::NOP_OUT => self.nop_out(bhs, &data),
            opcode::TASK_REQUEST => self.task_request(bhs),
            opcode::TEXT_REQUEST => self.text_request(bhs, &data),
            opcode::LOGOUT_REQUEST => self.logout(bhs.into()),
            opcode::LOGIN_REQUEST => self.end_with(End::Protocol("login request in the full feature phase")),
            _ => self.reject(RejectReason::NotSupported, bhs),
        }
    }

    /// Whether a request is to be executed now, by its CmdSN (RFC 7143 §4.2.2.1).
    fn is_next(&mut self, bhs: &Bhs) -> bool {
        if bhs.is_immediate() {
            return true;
        }
        let ahead = bhs.cmd_sn().wrapping_sub(self.exp_cmd_sn);
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        if ahead == 0 && max_cmd_sn.wrapping_add(1) != exp_cmd_sn {
            self.exp_cmd_sn = exp_cmd_sn.wrapping_add(1);
            return true;
        }
        // Outside the window: silently ignored. Inside, with one connection, it can only mean a lost request.
        if ahead != 0 && ahead <= max_cmd_sn.wrapping_sub(exp_cmd_sn) && ahead < QUEUE_DEPTH {
            self.end_with(End::Protocol("CmdSN skips numbers"));
        }
        false
    }

    pub(crate) fn reject(&mut self, reason: RejectReason, bhs: Bhs) {
        self.counted.rejects += 1;
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        let reject = Reject {
            opcode: opcode::REJECT,
            flags: FINAL,
            reason: reason as u8,
            no_tag: NO_TAG.into(),
            stat_sn: self.take_stat_sn().into(),
            exp_cmd_sn: exp_cmd_sn.into(),
            max_cmd_sn: max_cmd_sn.into(),
            ..Reject::default()
        };
        self.out.push(reject, [Slice::copy_of(bhs.as_bytes())]);
    }

    /// Starts what waits, in order, as far as memory goes. One task is always let in, so that the session gets on.
    pub(crate) fn pump(&mut self) {
        self.note_memory();
        while let Some(itt) = self.waiting.front().copied() {
            let held = self.memory_bytes + self.out.queued_bytes() as u64;
            if let Some(task) = self.tasks.get_mut(&itt) {
                let cost_bytes = task.cost_bytes;
                if held > 0 && (held + cost_bytes > MEMORY_BYTES || !self.share.has_room(cost_bytes)) {
                    return;
                }
                self.early_bytes -= task.early_bytes();
                self.memory_bytes += cost_bytes;
                task.is_admitted = true;
            }
            self.waiting.pop_front();
            self.note_memory();
            self.advance(itt);
        }
    }

    fn note_memory(&mut self) {
        let queued = self.out.queued_bytes() as u64;
        self.share.hold(RECEIVE_BYTES + self.memory_bytes + self.early_bytes + queued);
    }

    /// Moves a task that awaits data on: solicits more, or starts it when all is there.
    pub(crate) fn advance(&mut self, itt: u32) {
        let ttt = self.take_ttt();
        let window = self.window();
        let Some(task) = self.tasks.get_mut(&itt) else { return };
        let Stage::AwaitingData(transfer) = &mut task.stage else { return };
        let limits = (self.params.max_burst_bytes, self.params.max_outstanding_r2t);
        if let Some(next) = transfer.next_r2t(ttt, limits.0, limits.1) {
            let r2t = R2t {
                opcode: opcode::R2T,
                flags: FINAL,
                lun: task.head.lun,
                itt: itt.into(),
                ttt: next.ttt.into(),
                stat_sn: self.stat_sn.into(),
                exp_cmd_sn: window.0.into(),
                max_cmd_sn: window.1.into(),
                r2t_sn: next.r2t_sn.into(),
                offset: next.offset.into(),
                desired_bytes: next.bytes.into(),
                ..R2t::default()
            };
            self.out.push(r2t, []);
            return self.advance(itt);
        }
        if !transfer.is_complete() {
            return;
        }
        let Stage::AwaitingData(transfer) = std::mem::replace(&mut task.stage, Stage::Running) else {
            return;
        };
        match transfer.finish(&task.head) {
            Ready::Run(work) => self.start_in_turn(itt, work),
            Ready::Respond(reply) => self.respond_in_turn(itt, reply),
        }
    }

    /// Takes what some work came to.
    pub(crate) fn complete(&mut self, finished: Finished) {
        match finished {
            Finished::Command { itt, reply, latency } => {
                self.counted.answered += 1;
                self.counted.latency_ns += latency.as_nanos() as u64;
                self.finish_task(itt, reply);
            }
            Finished::Respond { itt, reply } => self.finish_task(itt, reply),
            Finished::Abort { itt, close } => self.task_aborted(itt, close),
        }
        self.pump();
    }

    /// Takes a task off the books, without answering it. Others may have waited for it.
    pub(crate) fn remove_task(&mut self, itt: u32) -> Option<Task<D>> {
        let task = self.tasks.remove(&itt)?;
        match task.is_admitted {
            true => self.memory_bytes -= task.cost_bytes,
            false => {
                self.early_bytes -= task.early_bytes();
                self.waiting.retain(|waiting| *waiting != itt);
            }
        }
        self.in_window -= u32::from(!task.head.immediate);
        self.holding -= usize::from(task.head.attribute.holds_others());
        self.dormant -= usize::from(matches!(task.stage, Stage::Dormant(_)));
        Some(task)
    }

    pub(crate) fn finish_task(&mut self, itt: u32, reply: Reply) {
        if let Some(task) = self.remove_task(itt).filter(|task| task.aborted.is_empty()) {
            self.respond(&task.head, reply);
        }
        self.wake_dormant();
    }

    /// Takes something that happened in another session.
    pub(crate) fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Reinstated => self.end_with(End::Reinstated),
            Notice::UnitReset { unit, done } => self.reset_elsewhere(unit, done),
            Notice::Attention { unit, sense } => {
                if let Some(nexus) = &mut self.nexus {
                    nexus.attend(unit, sense);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
