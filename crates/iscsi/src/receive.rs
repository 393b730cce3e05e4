//! Bytes from the socket, read a good part at a time, split into PDUs.

use crate::pdu::{Frame, Framing, FramingError, Parsed};
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, ReadBuf};

/// Room for one PDU of the longest kind (header, longest AHS, digests) and a good part of the next ones.
const BUFFER_BYTES: usize = crate::params::MAX_RECV_DATA_BYTES as usize + 128 * 1024;

/// What is read at a time, unless the PDU at hand is longer: writes that came together begin on their way to the drives
/// while the next are looked at, instead of all of them when the last was.
const TURN_BYTES: usize = 64 << 10;

/// What a connection takes of memory for it.
pub(crate) const RECEIVE_BYTES: u64 = BUFFER_BYTES as u64;

pub(crate) struct Receive {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes from `start` that must be there before it makes sense to look again.
    needed: usize,
    /// True when the last read left something, as far as one can tell.
    more: bool,
}

impl Receive {
    pub(crate) fn new() -> Self {
        Self { buffer: vec![0; BUFFER_BYTES], start: 0, end: 0, needed: 1, more: false }
    }

    /// The next whole PDU received: its frame, and the bytes the frame is of. `Ok(None)` when more must be
    /// read first.
    pub(crate) fn next(&mut self, framing: Framing) -> Result<Option<(Parsed, &[u8])>, FramingError> {
        if self.end - self.start < self.needed {
            return Ok(None);
        }
        let from = self.start;
        match Frame::parse(&self.buffer[from..self.end], framing)? {
            Parsed::Need(bytes) => {
                self.needed = bytes;
                Ok(None)
            }
            parsed @ (Parsed::Whole(frame) | Parsed::BadData(frame)) => {
                self.start += frame.end;
                self.needed = 1;
                Ok(Some((parsed, &self.buffer[from..from + frame.end])))
            }
        }
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
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start + self.needed.max(BUFFER_BYTES / 4) > BUFFER_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let turn = TURN_BYTES.max(self.needed.saturating_sub(self.end - self.start));
        let until = (self.end + turn).min(BUFFER_BYTES);
        let mut room = ReadBuf::new(&mut self.buffer[self.end..until]);
        ready!(Pin::new(stream).poll_read(cx, &mut room))?;
        let read = room.filled().len();
        self.more = room.remaining() == 0;
        self.end += read;
        Poll::Ready(Ok(read))
    }
}
