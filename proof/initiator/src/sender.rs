//! The initiator's half of a session: numbers requests, respects the command window, queues PDUs and sends them
//! gathered. Payload is sent from the commands' own buffers, never copied.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::TcpStream;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::connection::Negotiated;
use crate::pdu::{FINAL, Header, NO_TAG, opcode};

const MOST_SLICES: usize = 256;

/// A piece waiting to be sent.
#[derive(Debug, Clone, Copy)]
enum Piece {
    /// A range of the arena of headers and texts.
    Arena { at: usize, len: usize },
    /// A range of a command's buffer.
    Slot { slot: usize, at: usize, len: usize },
}

/// What goes out, and the numbers it carries.
pub(crate) struct Sender {
    arena: Vec<u8>,
    queue: VecDeque<Piece>,
    front_sent: usize,
    cmd_sn: u32,
    exp_stat_sn: u32,
    max_cmd_sn: u32,
    pub(crate) lun: u16,
    pub(crate) agreed: Negotiated,
}

impl Sender {
    pub(crate) fn new(lun: u16, agreed: Negotiated) -> Sender {
        let (arena, queue) = (Vec::new(), VecDeque::new());
        Sender { arena, queue, front_sent: 0, cmd_sn: 1, exp_stat_sn: 0, max_cmd_sn: 1, lun, agreed }
    }

