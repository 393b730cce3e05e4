//! Which slice holds which slab.
//!
//! A slice uses only slabs that were granted to it, and it was told so only after that was durable. On each drive, pages of
//! one byte a slab say who holds it. Every page is there twice: a change goes to one copy, durably, and then to the other;
//! which is first alternates. Of two copies that differ the newer one counts, so a torn one never does.
//!
//! Invariants:
//! 1. A slab has one holder at most.
//! 2. In RAM a slab has a new holder, or none, only when both copies of its page say so durably.
//! 3. Pages are of the store's epoch when they are written, and their generations grow.
//! 4. Slabs of the journal are the store's own: nobody is granted one, and nobody gives one back.
//!
//! A pool of one slice begins with all data slabs. Each of several begins with the least that a slice needs, and the rest is
//! ungranted until a slice asks for it.

use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::{GRANT_MAGIC, GrantPage, zeroed},
};
use futures_util::{StreamExt, future::join_all, stream};
use quoin_base::{DriveIndex, Epoch, GrantGeneration, PoolId, SliceId};
use quoin_drive::{Drive, DriveError, Label, MAX_SLICES, SLABS_PER_GRANT_PAGE};
use quoin_stripe::Column;
use quoin_world::{
    AsyncMutex, AsyncMutexGuard, Buf, Mutex,
    atomic::{AtomicU64, Ordering},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use zerocopy::IntoBytes;

mod growing;
#[cfg(test)]
mod tests;

/// The holder of a slab that nobody holds.
const NOBODY: u8 = 0;
/// The holder of slabs that the store keeps for itself.
const STORE: u8 = 255;

/// Pages written side by side.
const PAGES_AT_ONCE: usize = 32;

const _: () = assert!(MAX_SLICES < STORE);

fn holder(slice: SliceId) -> u8 {
    assert!(slice.0 < MAX_SLICES, "slices have numbers below {MAX_SLICES}");
    slice.0 + 1
}

/// One drive's part of the table.
pub(super) struct OfDrive {
    drive: Arc<Drive>,
    /// By slab.
    holders: Vec<u8>,
    /// By page.
    generations: Vec<GrantGeneration>,
    /// Nothing is granted of it.
    is_out: bool,
}

/// Drives that failed while their pages were written, and how.
pub(super) type FailedDrives = BTreeMap<DriveIndex, DriveError>;

pub(super) struct Grants {
    pool: PoolId,
    epoch: Epoch,
    /// In the order of their numbers.
    drives: Mutex<Vec<OfDrive>>,
    /// Held from the choice of slabs until RAM and drives agree.
    turn: AsyncMutex,
    /// Ungranted slabs of all drives.
    nobodys: AtomicU64,
}

/// Slabs of one grant page: the drive, the page, and the slabs.
type OfPage = ((usize, u32), Vec<u32>);

/// A page as it is on a drive, and what is wrong with its copies.
struct Found {
    page: GrantPage,
    /// For each copy that does not say the same: its number, and what is wrong with it unless it is only older.
    differ: Vec<(usize, Option<String>)>,
}

impl Grants {
    /// The table of new drives: slabs of the journal are the store's, and of the data slabs each slice has `each`, one of
    /// all drives has all. Durable.
    pub(super) async fn format(
        pool: PoolId,
        drives: &[Arc<Drive>],
        slices: u8,
        each: usize,
    ) -> Result<Self, PoolError> {
        let labels: Vec<_> = drives.iter().map(|drive| (drive.label(), drive.slabs())).collect();
        let of_drive = |(drive, holders): (&Arc<Drive>, _)| {
            let generations = vec![GrantGeneration::default(); drive.label().grant_pages() as usize];
            OfDrive { drive: drive.clone(), holders, generations, is_out: false }
        };
        let holders = first_holders(&labels, slices, each);
        let drives: Vec<_> = drives.iter().zip(holders).map(of_drive).collect();
        let counts: Vec<_> = drives.iter().map(|of| of.generations.len() as u32).collect();
        let grants = Self::new(pool, Epoch::default(), drives);
        for (drive, pages) in (0..).zip(counts) {
            let as_they_are: Vec<_> = (0..pages).map(|page| ((drive, page), Vec::new())).collect();
            if let Some((_, error)) = grants.harden(&as_they_are, NOBODY).await.pop_first() {
                return Err(error.into());
            }
        }
        Ok(grants)
    }

    /// The table as it is on the drives. With `mend`, copies of pages that are damaged or older are written anew before it
    /// is relied on; returned is what was damaged, in words.
    pub(super) async fn read(
        pool: PoolId,
        epoch: Epoch,
        drives: &[Arc<Drive>],
        mend: bool,
    ) -> Result<(Self, Vec<String>), PoolError> {
        let (mut of_drives, mut told) = (Vec::new(), Vec::new());
        for read in join_all(drives.iter().map(|drive| OfDrive::read(pool, drive, mend))).await {
            let (of, damaged) = read?;
            of_drives.push(of);
            told.extend(damaged);
        }
        Ok((Self::new(pool, epoch, of_drives), told))
    }

    /// The part of a drive that is no member yet: slabs of the journal are the store's, the others are ungranted. Durable, but
    /// not in the table.
    pub(super) async fn format_added(&self, drive: &Arc<Drive>) -> Result<OfDrive, PoolError> {
        let pages = drive.label().grant_pages();
        let journal = vec![STORE; drive.label().journal_slabs as usize];
        let others = vec![NOBODY; drive.slabs() as usize - journal.len()];
        let holders = [journal, others].concat();
        let mut of = OfDrive {
            drive: drive.clone(),
            holders,
            generations: vec![GrantGeneration::default(); pages as usize],
            is_out: false,
        };
        for number in 0..pages {
            let page = of.next_page((self.pool, self.epoch), number, &[], NOBODY);
            for turn in 0..2 {
                write_copy(drive, &page, turn).await?;
            }
        }
        Ok(of)
    }

    /// Takes the part of a new drive into the table. Returns how many slabs may be granted of it.
    pub(super) fn add(&self, of: OfDrive) -> u64 {
        let nobodys = of.nobodys();
        let mut drives = self.drives.lock();
        assert!(drives.last().is_none_or(|last| last.drive.index() < of.drive.index()), "numbers grow");
        drives.push(of);
        self.nobodys.fetch_add(nobodys, Ordering::AcqRel);
        nobodys
    }

    /// Reads the part of a drive that comes back, and takes it in, in the place of what was known of it. Held until what is
    /// returned is dropped: no slab changes hands meanwhile.
    pub(super) async fn take_back(&self, drive: &Arc<Drive>) -> Result<AsyncMutexGuard<'_>, PoolError> {
        let turn = self.turn.lock().await;
        let (mut of, told) = OfDrive::read(self.pool, drive, true).await?;
        told.iter().for_each(|what| tracing::warn!("{what}; it was written anew from the other copy"));
        of.is_out = true;
        let mut drives = self.drives.lock();
        match drives.binary_search_by_key(&drive.index(), |of| of.drive.index()) {
            Ok(at) => drives[at] = of,
            Err(at) => drives.insert(at, of),
        }
        drop(drives);
        Ok(turn)
    }

    fn new(pool: PoolId, epoch: Epoch, drives: Vec<OfDrive>) -> Self {
        let nobodys = drives.iter().map(OfDrive::nobodys).sum();
        Self {
            pool,
            epoch,
            drives: Mutex::new(drives),
            turn: AsyncMutex::new(),
            nobodys: AtomicU64::new(nobodys),
        }
    }

    /// From now on nothing is granted of a drive, or something is again: the pool goes on without it, it leaves, or it stays.
    pub(super) fn leave_out(&self, drive: DriveIndex, is_out: bool) {
        let mut drives = self.drives.lock();
        let Some(at) = position_in(&drives, drive) else { return };
        let of = &mut drives[at];
        let before = of.nobodys();
        of.is_out = is_out;
        let after = of.nobodys();
        // NOTE: with the lock held, under which slabs are granted.
        self.nobodys.fetch_add(after, Ordering::AcqRel);
        self.nobodys.fetch_sub(before, Ordering::AcqRel);
    }

    /// Ungranted slabs that a slice may be granted.
    pub(super) fn nobodys(&self) -> u64 {
        self.nobodys.load(Ordering::Acquire)
    }

    /// The same of all drives but one.
    pub(super) fn nobodys_but(&self, drive: DriveIndex) -> u64 {
        let drives = self.drives.lock();
        drives.iter().filter(|of| of.drive.index() != drive).map(OfDrive::nobodys).sum()
    }

    /// The slabs that a slice holds, by drive.
    pub(super) fn granted_to(&self, slice: SliceId) -> Vec<(DriveIndex, BTreeSet<u32>)> {
        let holder = holder(slice);
        let held = |of: &OfDrive| {
            (0..).zip(&of.holders).filter(|(_, by)| **by == holder).map(|(slab, _)| slab).collect()
        };
        self.drives.lock().iter().map(|of| (of.drive.index(), held(of))).collect()
    }

    /// Grants a slice so many ungranted slabs, or as many as there are, each time from the drive with the most left.
    /// Durable on return. None is granted of a drive that failed.
    pub(super) async fn grant(&self, slice: SliceId, count: usize) -> (Vec<Column>, FailedDrives) {
        let _turn = self.turn.lock().await;
        let mut granted = Vec::new();
        let chosen = self.choose(count);
        let failed = self.change(&chosen, NOBODY, holder(slice)).await;
        for ((drive, _), slabs) in chosen {
            let index = self.drives.lock()[drive].drive.index();
            if !failed.contains_key(&index) {
                granted.extend(slabs.into_iter().map(|slab| Column { drive: index, slab }));
            }
        }
        (granted, failed)
    }

    /// Takes slabs back that a slice holds and that nothing refers to any more. Durable on return. Those of a drive that
    /// failed stay the slice's.
    pub(super) async fn give_back(&self, slice: SliceId, slabs: &[Column]) -> FailedDrives {
        let _turn = self.turn.lock().await;
        let mut of_pages: BTreeMap<(usize, u32), Vec<u32>> = BTreeMap::new();
        for Column { drive, slab } in slabs {
            let drive = self.position(*drive).expect("slabs are given back by drives of the pool");
            of_pages.entry((drive, slab / SLABS_PER_GRANT_PAGE)).or_default().push(*slab);
        }
        self.change(&of_pages.into_iter().collect::<Vec<_>>(), holder(slice), NOBODY).await
    }

    fn position(&self, drive: DriveIndex) -> Option<usize> {
        position_in(&self.drives.lock(), drive)
    }

    /// At most `count` ungranted slabs, by page.
    fn choose(&self, count: usize) -> Vec<OfPage> {
        let drives = self.drives.lock();
        // How many are left of each drive, and which, the lowest first.
        let mut left: Vec<_> = drives.iter().map(OfDrive::nobodys).collect();
        let mut slabs: Vec<_> = drives.iter().map(OfDrive::free_slabs).collect();
        let mut of_pages: BTreeMap<(usize, u32), Vec<u32>> = BTreeMap::new();
        for _ in 0..count {
            let roomiest = (0..left.len()).max_by_key(|drive| (left[*drive], usize::MAX - drive));
            let Some(drive) = roomiest.filter(|drive| left[*drive] > 0) else { break };
            let Some(slab) = slabs[drive].next() else { break };
            left[drive] -= 1;
            of_pages.entry((drive, slab / SLABS_PER_GRANT_PAGE)).or_default().push(slab);
        }
        of_pages.into_iter().collect()
    }

    /// Changes the holder of slabs: first durably, then in RAM. On drives that failed it stays as it was.
    async fn change(&self, of_pages: &[OfPage], from: u8, to: u8) -> FailedDrives {
        {
            let drives = self.drives.lock();
            for ((drive, _), slabs) in of_pages {
                for slab in slabs {
                    let by = drives[*drive].holders[*slab as usize];
                    assert_eq!(
                        by, from,
                        "slab {slab} of the drive at position {drive} changes hands from its holder"
                    );
                }
            }
        }
        let failed = match to {
            NOBODY => self.harden(of_pages, to).await,
            _ if planted(Bug::UseUngranted) => FailedDrives::new(),
            _ => self.harden(of_pages, to).await,
        };
        // NOTE: in RAM only now. A slab that is used before its grant is durable may be another slice's after a crash.
        let mut drives = self.drives.lock();
        let mut count = 0;
        for ((drive, _), slabs) in of_pages {
            let of = &mut drives[*drive];
            if !failed.contains_key(&of.drive.index()) {
                slabs.iter().for_each(|slab| of.holders[*slab as usize] = to);
                // Of one that is left out, none counts as ungranted.
                count += if of.is_out { 0 } else { slabs.len() as u64 };
            }
        }
        // Drives without the data role have none.
        let before = match to {
            NOBODY => self.nobodys.fetch_add(count, Ordering::AcqRel),
            _ => self.nobodys.fetch_sub(count, Ordering::AcqRel),
        };
        assert!(to == NOBODY || before >= count, "{count} slabs are granted of {before} ungranted ones");
        failed
    }

    /// Writes both copies of pages, in which these slabs have a new holder: first one copy of each, then, when all of
    /// these are durable, the others. A page of a drive that failed may be as before, or not.
    async fn harden(&self, of_pages: &[OfPage], to: u8) -> FailedDrives {
        let pages: Vec<_> = of_pages
            .iter()
            .map(|((drive, number), slabs)| {
                let of = &mut self.drives.lock()[*drive];
                (of.drive.clone(), of.next_page((self.pool, self.epoch), *number, slabs, to))
            })
            .collect();
        let mut failed = FailedDrives::new();
        for turn in 0..2 {
            let write = async |(drive, page): &(Arc<Drive>, GrantPage)| {
                (drive.index(), write_copy(drive, page, turn).await)
            };
            let writes: Vec<_> = pages.iter().map(write).collect();
            let written: Vec<_> = stream::iter(writes).buffer_unordered(PAGES_AT_ONCE).collect().await;
            failed.extend(written.into_iter().filter_map(|(drive, written)| Some((drive, written.err()?))));
        }
        failed
    }
}

