//! What is written: each 512 bytes tell which write they are of and where they belong, so that a block that is lost,
//! stale, torn, misdirected or somebody else's is told from the right one.

use quoin_initiator::Rng;

/// The unit of writes and of what is compared: half of what the engine stores, so that neighbours meet in one block.
pub(crate) const BLOCK_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;

/// A write, counted from 1 over the whole trial. 0 stands for zeroes: never written, or zeroed.
pub(crate) type Write = u64;

/// Fills in what a write puts in a block.
pub(crate) fn stamp(write: Write, block: u64, data: &mut [u8]) {
    if write == 0 {
        return data.fill(0);
    }
    for (number, sector) in data.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        let address = block * (BLOCK_BYTES / SECTOR_BYTES) as u64 + number as u64;
        sector[..8].copy_from_slice(&write.to_le_bytes());
        sector[8..16].copy_from_slice(&address.to_le_bytes());
        Rng::new(write << 24 ^ address).fill(&mut sector[16..]);
    }
}

/// The write that a block is of; an error if it is not wholly of one, or of another block.
pub(crate) fn write_of(block: u64, data: &[u8]) -> Result<Write, String> {
    let number = |at: usize| u64::from_le_bytes(data[at..at + 8].try_into().expect("eight bytes"));
    let mut expected = vec![0; data.len()];
    stamp(number(0), block, &mut expected);
    if data == expected {
        return Ok(number(0));
    }
    let sectors = (0..data.len()).step_by(SECTOR_BYTES);
    let parts: Vec<String> =
        sectors.map(|at| format!("{}@{}", number(at), number(at + 8) * SECTOR_BYTES as u64)).collect();
    Err(format!("block {block} is not of one write; its sectors say WRITE@BYTE: {}", parts.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_of_one_write_and_of_its_place() {
        let (mut old, mut new) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
        assert_eq!(write_of(7, &old), Ok(0));
        stamp(3, 7, &mut old);
        stamp(4, 7, &mut new);
        assert_eq!((write_of(7, &old), write_of(7, &new)), (Ok(3), Ok(4)));
        assert!(write_of(8, &new).is_err(), "misdirected");
        let mut torn = new.clone();
        torn[3584..].copy_from_slice(&old[3584..]);
        assert!(write_of(7, &torn).unwrap_err().contains("3@32256"));
        new[2000] ^= 1;
        assert!(write_of(7, &new).is_err(), "a flipped bit");
        torn[512..].fill(0);
        assert!(write_of(7, &torn).is_err(), "zeroed in part");
    }
}
