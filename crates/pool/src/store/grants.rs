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

use crate::{
    error::PoolError,
    format::{GRANT_MAGIC, GrantPage, zeroed},
};
use futures_util::future::join_all;
use quoin_base::{DriveIndex, Epoch, PoolId, SliceId};
use quoin_drive::{Drive, DriveError, Label, MAX_SLICES, SLABS_PER_GRANT_PAGE};
use quoin_stripe::Column;
use quoin_world::{AsyncMutex, Buf, Mutex};
use std::{collections::BTreeSet, sync::Arc};
use zerocopy::IntoBytes;

#[cfg(test)]
mod tests;

/// The holder of a slab that nobody holds.
const NOBODY: u8 = 0;
/// The holder of slabs that the store keeps for itself.
const STORE: u8 = 255;

const _: () = assert!(MAX_SLICES < STORE);

fn holder(slice: SliceId) -> u8 {
    assert!(slice.0 < MAX_SLICES, "slices have numbers below {MAX_SLICES}");
    slice.0 + 1
}

/// One drive's part of the table.
struct OfDrive {
    drive: Arc<Drive>,
    /// By slab.
    holders: Vec<u8>,
    /// By page.
    generations: Vec<u64>,
}

pub(super) struct Grants {
    pool: PoolId,
    epoch: Epoch,
    /// In the order of their numbers.
    drives: Mutex<Vec<OfDrive>>,
    /// Held from the choice of slabs until RAM and drives agree.
    turn: AsyncMutex,
}

/// A page as it is on a drive, and what is wrong with its copies.
struct Found {
    page: GrantPage,
    /// For each copy that does not say the same: its number, and what is wrong with it unless it is only older.
    differ: Vec<(usize, Option<String>)>,
}