/// Writes the copy of a page whose turn it is.
async fn write_copy(drive: &Drive, page: &GrantPage, turn: u64) -> Result<(), DriveError> {
    let copy = (page.generation.get() + turn) % 2;
    drive.write_grant_page(page.number.get(), copy as usize, Buf::copy_of(page.as_bytes())).await
}

fn position_in(drives: &[OfDrive], index: DriveIndex) -> Option<usize> {
    drives.binary_search_by_key(&index, |of| of.drive.index()).ok()
}

impl OfDrive {
    /// Its ungranted slabs that a slice may be granted, the lowest first.
    fn free_slabs(&self) -> impl Iterator<Item = u32> + '_ {
        let is_free = |(slab, by): (u32, &u8)| (*by == NOBODY).then_some(slab);
        (0..).zip(&self.holders).filter_map(is_free)
    }

    /// The next generation of a page, in which these slabs have a new holder.
    fn next_page(&mut self, (pool, epoch): (PoolId, Epoch), number: u32, slabs: &[u32], to: u8) -> GrantPage {
        let generation = &mut self.generations[number as usize];
        *generation = generation.next();
        let mut page: GrantPage = zeroed();
        page.magic = GRANT_MAGIC.into();
        page.pool = *pool.0.as_bytes();
        page.drive = self.drive.index().0.into();
        page.number = number.into();
        page.epoch = epoch.0.into();
        page.generation = generation.0.into();
        let first = first_slab(number);
        for (slot, by) in page.holders.iter_mut().zip(&self.holders[first..]) {
            *slot = *by;
        }
        slabs.iter().for_each(|slab| page.holders[*slab as usize - first] = to);
        page.seal();
        page
    }

    /// How many those are.
    fn nobodys(&self) -> u64 {
        if self.drive.label().roles.data && !self.is_out { self.free_slabs().count() as u64 } else { 0 }
    }

    async fn read(pool: PoolId, drive: &Arc<Drive>, mend: bool) -> Result<(Self, Vec<String>), PoolError> {
        let label = drive.label();
        let mut of =
            Self { drive: drive.clone(), holders: Vec::new(), generations: Vec::new(), is_out: false };
        let mut told = Vec::new();
        for number in 0..label.grant_pages() {
            let Found { page, differ } = read_page(pool, drive, number).await?;
            for (copy, why) in differ {
                if mend {
                    drive.write_grant_page(number, copy, Buf::copy_of(page.as_bytes())).await?;
                }
                if let Some(why) = why {
                    let at = label.grant_page_offset(number, copy);
                    told.push(format!("drive {}: the grant page at byte {at} {why}", drive.name()));
                }
            }
            of.generations.push(GrantGeneration(page.generation.get()));
            of.holders.extend_from_slice(&page.holders);
        }
        of.holders.truncate(drive.slabs() as usize);
        of.check(label.journal_slabs, label.slices)?;
        Ok((of, told))
    }

    /// Journal slabs must be the store's, and the others nobody's or a slice's.
    fn check(&self, journal_slabs: u32, slices: u8) -> Result<(), PoolError> {
        let is_possible = |slab: u32, by: u8| if slab < journal_slabs { by == STORE } else { by <= slices };
        match (0..).zip(&self.holders).find(|(slab, by)| !is_possible(*slab, **by)) {
            None => Ok(()),
            Some((slab, by)) => Err(PoolError::corrupt(
                format!("the grant table of drive {}", self.drive.name()),
                format!("slab {slab} cannot be held by {by}"),
            )),
        }
    }
}

