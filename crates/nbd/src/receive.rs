//! Bytes from the socket: a large read per wake-up. The rest of a payload whose beginning is here goes straight
//! to its own buffer, and what follows it in the same read comes here.

use crate::socket::Socket;
use std::{
    future::poll_fn,
    io,
    task::{Context, Poll, ready},
};

/// Room for the longest option and a good number of requests.
const BUFFER_BYTES: usize = 128 * 1024;
/// What a connection holds to receive at all.
pub(crate) const RECEIVE_BYTES: u64 = BUFFER_BYTES as u64;

pub(crate) struct Receive {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes received since the connection began.
    received: u64,
}

impl Receive {
    pub(crate) fn new() -> Self {
        Self { buffer: vec![0; BUFFER_BYTES], start: 0, end: 0, received: 0 }
    }

    /// What was received and not taken yet.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Takes the first `len` bytes off.
    pub(crate) fn take(&mut self, len: usize) {
        self.start += len;
        assert!(self.start <= self.end, "NBD receive buffer: more was taken than was received");
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Reads what there is: into `payload` first, if that is not empty, which needs everything here to be taken.
    /// Ready with how much of it went to `payload`.
    ///
    /// # Errors
    /// `UnexpectedEof` at the end of the stream.
    pub(crate) fn poll_fill(
        &mut self,
        socket: &mut Socket,
        payload: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        // NOTE: bytes that were received before those of the payload must be in it already.
        assert!(
            payload.is_empty() || self.start == self.end,
            "NBD receive buffer: a payload is read past bytes that came before it"
        );
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let wanted = payload.len();
        let read = ready!(socket.poll_read(cx, payload, &mut self.buffer[self.end..]))?;
        if read == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        self.received += read as u64;
        // The payload was filled first; what is beyond it came here.
        let direct = read.min(wanted);
        self.end += read - direct;
        Poll::Ready(Ok(direct))
    }

    /// Waits for more bytes.
    pub(crate) async fn fill(&mut self, socket: &mut Socket) -> io::Result<()> {
        poll_fn(|cx| self.poll_fill(socket, &mut [], cx)).await.map(drop)
    }
}