    /// Whether the target's window lets another command out (RFC 7143 §4.2.2.1).
    pub(crate) fn window_is_open(&self) -> bool {
        self.max_cmd_sn.wrapping_sub(self.cmd_sn) < 1 << 31
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes the numbers out of a PDU received.
    pub(crate) fn observe(&mut self, header: &Header) {
        if header.has_status_number() {
            self.exp_stat_sn = header.u32_at(24).wrapping_add(1);
        }
        let max = header.u32_at(32);
        if max.wrapping_sub(self.max_cmd_sn) < 1 << 31 {
            self.max_cmd_sn = max;
        }
    }

    pub(crate) fn push_login(&mut self, flags: u8, number: u16, text: &[u8]) {
        let mut header = Header::new(opcode::LOGIN | 0x40, flags).with_itt(0);
        header.0[8] = 0x80; // an ISID of the random kind (RFC 7143 §11.12.5)
        header.0[9..12].copy_from_slice(&std::process::id().to_be_bytes()[1..]);
        header.0[12..14].copy_from_slice(&number.to_be_bytes());
        self.push(header.with_data_len(text.len()).with_numbers(self.cmd_sn, self.exp_stat_sn));
        self.push_bytes(text);
        self.push_bytes(&[0; 3][..(4 - text.len() % 4) % 4]);
    }

    /// Queues a command tagged with its slot. `write` gives the slot whose buffer holds `len_bytes` to write.
    pub(crate) fn push_command(&mut self, tag: usize, cdb: [u8; 16], len_bytes: u32, write: Option<usize>) {
        let direction = match (write, len_bytes) {
            (Some(_), _) => 0x20,
            (None, 0) => 0,
            (None, _) => 0x40,
        };
        let immediate = match write {
            Some(_) if self.agreed.immediate_data => {
                len_bytes.min(self.agreed.first_burst).min(self.agreed.send_segment) as usize
            }
            _ => 0,
        };
        let mut header = Header::new(opcode::COMMAND, FINAL | direction | 1)
            .with_lun(self.lun)
            .with_itt(tag as u32)
            .with_u32(20, len_bytes)
            .with_data_len(immediate)
            .with_numbers(self.cmd_sn, self.exp_stat_sn);
        header.0[32..].copy_from_slice(&cdb);
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        self.push(header);
        if let Some(slot) = write
            && immediate > 0
        {
            self.queue.push_back(Piece::Slot { slot, at: 0, len: immediate });
        }
    }

    /// Answers a request for data: `R2T` names the slot by its tag, an offset and a length (RFC 7143 §11.8).
    pub(crate) fn push_data_out(&mut self, r2t: &Header) {
        let slot = r2t.itt() as usize;
        let (mut at, end) = (r2t.u32_at(40), r2t.u32_at(40) + r2t.u32_at(44));
        let mut data_sn = 0;
        while at < end {
            let len = (end - at).min(self.agreed.send_segment);
            let flags = if at + len == end { FINAL } else { 0 };
            let header = Header::new(opcode::DATA_OUT, flags)
                .with_data_len(len as usize)
                .with_lun(self.lun)
                .with_itt(r2t.itt())
                .with_u32(20, r2t.u32_at(20))
                .with_u32(28, self.exp_stat_sn)
                .with_u32(36, data_sn)
                .with_u32(40, at);
            self.push(header);
            self.queue.push_back(Piece::Slot { slot, at: at as usize, len: len as usize });
            at += len;
            data_sn += 1;
        }
    }

    pub(crate) fn push_nop_reply(&mut self, ping: &Header) {
        let mut header = Header::new(opcode::NOP_OUT | 0x40, FINAL).with_itt(NO_TAG);
        header.0[8..16].copy_from_slice(&ping.0[8..16]);
        self.push(header.with_u32(20, ping.u32_at(20)).with_numbers(self.cmd_sn, self.exp_stat_sn));
    }

    pub(crate) fn push_logout(&mut self) {
        let header = Header::new(opcode::LOGOUT | 0x40, FINAL).with_itt(0);
        self.push(header.with_numbers(self.cmd_sn, self.exp_stat_sn));
    }

    fn push(&mut self, header: Header) {
        self.push_bytes(&header.0);
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        let at = self.arena.len();
        self.arena.extend_from_slice(bytes);
        match self.queue.back_mut() {
            Some(Piece::Arena { at: start, len }) if *start + *len == at => *len += bytes.len(),
            _ if bytes.is_empty() => {}
            _ => self.queue.push_back(Piece::Arena { at, len: bytes.len() }),
        }
    }

    /// Sends until everything is out or the socket is full.
    pub(crate) fn flush<T: AsRef<[u8]>>(
        &mut self,
        socket: &TcpStream,
        slots: &[T],
    ) -> rustix::io::Result<()> {
        while !self.queue.is_empty() {
            let mut skip = self.front_sent;
            let slices: Vec<IoSlice<'_>> = self
                .queue
                .iter()
                .take(MOST_SLICES)
                .map(|piece| {
                    let bytes = match *piece {
                        Piece::Arena { at, len } => &self.arena[at..at + len],
                        Piece::Slot { slot, at, len } => &slots[slot].as_ref()[at..at + len],
                    };
                    IoSlice::new(&bytes[std::mem::take(&mut skip)..])
                })
                .collect();
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(socket, &slices, &mut SendAncillaryBuffer::default(), flags) {
                Ok(sent) => self.advance(sent),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        self.arena.clear();
        Ok(())
    }

    fn advance(&mut self, sent: usize) {
        self.front_sent += sent;
        while let Some(Piece::Arena { len, .. } | Piece::Slot { len, .. }) = self.queue.front() {
            if self.front_sent < *len {
                return;
            }
            self.front_sent -= len;
            self.queue.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    fn sender(immediate_data: bool) -> Sender {
        Sender::new(1, Negotiated { immediate_data, first_burst: 4096, send_segment: 2048 })
    }

    fn sent(sender: &mut Sender, slots: &[Vec<u8>]) -> Vec<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        sender.flush(&client, slots).unwrap();
        assert!(sender.is_empty());
        drop(client);
        let mut wire = Vec::new();
        server.read_to_end(&mut wire).unwrap();
        wire
    }

    #[test]
    fn immediate_data_keeps_to_what_was_agreed() {
        let slots = [vec![7; 8192]];
        let mut with = sender(true);
        with.push_command(0, [0; 16], 8192, Some(0));
        let wire = sent(&mut with, &slots);
        assert_eq!(wire.len(), 48 + 2048);
        assert_eq!(wire[4..8], [0, 0, 8, 0]);
        let mut without = sender(false);
        without.push_command(0, [0; 16], 8192, Some(0));
        assert_eq!(sent(&mut without, &slots).len(), 48);
    }

    #[test]
    fn a_request_for_data_is_answered_in_segments_of_the_agreed_size() {
        let slots = [vec![], (0..=255).cycle().take(8192).collect::<Vec<u8>>()];
        let mut sender = sender(true);
        let r2t =
            Header::new(opcode::R2T, FINAL).with_itt(1).with_u32(20, 9).with_u32(40, 2048).with_u32(44, 5000);
        sender.push_data_out(&r2t);
        let wire = sent(&mut sender, &slots);
        let mut at = 0;
        let mut data = Vec::new();
        for (number, len) in [2048, 2048, 904].into_iter().enumerate() {
            let header = Header(wire[at..at + 48].try_into().unwrap());
            assert_eq!((header.opcode(), header.itt(), header.u32_at(20)), (opcode::DATA_OUT, 1, 9));
            assert_eq!((header.u32_at(36), header.data_len()), (number as u32, len));
            assert_eq!(header.u32_at(40), 2048 + data.len() as u32);
            assert_eq!(header.flags() == FINAL, number == 2);
            at += 48;
            data.extend_from_slice(&wire[at..at + len as usize]);
            at += len as usize;
        }
        assert_eq!(data, slots[1][2048..7048]);
        assert_eq!(at, wire.len());
    }

    #[test]
    fn the_window_closes_and_opens_across_the_wrap() {
        let mut sender = sender(true);
        sender.cmd_sn = u32::MAX;
        sender.max_cmd_sn = u32::MAX;
        assert!(sender.window_is_open());
        sender.push_command(0, [0; 16], 0, None);
        assert!(!sender.window_is_open());
        sender.observe(&Header::new(opcode::RESPONSE, FINAL).with_u32(24, 41).with_u32(32, 3));
        assert!(sender.window_is_open());
        assert_eq!(sender.exp_stat_sn, 42);
        sender.observe(&Header::new(opcode::R2T, FINAL).with_u32(24, 99).with_u32(32, 1));
        assert_eq!((sender.exp_stat_sn, sender.max_cmd_sn), (42, 3));
    }

    #[test]
    fn partial_sends_continue_where_they_stopped() {
        let mut sender = sender(true);
        sender.push_bytes(b"abcdef");
        sender.queue.push_back(Piece::Slot { slot: 0, at: 0, len: 4 });
        sender.advance(7);
        assert_eq!((sender.front_sent, sender.queue.len()), (1, 1));
        assert_eq!(sent(&mut sender, &[b"wxyz".to_vec()]), b"xyz");
    }
}
