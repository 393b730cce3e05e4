//! iSCSI PDUs as an initiator sees them (RFC 7143 §11): headers to send, and a parser for the byte stream that
//! comes back. Sans-IO. The parser never buffers payload: it hands every piece on as it arrives.

use std::fmt;

/// Bytes in a basic header segment.
pub const HEADER_BYTES: usize = 48;
/// The tag that stands for "none" (RFC 7143 §11.2.1.8).
pub(crate) const NO_TAG: u32 = 0xffff_ffff;
/// The final bit in byte 1 of most PDUs.
pub(crate) const FINAL: u8 = 0x80;
/// No segment the initiator allows is longer; a longer one is a broken stream.
pub(crate) const MAX_SEGMENT_BYTES: u32 = 1 << 20;

/// Operation codes of the PDUs used here.
pub(crate) mod opcode {
    pub(crate) const NOP_OUT: u8 = 0x00;
    pub(crate) const COMMAND: u8 = 0x01;
    pub(crate) const LOGIN: u8 = 0x03;
    pub(crate) const DATA_OUT: u8 = 0x05;
    pub(crate) const LOGOUT: u8 = 0x06;
    pub(crate) const NOP_IN: u8 = 0x20;
    pub(crate) const RESPONSE: u8 = 0x21;
    pub(crate) const LOGIN_RESPONSE: u8 = 0x23;
    pub(crate) const DATA_IN: u8 = 0x25;
    pub(crate) const LOGOUT_RESPONSE: u8 = 0x26;
    pub(crate) const R2T: u8 = 0x31;
    pub(crate) const ASYNC: u8 = 0x32;
    pub(crate) const REJECT: u8 = 0x3f;
}

/// A basic header segment, read and written by byte position as the RFC draws them.
#[derive(Clone, Copy)]
pub(crate) struct Header(pub(crate) [u8; HEADER_BYTES]);

impl Header {
    pub(crate) fn new(opcode: u8, flags: u8) -> Header {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = opcode;
        bytes[1] = flags;
        Header(bytes)
    }

    pub(crate) fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    pub(crate) fn flags(&self) -> u8 {
        self.0[1]
    }

    pub(crate) fn u32_at(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    pub(crate) fn with_u32(mut self, at: usize, value: u32) -> Header {
        self.0[at..at + 4].copy_from_slice(&value.to_be_bytes());
        self
    }

    /// Length of the data segment without its padding.
    pub(crate) fn data_len(&self) -> u32 {
        self.u32_at(4) & 0x00ff_ffff
    }

    pub(crate) fn with_data_len(self, len_bytes: usize) -> Header {
        let len = u32::try_from(len_bytes).expect("a data segment is at most 16 MiB");
        assert!(len < 1 << 24, "a data segment is at most 16 MiB");
        self.with_u32(4, len)
    }

    /// Initiator task tag.
    pub(crate) fn itt(&self) -> u32 {
        self.u32_at(16)
    }

    pub(crate) fn with_itt(self, tag: u32) -> Header {
        self.with_u32(16, tag)
    }

    /// Addresses a logical unit below 16384, single-level (SAM-5 §4.7.7).
    pub(crate) fn with_lun(mut self, lun: u16) -> Header {
        let field = if lun < 256 { lun } else { 0x4000 | lun };
        self.0[8..10].copy_from_slice(&field.to_be_bytes());
        self
    }

    /// `CmdSN` and `ExpStatSN`, at the same place in every request.
    pub(crate) fn with_numbers(self, cmd_sn: u32, exp_stat_sn: u32) -> Header {
        self.with_u32(24, cmd_sn).with_u32(28, exp_stat_sn)
    }

    /// Whether this response carries a `StatSN` that the initiator must acknowledge.
    pub(crate) fn has_status_number(&self) -> bool {
        match self.opcode() {
            opcode::DATA_IN => self.flags() & 0x01 != 0,
            opcode::R2T => false,
            opcode::NOP_IN => self.itt() != NO_TAG,
            _ => true,
        }
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "PDU {:#04x} flags {:#04x} tag {:#x} data {}",
            self.opcode(),
            self.flags(),
            self.itt(),
            self.data_len()
        )
    }
}

