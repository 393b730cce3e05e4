//! The content of a written sector tells which write it came from and where it belongs.

use quoin_base::SECTOR_BYTES;
use quoin_world::{Buf, Slice};

const WORDS: usize = SECTOR_BYTES as usize / 8;
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// What a sector holds: the number of the write it came from, or 0 for zeroes.
pub(crate) type Value = u32;

fn seed_word(value: Value, volume: u32, sector: u64) -> u64 {
    (u64::from(value) << 32 | u64::from(volume)).wrapping_mul(MIX) ^ sector.rotate_left(17)
}

/// The content of `sectors` sectors from `first` on, as write `value` leaves them.
pub(crate) fn content(value: Value, volume: u32, first: u64, sectors: u32) -> Slice {
    let mut buf = Buf::zeroed(sectors as usize * SECTOR_BYTES as usize);
    if value != 0 {
        for (at, sector) in (first..).zip(buf.as_mut_slice().chunks_exact_mut(SECTOR_BYTES as usize)) {
            let mut word = seed_word(value, volume, at);
            for (i, chunk) in sector.chunks_exact_mut(8).enumerate() {
                let filled = if i == 0 { u64::from(value) << 32 | 0x51 } else { word };
                chunk.copy_from_slice(&filled.to_le_bytes());
                word = word.wrapping_add(MIX);
            }
        }
    }
    buf.into_slice()
}

/// Which write a sector's content is of; the reason if it is nothing that was ever written there.
///
/// `volume_of`: the volume that a write was to; forks carry its content elsewhere.
pub(crate) fn identify(
    bytes: &[u8],
    volume_of: impl Fn(Value) -> Option<u32>,
    sector: u64,
) -> Result<Value, String> {
    debug_assert_eq!(bytes.len(), SECTOR_BYTES as usize);
    let word = |i: usize| {
        let mut raw = [0; 8];
        raw.copy_from_slice(&bytes[8 * i..8 * i + 8]);
        u64::from_le_bytes(raw)
    };
    let head = word(0);
    if head == 0 && bytes.iter().fold(0, |all, byte| all | byte) == 0 {
        return Ok(0);
    }
    let value = (head >> 32) as Value;
    let volume = volume_of(value).ok_or_else(|| format!("content of no write: its head is {head:#x}"))?;
    let mut expected = seed_word(value, volume, sector);
    for i in 1..WORDS {
        expected = expected.wrapping_add(MIX);
        if word(i) != expected {
            return Err(format!(
                "content that belongs elsewhere or was damaged: word {i} does not fit to the head {head:#x}"
            ));
        }
    }
    match head as u32 {
        0x51 => Ok(value),
        _ => Err(format!("a damaged head: {head:#x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_tells_its_write_and_anything_else_is_noticed() {
        let data = content(7, 3, 100, 2);
        assert_eq!(identify(&data[..512], |_| Some(3), 100), Ok(7));
        assert_eq!(identify(&data[512..], |_| Some(3), 101), Ok(7));
        assert!(identify(&data[512..], |_| Some(3), 100).is_err());
        assert!(identify(&data[..512], |_| Some(4), 100).is_err());
        assert_eq!(identify(&[0; 512], |_| None, 1), Ok(0));
        let mut damaged = data[..512].to_vec();
        for at in [0, 5, 9, 511] {
            damaged[at] ^= 1;
            assert!(identify(&damaged, |_| Some(3), 100).is_err(), "{at}");
            damaged[at] ^= 1;
        }
    }
}
