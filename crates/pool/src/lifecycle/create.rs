//! Making a pool: labels on its drives and an empty root.

use crate::{
    error::PoolError,
    format::{MAX_TABLE_SLABS, POOL_BLOCK_BYTES, ROOT_MAGIC, Root, zeroed},
    lifecycle::options::FormatOptions,
    meta::least_table_slabs,
    space::Overhead,
    store::Store,
};
use quoin_base::{DriveId, DriveIndex, Epoch, LabelGeneration, PoolId, SliceId, VolumeId};
use quoin_drive::{
    Drive, FORMAT_VERSION, Fences, Label, MAX_SLICES, MOST_JOURNAL_COLUMNS, Roles, WriterSession, slabs_start,
};
use quoin_world::{Compiled, Disk, World};
use std::sync::Arc;
use uuid::Builder;

/// Segments' worth of data slabs below which a slice could not keep its reserve. Each of several slices begins with as many.
const MIN_DATA_SEGMENTS: u64 = 24;

/// Makes a pool of these disks, which may hold anything: it is overwritten. The caller has made sure that
/// nobody needs it.
///
/// # Errors
/// [`PoolError::Refused`] if the disks are too few, too small or too large for these options: nothing was
/// written then. [`PoolError::Drive`] if a disk fails: what was on the disks may be lost.
pub fn format(
    world: &dyn World,
    disks: Vec<(Arc<dyn Disk>, Roles)>,
    options: FormatOptions,
) -> Compiled<'_, Result<PoolId, PoolError>> {
    Box::pin(make(world, disks, options))
}

async fn make(
    world: &dyn World,
    disks: Vec<(Arc<dyn Disk>, Roles)>,
    options: FormatOptions,
) -> Result<PoolId, PoolError> {
    check_options(&disks, &options)?;
    let pool = PoolId(random_uuid(world));
    let created_ms = world.wall_clock_ms();
    let journal_drives = disks.iter().filter(|(_, roles)| roles.journal).count();
    let mut drives: Vec<Arc<Drive>> = Vec::new();
    for (index, (disk, roles)) in disks.into_iter().enumerate() {
        let len_bytes = disk.len_bytes();
        let label = Label {
            pool,
            pool_name: options.pool_name.clone(),
            drive: DriveId(random_uuid(world)),
            index: DriveIndex(index as u16),
            roles,
            len_bytes,
            slab_bytes: options.slab_bytes,
            row_bytes: options.row_bytes,
            block_bytes: POOL_BLOCK_BYTES,
            journal_slabs: if roles.journal { options.journal_slabs(len_bytes, journal_drives) } else { 0 },
            fences: Fences::default(),
            generation: LabelGeneration(1),
            created_ms,
            slices: options.slices,
            slabs_start_bytes: slabs_start(len_bytes, options.slab_bytes),
            journal_columns: options.journal_columns,
            layout: options.layout,
        };
        drives.push(Drive::format(disk, label, WriterSession::unnamed(Epoch::default())).await?);
    }
    let overhead = overhead(&options, drives.iter().map(|drive| drive.label().roles));
    let store = Store::format(drives, overhead.raw(MIN_DATA_SEGMENTS * overhead.segment())).await?;
    for slice in (0..options.slices).map(SliceId) {
        store.harden_root(slice, &first_root(pool, slice)).await?;
    }
    Ok(pool)
}

/// What protection takes on drives with these roles.
fn overhead(options: &FormatOptions, roles: impl Iterator<Item = Roles>) -> Overhead {
    Overhead::of_drives(options.layout, roles.filter(|roles| roles.data).count())
}

/// The root of a slice without volumes.
fn first_root(pool: PoolId, slice: SliceId) -> Root {
    let mut root: Root = zeroed();
    root.magic = ROOT_MAGIC.into();
    root.version = FORMAT_VERSION.into();
    root.pool = *pool.0.as_bytes();
    root.slice = u32::from(slice.0).into();
    root.generation = 1.into();
    root.tail = 1.into();
    root.next_sequence = 1.into();
    root.tree_end = 1.into();
    root.blocks_end = 1.into();
    root.next_extent = 1.into();
    root.next_volume = (VolumeId::first_of(slice).0 + 1).into();
    root.segments = 1.into();
    root.seal();
    root
}

/// Why no drive can be divided so, if so. Rows divide the slab and are whole blocks of the pool: so says the label.
fn geometry_problem(options: &FormatOptions) -> Option<String> {
    let FormatOptions { slab_bytes, row_bytes, .. } = *options;
    if !slab_bytes.is_power_of_two() || !(256 << 10..=64 << 20).contains(&slab_bytes) {
        return Some(format!("a slab is a power of two from 256 KiB to 64 MiB, not {slab_bytes} bytes"));
    }
    if !row_bytes.is_power_of_two() || !(16 << 10..=slab_bytes / 4).contains(&row_bytes) {
        return Some(format!(
            "a row is a power of two from 16 KiB to a quarter of the slab of {slab_bytes} bytes, not {row_bytes} bytes"
        ));
    }
    None
}

