//! A command's data on its way here: immediate data, unsolicited Data-Out PDUs, and those solicited by R2Ts.
//!
//! Invariants: data arrives in order, so the next byte is always at offset `received`; nothing is ever
//! solicited twice (`solicited <= wanted`); a command whose data went wrong is answered when all
//! that was announced or solicited has come (RFC 7143 §7.8, §11.17.1), and nothing more is solicited.

use crate::{
    command::{Head, Work},
    pdu::{DataOut, FINAL, NO_TAG},
    receive::Payload,
};
use quoin_scsi::{Reply, Sense};
use quoin_target::{Admission, Request};
use quoin_volume::BlockDevice;
use quoin_world::{Buf, Filling, Slice};
use std::collections::VecDeque;

pub(crate) struct DataOutTransfer<D: BlockDevice> {
    then: Then<D>,
    wanted: u32,
    received: u32,
    solicited: u32,
    /// How much may still come unsolicited; `None` once the final bit was seen.
    unsolicited: Option<u32>,
    /// Data by parts: what came unsolicited, then at least one for each R2T.
    parts: Vec<Filling>,
    bursts: VecDeque<Burst>,
    data_sn: u32,
    r2t_sn: u32,
    /// Its answer is known already: what it still waits for is thrown away.
    is_refused: bool,
    /// Ticks since it last moved on.
    ticks: usize,
}

/// What happens when the data is there.
enum Then<D: BlockDevice> {
    Run(Request<D>),
    /// Already decided; data that comes unsolicited is thrown away first.
    Respond(Reply),
}

struct Burst {
    ttt: u32,
    end: u32,
}

/// What is wrong with a Data-Out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DataFault {
    /// It is unsolicited, and nothing may come so, or not that much.
    NotAskedFor,
    /// It is not the next one, or ends in the wrong place.
    Misplaced(&'static str),
    /// Its digest does not match.
    Digest,
}

impl DataFault {
    /// How its command ends (RFC 7143 §11.4.7.2).
    pub(crate) fn sense(self) -> Sense {
        match self {
            Self::NotAskedFor => Sense::UNEXPECTED_UNSOLICITED_DATA,
            Self::Misplaced(_) => Sense::INCORRECT_AMOUNT_OF_DATA,
            Self::Digest => Sense::PROTOCOL_SERVICE_CRC_ERROR,
        }
    }
}

/// An R2T to send.
pub(crate) struct NextR2t {
    pub(crate) ttt: u32,
    pub(crate) r2t_sn: u32,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

/// What a task does once its data is there.
pub(crate) enum Ready<D: BlockDevice> {
    Run(Work<D>),
    Respond(Reply),
}

impl<D: BlockDevice> DataOutTransfer<D> {
    /// `unsolicited` is how much may follow the command unsolicited, if anything will.
    pub(crate) fn new(
        admission: Admission<D>,
        head: &Head,
        immediate: Payload<'_>,
        unsolicited: Option<u32>,
    ) -> Self {
        // What the command does with its data, and how much of it.
        let (then, wanted) = match admission {
            Admission::Done(reply) => (Then::Respond(reply), 0),
            Admission::Run(request)
                if request.transfer().is_exact
                    && request.transfer().out_bytes != u64::from(head.out_bytes) =>
            {
                (Then::Respond(Reply::check(Sense::INVALID_FIELD_IN_CDB)), 0)
            }
            Admission::Run(request) => {
                let wanted = request.transfer().out_bytes.min(head.out_bytes.into()) as u32;
                (Then::Run(request), wanted)
            }
        };
        // A command that is answered already keeps nothing of its data: `wanted` is 0.
        let is_refused = matches!(then, Then::Respond(_));
        let received = immediate.len() as u32;
        let mut parts = Vec::new();
        // One part has room for the immediate data and all that may follow it unsolicited.
        let early = wanted.min(received.saturating_add(unsolicited.unwrap_or(0))) as usize;
        if early > 0 {
            parts.push(match immediate {
                // It is all that comes unsolicited.
                Payload::Own(buf) if buf.len() == early => Filling::full(buf),
                immediate => {
                    let mut part = Filling::new(early);
                    part.push(&immediate);
                    part
                }
            });
        }
        Self {
            then,
            wanted,
            received,
            solicited: 0,
            unsolicited,
            parts,
            bursts: VecDeque::new(),
            data_sn: 0,
            r2t_sn: 0,
            is_refused,
            ticks: 0,
        }
    }

