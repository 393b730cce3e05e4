//! The PDUs to send: headers, data, padding and digests, in the order of the wire (RFC 7143 §11.2).

use crate::{
    digest::crc32c,
    params::Params,
    pdu::{BHS_BYTES, Bhs, U24, padding},
};
use quoin_target::SendQueue;
use quoin_world::Slice;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::AsyncWrite;
use zerocopy::IntoBytes;

/// Room for a header with its digest; padding with the data's digest is shorter.
const HEAD_BYTES: usize = BHS_BYTES + 4;

#[derive(Default)]
pub(crate) struct Transmit {
    queue: SendQueue<HEAD_BYTES>,
    header_digest: bool,
    data_digest: bool,
}

impl Transmit {
    pub(crate) fn new(params: &Params) -> Self {
        let (header_digest, data_digest) = (params.header_digest, params.data_digest);
        Self { header_digest, data_digest, ..Self::default() }
    }

    /// Bytes not sent yet.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queue.queued_bytes()
    }

    /// RAM that what is not sent yet takes.
    pub(crate) fn ram_bytes(&self) -> usize {
        self.queue.ram_bytes()
    }

    /// Bytes sent so far.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.queue.sent_bytes()
    }

    /// Appends a PDU; the data segment's length is filled in.
    pub(crate) fn push(&mut self, header: impl Into<Bhs>, data: impl IntoIterator<Item = Slice>) {
        // The header goes first, but holds the data's length: its place is kept.
        let place = self.queue.keep_place();
        let mut len = 0;
        for slice in data {
            len += slice.len();
            self.queue.data(slice);
        }
        // Padding and the data's digest go behind the data; the digest covers the padding.
        let zeroes = &[0; 3][..padding(len)];
        if len > 0 && (self.data_digest || !zeroes.is_empty()) {
            let digest = if self.data_digest {
                crc32c(self.queue.behind(&place).chain([zeroes])).to_vec()
            } else {
                Vec::new()
            };
            self.queue.head(zeroes, &digest);
        }
        // Now that the length is known, the header takes its place.
        let header = Bhs { data_len: U24::new(len), ..header.into() };
        let digest = if self.header_digest { crc32c([header.as_bytes()]).to_vec() } else { Vec::new() };
        self.queue.fill(place, header.as_bytes(), &digest);
    }

    /// Sends what the socket takes; ready when all is sent.
    pub(crate) fn poll_flush(
        &mut self,
        stream: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.queue.poll_send(|slices| Pin::new(&mut *stream).poll_write_vectored(cx, slices))
    }

    /// Takes everything as if it had been sent: the headers of the PDUs in it.
    #[cfg(test)]
    pub(crate) fn take_headers(&mut self) -> Vec<Bhs> {
        let mut bytes = Vec::new();
        let sent = self.queue.poll_send(|slices| {
            let before = bytes.len();
            slices.iter().for_each(|slice| bytes.extend_from_slice(slice));
            Poll::Ready(Ok(bytes.len() - before))
        });
        assert!(matches!(sent, Poll::Ready(Ok(()))));
        let (mut headers, mut rest) = (Vec::new(), &bytes[..]);
        let digest = |is_sent: bool| if is_sent { 4 } else { 0 };
        while let Some(header) = Bhs::parse(rest) {
            let len = header.data_len.get();
            let data_bytes = if len > 0 { len + padding(len) + digest(self.data_digest) } else { 0 };
            rest = &rest[BHS_BYTES + digest(self.header_digest) + data_bytes..];
            headers.push(header);
        }
        assert!(rest.is_empty(), "{} bytes behind the last PDU", rest.len());
        headers
    }
}