fn check_options(disks: &[(Arc<dyn Disk>, Roles)], options: &FormatOptions) -> Result<(), PoolError> {
    let refuse = |why: String| Err(PoolError::Refused(why));
    if disks.is_empty() {
        return refuse("a pool needs at least one drive".into());
    }
    if disks.len() > 1024 {
        return refuse(format!("a pool has at most 1,024 drives, not {}", disks.len()));
    }
    if let Some(why) = geometry_problem(options) {
        return refuse(why);
    }
    let slices = options.slices;
    if !(1..=MAX_SLICES).contains(&slices) {
        return refuse(format!("a pool has from 1 to {MAX_SLICES} slices, not {slices}"));
    }
    if !disks.iter().any(|(_, roles)| roles.journal) {
        return refuse("a pool needs at least one drive with the journal role".into());
    }
    let journal_drives = disks.iter().filter(|(_, roles)| roles.journal).count();
    let columns = options.journal_columns;
    if !(1..=MOST_JOURNAL_COLUMNS).contains(&columns) {
        return refuse(format!("a journal has from 1 to {MOST_JOURNAL_COLUMNS} columns, not {columns}"));
    }
    if journal_drives < columns.into() {
        return refuse(format!(
            "a journal of {columns} columns needs as many drives with the journal role, not {journal_drives}"
        ));
    }
    let data_drives = disks.iter().filter(|(_, roles)| roles.data).count();
    let (layout, domains) = (options.layout, usize::from(options.layout.columns()));
    if data_drives < domains {
        return refuse(format!(
            "layout {layout} needs {domains} fault domains, and there are {data_drives} drives with the data role: add {} \
             drives, or choose a layout with fewer columns",
            domains - data_drives
        ));
    }
    let data_slabs = data_slabs(disks, options, journal_drives)?;
    if least_table_slabs(data_slabs, options.slab_bytes.into()) > MAX_TABLE_SLABS as u64 {
        return refuse(format!(
            "{data_slabs} data slabs of {} bytes are more than a pool can keep count of: make the slabs larger",
            options.slab_bytes
        ));
    }
    let overhead = overhead(options, disks.iter().map(|(_, roles)| *roles));
    let least = overhead.raw(MIN_DATA_SEGMENTS * overhead.segment()) * u64::from(slices);
    if data_slabs < least {
        let fewer = if slices > 1 { ", or fewer slices" } else { "" };
        return refuse(format!(
            "the drives have room for {data_slabs} data slabs of {} bytes; at least {least} are needed: \
             take larger or more drives{fewer}",
            options.slab_bytes
        ));
    }
    Ok(())
}

/// The slabs of all drives that remain for data beside the journal.
fn data_slabs(
    disks: &[(Arc<dyn Disk>, Roles)],
    options: &FormatOptions,
    journal_drives: usize,
) -> Result<u64, PoolError> {
    let mut data_slabs = 0;
    for (disk, roles) in disks {
        let slabs = disk.len_bytes().saturating_sub(slabs_start(disk.len_bytes(), options.slab_bytes))
            / u64::from(options.slab_bytes);
        let journal = if roles.journal {
            u64::from(options.journal_slabs(disk.len_bytes(), journal_drives))
        } else {
            0
        };
        if slabs < journal {
            return Err(PoolError::Refused(format!(
                "drive {} of {} bytes is too small for its journal of {journal} slabs of {} bytes",
                disk.name(),
                disk.len_bytes(),
                options.slab_bytes
            )));
        }
        data_slabs += if roles.data { slabs - journal } else { 0 };
    }
    Ok(data_slabs)
}

pub(crate) fn random_uuid(world: &dyn World) -> uuid::Uuid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&world.random_u64().to_le_bytes());
    bytes[8..].copy_from_slice(&world.random_u64().to_le_bytes());
    Builder::from_random_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_do_not_divide_the_slab_into_whole_blocks_are_refused() {
        let problem = |slab_bytes, row_bytes| {
            geometry_problem(&FormatOptions { slab_bytes, row_bytes, ..FormatOptions::default() })
        };
        for slab_bytes in [256 << 10, 4 << 20, 64 << 20] {
            for row_bytes in [16 << 10, 64 << 10, slab_bytes / 4] {
                assert_eq!(problem(slab_bytes, row_bytes), None);
                assert!(row_bytes.is_multiple_of(POOL_BLOCK_BYTES) && slab_bytes.is_multiple_of(row_bytes));
            }
            // Whole pages and no whole blocks; whole blocks that do not divide the slab; too short, too long.
            for row_bytes in [20 << 10, 24 << 10, 8 << 10, slab_bytes / 2, 0] {
                let why = problem(slab_bytes, row_bytes).unwrap();
                assert!(why.contains(&format!("not {row_bytes} bytes")), "{why}");
            }
        }
        assert!(problem(3 << 20, 64 << 10).unwrap().contains("not 3145728 bytes"));
        assert!(problem(128 << 20, 1 << 20).is_some());
    }
}
