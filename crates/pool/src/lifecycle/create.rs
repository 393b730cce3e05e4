//! Making a pool: labels on its drives and an empty root.

use crate::{
    error::PoolError,
    format::{MAX_TABLE_SLABS, POOL_BLOCK_BYTES, ROOT_MAGIC, Root, zeroed},
    lifecycle::{options::FormatOptions, spare::spare_problem},
    meta::{Domain, Layouts, SpareDomains, least_table_slabs, net_slabs},
    space::Overhead,
    store::{Store, domain_problem},
};
use quoin_base::{DriveId, DriveIndex, Epoch, LabelGeneration, Layout, PoolId, SliceId, VolumeId};
use quoin_drive::{
    Drive, FORMAT_VERSION, Fences, Label, MAX_SLICES, MOST_JOURNAL_COLUMNS, Roles, WriterSession, slabs_start,
};
use quoin_world::{Compiled, Disk, World};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use uuid::Builder;

/// Segments' worth of data slabs below which a slice could not keep its reserve. Each of several slices begins with as many.
const MIN_DATA_SEGMENTS: u64 = 24;

/// A drive that a pool gets.
#[derive(Clone)]
pub struct NewDrive {
    /// Where it stores.
    pub disk: Arc<dyn Disk>,
    /// What it is used for.
    pub roles: Roles,
    /// The name of its fault domain: drives with the same name may fail together. At most 32 bytes; empty: it is a
    /// domain of its own.
    pub domain: String,
}

impl NewDrive {
    /// One that is a fault domain of its own.
    pub fn alone(disk: Arc<dyn Disk>, roles: Roles) -> Self {
        Self { disk, roles, domain: String::new() }
    }
}

/// Makes a pool of these disks, which may hold anything: it is overwritten. The caller has made sure that
/// nobody needs it.
///
/// # Errors
/// [`PoolError::Refused`] if the disks are too few, too small or too large for these options: nothing was
/// written then. [`PoolError::Drive`] if a disk fails: what was on the disks may be lost.
pub fn format(
    world: &dyn World,
    drives: Vec<NewDrive>,
    options: FormatOptions,
) -> Compiled<'_, Result<PoolId, PoolError>> {
    Box::pin(make(world, drives, options))
}

async fn make(world: &dyn World, drives: Vec<NewDrive>, options: FormatOptions) -> Result<PoolId, PoolError> {
    check_options(&drives, &options)?;
    let pool = PoolId(random_uuid(world));
    let created_ms = world.wall_clock_ms();
    let journal_drives = drives.iter().filter(|drive| drive.roles.journal).count();
    let overhead = overhead(&options, &drives);
    let mut formatted: Vec<(Arc<Drive>, String)> = Vec::new();
    for (index, NewDrive { disk, roles, domain }) in drives.into_iter().enumerate() {
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
        let session = WriterSession::unnamed(Epoch::default());
        formatted.push((Drive::format(disk, label, session).await?, domain));
    }
    let store = Store::format(formatted, overhead.raw(MIN_DATA_SEGMENTS * overhead.segment())).await?;
    for slice in (0..options.slices).map(SliceId) {
        store.harden_root(slice, &first_root(pool, slice, random_key(world))).await?;
    }
    Ok(pool)
}

/// What protection takes on these drives.
fn overhead(options: &FormatOptions, drives: &[NewDrive]) -> Overhead {
    Overhead::of_domains(options.layout, domain_count(drives, |roles| roles.data))
}