    /// True if the command does not run: only the end of what is on its way is waited for.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// What it will hold in memory.
    pub(crate) fn cost_bytes(&self, head: &Head) -> u64 {
        match &self.then {
            Then::Run(request) => {
                u64::from(self.wanted) + request.transfer().in_bytes.min(head.in_bytes.into())
            }
            Then::Respond(_) => 0,
        }
    }

    /// What it holds in memory already, unsolicited.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.room_bytes() as u64).sum()
    }

    /// True while data was announced or solicited and has not come.
    fn awaits_data(&self) -> bool {
        self.unsolicited.is_some() || !self.bursts.is_empty()
    }

    /// Counts a tick. Returns for how many it has waited for the same data.
    pub(crate) fn tick(&mut self) -> usize {
        self.ticks = if self.awaits_data() { self.ticks + 1 } else { 0 };
        self.ticks
    }

    pub(crate) fn is_complete(&self) -> bool {
        !self.awaits_data() && self.received >= self.wanted
    }

    /// Returns the next R2T to send, for at most `max_burst_bytes`; none while unsolicited data may still
    /// come, or when `max_outstanding` R2Ts are unanswered.
    pub(crate) fn next_r2t(
        &mut self,
        ttt: u32,
        max_burst_bytes: u32,
        max_outstanding: u32,
    ) -> Option<NextR2t> {
        // What came unsolicited needs no R2T.
        let offset = self.solicited.max(self.received);
        let bytes = self.wanted.saturating_sub(offset).min(max_burst_bytes);
        if self.unsolicited.is_some() || bytes == 0 || self.bursts.len() >= max_outstanding as usize {
            return None;
        }
        // The first R2T says that no unsolicited data comes any more: its part takes nothing from here on.
        if let Some(unsolicited) = self.parts.last_mut().filter(|_| self.solicited == 0) {
            unsolicited.close();
        }
        self.solicited = offset + bytes;
        assert!(self.solicited <= self.wanted, "iSCSI R2T {ttt:#010x} solicits more than its command wants");
        self.bursts.push_back(Burst { ttt, end: self.solicited });
        let r2t_sn = self.r2t_sn;
        self.r2t_sn += 1;
        Some(NextR2t { ttt, r2t_sn, offset, bytes })
    }

    /// Takes a Data-Out.
    ///
    /// # Errors
    /// It is not the one that must come next. The command is to be failed.
    pub(crate) fn take(&mut self, pdu: &DataOut, data: Payload<'_>) -> Result<(), DataFault> {
        if self.is_refused {
            self.pass_over(pdu);
            return Ok(());
        }
        // It must be the one that comes next: of the right kind, at the next offset, with the next DataSN.
        let is_final = pdu.flags & FINAL != 0;
        let is_unsolicited = pdu.ttt.get() == NO_TAG;
        if is_unsolicited && self.unsolicited.is_none() {
            return Err(DataFault::NotAskedFor);
        }
        if pdu.offset.get() != self.received {
            return Err(DataFault::Misplaced("its data is not at the next offset"));
        }
        if pdu.data_sn.get() != self.data_sn {
            return Err(DataFault::Misplaced("its DataSN is not the next one"));
        }
        // NOTE: the counters move only once the data is taken, so that a refused PDU changes nothing.
        if is_unsolicited {
            self.take_unsolicited(&data, is_final)?
        } else {
            self.take_solicited(pdu.ttt.get(), data, is_final)?
        }
        self.data_sn += 1;
        if is_final {
            (self.data_sn, self.ticks) = (0, 0);
        }
        Ok(())
    }

