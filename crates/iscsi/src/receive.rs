//! Bytes from the socket, read a good part at a time, split into PDUs. A long data segment is received into a buffer of its
//! own, which goes on as it is: nothing of it is copied but what came along with its header.

use crate::pdu::{BHS_BYTES, Bhs, Frame, Framing, FramingError, Parsed, opcode, padding};
use quoin_world::{Buf, Filling};
use std::{
    io,
    ops::Deref,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, ReadBuf};

/// Room for one PDU of the longest kind (header, longest AHS, digests) and a good part of the next ones.
const BUFFER_BYTES: usize = crate::params::MAX_RECV_DATA_BYTES as usize + 128 * 1024;

/// What is read at a time, unless the PDU at hand is longer: writes that came together begin on their way to the drives
/// while the next are looked at, instead of all of them when the last was.
const TURN_BYTES: usize = 64 << 10;

/// Of a data segment at least so much must be to come for a buffer of its own.
const LONG_FROM_BYTES: usize = 16 << 10;
/// What is read behind a long data segment: another header, most likely, and little of what belongs in the next buffer.
const HEAD_TURN_BYTES: usize = 4 << 10;

const _: () = assert!(TURN_BYTES < BUFFER_BYTES && HEAD_TURN_BYTES < LONG_FROM_BYTES);

/// What a connection takes of memory for it: the buffer, and a data segment on its way.
pub(crate) const RECEIVE_BYTES: u64 = BUFFER_BYTES as u64 + crate::params::MAX_RECV_DATA_BYTES as u64;

pub(crate) struct Receive {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes from `start` that must be there before it makes sense to look again.
    needed: usize,
    /// True when the last read left something, as far as one can tell.
    more: bool,
    /// A PDU with a long data segment that is being received. Nothing behind it was read yet.
    long: Option<(Bhs, Filling)>,
    /// The last PDU had a long data segment.
    was_long: bool,
}

/// A PDU that is all there.
pub(crate) struct Pdu<'a> {
    pub(crate) bhs: Bhs,
    pub(crate) data: Payload<'a>,
    /// Its data matches its digest, if it has one.
    pub(crate) is_intact: bool,
}

/// A data segment.
pub(crate) enum Payload<'a> {
    /// Among other bytes.
    Part(&'a [u8]),
    /// In a buffer of its own.
    Own(Buf),
}

impl Deref for Payload<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Part(bytes) => bytes,
            Self::Own(buf) => buf,
        }
    }
}

impl Receive {
    pub(crate) fn new() -> Self {
        let buffer = vec![0; BUFFER_BYTES];
        Self { buffer, start: 0, end: 0, needed: 1, more: false, long: None, was_long: false }
    }

