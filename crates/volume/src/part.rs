//! Writes that read what they change: of any bytes of a volume, and of what depends on what is there.
//!
//! The pool writes whole sectors. The parts of its first and last sector that a write does not cover are read and
//! written back with it. Another write to those sectors in between would be undone, so the writer holds them
//! exclusively meanwhile. The lock is a range of the volume's gate: every front end's writes pass it, and so does a
//! replacement of the volume's content.

use crate::{DeviceError, Volume};
use quoin_base::{ByteRange, SECTOR_BYTES};
use quoin_world::Buf;

/// The sectors of which a range covers a part: none, one or two.
fn edges(range: ByteRange) -> impl Iterator<Item = ByteRange> {
    let sector_of = |byte: u64| ByteRange::new(byte, 1).widened(SECTOR_BYTES);
    let (first, last) = (sector_of(range.offset), sector_of(range.end().saturating_sub(1)));
    let is_cut = move |sector: &ByteRange| sector.offset < range.offset || range.end() < sector.end();
    [Some(first), (last != first).then_some(last)].into_iter().flatten().filter(is_cut)
}

impl Volume {
    /// Writes a range of which the first or last sector is not covered.
    pub(crate) async fn write_part(&self, range: ByteRange, data: Buf) -> Result<(), DeviceError> {
        let wide = range.widened(SECTOR_BYTES);
        let _pass = self.enter_to_write_alone(wide).await?;
        let pool = self.writable_pool_for(range)?;
        let failed = |error| self.device_error(range, error);
        // NOTE: every byte of it is filled below: from a sector that is read, or from the data.
        let mut whole = Buf::unfilled(wide.len as usize);
        // The sectors that the range covers in part are read; what it covers is put over them.
        for edge in edges(range) {
            let mut at = (edge.offset - wide.offset) as usize;
            for slice in pool.read(self.id(), edge).await.map_err(failed)? {
                whole.as_mut_slice()[at..at + slice.len()].copy_from_slice(&slice);
                at += slice.len();
            }
        }
        let at = (range.offset - wide.offset) as usize;
        whole.as_mut_slice()[at..at + data.len()].copy_from_slice(&data);
        pool.write(self.id(), wide.offset, vec![whole.into_slice()]).await.map_err(failed)
    }

    /// Writes a range of whole sectors as `change` leaves it, if that returns true.
    pub(crate) async fn write_changed(
        &self,
        range: ByteRange,
        change: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<(), DeviceError> {
        let _pass = self.enter_to_write_alone(range).await?;
        let pool = self.writable_pool_for(range)?;
        let failed = |error| self.device_error(range, error);
        let mut bytes = Buf::zeroed(range.len as usize);
        let mut at = 0;
        for slice in pool.read(self.id(), range).await.map_err(failed)? {
            bytes.as_mut_slice()[at..at + slice.len()].copy_from_slice(&slice);
            at += slice.len();
        }
        if !change(bytes.as_mut_slice()) {
            return Ok(());
        }
        pool.write(self.id(), range.offset, vec![bytes.into_slice()]).await.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_the_sectors_that_are_not_covered() {
        for (offset, len, expected) in [
            (512, 1024, vec![]),
            (100, 50, vec![0]),
            (100, 412, vec![0]),
            (512, 1, vec![512]),
            (500, 30, vec![0, 512]),
            (700, 1500, vec![512, 2048]),
            (512, 1000, vec![1024]),
        ] {
            let found: Vec<_> = edges(ByteRange::new(offset, len)).map(|edge| edge.offset).collect();
            assert_eq!(found, expected, "{offset}+{len}");
        }
    }
}
