//! The data of options.

use thiserror::Error;

/// The longest name of an export or query that the protocol allows.
pub const MAX_STRING_BYTES: usize = 4096;

/// What is wrong with an option's data.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum BadOption {
    /// Its parts are longer than it.
    #[error("its data ends before its parts do")]
    Short,
    /// It is longer than its parts.
    #[error("its data goes on after its last part")]
    Long,
    /// A string of more than 4096 bytes.
    #[error("a string is longer than 4096 bytes")]
    LongString,
    /// A string that is not UTF-8.
    #[error("a string is not UTF-8")]
    NotUtf8,
}

/// The data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
#[derive(Debug, PartialEq, Eq)]
pub struct InfoRequest<'a> {
    /// The export.
    pub name: &'a str,
    /// Kinds of information asked for.
    pub kinds: Vec<u16>,
}

/// The data of `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`.
#[derive(Debug, PartialEq, Eq)]
pub struct ContextRequest<'a> {
    /// The export.
    pub name: &'a str,
    /// Queries, each a context or a namespace.
    pub queries: Vec<&'a str>,
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], BadOption> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(BadOption::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, BadOption> {
        Ok(self.take(2)?.iter().fold(0, |n, &byte| n << 8 | u16::from(byte)))
    }

    fn u32(&mut self) -> Result<u32, BadOption> {
        Ok(self.take(4)?.iter().fold(0, |n, &byte| n << 8 | u32::from(byte)))
    }

    fn string(&mut self) -> Result<&'a str, BadOption> {
        let len = self.u32()? as usize;
        if len > self.0.len() {
            return Err(BadOption::Short);
        }
        string(self.take(len)?)
    }

    fn end(&self) -> Result<(), BadOption> {
        if self.0.is_empty() { Ok(()) } else { Err(BadOption::Long) }
    }
}

/// A string of the protocol.
///
/// # Errors
/// It is too long or not UTF-8.
pub fn string(bytes: &[u8]) -> Result<&str, BadOption> {
    if bytes.len() > MAX_STRING_BYTES {
        return Err(BadOption::LongString);
    }
    std::str::from_utf8(bytes).map_err(|_| BadOption::NotUtf8)
}

impl<'a> InfoRequest<'a> {
    /// Parses an option's data, all of it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(data: &'a [u8]) -> Result<Self, BadOption> {
        let mut reader = Reader(data);
        let name = reader.string()?;
        let count = reader.u16()?;
        let kinds = (0..count).map(|_| reader.u16()).collect::<Result<_, _>>()?;
        reader.end()?;
        Ok(Self { name, kinds })
    }
}

impl<'a> ContextRequest<'a> {
    /// Parses an option's data, all of it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(data: &'a [u8]) -> Result<Self, BadOption> {
        let mut reader = Reader(data);
        let name = reader.string()?;
        let count = reader.u32()?;
        let mut queries = Vec::new();
        for _ in 0..count {
            queries.push(reader.string()?);
        }
        reader.end()?;
        Ok(Self { name, queries })
    }
}
