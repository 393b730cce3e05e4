//! Responses to commands: Data-In, status and sense data.

use crate::{
    command::Head,
    pdu::{DataIn, FINAL, NO_TAG, OVERFLOW, STATUS, ScsiResponse, UNDERFLOW, opcode},
    session::Session,
};
use quoin_scsi::{Reply, Status};
use quoin_volume::BlockDevice;
use quoin_world::Slice;

impl<D: BlockDevice> Session<D> {
    pub(crate) fn respond(&mut self, head: &Head, mut reply: Reply) {
        // The residual count: what the command wanted to move against what the initiator expects.
        let expected = u64::from(head.expected_bytes());
        let wanted = reply.wanted_bytes;
        let (residual_flag, residual) = match wanted.cmp(&expected) {
            std::cmp::Ordering::Less => (UNDERFLOW, expected - wanted),
            std::cmp::Ordering::Equal => (0, 0),
            std::cmp::Ordering::Greater => (OVERFLOW, wanted - expected),
        };
        let residual = u32::try_from(residual).unwrap_or(u32::MAX);
        let data = std::mem::take(&mut reply.data);
        let is_good = reply.status == Status::Good;
        self.counted.failures += u64::from(!is_good);
        // GOOD travels with the last data; any other status, with its sense, has a PDU of its own.
        let data_pdus = self.data_in(head, data, is_good.then_some((residual_flag, residual)));
        if is_good && data_pdus > 0 {
            return;
        }
        let (exp_cmd_sn, max_cmd_sn) = self.numbers.window();
        let response = ScsiResponse {
            opcode: opcode::SCSI_RESPONSE,
            flags: FINAL | residual_flag,
            status: reply.status as u8,
            itt: head.itt.into(),
            stat_sn: self.numbers.take_stat_sn().into(),
            exp_cmd_sn: exp_cmd_sn.into(),
            max_cmd_sn: max_cmd_sn.into(),
            exp_data_sn: data_pdus.into(),
            residual: residual.into(),
            ..ScsiResponse::default()
        };
        // Sense data has its length in front (RFC 7143 §11.4.7).
        let sense = reply
            .sense_data()
            .map(|sense| Slice::copy_of(&[&(sense.len() as u16).to_be_bytes()[..], &sense].concat()));
        self.out.push(response, sense);
    }

    /// Sends data, cut as the initiator wants it. The last PDU carries the status if `residual` is given.
    /// Returns how many PDUs there were.
    fn data_in(&mut self, head: &Head, data: Vec<Slice>, residual: Option<(u8, u32)>) -> u32 {
        // The initiator takes no more than it expects, whatever the command returned.
        let held = data.iter().map(Slice::len).sum::<usize>();
        let total = held.min(head.in_bytes as usize);
        if total == 0 {
            return 0;
        }
        self.counted.read_bytes += total as u64;
        let (burst, segment) =
            (self.params.max_burst_bytes as usize, self.params.max_send_data_bytes as usize);
        let (exp_cmd_sn, max_cmd_sn) = self.numbers.window();
        let mut rest = Rest { slices: data.into_iter(), current: None };
        let (mut at, mut data_sn) = (0, 0u32);
        while at < total {
            // A PDU is no longer than the initiator takes, and ends where a burst ends. Example: bursts of
            // 10, PDUs of 4, 13 bytes go as 4, 4, 2 (F), 3 (F).
            let len = segment.min(burst - at % burst).min(total - at);
            let mut pdu = DataIn {
                opcode: opcode::DATA_IN,
                itt: head.itt.into(),
                ttt: NO_TAG.into(),
                exp_cmd_sn: exp_cmd_sn.into(),
                max_cmd_sn: max_cmd_sn.into(),
                data_sn: data_sn.into(),
                offset: (at as u32).into(),
                ..DataIn::default()
            };
            at += len;
            data_sn += 1;
            // A burst ends: the F bit says so.
            if at == total || at % burst == 0 {
                pdu.flags |= FINAL;
            }
            // The last PDU of good data carries the status, and so takes a StatSN.
            if let Some((flag, residual)) = residual.filter(|_| at == total) {
                pdu.flags |= STATUS | flag;
                pdu.residual = residual.into();
                pdu.stat_sn = self.numbers.take_stat_sn().into();
            }
            let mut left = len;
            self.out.push(pdu, std::iter::from_fn(|| rest.take(&mut left)));
            assert!(left == 0, "iSCSI task {:#010x}: a Data-In lacks {left} bytes", head.itt);
        }
        data_sn
    }
}

/// The data of an answer that is in no PDU yet: slices of the device's buffers, cut where a PDU ends.
struct Rest {
    slices: std::vec::IntoIter<Slice>,
    /// What is left of a slice that was cut: it begins the next PDU.
    current: Option<Slice>,
}

impl Rest {
    /// Takes the next slice, of at most `left` bytes, off the rest and off `left`; none once nothing is left.
    fn take(&mut self, left: &mut usize) -> Option<Slice> {
        if *left == 0 {
            return None;
        }
        let slice = self.current.take().or_else(|| self.slices.next())?;
        let now = slice.len().min(*left);
        *left -= now;
        if now < slice.len() {
            self.current = Some(slice.slice(now..));
            return Some(slice.slice(..now));
        }
        Some(slice)
    }
}