/// The root of a slice without volumes.
fn first_root(pool: PoolId, slice: SliceId, fingerprint_key: [u8; 32]) -> Root {
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
    root.fingerprint_key = fingerprint_key;
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

fn check_options(drives: &[NewDrive], options: &FormatOptions) -> Result<(), PoolError> {
    let refuse = |why: String| Err(PoolError::Refused(why));
    if drives.is_empty() {
        return refuse("a pool needs at least one drive".into());
    }
    if drives.len() > 1024 {
        return refuse(format!("a pool has at most 1,024 drives, not {}", drives.len()));
    }
    let slices = options.slices;
    if !(1..=MAX_SLICES).contains(&slices) {
        return refuse(format!("a pool has from 1 to {MAX_SLICES} slices, not {slices}"));
    }
    let in_domain = drives.iter().find_map(|drive| domain_problem(&drive.domain));
    if let Some(why) = geometry_problem(options).or(in_domain).or_else(|| domains_lack(drives, options)) {
        return refuse(why);
    }
    let data_slabs: u64 = data_slabs(drives, options)?.into_values().sum();
    if least_table_slabs(data_slabs, options.slab_bytes.into()) > MAX_TABLE_SLABS as u64 {
        return refuse(format!(
            "{data_slabs} data slabs of {} bytes are more than a pool can keep count of: make the slabs larger",
            options.slab_bytes
        ));
    }
    let overhead = overhead(options, drives);
    let (net, least) =
        (options.net_data_slabs(drives)?, MIN_DATA_SEGMENTS * overhead.segment() * u64::from(slices));
    if data_slabs < overhead.raw(least / u64::from(slices)) * u64::from(slices) || net < least {
        let fewer = if slices > 1 { ", or fewer slices" } else { "" };
        let protected = if options.layout == Layout::NONE {
            String::new()
        } else {
            format!(", which hold as much as {net} with layout {}", options.layout)
        };
        return refuse(format!(
            "the drives have room for {data_slabs} data slabs of {} bytes{protected}; at least {} are needed: take larger or \
             more drives{fewer}",
            options.slab_bytes,
            overhead.raw(least)
        ));
    }
    Ok(())
}

/// What the drives lack for the layout or the journal, if they lack anything.
fn domains_lack(drives: &[NewDrive], options: &FormatOptions) -> Option<String> {
    let of_journal = domain_count(drives, |roles| roles.journal);
    let of_data = domain_count(drives, |roles| roles.data);
    let columns = options.journal_columns;
    let (layout, needed) = (options.layout, usize::from(options.layout.columns()));
    match () {
        () if of_journal == 0 => Some("a pool needs at least one drive with the journal role".into()),
        () if !(1..=MOST_JOURNAL_COLUMNS).contains(&columns) => {
            Some(format!("a journal has from 1 to {MOST_JOURNAL_COLUMNS} columns, not {columns}"))
        }
        () if of_data < needed => {
            let lacking = needed - of_data;
            Some(format!(
                "layout {} needs {needed} fault domains, and the drives with the data role are in {of_data}: add drives in \
                 {lacking} more, or choose {}",
                layout.described(),
                fitting(of_data)
            ))
        }
        () if of_journal < columns.into() => Some(format!(
            "a journal on {columns} drives side by side needs {columns} fault domains, and the drives with the journal role \
             are in {of_journal}: add journal drives in {} more, or choose a layout that tolerates fewer failures",
            usize::from(columns) - of_journal
        )),
        () => None,
    }
}

/// The named layouts that so many fault domains have room for.
fn fitting(domains: usize) -> String {
    let named =
        ["raid6", "raid5", "2+1", "mirror-3", "mirror"].into_iter().filter_map(|name| name.parse().ok());
    let fitting: Vec<_> = named.filter(|layout: &Layout| usize::from(layout.columns()) <= domains).collect();
    if fitting.is_empty() {
        return "none, which protects nothing".into();
    }
    fitting.iter().map(Layout::to_string).collect::<Vec<_>>().join(" or ")
}

/// A number for the fault domain of each drive.
fn numbered(drives: &[NewDrive]) -> impl Iterator<Item = (usize, &NewDrive)> {
    let of = |(number, drive): (usize, &NewDrive)| {
        let is_same = |other: &NewDrive| !drive.domain.is_empty() && other.domain == drive.domain;
        drives.iter().position(is_same).unwrap_or(number)
    };
    drives.iter().enumerate().map(move |(number, drive)| (of((number, drive)), drive))
}

/// How many fault domains have drives with such roles.
fn domain_count(drives: &[NewDrive], wanted: impl Fn(&Roles) -> bool) -> usize {
    numbered(drives)
        .filter(|(_, drive)| wanted(&drive.roles))
        .map(|(domain, _)| domain)
        .collect::<BTreeSet<_>>()
        .len()
}

impl FormatOptions {
    /// About how much data these drives would hold: what protects it is taken off, and the journal. The pool keeps a part of
    /// it for metadata and as a reserve.
    ///
    /// # Errors
    /// [`PoolError::Refused`] if a drive is too small for its part of the journal.
    pub fn data_bytes(&self, drives: &[NewDrive]) -> Result<u64, PoolError> {
        Ok(self.net_data_slabs(drives)? * u64::from(self.slab_bytes))
    }

    /// About how much of that hosts leave free if so many fault domains are kept spare.
    ///
    /// # Errors
    /// [`PoolError::Refused`] if the drives are in too few fault domains for that.
    pub fn spare_bytes(&self, drives: &[NewDrive], domains: u8) -> Result<u64, PoolError> {
        let by_domain = data_slabs(drives, self)?;
        let active = by_domain.keys().map(|domain| (DriveIndex(*domain as u16), Domain(*domain as u16)));
        let active: BTreeMap<_, _> = active.collect();
        if let Some(why) = spare_problem(self.layout, active.len(), domains) {
            return Err(PoolError::Refused(why));
        }
        let spare = SpareDomains { count: domains, hit: BTreeSet::new() };
        let layouts = Layouts::new(self.layout, self.row_bytes, active).sparing(spare);
        let slabs = by_domain.iter().map(|(domain, slabs)| (Domain(*domain as u16), *slabs)).collect();
        let left = self.net_data_slabs(drives)?.saturating_sub(layouts.net_for_hosts(&slabs));
        Ok(left * u64::from(self.slab_bytes))
    }

    fn net_data_slabs(&self, drives: &[NewDrive]) -> Result<u64, PoolError> {
        let slabs = data_slabs(drives, self)?;
        Ok(net_slabs(slabs.values().copied(), self.layout))
    }
}

/// The slabs that remain for data beside the journal, by fault domain.
fn data_slabs(drives: &[NewDrive], options: &FormatOptions) -> Result<BTreeMap<usize, u64>, PoolError> {
    let journal_drives = drives.iter().filter(|drive| drive.roles.journal).count();
    let mut data_slabs = BTreeMap::new();
    for (domain, NewDrive { disk, roles, .. }) in numbered(drives) {
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
        if roles.data {
            *data_slabs.entry(domain).or_default() += slabs - journal;
        }
    }
    Ok(data_slabs)
}

/// A key for fingerprints. Who cannot guess it cannot make blocks that are taken for others.
fn random_key(world: &dyn World) -> [u8; 32] {
    let mut key = [0; 32];
    key.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&world.random_u64().to_le_bytes()));
    key
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