/// What the parser found.
pub(crate) enum Event<'a> {
    /// A piece of a data segment, beginning `offset` bytes into it.
    Data { offset: u32, bytes: &'a [u8] },
    /// The whole PDU has arrived; all its data was handed over before.
    End,
}

/// A broken stream: nothing after this point can be understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SegmentTooLong(pub(crate) u32);

/// Incremental parser of the target's half of a connection without digests.
pub(crate) struct Parser {
    header: Option<Header>,
    partial: [u8; HEADER_BYTES],
    have: usize,
    skip: usize,
    taken: u32,
}

impl Parser {
    pub(crate) fn new() -> Parser {
        Parser { header: None, partial: [0; HEADER_BYTES], have: 0, skip: 0, taken: 0 }
    }

    /// Takes all of `input`, which may begin and end anywhere in a PDU.
    pub(crate) fn feed<E: From<SegmentTooLong>>(
        &mut self,
        mut input: &[u8],
        mut on: impl FnMut(&Header, Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            let Some(header) = self.header else {
                let Some(header) = self.gather(&mut input) else { return Ok(()) };
                if header.data_len() > MAX_SEGMENT_BYTES {
                    return Err(SegmentTooLong(header.data_len()).into());
                }
                self.header = Some(header);
                self.skip = usize::from(header.0[4]) * 4;
                self.taken = 0;
                continue;
            };
            let skipped = self.skip.min(input.len());
            self.skip -= skipped;
            input = &input[skipped..];
            if self.skip > 0 {
                return Ok(());
            }
            let left = header.data_len() - self.taken;
            if left > 0 {
                let take = input.len().min(left as usize);
                if take == 0 {
                    return Ok(());
                }
                on(&header, Event::Data { offset: self.taken, bytes: &input[..take] })?;
                input = &input[take..];
                self.taken += take as u32;
                if self.taken == header.data_len() {
                    self.skip = (4 - self.taken as usize % 4) % 4;
                }
                continue;
            }
            self.header = None;
            on(&header, Event::End)?;
        }
    }

    /// The next header, once all of it is there.
    fn gather(&mut self, input: &mut &[u8]) -> Option<Header> {
        let take = input.len().min(HEADER_BYTES - self.have);
        self.partial[self.have..self.have + take].copy_from_slice(&input[..take]);
        *input = &input[take..];
        self.have += take;
        (self.have == HEADER_BYTES).then(|| {
            self.have = 0;
            Header(self.partial)
        })
    }
}

/// Encodes `key=value` pairs as a text data segment; the sender pads it.
pub(crate) fn encode_text(pairs: &[(&str, String)]) -> Vec<u8> {
    let mut text = Vec::new();
    for (key, value) in pairs {
        text.extend_from_slice(format!("{key}={value}\0").as_bytes());
    }
    text
}