    /// The next whole PDU received. `Ok(None)` when more must be read first.
    pub(crate) fn next(&mut self, framing: Framing) -> Result<Option<Pdu<'_>>, FramingError> {
        if let Some((bhs, data)) = self.long.take_if(|(_, data)| data.is_full()) {
            return Ok(Some(Pdu { bhs, data: Payload::Own(data.into_buf()), is_intact: true }));
        }
        if self.long.is_some() || self.end - self.start < self.needed {
            return Ok(None);
        }
        // Enough has come to look at it again.
        let from = self.start;
        let (frame, is_intact) = match Frame::parse(&self.buffer[from..self.end], framing)? {
            Parsed::Need(bytes) => {
                self.needed = bytes;
                self.begin_long(framing);
                return Ok(None);
            }
            Parsed::Whole(frame) => (frame, true),
            Parsed::BadData(frame) => (frame, false),
        };
        self.start += frame.end;
        assert!(self.start <= self.end, "iSCSI receive buffer: a PDU ends behind what was received");
        self.needed = 1;
        // The PDU is taken off the buffer; its data is lent until the next look.
        let data = Payload::Part(frame.data(&self.buffer[from..from + frame.end]));
        Ok(Some(Pdu { bhs: frame.bhs, data, is_intact }))
    }

    /// Gives the PDU at hand a buffer for its data segment, if its headers are there and most of a long one is to come.
    fn begin_long(&mut self, framing: Framing) {
        let bytes = &self.buffer[self.start..self.end];
        let Some(bhs) = Bhs::parse(bytes) else { return };
        let data_start = BHS_BYTES + bhs.ahs_bytes() + if framing.header_digest { 4 } else { 0 };
        let len = bhs.data_len.get();
        let is_data = matches!(bhs.operation(), opcode::DATA_OUT | opcode::SCSI_COMMAND);
        // NOTE: that so many bytes are needed says that the headers were checked, and that nothing is behind the data.
        let is_plain = padding(len) == 0 && !framing.data_digest && self.needed == data_start + len;
        if !is_data || !is_plain || bytes.len() < data_start || self.needed - bytes.len() < LONG_FROM_BYTES {
            return;
        }
        // What came with the header is copied; the rest is received in place.
        let mut data = Filling::new(len);
        data.push(&bytes[data_start..]);
        self.long = Some((bhs, data));
        (self.start, self.end, self.needed) = (0, 0, 1);
    }

    /// True, once, when there is likely more to read than was.
    pub(crate) fn take_more(&mut self) -> bool {
        std::mem::take(&mut self.more)
    }

    /// Reads what there is, as far as a turn goes; ready with 0 at the end of the stream.
    pub(crate) fn poll_fill(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        // A long data segment goes to its own buffer, and nothing behind it.
        if let Some((_, data)) = &mut self.long {
            let mut room = ReadBuf::new(data.rest());
            ready!(Pin::new(stream).poll_read(cx, &mut room))?;
            let read = room.filled().len();
            data.filled(read);
            (self.more, self.was_long) = (data.is_full(), true);
            return Poll::Ready(Ok(read));
        }
        // Room for what is needed, at the buffer's start if it has to be.
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start + self.needed.max(BUFFER_BYTES / 4) > BUFFER_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        // No more than a turn, unless the PDU at hand needs more.
        let turn = if self.was_long { HEAD_TURN_BYTES } else { TURN_BYTES };
        let turn = turn.max(self.needed.saturating_sub(self.end - self.start));
        let until = (self.end + turn).min(BUFFER_BYTES);
        // NOTE: without room the read would return 0, which is taken for the end of the stream.
        assert!(until > self.end, "iSCSI receive buffer: there is no room for the PDU at hand");
        let mut room = ReadBuf::new(&mut self.buffer[self.end..until]);
        ready!(Pin::new(stream).poll_read(cx, &mut room))?;
        let read = room.filled().len();
        (self.more, self.was_long) = (room.remaining() == 0, false);
        self.end += read;
        Poll::Ready(Ok(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pdu::U24;
    use proptest::prelude::*;
    use std::{collections::VecDeque, task::Waker};
    use zerocopy::IntoBytes;

    /// Gives what it has in pieces.
    struct Pieces(VecDeque<u8>, VecDeque<usize>);

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            room: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let piece = self.1.pop_front().unwrap_or(usize::MAX).min(self.0.len()).min(room.remaining());
            let bytes: Vec<u8> = self.0.drain(..piece).collect();
            room.put_slice(&bytes);
            Poll::Ready(Ok(()))
        }
    }

    proptest! {
        #[test]
        fn pdus_come_as_they_were_sent_however_they_are_cut(
            pdus in prop::collection::vec((0..3u8, prop_oneof![0..200usize, 10_000..90_000usize]), 1..6),
            pieces in prop::collection::vec(1..70_000usize, 0..20),
            header_digest: bool,
            data_digest: bool,
        ) {
            let framing = Framing { header_digest, data_digest, max_data_bytes: 256 << 10 };
            let mut sent = VecDeque::new();
            let mut want = VecDeque::new();
            for (number, (kind, len)) in pdus.into_iter().enumerate() {
                let opcode = [opcode::NOP_OUT, opcode::DATA_OUT, opcode::SCSI_COMMAND][usize::from(kind)];
                let bhs = Bhs { opcode, data_len: U24::new(len), ..Bhs::default() };
                let data: Vec<u8> = (0..len).map(|i| (i * 7 + number) as u8).collect();
                let padded: Vec<u8> = data.iter().copied().chain(vec![0; padding(len)]).collect();
                sent.extend(bhs.as_bytes());
                if header_digest {
                    sent.extend(crate::digest::crc32c([bhs.as_bytes()]));
                }
                sent.extend(&padded);
                if data_digest && len > 0 {
                    sent.extend(crate::digest::crc32c([&padded[..]]));
                }
                want.push_back((bhs, data));
            }
            let mut stream = Pieces(sent, pieces.into());
            let mut receive = Receive::new();
            let mut cx = Context::from_waker(Waker::noop());
            while let Some((bhs, data)) = want.pop_front() {
                loop {
                    if let Some(pdu) = receive.next(framing).unwrap() {
                        prop_assert!(pdu.is_intact);
                        prop_assert_eq!(pdu.bhs, bhs);
                        prop_assert!(*pdu.data == *data);
                        break;
                    }
                    let Poll::Ready(Ok(read)) = receive.poll_fill(&mut stream, &mut cx) else { panic!() };
                    prop_assert!(read > 0, "it wants more than was sent");
                }
            }
            prop_assert!(receive.next(framing).unwrap().is_none());
        }
    }
}