/// The holders of the slabs of new drives, which have so many slabs each. The only slice of a pool holds all
/// data slabs; of several, each holds `each`, spread over all drives.
fn first_holders(drives: &[(Label, u32)], slices: u8, each: usize) -> Vec<Vec<u8>> {
    let holder_of = |(label, slabs): &(Label, u32)| {
        let others = if label.roles.data && slices == 1 { holder(SliceId(0)) } else { NOBODY };
        (0..*slabs).map(|slab| if slab < label.journal_slabs { STORE } else { others }).collect()
    };
    let mut holders: Vec<Vec<u8>> = drives.iter().map(holder_of).collect();
    if slices == 1 {
        return holders;
    }
    let mut lacking = vec![each; slices.into()];
    let most = drives.iter().map(|(_, slabs)| *slabs).max().unwrap_or(0);
    for slab in 0..most {
        for (index, (label, slabs)) in drives.iter().enumerate() {
            if !label.roles.data || !(label.journal_slabs..*slabs).contains(&slab) {
                continue;
            }
            // Drives begin with different slices, so that each slice has slabs of all.
            let turns = (0..slices).map(|turn| (index + slab as usize + usize::from(turn)) % lacking.len());
            if let Some(slice) = turns.into_iter().find(|slice| lacking[*slice] > 0) {
                lacking[slice] -= 1;
                holders[index][slab as usize] = holder(SliceId(slice as u8));
            }
        }
    }
    holders
}

