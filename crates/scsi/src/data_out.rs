//! Data that an initiator sent with a command, in slices as it came.

use quoin_world::Slice;

/// Returns how many bytes the slices have together.
pub(crate) fn total(data: &[Slice]) -> u64 {
    data.iter().map(|slice| slice.len() as u64).sum()
}

/// Copies the slices into one.
pub(crate) fn concat(data: &[Slice]) -> Vec<u8> {
    data.iter().flat_map(|slice| slice.iter().copied()).collect()
}

/// Cuts data to its first `len` bytes.
pub(crate) fn truncate(data: &mut Vec<Slice>, mut len: u64) {
    data.retain_mut(|slice| {
        let keep = len.min(slice.len() as u64);
        len -= keep;
        if keep < slice.len() as u64 {
            *slice = slice.slice(..keep as usize);
        }
        keep > 0
    });
    assert!(len == 0, "SCSI data-out: {len} bytes more were to be kept than there are");
}
