//! The queue of PDUs to send: everything in it goes out with as few vectored writes as possible.

use crate::{
    digest::crc32c,
    params::Params,
    pdu::{BHS_BYTES, Bhs, U24, padding},
};
use quoin_world::Slice;
use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::AsyncWrite;
use zerocopy::IntoBytes;

/// Parts given to one write.
const MAX_PARTS: usize = 128;

enum Part {
    /// A header with its digest, or padding with the data's digest.
    Inline([u8; BHS_BYTES + 4], u8),
    Data(Slice),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Part::Inline(bytes, len) => &bytes[..usize::from(*len)],
            Part::Data(slice) => slice,
        }
    }
}

#[derive(Default)]
pub(crate) struct Transmit {
    parts: VecDeque<Part>,
    /// Bytes of the first part that are sent already.
    sent: usize,
    queued_bytes: usize,
    sent_total: u64,
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
        self.queued_bytes
    }

    /// Bytes sent so far.
    pub(crate) fn sent_total(&self) -> u64 {
        self.sent_total
    }

    /// Takes everything as if it had been sent: the headers of the PDUs in it.
    #[cfg(test)]
    pub(crate) fn take_headers(&mut self) -> Vec<Bhs> {
        self.sent_total += std::mem::take(&mut self.queued_bytes) as u64;
        let is_header = |part: &Part| matches!(part, Part::Inline(_, len) if usize::from(*len) >= BHS_BYTES);
        self.parts.drain(..).filter(is_header).filter_map(|part| Bhs::parse(part.bytes())).collect()
    }

    /// Appends a PDU; the data segment's length is filled in.
    pub(crate) fn push(&mut self, header: impl Into<Bhs>, data: impl IntoIterator<Item = Slice>) {
        // The header goes first, but holds the data's length: its place is kept.
        let at = self.parts.len();
        self.inline(&[], &[]);
        let mut len = 0;
        for slice in data {
            len += slice.len();
            self.queued_bytes += slice.len();
            self.parts.push_back(Part::Data(slice));
        }
        // Padding and the data's digest go behind the data; the digest covers the padding.
        let zeroes = &[0; 3][..padding(len)];
        if len > 0 && (self.data_digest || !zeroes.is_empty()) {
            let digest = match self.data_digest {
                true => crc32c(self.parts.iter().skip(at + 1).map(Part::bytes).chain([zeroes])).to_vec(),
                false => Vec::new(),
            };
            self.inline(zeroes, &digest);
        }
        // Now that the length is known, the header takes its place.
        let header = Bhs { data_len: U24::new(len), ..header.into() };
        let digest = if self.header_digest { crc32c([header.as_bytes()]).to_vec() } else { Vec::new() };
        self.parts[at] = self.count_inline(header.as_bytes(), &digest);
    }

    fn inline(&mut self, first: &[u8], second: &[u8]) {
        let part = self.count_inline(first, second);
        self.parts.push_back(part);
    }

    fn count_inline(&mut self, first: &[u8], second: &[u8]) -> Part {
        let mut bytes = [0; BHS_BYTES + 4];
        let len = first.len() + second.len();
        bytes[..first.len()].copy_from_slice(first);
        bytes[first.len()..len].copy_from_slice(second);
        self.queued_bytes += len;
        Part::Inline(bytes, len as u8)
    }

    /// Sends what the socket takes; ready when all is sent.
    pub(crate) fn poll_flush(
        &mut self,
        stream: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.parts.is_empty() {
            // As many parts as one write takes; of the first, what is not sent yet.
            let mut slices = [IoSlice::new(&[]); MAX_PARTS];
            let mut count = 0;
            for (slice, part) in slices.iter_mut().zip(&self.parts) {
                let skip = if count == 0 { self.sent } else { 0 };
                *slice = IoSlice::new(&part.bytes()[skip..]);
                count += 1;
            }
            match ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &slices[..count]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, written: usize) {
        assert!(written <= self.queued_bytes, "iSCSI send queue: the socket took more than there was");
        self.queued_bytes -= written;
        self.sent_total += written as u64;
        self.sent += written;
        // Parts that are sent whole go, and with them what keeps their buffers.
        while let Some(part) = self.parts.front() {
            let len = part.bytes().len();
            if self.sent < len {
                break;
            }
            self.sent -= len;
            self.parts.pop_front();
        }
        assert!(
            !self.parts.is_empty() || self.queued_bytes == 0,
            "iSCSI send queue: bytes are counted that are in no part"
        );
    }
}
