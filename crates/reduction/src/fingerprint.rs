//! Fingerprints: blocks that have the same one are taken for equal, without a look at their bytes.
//!
//! 1. A fingerprint is the first 128 bits of BLAKE3 under a key. Among 2^40 blocks (8 PiB of 8 KiB) any two that differ have the
//!    same one with a probability of about 2^-49: far less than that a drive returns wrong data unnoticed.
//! 2. The key is secret and of one pool. Who does not know it cannot make blocks that collide, or that crowd an index.

use std::fmt;

/// What stands for the content of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u128);

/// What fingerprints of a pool are made with.
#[derive(Clone)]
pub struct FingerprintKey([u8; blake3::KEY_LEN]);

impl FingerprintKey {
    /// A key of these bytes, which are to be random and secret.
    pub fn new(bytes: [u8; blake3::KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// The fingerprint of a block.
    pub fn fingerprint(&self, block: &[u8]) -> Fingerprint {
        let hash = blake3::keyed_hash(&self.0, block);
        let mut first = [0; 16];
        first.copy_from_slice(&hash.as_bytes()[..16]);
        Fingerprint(u128::from_le_bytes(first))
    }
}

/// The key stays secret.
impl fmt::Debug for FingerprintKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FingerprintKey")
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the test vectors that BLAKE3 is published with: keyed, of no bytes and of 1024 bytes that count up modulo 251.
    #[test]
    fn fingerprints_are_the_first_half_of_keyed_blake3() {
        let key = FingerprintKey::new(*b"whats the Elvish word for friend");
        let input: Vec<u8> = (0..1024u32).map(|at| (at % 251) as u8).collect();
        let first = |hex: &str| Fingerprint(u128::from_str_radix(hex, 16).unwrap().swap_bytes());
        assert_eq!(key.fingerprint(&[]), first("92b2b75604ed3c761f9d6f62392c8a92"));
        assert_eq!(key.fingerprint(&input), first("75c46f6f3d9eb4f55ecaaee480db732e"));
    }

    #[test]
    fn another_key_gives_other_fingerprints_and_is_not_shown() {
        let [one, other] = [1, 2].map(|byte| FingerprintKey::new([byte; 32]));
        assert_ne!(one.fingerprint(b"block"), other.fingerprint(b"block"));
        assert_eq!(format!("{one:?}"), "FingerprintKey");
    }
}
