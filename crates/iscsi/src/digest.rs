//! Header and data digests (RFC 7143 §13.1).

use crc_fast::{CrcAlgorithm, Digest};

/// CRC32C over parts that follow each other, as it goes on the wire.
pub(crate) fn crc32c<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 4] {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    parts.into_iter().for_each(|part| digest.update(part));
    (digest.finalize() as u32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    /// The examples of RFC 3720 §B.4.
    #[test]
    fn rfc_examples() {
        assert_eq!(crc32c([&[0; 16][..], &[0; 16][..]]), [0xAA, 0x36, 0x91, 0x8A]);
        assert_eq!(crc32c([&[0xFF; 32][..]]), [0x43, 0xAB, 0xA8, 0x62]);
    }
}