/// The first slab that a page tells of.
fn first_slab(page: u32) -> usize {
    page as usize * SLABS_PER_GRANT_PAGE as usize
}

/// Reads both copies of a page. The newer one counts; two that are damaged refuse the pool.
async fn read_page(pool: PoolId, drive: &Arc<Drive>, number: u32) -> Result<Found, PoolError> {
    let is_ours = |page: &GrantPage| {
        page.pool == *pool.0.as_bytes() && page.drive.get() == drive.index().0 && page.number.get() == number
    };
    let parse = |read: Result<Buf, DriveError>| match read {
        Ok(bytes) => match GrantPage::parse(&bytes).filter(is_ours) {
            Some(page) => Ok(page),
            None => Err("does not verify".to_owned()),
        },
        Err(error) => Err(format!("cannot be read ({error})")),
    };
    let copies = drive.read_grant_page(number).await.map(parse);
    let newest = copies.iter().flatten().max_by_key(|page| page.age()).copied();
    let Some(page) = newest else {
        let label = drive.label();
        let [first, second] = [0, 1].map(|copy| label.grant_page_offset(number, copy));
        let why = copies.into_iter().find_map(Result::err).unwrap_or_default();
        return Err(PoolError::corrupt(
            format!(
                "both copies, at bytes {first} and {second}, of grant page {number} of drive {}",
                drive.name()
            ),
            format!("neither is intact (one {why}), and they say which slabs are in use"),
        ));
    };
    let mut differ = Vec::new();
    for (number, copy) in copies.into_iter().enumerate() {
        match copy {
            // An interrupted change leaves an older copy behind: no damage.
            Ok(copy) if copy.age() != page.age() => differ.push((number, None)),
            Ok(_) => {}
            Err(why) => differ.push((number, Some(why))),
        }
    }
    Ok(Found { page, differ })
}