impl Grants {
    /// The table of new drives: slabs of the journal are the store's, data slabs belong to the slices in turn. Durable.
    pub(super) async fn format(pool: PoolId, drives: &[Arc<Drive>]) -> Result<Self, PoolError> {
        let of_drive = |drive: &Arc<Drive>| {
            let label = drive.label();
            let in_turn = |slab: u32| match label.roles.data {
                true => holder(first_holder(&label, slab)),
                false => NOBODY,
            };
            let mut holders: Vec<_> = (0..drive.slabs()).map(in_turn).collect();
            holders[..label.journal_slabs as usize].fill(STORE);
            let generations = vec![0; label.grant_pages() as usize];
            OfDrive { drive: drive.clone(), holders, generations }
        };
        let drives: Vec<_> = drives.iter().map(of_drive).collect();
        let counts: Vec<_> = drives.iter().map(|of| of.generations.len() as u32).collect();
        let grants =
            Self { pool, epoch: Epoch::default(), drives: Mutex::new(drives), turn: AsyncMutex::new() };
        for (drive, pages) in (0..).zip(counts) {
            for page in 0..pages {
                let holders = grants.drives.lock()[drive].holders.clone();
                grants.harden(drive, page, &holders).await?;
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
        let drives = Mutex::new(of_drives);
        Ok((Self { pool, epoch, drives, turn: AsyncMutex::new() }, told))
    }

    /// The slabs that a slice holds, by drive.
    pub(super) fn granted_to(&self, slice: SliceId) -> Vec<(DriveIndex, BTreeSet<u32>)> {
        let holder = holder(slice);
        let held = |of: &OfDrive| {
            (0..).zip(&of.holders).filter(|(_, by)| **by == holder).map(|(slab, _)| slab).collect()
        };
        self.drives.lock().iter().map(|of| (of.drive.index(), held(of))).collect()
    }

    /// Grants a slice so many slabs that nobody holds, or as many as there are: those of the drive that it prefers first,
    /// then of the drives with the most of them. Durable on return.
    #[cfg_attr(not(test), expect(dead_code, reason = "slices have all slabs from the start"))]
    pub(super) async fn grant(
        &self,
        slice: SliceId,
        count: usize,
        prefers: Option<DriveIndex>,
    ) -> Result<Vec<Column>, PoolError> {
        let _turn = self.turn.lock().await;
        let mut granted = Vec::new();
        while granted.len() < count {
            let Some((drive, page, slabs)) = self.choose(count - granted.len(), prefers) else { break };
            self.change(drive, page, &slabs, NOBODY, holder(slice)).await?;
            let index = self.drives.lock()[drive].drive.index();
            granted.extend(slabs.into_iter().map(|slab| Column { drive: index, slab }));
        }
        Ok(granted)
    }

    /// Takes slabs back that a slice holds and that nothing refers to any more. Durable on return.
    #[cfg_attr(not(test), expect(dead_code, reason = "slices have all slabs from the start"))]
    pub(super) async fn give_back(&self, slice: SliceId, slabs: &[Column]) -> Result<(), PoolError> {
        let _turn = self.turn.lock().await;
        let page_of = |column: &Column| (column.drive, column.slab / SLABS_PER_GRANT_PAGE);
        let pages: BTreeSet<_> = slabs.iter().map(page_of).collect();
        for of_page in pages {
            let there: Vec<_> = slabs.iter().filter(|c| page_of(c) == of_page).map(|c| c.slab).collect();
            let (drive, page) = of_page;
            let drive = self.position(drive).expect("slabs are given back by drives of the pool");
            self.change(drive, page, &there, holder(slice), NOBODY).await?;
        }
        Ok(())
    }

    fn position(&self, drive: DriveIndex) -> Option<usize> {
        position_in(&self.drives.lock(), drive)
    }

    /// At most `count` slabs of one page that nobody holds.
    fn choose(&self, count: usize, prefers: Option<DriveIndex>) -> Option<(usize, u32, Vec<u32>)> {
        let drives = self.drives.lock();
        let free = |of: &OfDrive| of.holders.iter().filter(|by| **by == NOBODY).count();
        let serves = |index: usize| drives[index].drive.label().roles.data && free(&drives[index]) > 0;
        let preferred = prefers.and_then(|index| position_in(&drives, index)).filter(|index| serves(*index));
        let roomiest =
            || (0..drives.len()).filter(|i| serves(*i)).max_by_key(|i| (free(&drives[*i]), usize::MAX - i));
        let drive = preferred.or_else(roomiest)?;
        let is_free = |slab: &u32| drives[drive].holders[*slab as usize] == NOBODY;
        let mut all = (0..drives[drive].holders.len() as u32).filter(is_free).peekable();
        let page = *all.peek()? / SLABS_PER_GRANT_PAGE;
        let slabs = all.take_while(|slab| slab / SLABS_PER_GRANT_PAGE == page).take(count).collect();
        Some((drive, page, slabs))
    }

    /// Changes the holder of slabs of one page: first durably, then in RAM.
    async fn change(
        &self,
        drive: usize,
        page: u32,
        slabs: &[u32],
        from: u8,
        to: u8,
    ) -> Result<(), PoolError> {
        let mut holders = self.drives.lock()[drive].holders.clone();
        for slab in slabs {
            let by = std::mem::replace(&mut holders[*slab as usize], to);
            assert_eq!(
                by, from,
                "slab {slab} of the drive at position {drive} changes hands from its holder"
            );
        }
        self.harden(drive, page, &holders).await?;
        self.drives.lock()[drive].holders = holders;
        Ok(())
    }

    /// Writes both copies of a page, one after the other. `holders` are those of all slabs of the drive.
    async fn harden(&self, drive: usize, number: u32, holders: &[u8]) -> Result<(), PoolError> {
        let (of, generation) = {
            let mut drives = self.drives.lock();
            let of = &mut drives[drive];
            of.generations[number as usize] += 1;
            (of.drive.clone(), of.generations[number as usize])
        };
        let mut page: GrantPage = zeroed();
        page.magic = GRANT_MAGIC.into();
        page.pool = *self.pool.0.as_bytes();
        page.drive = of.index().0.into();
        page.number = number.into();
        page.epoch = self.epoch.0.into();
        page.generation = generation.into();
        for (slot, by) in page.holders.iter_mut().zip(&holders[first_slab(number)..]) {
            *slot = *by;
        }
        page.seal();
        let first = (generation % 2) as usize;
        for copy in [first, 1 - first] {
            of.write_grant_page(number, copy, Buf::copy_of(page.as_bytes())).await?;
        }
        Ok(())
    }
}

fn position_in(drives: &[OfDrive], index: DriveIndex) -> Option<usize> {
    drives.binary_search_by_key(&index, |of| of.drive.index()).ok()
}

impl OfDrive {
    async fn read(pool: PoolId, drive: &Arc<Drive>, mend: bool) -> Result<(Self, Vec<String>), PoolError> {
        let label = drive.label();
        let mut of = Self { drive: drive.clone(), holders: Vec::new(), generations: Vec::new() };
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
            of.generations.push(page.generation.get());
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

/// The slice that a data slab is granted to when the pool is made. Drives begin with different slices, so that all get as much.
pub(crate) fn first_holder(label: &Label, slab: u32) -> SliceId {
    SliceId(((slab + u32::from(label.index.0)) % u32::from(label.slices)) as u8)
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