    fn take_unsolicited(&mut self, data: &[u8], is_final: bool) -> Result<(), DataFault> {
        let left = self.unsolicited.unwrap_or(0).checked_sub(data.len() as u32);
        let left = left.ok_or(DataFault::NotAskedFor)?;
        if left == 0 && !is_final {
            return Err(DataFault::Misplaced("its final bit is missing"));
        }
        self.unsolicited = (!is_final).then_some(left);
        self.fill(data);
        Ok(())
    }

    fn take_solicited(&mut self, ttt: u32, data: Payload<'_>, is_final: bool) -> Result<(), DataFault> {
        let (received, len) = (self.received, data.len() as u32);
        let burst = self.bursts.front_mut().filter(|burst| burst.ttt == ttt);
        let burst = burst.ok_or(DataFault::Misplaced("its transfer tag is not the one to be served next"))?;
        assert!(burst.end >= received, "iSCSI R2T {ttt:#010x}: more data was taken than it solicits");
        let left = burst.end - received;
        if len > left || (len == left) != is_final {
            return Err(DataFault::Misplaced("it does not end where the R2T's burst ends"));
        }
        // A segment in a buffer of its own becomes a part as it is; others are copied into one.
        match data {
            Payload::Own(buf) => {
                if let Some(last) = self.parts.last_mut() {
                    last.close();
                }
                self.parts.push(Filling::full(buf));
                self.received += len;
            }
            Payload::Part(data) => {
                if self.parts.last().is_none_or(Filling::is_full) {
                    self.parts.push(Filling::new(left as usize));
                }
                self.fill(data);
            }
        }
        if is_final {
            self.bursts.pop_front();
        }
        Ok(())
    }

    /// From now on it waits for the end of what is on its way only, `pdu` included, to be answered `reply` then.
    pub(crate) fn fail(&mut self, pdu: &DataOut, reply: Reply) {
        (self.then, self.wanted, self.is_refused) = (Then::Respond(reply), 0, true);
        self.parts.clear();
        self.pass_over(pdu);
    }

    /// Notes the end of what was announced or solicited, if this is it.
    fn pass_over(&mut self, pdu: &DataOut) {
        if pdu.flags & FINAL == 0 {
            return;
        }
        match pdu.ttt.get() {
            NO_TAG => self.unsolicited = None,
            ttt => self.bursts.retain(|burst| burst.ttt != ttt),
        }
        self.ticks = 0;
    }

    /// Puts data in the last part; what the command does not want is dropped.
    fn fill(&mut self, data: &[u8]) {
        self.received += data.len() as u32;
        if let Some(last) = self.parts.last_mut() {
            last.push(data);
        }
    }

    /// What follows now that it is complete.
    pub(crate) fn finish(self, head: &Head) -> Ready<D> {
        match self.then {
            Then::Respond(reply) => Ready::Respond(reply),
            Then::Run(request) => {
                let Head { itt, in_bytes, received, .. } = *head;
                let data = join(self.parts.into_iter().map(Filling::into_buf).collect());
                Ready::Run(Work::Command { itt, request, data, in_bytes, received })
            }
        }
    }
}

/// The parts as slices, all but the last a multiple of a sector long: copied together if they are not.
fn join(parts: Vec<Buf>) -> Vec<Slice> {
    let sector = quoin_base::SECTOR_BYTES as usize;
    let before_last = parts.len().saturating_sub(1);
    if parts[..before_last].iter().all(|part| part.len().is_multiple_of(sector)) {
        return parts.into_iter().map(Buf::into_slice).collect();
    }
    // A part in between ends amid a sector: the device takes slices that are cut at sectors only.
    let whole: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
    vec![Slice::copy_of(&whole)]
}
