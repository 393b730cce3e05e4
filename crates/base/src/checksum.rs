//! The two checksums of the on-disk format: CRC-32C for data, CRC-64/NVME for metadata pages.

use crc_fast::CrcAlgorithm;

/// CRC-32C (Castagnoli) of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct Crc32c(pub u32);

/// CRC-64/NVME of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct Crc64(pub u64);

/// CRC-32C as in RFC 7143 §13.1 and SCSI: reflected, initial value and final XOR all ones.
pub fn crc32c(bytes: &[u8]) -> Crc32c {
    Crc32c(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32)
}

/// CRC-64/NVME as in the NVM command set specification's 64b guard protection information.
pub fn crc64(bytes: &[u8]) -> Crc64 {
    Crc64(crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values_of_the_catalogue() {
        assert_eq!(crc32c(b"123456789"), Crc32c(0xE306_9283));
        assert_eq!(crc64(b"123456789"), Crc64(0xAE8B_1486_0A79_9888));
    }
}
