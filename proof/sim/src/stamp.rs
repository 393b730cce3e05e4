//! The content of a written sector tells which write it came from and where it was written to.

use quoin_base::SECTOR_BYTES;
use quoin_world::{Buf, Slice};

const WORDS: usize = SECTOR_BYTES as usize / 8;
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
/// Of a linear congruential generator.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const MARK: u64 = 0x51;

/// What a sector holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, PartialOrd, Ord)]
pub struct Value {
    /// The number of the write it came from, or 0 for zeroes.
    pub(crate) write: u32,
    /// By how many sectors it was moved since: what range copies bring to other addresses still tells where it was
    /// written.
    pub(crate) moved: i64,
}

impl Value {
    pub(crate) const ZEROES: Value = Value { write: 0, moved: 0 };

    pub(crate) fn of(write: u32) -> Self {
        Self { write, moved: 0 }
    }

    /// The same so many sectors further on.
    pub(crate) fn moved_by(self, sectors: i64) -> Self {
        if self.is_zeroes() { self } else { Self { moved: self.moved + sectors, ..self } }
    }

    pub(crate) fn is_zeroes(&self) -> bool {
        self.write == 0
    }
}

fn seed_word(write: u32, volume: u32, sector: u64) -> u64 {
    (u64::from(write) << 32 | u64::from(volume)).wrapping_mul(MIX) ^ sector.rotate_left(17)
}

/// The word that follows one. What some writes bring compresses well, what others bring not at all, and in blocks that several wrote
/// the one lies beside the other.
fn next(write: u32, word: u64) -> u64 {
    if write.is_multiple_of(3) { word.wrapping_mul(MULTIPLIER).wrapping_add(MIX) } else { word }
}

/// The content of `sectors` sectors from `first` on, as the write of `value` leaves them where it writes them.
pub fn content(value: Value, volume: u32, first: u64, sectors: u32) -> Slice {
    let mut buf = Buf::zeroed(sectors as usize * SECTOR_BYTES as usize);
    if !value.is_zeroes() {
        for (at, sector) in (first..).zip(buf.as_mut_slice().chunks_exact_mut(SECTOR_BYTES as usize)) {
            let mut word = seed_word(value.write, volume, at);
            for (i, chunk) in sector.chunks_exact_mut(8).enumerate() {
                let filled = match i {
                    0 => u64::from(value.write) << 32 | MARK,
                    1 => at,
                    _ => word,
                };
                chunk.copy_from_slice(&filled.to_le_bytes());
                word = next(value.write, word);
            }
        }
    }
    buf.into_slice()
}

/// What the sector at `sector` holds; the reason if it is nothing that was ever written.
///
/// `volume_of`: the volume that a write was to; forks and copies carry its content elsewhere.
pub(crate) fn identify(
    bytes: &[u8],
    volume_of: impl Fn(u32) -> Option<u32>,
    sector: u64,
) -> Result<Value, String> {
    debug_assert_eq!(bytes.len(), SECTOR_BYTES as usize);
    let word = |i: usize| {
        let mut raw = [0; 8];
        raw.copy_from_slice(&bytes[8 * i..8 * i + 8]);
        u64::from_le_bytes(raw)
    };
    let (head, home) = (word(0), word(1));
    if head == 0 && bytes.iter().fold(0, |all, byte| all | byte) == 0 {
        return Ok(Value::ZEROES);
    }
    let write = (head >> 32) as u32;
    let volume = volume_of(write).ok_or_else(|| format!("content of no write: its head is {head:#x}"))?;
    let mut expected = next(write, seed_word(write, volume, home));
    for i in 2..WORDS {
        expected = next(write, expected);
        if word(i) != expected {
            return Err(format!("damaged content: word {i} does not fit to the head {head:#x} {home:#x}"));
        }
    }
    match head & u64::from(u32::MAX) {
        MARK => Ok(Value { write, moved: sector.wrapping_sub(home) as i64 }),
        _ => Err(format!("a damaged head: {head:#x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_tells_its_write_and_its_home_and_anything_else_is_noticed() {
        // The first compresses.
        for value in [7, 9].map(Value::of) {
            let data = content(value, 3, 100, 2);
            assert_eq!(identify(&data[..512], |_| Some(3), 100), Ok(value));
            assert_eq!(identify(&data[512..], |_| Some(3), 101), Ok(value));
            assert_eq!(identify(&data[512..], |_| Some(3), 100), Ok(value.moved_by(-1)));
            assert!(identify(&data[..512], |_| Some(4), 100).is_err());
            assert_eq!(identify(&[0; 512], |_| None, 1), Ok(Value::ZEROES));
            let mut damaged = data[..512].to_vec();
            for at in [0, 5, 9, 511] {
                damaged[at] ^= 1;
                assert!(identify(&damaged, |_| Some(3), 100).is_err(), "{at}");
                damaged[at] ^= 1;
            }
        }
    }
}
