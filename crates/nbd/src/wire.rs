//! The messages of the NBD protocol, byte for byte, by the names its document gives them.

use thiserror::Error;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U16, U32, U64},
};

/// `NBDMAGIC`, the server's first eight bytes.
pub const NBD_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// `IHAVEOPT`, before every option, and the server's second eight bytes.
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Before every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_E889_0455_65A9;
/// Before every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Before every simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Before every chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668E_33EF;

/// Zeroes that end the answer to `NBD_OPT_EXPORT_NAME` unless the client said it does not want them.
pub const EXPORT_NAME_PADDING_BYTES: usize = 124;

/// Flags of the handshake; client and server use the same bits.
#[allow(missing_docs, reason = "the protocol's names")]
pub mod handshake_flag {
    pub const FIXED_NEWSTYLE: u16 = 1;
    pub const NO_ZEROES: u16 = 2;
}

/// Options.
#[allow(missing_docs, reason = "the protocol's names")]
pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options.
#[allow(missing_docs, reason = "the protocol's names")]
pub mod reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    pub const ERR_UNSUP: u32 = 0x8000_0001;
    pub const ERR_POLICY: u32 = 0x8000_0002;
    pub const ERR_INVALID: u32 = 0x8000_0003;
    pub const ERR_TLS_REQD: u32 = 0x8000_0005;
    pub const ERR_UNKNOWN: u32 = 0x8000_0006;
    pub const ERR_TOO_BIG: u32 = 0x8000_0009;
}

/// Kinds of information about an export.
#[allow(missing_docs, reason = "the protocol's names")]
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: what an export can do.
#[allow(missing_docs, reason = "the protocol's names")]
pub mod transmission_flag {
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Types of requests.
#[allow(missing_docs, reason = "the protocol's names")]
pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of requests.
#[allow(missing_docs, reason = "the protocol's names")]
pub mod command_flag {
    pub const FUA: u16 = 1 << 0;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Types of chunks in structured replies.
#[allow(missing_docs, reason = "the protocol's names")]
pub mod chunk {
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    pub const ERROR: u16 = 0x8001;
    pub const ERROR_OFFSET: u16 = 0x8002;
}

/// The flag of the last chunk of a structured reply.
pub const REPLY_FLAG_DONE: u16 = 1;

/// Flags of extents in the context `base:allocation`.
#[allow(missing_docs, reason = "the protocol's names")]
pub mod state {
    pub const HOLE: u32 = 1;
    pub const ZERO: u32 = 2;
}

/// Errors in replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[allow(missing_docs, reason = "the protocol's names")]
pub enum Errno {
    Perm = 1,
    Io = 5,
    Inval = 22,
    NoSpc = 28,
    Overflow = 75,
    Shutdown = 108,
}

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident $bytes:literal { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        #[allow(missing_docs, reason = "the protocol's names")]
        pub struct $name { $(pub $field: $type,)* }

        const _: () = assert!(size_of::<$name>() == $bytes);

        impl $name {
            /// Its length on the wire.
            pub const BYTES: usize = $bytes;
        }
    )*};
}

messages! {
    /// The server's first message.
    Greeting 18 { magic: U64, option_magic: U64, flags: U16, }
    /// Before an option's data.
    OptionHeader 16 { magic: U64, option: U32, data_bytes: U32, }
    /// Before the data of a reply to an option.
    OptionReply 20 { magic: U64, option: U32, kind: U32, data_bytes: U32, }
    /// The answer to `NBD_OPT_EXPORT_NAME`, without padding.
    ExportNameReply 10 { size_bytes: U64, flags: U16, }
    /// `NBD_INFO_EXPORT`.
    InfoExport 12 { kind: U16, size_bytes: U64, flags: U16, }
    /// `NBD_INFO_BLOCK_SIZE`.
    InfoBlockSize 14 { kind: U16, minimum: U32, preferred: U32, maximum: U32, }
    /// A request, without payload.
    Request 28 { magic: U32, flags: U16, kind: U16, cookie: U64, offset: U64, len_bytes: U32, }
    /// A simple reply, without payload.
    SimpleReply 16 { magic: U32, error: U32, cookie: U64, }
    /// A chunk of a structured reply, without payload.
    Chunk 20 { magic: U32, flags: U16, kind: U16, cookie: U64, payload_bytes: U32, }
    /// The payload of a chunk that says that a range reads as zeroes.
    OffsetHole 12 { offset: U64, len_bytes: U32, }
    /// The payload of an error chunk, before its message.
    ErrorPayload 6 { error: U32, message_bytes: U16, }
    /// An extent of a block status.
    BlockDescriptor 8 { len_bytes: U32, flags: U32, }
}

/// Bytes where a message was expected to begin.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("{what} does not begin with its magic but with {found:#x}")]
pub struct BadMagic {
    /// The message expected.
    pub what: &'static str,
    /// What was there.
    pub found: u64,
}

impl OptionHeader {
    /// The header at the beginning of `bytes`; `None` when there are too few.
    ///
    /// # Errors
    /// The magic is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, BadMagic> {
        let Ok((header, _)) = Self::read_from_prefix(bytes) else { return Ok(None) };
        match header.magic.get() {
            OPTION_MAGIC => Ok(Some(header)),
            found => Err(BadMagic { what: "an option", found }),
        }
    }
}

impl Request {
    /// The request at the beginning of `bytes`; `None` when there are too few.
    ///
    /// # Errors
    /// The magic is wrong.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, BadMagic> {
        let Ok((request, _)) = Self::read_from_prefix(bytes) else { return Ok(None) };
        match request.magic.get() {
            REQUEST_MAGIC => Ok(Some(request)),
            found => Err(BadMagic { what: "a request", found: found.into() }),
        }
    }

    /// Bytes of payload that follow it.
    #[inline]
    pub fn payload_bytes(&self) -> u32 {
        if self.kind.get() == command::WRITE { self.len_bytes.get() } else { 0 }
    }
}
