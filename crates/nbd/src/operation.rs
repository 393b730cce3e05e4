//! What a request asks for, checked against what was agreed and what the volume is.

use crate::{
    handshake::MAX_PAYLOAD_BYTES,
    wire::{Errno, Request, command, command_flag as flag},
};
use quoin_base::ByteRange;
use quoin_qos::Cost;
use quoin_volume::DeviceError;

/// A request, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// `NBD_CMD_READ`.
    Read {
        /// What to read.
        range: ByteRange,
        /// The content must come in one chunk.
        whole: bool,
    },
    /// `NBD_CMD_WRITE`.
    Write(ByteRange),
    /// `NBD_CMD_DISC`.
    Disconnect,
    /// `NBD_CMD_FLUSH`.
    Flush,
    /// `NBD_CMD_TRIM`.
    Trim(ByteRange),
    /// `NBD_CMD_CACHE`.
    Cache(ByteRange),
    /// `NBD_CMD_WRITE_ZEROES`.
    WriteZeroes(ByteRange),
    /// `NBD_CMD_BLOCK_STATUS`.
    BlockStatus {
        /// The range asked about.
        range: ByteRange,
        /// One extent is enough.
        one: bool,
    },
}

/// What a request is checked against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The volume's size now.
    pub size_bytes: u64,
    /// Its logical block.
    pub block_bytes: u32,
    /// The client may only read.
    pub read_only: bool,
    /// Replies are structured.
    pub structured: bool,
    /// Block status may be asked for.
    pub allocation: bool,
    /// The client agreed to send aligned requests only.
    pub constrained: bool,
}

/// Why a request fails: what the client is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The protocol's code.
    pub errno: Errno,
    /// In words; sent to clients that negotiated structured replies.
    pub message: String,
    /// Where, if it is one place of the range.
    pub offset: Option<u64>,
}

impl Failure {
    pub(crate) fn new(errno: Errno, message: impl Into<String>) -> Self {
        Self { errno, message: message.into(), offset: None }
    }

    pub(crate) fn read_only() -> Self {
        Self::new(Errno::Perm, "the export is read-only")
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        let (errno, offset) = match &error {
            DeviceError::OutOfRange { .. } => (Errno::Inval, None),
            DeviceError::NoSpace { .. } => (Errno::NoSpc, None),
            DeviceError::Stopped { .. } => (Errno::Io, None),
            DeviceError::ReadOnly { .. } => (Errno::Perm, None),
            DeviceError::Medium { offset, .. } => (Errno::Io, Some(*offset)),
            DeviceError::Offline { .. } => (Errno::Io, None),
            DeviceError::Deleted { .. } | DeviceError::Replaced { .. } => (Errno::Shutdown, None),
        };
        Self { errno, message: error.to_string(), offset }
    }
}

impl Operation {
    /// What `request` asks for.
    ///
    /// # Errors
    /// What to answer instead.
    pub fn of(request: &Request, terms: &Terms) -> Result<Self, Failure> {
        let kind = request.kind.get();
        let range = ByteRange::new(request.offset.get(), request.len_bytes.get().into());
        let invalid = |message: String| Err(Failure::new(Errno::Inval, message));
        let flags = request.flags.get();
        let allowed = allowed_flags(kind, terms);
        if flags & !allowed != 0 {
            return invalid(format!("flags {flags:#x} are not allowed in a request of type {kind}"));
        }
        match kind {
            command::DISC => return Ok(Self::Disconnect),
            command::FLUSH => return Ok(Self::Flush),
            command::WRITE | command::TRIM | command::WRITE_ZEROES if terms.read_only => {
                return Err(Failure::read_only());
            }
            command::READ | command::WRITE if range.len > MAX_PAYLOAD_BYTES.into() => {
                return invalid(format!("{} bytes are more than the {MAX_PAYLOAD_BYTES} allowed", range.len));
            }
            command::BLOCK_STATUS if !terms.allocation => {
                return invalid("no metadata context was negotiated".to_owned());
            }
            command::BLOCK_STATUS if range.is_empty() => {
                return invalid("the status of nothing was asked for".to_owned());
            }
            _ => {}
        }
        // The range must lie within the volume, which may have changed its size since it was shown.
        let end = range.offset.checked_add(range.len);
        if end.is_none_or(|end| end > terms.size_bytes) {
            let ByteRange { offset, len } = range;
            let errno = match kind {
                command::WRITE | command::WRITE_ZEROES => Errno::NoSpc,
                _ => Errno::Inval,
            };
            let message = format!("range {offset}+{len} is outside the {} bytes there are", terms.size_bytes);
            return Err(Failure::new(errno, message));
        }
        // A client that agreed to the block size keeps to it; others may ask for any bytes.
        if terms.constrained && !range.is_aligned(terms.block_bytes.into()) {
            let ByteRange { offset, len } = range;
            let block = terms.block_bytes;
            return invalid(format!(
                "range {offset}+{len} is not made of blocks of {block} bytes, as agreed"
            ));
        }
        Ok(match kind {
            command::READ => Self::Read { range, whole: flags & flag::DF != 0 },
            command::WRITE => Self::Write(range),
            command::TRIM => Self::Trim(range),
            command::CACHE => Self::Cache(range),
            command::WRITE_ZEROES => Self::WriteZeroes(range),
            command::BLOCK_STATUS => Self::BlockStatus { range, one: flags & flag::REQ_ONE != 0 },
            _ => return invalid(format!("a request of type {kind} is not known")),
        })
    }

    /// Whether it changes what the volume holds.
    pub(crate) fn changes(&self) -> bool {
        matches!(self, Self::Write(_) | Self::Trim(_) | Self::WriteZeroes(_))
    }

    /// What it takes of the limits of a volume; `None` if it takes nothing.
    pub(crate) fn limited_cost(&self) -> Option<Cost> {
        match self {
            Self::Read { range, .. } | Self::Write(range) => Some(Cost::of_bytes(range.len)),
            Self::Trim(_) | Self::WriteZeroes(_) | Self::Cache(_) => Some(Cost::of_bytes(0)),
            Self::Disconnect | Self::Flush | Self::BlockStatus { .. } => None,
        }
    }

    /// Bytes it holds in memory, from the moment it is taken to the moment its reply is queued.
    pub(crate) fn cost_bytes(&self) -> u64 {
        match self {
            Self::Read { range, .. } | Self::Write(range) => range.len,
            Self::Cache(range) => range.len.min(quoin_base::MIB),
            _ => 0,
        }
    }
}

/// Returns the flags that a request of this kind may have: FUA always, since every write is hardened.
fn allowed_flags(kind: u16, terms: &Terms) -> u16 {
    let own = match kind {
        command::READ if terms.structured => flag::DF,
        command::WRITE_ZEROES => flag::NO_HOLE | flag::FAST_ZERO,
        command::BLOCK_STATUS => flag::REQ_ONE,
        _ => 0,
    };
    flag::FUA | own
}
