//! Zero detection.

/// Bytes that are looked at before it is decided whether to go on.
const STEP_BYTES: usize = 512;

/// Whether all bytes are zero. A block that is not says so within its first bytes, as a rule.
pub fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(STEP_BYTES).all(|step| step.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_anywhere_is_found() {
        for len in [0, 1, 511, 512, 513, 8192] {
            let mut bytes = vec![0; len];
            assert!(is_zero(&bytes));
            for at in (0..len).step_by(37).chain(len.checked_sub(1)) {
                bytes[at] = 1 << (at % 8);
                assert!(!is_zero(&bytes), "byte {at} of {len}");
                bytes[at] = 0;
            }
        }
    }
}
