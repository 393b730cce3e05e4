//! A running hash of all that happened.

use quoin_base::crc64;

/// Hashes what is fed to it, in order.
#[derive(Clone, Copy, Default)]
pub(crate) struct Trace(u64);

impl Trace {
    pub(crate) fn feed(&mut self, what: &'static str, numbers: &[u64]) {
        self.mix(crc64(what.as_bytes()).0);
        numbers.iter().for_each(|&n| self.mix(n));
    }

    pub(crate) fn hash(&self) -> u64 {
        self.0
    }

    fn mix(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
