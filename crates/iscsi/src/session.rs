//! The full feature phase as a state machine: PDUs in, PDUs and work out.
//!
//! [`SequenceNumbers`] and [`TaskSet`] keep what they are named for; here they meet the send queue, the nexus
//! and the memory that sessions share.
//!
//! Invariants:
//! 1. Whatever a peer can make a session hold is bounded by [`QUEUE_DEPTH`](crate::sequence::QUEUE_DEPTH),
//!    [`MEMORY_BYTES`], what may come unsolicited, and the limits of the parsers.
//! 2. Of the memory that all sessions share each may have one command's, however much the others hold.

use crate::{
    command::{Finished, Task, Work},
    data_out::Ready,
    limits::Lines,
    login::{Established, SessionKind},
    metrics::{Metrics, MetricsSnapshot},
    params::Params,
    pdu::{Bhs, FINAL, Framing, NO_TAG, R2t, Reject, opcode},
    receive::{Pdu, RECEIVE_BYTES},
    sequence::{CmdSn, SequenceNumbers},
    stall::{Backlog, PATIENCE_TICKS},
    task_set::TaskSet,
    text::Text,
    transmit::Transmit,
};
use quoin_scsi::Reply;
use quoin_target::{Done, Nexus, Notice, SessionShare};
use quoin_volume::BlockDevice;
use quoin_world::{Nanos, Slice};
use zerocopy::IntoBytes;

