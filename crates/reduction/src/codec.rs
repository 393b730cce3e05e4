//! Compression of one block at a time: any block can be read alone.

use std::{fmt, io, str::FromStr};
use thiserror::Error;
use zstd::zstd_safe::{CParameter, DParameter, FrameFormat};

/// How content is compressed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Codec {
    /// LZ4 block format: the fastest to read.
    Lz4,
    /// Zstandard, at a level: shorter, and slower both ways.
    Zstd(i8),
}

impl Codec {
    /// Levels of Zstandard that are offered. Beyond them a block gets hardly shorter.
    pub const ZSTD_LEVELS: std::ops::RangeInclusive<i8> = -7..=19;
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lz4 => f.write_str("lz4"),
            Self::Zstd(level) => write!(f, "zstd-{level}"),
        }
    }
}

/// A text that names no codec.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "{0:?} is no codec: say lz4, zstd (level 1), or zstd-LEVEL with a level from -7 to 19 other than 0, such as zstd-3"
)]
pub struct NoCodec(pub String);

impl FromStr for Codec {
    type Err = NoCodec;

    fn from_str(text: &str) -> Result<Self, NoCodec> {
        let level = match text {
            "lz4" => return Ok(Self::Lz4),
            "zstd" => Some(1),
            _ => text.strip_prefix("zstd-").and_then(|level| level.parse().ok()),
        };
        // Zstandard takes level 0 for its default, which has a number of its own.
        let level = level.filter(|level| *level != 0 && Self::ZSTD_LEVELS.contains(level));
        level.map(Self::Zstd).ok_or_else(|| NoCodec(text.to_owned()))
    }
}

/// The most that a block of so many bytes may be compressed to for it to be worth storing so: a sixteenth less. To save less than
/// that would not pay for decompressing it with each read.
pub fn most_compressed(block_bytes: usize) -> usize {
    block_bytes - block_bytes.div_ceil(16)
}

/// Compresses blocks one after the other. Keeps what codecs need for that, so it belongs to one thread.
#[derive(Default)]
pub struct Compressor {
    /// The level that it is set to, too.
    zstd: Option<(i8, zstd::bulk::Compressor<'static>)>,
}

impl Compressor {
    /// One that has compressed nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has `out` hold the block compressed. False, and `out` is as it may be: it is better stored as it is (see [`most_compressed`]).
    pub fn compress(&mut self, codec: Codec, block: &[u8], out: &mut Vec<u8>) -> bool {
        // Codecs give up early if it does not fit.
        out.resize(most_compressed(block.len()), 0);
        let len = match codec {
            // An error is no room.
            Codec::Lz4 => lzzzz::lz4::compress(block, out, lzzzz::lz4::ACC_LEVEL_DEFAULT).unwrap_or(0),
            Codec::Zstd(level) => self
                .zstd(level)
                .and_then(|zstd| zstd.compress_to_buffer(block, out.as_mut_slice()))
                .unwrap_or(0),
        };
        out.truncate(len);
        len > 0
    }

    fn zstd(&mut self, level: i8) -> io::Result<&mut zstd::bulk::Compressor<'static>> {
        match &mut self.zstd {
            Some((of, _)) if *of == level => {}
            Some((of, zstd)) => {
                zstd.set_compression_level(level.into())?;
                *of = level;
            }
            None => {
                let mut zstd = zstd::bulk::Compressor::new(level.into())?;
                // The length is known by where the block is stored, and its checksum is kept there.
                zstd.include_contentsize(false)?;
                zstd.include_checksum(false)?;
                zstd.set_parameter(CParameter::Format(FrameFormat::Magicless))?;
                self.zstd = Some((level, zstd));
            }
        }
        let (_, zstd) = self.zstd.as_mut().ok_or_else(|| io::Error::other("no compressor"))?;
        Ok(zstd)
    }
}

/// Stored bytes are not what a block was compressed to.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{stored_bytes} bytes of {codec} do not decompress to {block_bytes}, or not to what they were")]
pub struct NotDecompressed {
    codec: Codec,
    stored_bytes: usize,
    block_bytes: usize,
}

impl NotDecompressed {
    pub(crate) fn new(codec: Codec, stored_bytes: usize, block_bytes: usize) -> Self {
        Self { codec, stored_bytes, block_bytes }
    }
}

/// Decompresses blocks one after the other. Belongs to one thread.
#[derive(Default)]
pub struct Decompressor {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Decompressor {
    /// One that has decompressed nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fills `block` with what was compressed to `stored`.
    ///
    /// # Errors
    /// If these bytes do not decompress to just as many. Wrong bytes may also decompress to other content: checksums tell.
    pub fn decompress(
        &mut self,
        codec: Codec,
        stored: &[u8],
        block: &mut [u8],
    ) -> Result<(), NotDecompressed> {
        let len = match codec {
            Codec::Lz4 => lzzzz::lz4::decompress(stored, block).ok(),
            Codec::Zstd(_) => self.zstd().and_then(|zstd| zstd.decompress_to_buffer(stored, block)).ok(),
        };
        match len {
            Some(len) if len == block.len() => Ok(()),
            _ => Err(NotDecompressed::new(codec, stored.len(), block.len())),
        }
    }

    fn zstd(&mut self) -> io::Result<&mut zstd::bulk::Decompressor<'static>> {
        if self.zstd.is_none() {
            let mut zstd = zstd::bulk::Decompressor::new()?;
            zstd.set_parameter(DParameter::Format(FrameFormat::Magicless))?;
            self.zstd = Some(zstd);
        }
        self.zstd.as_mut().ok_or_else(|| io::Error::other("no decompressor"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_codec_is_read_as_it_is_written() {
        let levels = Codec::ZSTD_LEVELS.filter(|level| *level != 0).map(Codec::Zstd);
        for codec in levels.chain([Codec::Lz4]) {
            assert_eq!(codec.to_string().parse(), Ok(codec));
        }
        assert_eq!("zstd".parse(), Ok(Codec::Zstd(1)));
        for bad in ["", "gzip", "zstd-0", "zstd-20", "zstd--8", "zstd-", "lz4-1", "LZ4"] {
            assert_eq!(bad.parse::<Codec>(), Err(NoCodec(bad.into())));
        }
    }
}