/// Decodes a text data segment; what is not `key=value` in UTF-8 is left out.
pub(crate) fn decode_text(data: &[u8]) -> Vec<(String, String)> {
    data.split(|&byte| byte == 0)
        .filter_map(|pair| std::str::from_utf8(pair).ok()?.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// A 16-byte command block of READ or WRITE: the 10-byte form where it reaches, else the 16-byte form
/// (SBC-4 §5.16–5.18, §5.42–5.44).
pub(crate) fn transfer_cdb(write: bool, fua: bool, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[1] = if fua { 0x08 } else { 0 };
    if let (Ok(lba), Ok(blocks)) = (u32::try_from(lba), u16::try_from(blocks)) {
        cdb[0] = if write { 0x2a } else { 0x28 };
        cdb[2..6].copy_from_slice(&lba.to_be_bytes());
        cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    } else {
        cdb[0] = if write { 0x8a } else { 0x88 };
        cdb[2..10].copy_from_slice(&lba.to_be_bytes());
        cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    }
    cdb
}

#[cfg(test)]
mod tests {
    use super::*;

    type Seen = Vec<(u8, u32, Vec<u8>)>;

    fn parse(chunks: &[&[u8]]) -> Result<Seen, SegmentTooLong> {
        let mut parser = Parser::new();
        let (mut seen, mut data) = (Seen::new(), Vec::new());
        for chunk in chunks {
            parser.feed(chunk, |header, event| {
                match event {
                    Event::Data { offset, bytes } => {
                        assert_eq!(offset as usize, data.len());
                        data.extend_from_slice(bytes);
                    }
                    Event::End => seen.push((header.opcode(), header.itt(), std::mem::take(&mut data))),
                }
                Ok::<(), SegmentTooLong>(())
            })?;
        }
        Ok(seen)
    }

    fn wire() -> Vec<u8> {
        let mut wire = Vec::new();
        let mut with_ahs = Header::new(opcode::NOP_IN, FINAL).with_data_len(5).with_itt(1);
        with_ahs.0[4] = 2;
        wire.extend_from_slice(&with_ahs.0);
        wire.extend_from_slice(&[0xee; 8]);
        wire.extend_from_slice(b"hello\0\0\0");
        wire.extend_from_slice(&Header::new(opcode::RESPONSE, FINAL).with_itt(2).0);
        wire.extend_from_slice(&Header::new(opcode::DATA_IN, FINAL).with_itt(3).with_data_len(8).0);
        wire.extend_from_slice(b"12345678");
        wire
    }

    #[test]
    fn a_stream_is_understood_however_it_is_cut() {
        let wire = wire();
        let whole = parse(&[&wire]).unwrap();
        assert_eq!(
            whole,
            [
                (opcode::NOP_IN, 1, b"hello".to_vec()),
                (opcode::RESPONSE, 2, vec![]),
                (opcode::DATA_IN, 3, b"12345678".to_vec())
            ]
        );
        for cut in 0..wire.len() {
            assert_eq!(parse(&[&wire[..cut], &wire[cut..]]).unwrap(), whole, "cut at {cut}");
        }
        assert_eq!(parse(&wire.chunks(1).collect::<Vec<_>>()).unwrap(), whole);
    }

    #[test]
    fn a_segment_beyond_what_was_negotiated_ends_the_stream() {
        let header = Header::new(opcode::DATA_IN, 0).with_data_len(MAX_SEGMENT_BYTES as usize + 1);
        assert_eq!(parse(&[&header.0]), Err(SegmentTooLong(MAX_SEGMENT_BYTES + 1)));
    }

    #[test]
    fn text_survives_the_round_trip() {
        let pairs = [("InitialR2T", "No".to_owned()), ("Empty", String::new())];
        let decoded = decode_text(&encode_text(&pairs));
        assert_eq!(decoded, [("InitialR2T".into(), "No".into()), ("Empty".into(), String::new())]);
        assert!(decode_text(b"no pair\0\xff=\xff\0").is_empty());
    }

    #[test]
    fn the_short_command_form_is_used_where_it_reaches() {
        assert_eq!(transfer_cdb(false, false, 0x0102_0304, 16)[..10], [0x28, 0, 1, 2, 3, 4, 0, 0, 16, 0]);
        assert_eq!(transfer_cdb(true, true, 1, 0xffff)[..2], [0x2a, 8]);
        let long = transfer_cdb(true, false, 1 << 32, 8);
        assert_eq!(
            (long[0], &long[2..10], &long[10..14]),
            (0x8a, &[0, 0, 0, 1, 0, 0, 0, 0][..], &[0, 0, 0, 8][..])
        );
        assert_eq!(transfer_cdb(false, false, 0, 0x1_0000)[0], 0x88);
    }

    #[test]
    fn lun_and_numbers_are_where_the_standard_puts_them() {
        let header = Header::new(opcode::COMMAND, FINAL).with_lun(1).with_itt(7).with_numbers(5, 6);
        assert_eq!(header.0[8..10], [0, 1]);
        assert_eq!(Header::new(opcode::COMMAND, 0).with_lun(300).0[8..10], [0x41, 0x2c]);
        assert_eq!((header.itt(), header.u32_at(24), header.u32_at(28)), (7, 5, 6));
    }
}
