//! How what hosts write is compressed, as users choose it.

use std::{fmt, str::FromStr};

/// How the blocks of a volume are compressed before they go to drives. What does not get shorter is stored as it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
#[repr(u8)]
pub enum Compression {
    /// Not at all.
    #[default]
    Off = 0,
    /// By LZ4: the least work, when written and when read.
    Lz4 = 1,
    /// By LZ4 when it is written, and by Zstandard when it is written again in the background: the least space.
    Zstd = 2,
}

impl Compression {
    /// All of them, the least work first.
    pub const ALL: [Self; 3] = [Self::Off, Self::Lz4, Self::Zstd];

    /// The one of this number.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|compression| *compression as u8 == byte)
    }

    /// Its name, as users say it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no compression.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no compression: say off, lz4 or zstd")]
pub struct NoCompression(pub String);

impl FromStr for Compression {
    type Err = NoCompression;

    fn from_str(text: &str) -> Result<Self, NoCompression> {
        let named = Self::ALL.into_iter().find(|compression| compression.name() == text);
        named.ok_or_else(|| NoCompression(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_read_as_it_is_written() {
        for compression in Compression::ALL {
            assert_eq!(compression.to_string().parse(), Ok(compression));
            assert_eq!(Compression::from_byte(compression as u8), Some(compression));
        }
        assert_eq!(Compression::from_byte(3), None);
        assert_eq!("gzip".parse::<Compression>(), Err(NoCompression("gzip".into())));
    }
}
