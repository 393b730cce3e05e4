//! SCSI commands and their data as they arrive.

use crate::{
    command::Head,
    data_out::{DataFault, DataOutTransfer},
    pdu::{Bhs, DataOut, FINAL, NO_TAG, READ, ScsiCommand, WRITE},
    receive::Payload,
    session::{RejectReason, Session},
    task_attribute::TaskAttribute,
};
use quoin_scsi::{Reply, Sense, Status};
use quoin_target::{Admission, Lun};
use quoin_volume::BlockDevice;
use uuid::Uuid;

/// Immediate commands that do not count in the window.
const MAX_IMMEDIATE: usize = 64;
/// Bytes that commands bring unsolicited before they have their turn; further ones are answered TASK SET
/// FULL.
const EARLY_BYTES: u64 = 16 << 20;

impl<D: BlockDevice> Session<D> {
    pub(crate) fn scsi_command(&mut self, bhs: Bhs, data: Payload<'_>, intact: bool) {
        let command = ScsiCommand::from(bhs);
        if self.nexus.is_none() {
            return self.reject(RejectReason::Protocol, bhs);
        }
        self.counted.commands += 1;
        let itt = command.itt.get();
        if itt == NO_TAG || self.tasks.get(itt).is_some() {
            return self.reject(RejectReason::TaskInProgress, bhs);
        }
        let immediate = bhs.is_immediate();
        if immediate && self.tasks.len() - self.numbers.in_window() as usize >= MAX_IMMEDIATE {
            return self.reject(RejectReason::TooManyImmediate, bhs);
        }
        let Some(attribute) = TaskAttribute::of(command.flags) else {
            return self.reject(RejectReason::InvalidField, bhs);
        };
        // From here on the command has a tag and an answer of its own; before it was rejected as a PDU.
        self.counted.written_bytes += data.len() as u64;
        let expected = command.expected_bytes.get();
        let (reads, writes) = (command.flags & READ != 0, command.flags & WRITE != 0);
        let head = Head {
            itt,
            lun: command.lun,
            unit: Lun::from_wire(command.lun),
            in_bytes: if reads && !writes { expected } else { 0 },
            out_bytes: if writes { expected } else { 0 },
            immediate,
            attribute,
            number: self.tasks.take_number(),
            received: self.now(),
        };
        // What may follow unsolicited: the rest of the first burst, if the final bit says that more comes.
        let sent = data.len() as u32;
        let left = self.params.unsolicited_bytes().min(head.out_bytes).saturating_sub(sent);
        let announced = (command.flags & FINAL == 0 && left > 0).then_some(left);
        // NOTE: a refused command enters the task set too: what was announced for it is still on its way, and
        // has to be thrown away before the tag may be used again.
        let refusal = if intact {
            self.refusal(&command, &head, sent, announced)
        } else {
            Some(Reply::check(DataFault::Digest.sense()))
        };
        // Only a command that is not refused reaches its unit, which may answer it at once.
        let admission = match (refusal, &mut self.nexus) {
            (None, Some(nexus)) => nexus.admit(command.lun, &command.cdb),
            (refusal, _) => Admission::Done(refusal.unwrap_or_else(Reply::good)),
        };
        // Limits of the volume come before everything that the command would take hold of.
        let early_bytes = u64::from(sent) + u64::from(announced.unwrap_or(0));
        let (admission, limited_by) = self.keep_to_limits(&head, admission, early_bytes);
        self.enter(head, DataOutTransfer::new(admission, &head, data, announced), limited_by);
    }

    /// What a command is answered without its unit being asked, if so.
    fn refusal(
        &self,
        command: &ScsiCommand,
        head: &Head,
        sent: u32,
        announced: Option<u32>,
    ) -> Option<Reply> {
        // More than was agreed on, or of a kind that was not.
        let is_unexpected = sent > self.params.unsolicited_bytes().min(head.out_bytes)
            || sent > 0 && !self.params.immediate_data
            || announced.is_some() && self.params.initial_r2t;
        if is_unexpected {
            return Some(Reply::check(DataFault::NotAskedFor.sense()));
        }
        // The first that has to wait is always taken.
        let early_bytes = u64::from(sent) + u64::from(announced.unwrap_or(0));
        let is_much = self.tasks.early_bytes() + early_bytes > EARLY_BYTES || !self.has_room(early_bytes);
        if early_bytes > 0 && self.tasks.early_bytes() > 0 && is_much {
            return Some(Reply { status: Status::TaskSetFull, ..Reply::good() });
        }
        // There is never an auto contingent allegiance (NORMACA = 0).
        if head.attribute == TaskAttribute::Aca {
            return Some(Reply::check(Sense::INVALID_MESSAGE_ERROR));
        }
        let is_bidirectional = command.flags & (READ | WRITE) == READ | WRITE;
        is_bidirectional.then(|| Reply::check(Sense::INVALID_FIELD_IN_CDB))
    }

    /// Takes a command into the task set, behind those that wait for memory or for the limits of its volume.
    fn enter(&mut self, head: Head, transfer: DataOutTransfer<D>, limited_by: Option<Uuid>) {
        let itt = head.itt;
        if !head.immediate {
            self.numbers.enter_window();
        }
        // One that is not sent as much as it says is refused after all.
        if transfer.is_refused() {
            self.withdraw(itt, limited_by);
        }
        let limited_by = limited_by.filter(|_| !transfer.is_refused());
        if self.tasks.insert(head, transfer, limited_by) { self.pump() } else { self.advance(itt) }
    }

    pub(crate) fn data_out(&mut self, bhs: Bhs, data: Payload<'_>, intact: bool) {
        let pdu = DataOut::from(bhs);
        let itt = pdu.itt.get();
        if !intact {
            self.reject(RejectReason::DataDigest, bhs);
        }
        // Data of a task that was aborted may still be on its way.
        let Some((_, transfer)) = self.tasks.transfer(itt) else { return };
        self.counted.written_bytes += data.len() as u64;
        let outcome = if intact { transfer.take(&pdu, data) } else { Err(DataFault::Digest) };
        if let Err(fault) = outcome {
            tracing::debug!(itt, ?fault, "Data-Out refused, its command fails");
            self.end_limit(itt);
            self.tasks.fail(itt, &pdu, Reply::check(fault.sense()));
        }
        // A task that waits for memory is moved on when it is admitted.
        if self.tasks.is_admitted(itt) {
            self.advance(itt);
        }
    }
}
