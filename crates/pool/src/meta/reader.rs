//! Reading what was encoded, never trusting it.

use crate::{
    error::PoolError,
    format::{LAYERS_END, MAX_BLOCKS},
    meta::ObjectKind,
};
use quoin_base::{Compression, KIB, LayerId};

/// All that a thin map can lead to.
const MOST_RESERVED_BYTES: u64 = MAX_BLOCKS * 8 * KIB;

/// What is left of an encoding.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { bytes, what }
    }

    /// Refuses what nobody reads.
    pub(crate) fn end(&self) -> Result<(), PoolError> {
        match self.bytes.len() {
            0 => Ok(()),
            rest => Err(self.damaged(&format!("{rest} bytes too many"))),
        }
    }

    /// A layer; none is refused.
    pub(crate) fn layer(&mut self) -> Result<LayerId, PoolError> {
        match self.u32()? {
            id @ 1..LAYERS_END => Ok(LayerId(id)),
            id => Err(self.damaged(&format!("layer {id} is impossible"))),
        }
    }

    pub(crate) fn reservation(&mut self) -> Result<u64, PoolError> {
        match self.u64()? {
            bytes if bytes > MOST_RESERVED_BYTES => {
                Err(self.damaged("more is reserved than a volume can hold"))
            }
            bytes => Ok(bytes),
        }
    }

    pub(crate) fn compression(&mut self) -> Result<Compression, PoolError> {
        let byte = self.u8()?;
        Compression::from_byte(byte).ok_or_else(|| self.damaged(&format!("compression {byte} is unknown")))
    }

    /// A byte that is 0 or 1.
    pub(crate) fn is(&mut self) -> Result<bool, PoolError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.damaged(&format!("{other} is neither 0 nor 1"))),
        }
    }

    pub(crate) fn damaged(&self, problem: &str) -> PoolError {
        PoolError::corrupt(self.what, problem)
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], PoolError> {
        if len > self.bytes.len() {
            return Err(self.damaged("it ends too early"));
        }
        let (head, tail) = self.bytes.split_at(len);
        self.bytes = tail;
        Ok(head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, PoolError> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, PoolError> {
        let b = self.take(2)?;
        Ok(u16::from_le_bytes([b[0], b[1]]))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, PoolError> {
        let b = self.take(4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, PoolError> {
        Ok(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }

    pub(crate) fn value(&mut self) -> Result<Vec<u8>, PoolError> {
        let len = self.u32()? as usize;
        Ok(self.take(len)?.to_vec())
    }

    pub(crate) fn key(&mut self) -> Result<(ObjectKind, String), PoolError> {
        let kind = ObjectKind(self.u16()?);
        let len = usize::from(self.u16()?);
        let key = String::from_utf8(self.take(len)?.to_vec());
        key.map(|key| (kind, key)).map_err(|_| self.damaged("a key is not text"))
    }
}
