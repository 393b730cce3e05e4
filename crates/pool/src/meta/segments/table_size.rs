//! How large the segment table gets, and how many table slabs that takes.

use crate::format::{
    BLOCKS_PER_PAGE, MAP_FAN_OUT, MAP_LEVELS, MAX_TABLE_SLABS, PAGE_BYTES, POOL_BLOCK_BYTES,
    SEGMENTS_PER_PAGE, TREE_FAN_OUT,
};
use std::iter;

/// The most pages of the catalog that are reckoned with.
const MOST_CATALOG_PAGES: u64 = 16_384;
/// Pages beside those that are reckoned with by size: the upper levels of page maps, and a small catalog.
const LEAST_OTHER_PAGES: u64 = 16;

/// Pages of the table of so many segments, those of its map included.
pub(super) fn pages_of_table(segments: u64) -> u64 {
    let own = segments.div_ceil(SEGMENTS_PER_PAGE as u64).max(1);
    iter::successors(Some(own), |below| Some(below.div_ceil(MAP_FAN_OUT)))
        .take(usize::from(MAP_LEVELS) + 1)
        .sum()
}

/// The least table slabs of a slice with so many data slabs: places for the table, twice.
pub(crate) fn least_table_slabs(data_slabs: u64, slab_bytes: u64) -> u64 {
    // Entry 0 is not used.
    (2 * pages_of_table(data_slabs + 1)).div_ceil(slab_bytes / PAGE_BYTES as u64)
}

/// Table slabs that a slice with so many data slabs gets: with places for page maps and catalog too, up to the
/// number that the root can name.
pub(crate) fn table_slabs_for(data_slabs: u64, slab_bytes: u64) -> u64 {
    let pages = pages_of_table(data_slabs + 1) + other_pages(data_slabs, slab_bytes);
    let wanted = (2 * pages).div_ceil(slab_bytes / PAGE_BYTES as u64).min(MAX_TABLE_SLABS as u64);
    wanted.max(least_table_slabs(data_slabs, slab_bytes))
}

/// The most data slabs of a slice: the root can name the table slabs for so many.
pub(super) fn most_data_slabs(slab_bytes: u64) -> u64 {
    let (mut fits, mut too_many) = (0, u64::from(u32::MAX));
    while too_many - fits > 1 {
        let middle = fits.midpoint(too_many);
        if table_slabs_for(middle, slab_bytes) <= MAX_TABLE_SLABS as u64 {
            fits = middle;
        } else {
            too_many = middle;
        }
    }
    fits
}

/// Pages of page maps and of the catalog that get places: enough to lead to the block table and to full thin
/// maps without gaps, and some for the catalog.
fn other_pages(data_slabs: u64, slab_bytes: u64) -> u64 {
    let blocks = data_slabs * slab_bytes / u64::from(POOL_BLOCK_BYTES);
    let mapped_pages = blocks / BLOCKS_PER_PAGE + blocks / TREE_FAN_OUT;
    let of_catalog = (data_slabs / 8).min(MOST_CATALOG_PAGES);
    mapped_pages / MAP_FAN_OUT + of_catalog + LEAST_OTHER_PAGES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_takes_as_many_slabs_as_its_root_can_name_table_slabs_for() {
        for slab_bytes in [256 << 10, 16 << 20] {
            let most = most_data_slabs(slab_bytes);
            let fits = |slabs| table_slabs_for(slabs, slab_bytes) <= MAX_TABLE_SLABS as u64;
            assert!(fits(most) && !fits(most + 1), "{most} slabs of {slab_bytes} bytes");
        }
    }

    #[test]
    fn the_root_names_enough_for_a_pebibyte() {
        let slabs = |bytes: u64, slab_bytes: u64| {
            let count = bytes / slab_bytes;
            (least_table_slabs(count, slab_bytes), table_slabs_for(count, slab_bytes))
        };
        assert_eq!(slabs(1 << 50, 64 << 20), (129, 154));
        assert_eq!(slabs(64 << 40, 16 << 20), (129, 154));
        assert_eq!(slabs(1 << 40, 16 << 20), (3, 9));
        assert_eq!(slabs(24 * (256 << 10), 256 << 10), (1, 1));
        assert_eq!(pages_of_table(1), 5);
        assert_eq!(pages_of_table(16 * 256 + 1), 257 + 2 + 3);
    }
}