/// Bytes of commands' data a session may hold; further commands wait for their turn.
const MEMORY_BYTES: u64 = 64 << 20;
/// RAM that the send queue takes from which on nothing more is read from the initiator.
const MAX_QUEUED_BYTES: usize = MEMORY_BYTES as usize + (8 << 20);
/// The same while the memory of all sessions is spent.
const FREE_QUEUED_BYTES: usize = 1 << 20;
const _: () = assert!(FREE_QUEUED_BYTES < MAX_QUEUED_BYTES);
/// One command's data alone never fills the send queue.
const _: () = assert!(quoin_scsi::limits::TRANSFER_BYTES <= MEMORY_BYTES);

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
    targets: Text,
    pub(crate) out: Transmit,
    /// Work that the connection is to begin.
    pub(crate) started: Vec<Work<D>>,
    pub(crate) tasks: TaskSet<D>,
    pub(crate) numbers: SequenceNumbers,
    /// Where its commands wait for limits of volumes.
    lines: Lines,
    /// Of the memory of all sessions.
    share: SessionShare,
    backlog: Backlog,
    /// Task management requests that are not answered yet.
    pub(crate) aborts: usize,
    /// A text request that further PDUs continue.
    pub(crate) text: Vec<u8>,
    end: Option<End>,
    pub(crate) counted: MetricsSnapshot,
    /// When what is being taken came.
    now: Nanos,
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
        now: Nanos,
    ) -> Self {
        debug_assert_eq!(nexus.is_some(), login.kind == SessionKind::Normal);
        Self {
            nexus,
            cid: login.cid,
            params: login.params.clone(),
            targets,
            out: Transmit::new(&login.params),
            started: Vec::new(),
            tasks: TaskSet::new(),
            numbers: SequenceNumbers::new(login.cmd_sn, stat_sn),
            lines: Lines::default(),
            share,
            backlog: Backlog::default(),
            aborts: 0,
            text: Vec::new(),
            end: None,
            counted: MetricsSnapshot::default(),
            now,
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
        let queued = self.out.ram_bytes();
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

    /// Where its commands wait for limits of volumes.
    pub(crate) fn lines(&mut self) -> &mut Lines {
        &mut self.lines
    }

    /// What SendTargets answers.
    pub(crate) fn targets(&self) -> &Text {
        &self.targets
    }

    /// When what is being taken came.
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// Notes when what is taken from now on came.
    pub(crate) fn heard(&mut self, now: Nanos) {
        self.now = now;
    }

    /// True if so many bytes more fit the memory of all sessions.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.share.has_room(bytes)
    }

    /// Counts a tick of the connection. Returns what the peer should have done by now and has not, if
    /// anything.
    pub(crate) fn tick(&mut self) -> Option<&'static str> {
        self.drop_lines_of_volumes_gone();
        // Has the peer taken anything of what is queued for it?
        if self.backlog.tick(self.out.sent_bytes(), self.out.queued_bytes() as u64) {
            return Some("it has not taken its answers");
        }
        // Has it sent what it announced or was asked for?
        let waited = self.tasks.tick();
        (waited > PATIENCE_TICKS).then_some("it has not sent data that it announced or was asked for")
    }

    /// Takes a PDU.
    pub(crate) fn receive(&mut self, pdu: Pdu<'_>) {
        let Pdu { bhs, data, is_intact: intact } = pdu;
        self.counted.digest_errors += u64::from(!intact);
        // Data-Out and SNACK have no CmdSN.
        if bhs.operation() == opcode::DATA_OUT {
            return self.data_out(bhs, data, intact);
        }
        if bhs.operation() == opcode::SNACK {
            return self.reject(RejectReason::Snack, bhs);
        }
        match self.numbers.receive(&bhs) {
            CmdSn::Next => {}
            CmdSn::Outside => return,
            // With one connection, it can only mean a lost request.
            CmdSn::Skips => return self.end_with(End::Protocol("CmdSN skips numbers")),
        }
        // NOTE: after the CmdSN was counted: the initiator counted it too. A command fails on its own; of
        // other requests nothing is left that could be answered.
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

    pub(crate) fn reject(&mut self, reason: RejectReason, bhs: Bhs) {
        self.counted.rejects += 1;
        let (exp_cmd_sn, max_cmd_sn) = self.numbers.window();
        let reject = Reject {
            opcode: opcode::REJECT,
            flags: FINAL,
            reason: reason as u8,
            no_tag: NO_TAG.into(),
            stat_sn: self.numbers.take_stat_sn().into(),
            exp_cmd_sn: exp_cmd_sn.into(),
            max_cmd_sn: max_cmd_sn.into(),
            ..Reject::default()
        };
        self.out.push(reject, [Slice::copy_of(bhs.as_bytes())]);
    }

    /// Starts what waits, in order, as far as memory goes. One task is always let in, so that the session gets on.
    ///
    /// This goes beyond [`MEMORY_BYTES`] by one command's data at most: limits let the commands that move blocks through
    /// in order, so what waits for an older command of its unit that has no memory yet is about the unit, and small.
    pub(crate) fn pump(&mut self) {
        self.note_memory();
        while let Some((itt, cost_bytes)) = self.tasks.next_waiting() {
            // The first command of an idle session is let in whatever others hold (invariant 2). So is the next one if
            // all that have their memory wait for others: it may be the one that they wait for.
            let queued = self.out.ram_bytes() as u64;
            let held = self.tasks.memory_bytes() + queued;
            let has_room = held + cost_bytes <= MEMORY_BYTES && self.share.has_room(cost_bytes);
            if held > 0 && !has_room && !(queued == 0 && self.tasks.is_stuck()) {
                return;
            }
            self.tasks.admit_next();
            // NOTE: before the task moves on, so that other sessions do not take the same memory.
            self.note_memory();
            self.advance(itt);
        }
    }

    fn note_memory(&mut self) {
        let queued = self.out.ram_bytes() as u64;
        self.share.hold(RECEIVE_BYTES + self.tasks.memory_bytes() + self.tasks.early_bytes() + queued);
    }

    /// Moves a task that awaits data on: solicits more, or starts it when all is there.
    pub(crate) fn advance(&mut self, itt: u32) {
        // A tag is drawn for the R2T that may follow; one that is not used is no loss.
        let ttt = self.numbers.take_ttt();
        let window = self.numbers.window();
        let limits = (self.params.max_burst_bytes, self.params.max_outstanding_r2t);
        let Some((head, transfer)) = self.tasks.transfer(itt) else { return };
        if let Some(next) = transfer.next_r2t(ttt, limits.0, limits.1) {
            let r2t = R2t {
                opcode: opcode::R2T,
                flags: FINAL,
                lun: head.lun,
                itt: itt.into(),
                ttt: next.ttt.into(),
                stat_sn: self.numbers.stat_sn().into(),
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
        // No R2T is due: either data is on its way, or all of it is there.
        match self.tasks.finish_transfer(itt) {
            Some(Ready::Run(work)) => self.tasks.start_in_turn(itt, work, &mut self.started),
            Some(Ready::Respond(reply)) => self.respond_in_turn(itt, reply),
            None => {}
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
            Finished::Throttle { volume, itts } => self.limits_passed(volume, itts),
        }
        self.pump();
    }

    /// Takes a task off the books, without answering it. Others may have waited for it.
    pub(crate) fn remove_task(&mut self, itt: u32) -> Option<Task<D>> {
        self.end_limit(itt);
        let task = self.tasks.remove(itt)?;
        // NOTE: before the response is queued, which tells the initiator of the place.
        if !task.head.immediate {
            self.numbers.leave_window();
        }
        Some(task)
    }

    pub(crate) fn finish_task(&mut self, itt: u32, reply: Reply) {
        if let Some(task) = self.remove_task(itt).filter(|task| task.aborted.is_empty()) {
            self.respond(&task.head, reply);
        }
        // Tasks that waited for this one to end may run now.
        self.tasks.wake_dormant(&mut self.started);
    }

    /// Takes something that happened in another session.
    pub(crate) fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Reinstated => self.end_with(End::Reinstated),
            Notice::UnitReset { unit, done } => self.reset_elsewhere(unit, done),
            Notice::TasksAborted { unit, done } => self.abort_elsewhere(unit, done),
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
