//! The numbers of a session's PDUs (RFC 7143 §4.2.2): CmdSN and its window, StatSN, target transfer tags.
//!
//! Invariants:
//! 1. StatSN counts every response that carries a status, in the order of the send queue.
//! 2. MaxCmdSN never goes back, since a command's place in the window is given back only when its response is queued.
//! 3. At most [`QUEUE_DEPTH`] commands are in the window.

use crate::pdu::{Bhs, NO_TAG};

/// Commands a session may have outstanding.
pub(crate) const QUEUE_DEPTH: u32 = 256;

pub(crate) struct SequenceNumbers {
    exp_cmd_sn: u32,
    in_window: u32,
    stat_sn: u32,
    last_ttt: u32,
}

/// What a request's CmdSN says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CmdSn {
    /// It is to be executed now.
    Next,
    /// It is outside the window, and to be ignored.
    Outside,
    /// It is inside the window and not the next one.
    Skips,
}

impl SequenceNumbers {
    pub(crate) fn new(exp_cmd_sn: u32, stat_sn: u32) -> Self {
        Self { exp_cmd_sn, in_window: 0, stat_sn, last_ttt: 0 }
    }

    /// Returns ExpCmdSN and MaxCmdSN.
    pub(crate) fn window(&self) -> (u32, u32) {
        (self.exp_cmd_sn, self.exp_cmd_sn.wrapping_add(QUEUE_DEPTH - 1).wrapping_sub(self.in_window))
    }

    /// Looks at a request's CmdSN (§4.2.2.1). After the next one, another is expected.
    pub(crate) fn receive(&mut self, bhs: &Bhs) -> CmdSn {
        if bhs.is_immediate() {
            return CmdSn::Next;
        }
        let ahead = bhs.cmd_sn().wrapping_sub(self.exp_cmd_sn);
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        if ahead == 0 && max_cmd_sn.wrapping_add(1) != exp_cmd_sn {
            self.exp_cmd_sn = exp_cmd_sn.wrapping_add(1);
            return CmdSn::Next;
        }
        if ahead != 0 && ahead <= max_cmd_sn.wrapping_sub(exp_cmd_sn) && ahead < QUEUE_DEPTH {
            CmdSn::Skips
        } else {
            CmdSn::Outside
        }
    }

    /// Gives a command that is not immediate its place in the window.
    pub(crate) fn enter_window(&mut self) {
        assert!(
            self.in_window < QUEUE_DEPTH,
            "iSCSI session: a command was taken that the window has no place for"
        );
        self.in_window += 1;
    }

    /// Takes the place back. NOTE: just before the command's response is queued, which tells the initiator
    /// (invariant 2).
    pub(crate) fn leave_window(&mut self) {
        assert!(self.in_window > 0, "iSCSI session: a command left the window that is not in it");
        self.in_window -= 1;
    }

    pub(crate) fn in_window(&self) -> u32 {
        self.in_window
    }

    /// Returns the StatSN of the next response, for PDUs that only mention it.
    pub(crate) fn stat_sn(&self) -> u32 {
        self.stat_sn
    }

    /// Takes the StatSN of a response that is queued now.
    pub(crate) fn take_stat_sn(&mut self) -> u32 {
        let stat_sn = self.stat_sn;
        self.stat_sn = stat_sn.wrapping_add(1);
        stat_sn
    }

    /// Takes a target transfer tag, which is never the reserved one.
    pub(crate) fn take_ttt(&mut self) -> u32 {
        self.last_ttt = self.last_ttt.wrapping_add(1) % NO_TAG;
        self.last_ttt
    }
}
