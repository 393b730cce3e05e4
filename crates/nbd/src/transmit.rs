//! The replies to send: simple ones and the chunks of structured ones, in the order of the wire.

use crate::{
    socket::Socket,
    wire::{Chunk, Errno, REPLY_FLAG_DONE, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, SimpleReply},
};
use quoin_target::SendQueue;
use quoin_world::Slice;
use std::{
    io,
    task::{Context, Poll, ready},
};
use zerocopy::IntoBytes;

/// Room for a chunk's header and the fixed part of its payload.
const HEAD_BYTES: usize = Chunk::BYTES + 16;

/// Whether more chunks of a reply follow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Yes,
    No,
}

#[derive(Default)]
pub(crate) struct Transmit(SendQueue<HEAD_BYTES>);

impl Transmit {
    /// Bytes not sent yet.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.0.queued_bytes()
    }

    /// RAM that what is not sent yet takes.
    pub(crate) fn ram_bytes(&self) -> usize {
        self.0.ram_bytes()
    }

    /// Bytes sent since transmission began.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.0.sent_bytes()
    }

    /// Appends a simple reply.
    pub(crate) fn simple(
        &mut self,
        cookie: u64,
        error: Option<Errno>,
        data: impl IntoIterator<Item = Slice>,
    ) {
        let error = error.map_or(0, |error| error as u32);
        let header =
            SimpleReply { magic: SIMPLE_REPLY_MAGIC.into(), error: error.into(), cookie: cookie.into() };
        self.0.head(header.as_bytes(), &[]);
        data.into_iter().for_each(|slice| self.0.data(slice));
    }

    /// Appends a chunk of a structured reply; `fixed` is at most 16 bytes long.
    pub(crate) fn chunk(&mut self, cookie: u64, kind: u16, last: Last, fixed: &[u8], data: &[Slice]) {
        let payload_bytes = fixed.len() + data.iter().map(Slice::len).sum::<usize>();
        let header = Chunk {
            magic: STRUCTURED_REPLY_MAGIC.into(),
            flags: if last == Last::Yes { REPLY_FLAG_DONE } else { 0 }.into(),
            kind: kind.into(),
            cookie: cookie.into(),
            payload_bytes: (payload_bytes as u32).into(),
        };
        self.0.head(header.as_bytes(), fixed);
        data.iter().for_each(|slice| self.0.data(slice.clone()));
    }

    /// Sends what the socket takes; ready when all is sent.
    pub(crate) fn poll_flush(&mut self, socket: &mut Socket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.0.poll_send(|slices| socket.poll_write(cx, slices)))?;
        // A TLS stream may still hold some of it.
        socket.poll_flush(cx)
    }
}
