//! The root slots of the voters: which root is the newest, and bringing it to every voter.
//!
//! Two slots a voter, written alternately, so that a root that is being written never covers the newest one. A root counts
//! once it is hardened on all voters; what it freed is not used again before. So a slot that one voter cannot read is of
//! no importance as long as another voter's can be read: had a newer root counted, it would be there too.

use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::Root,
};
use futures_util::future::join_all;
use quoin_base::PoolId;
use quoin_drive::{Drive, ROOT_OFFSETS};
use quoin_world::Buf;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Drives that hold the root; the first of the pool.
const VOTERS: usize = 5;

/// The drives whose root slots hold the pool's root.
pub(crate) fn voters(drives: &[Arc<Drive>]) -> &[Arc<Drive>] {
    &drives[..drives.len().min(VOTERS)]
}

/// The slot that a root goes to.
fn slot_of(root: &Root) -> usize {
    if planted(Bug::SameRootSlot) { 0 } else { root.generation.get() as usize % 2 }
}

/// What a slot of a voter holds.
pub(crate) enum Slot {
    Root(Box<Root>),
    /// Nothing was ever written there.
    Blank,
    /// A root was being written there, or it is damaged.
    Damaged,
    /// The drive fails to read it.
    Unreadable(String),
}

impl Slot {
    pub(crate) fn root(&self) -> Option<&Root> {
        match self {
            Slot::Root(root) => Some(root),
            Slot::Blank | Slot::Damaged | Slot::Unreadable(_) => None,
        }
    }
}

/// Both slots of every voter, each with its drive and number.
pub(crate) async fn read_slots(drives: &[Arc<Drive>], pool: PoolId) -> Vec<(&Arc<Drive>, usize, Slot)> {
    let mut slots = Vec::new();
    for drive in voters(drives) {
        for (number, bytes) in drive.read_roots().await.into_iter().enumerate() {
            let slot = match bytes {
                Err(error) => Slot::Unreadable(error.to_string()),
                Ok(bytes) if bytes.iter().all(|byte| *byte == 0) => Slot::Blank,
                Ok(bytes) => match Root::parse(&bytes[..]).filter(|r| r.pool == *pool.0.as_bytes()) {
                    Some(root) => Slot::Root(Box::new(root)),
                    None => Slot::Damaged,
                },
            };
            slots.push((drive, number, slot));
        }
    }
    slots
}

/// The newest of the roots: that of the highest epoch, and of its the one of the highest generation.
pub(crate) fn newest<'a>(slots: impl IntoIterator<Item = &'a Slot>) -> Option<Root> {
    slots.into_iter().filter_map(Slot::root).max_by_key(|root| root.age()).copied()
}

/// The newest root on the drives. Refused if it may be where no voter can be read.
pub(crate) async fn newest_root(drives: &[Arc<Drive>], pool: PoolId) -> Result<Root, PoolError> {
    let slots = read_slots(drives, pool).await;
    for (number, at) in ROOT_OFFSETS.into_iter().enumerate() {
        let mut copies = slots.iter().filter(|(_, n, _)| *n == number).map(|(_, _, slot)| slot);
        let unreadable = copies.clone().find_map(|slot| match slot {
            Slot::Unreadable(why) => Some(why),
            Slot::Root(_) | Slot::Blank | Slot::Damaged => None,
        });
        if let Some(why) = unreadable
            && copies.all(|slot| matches!(slot, Slot::Unreadable(_)))
        {
            return Err(PoolError::Unopenable(format!(
                "the root slot at byte {at} can be read on no drive that has it ({why}), and the newest root may be there; \
                 have a drive read it, or copy the drive to another one that does, then start again"
            )));
        }
    }
    newest(slots.iter().map(|(_, _, slot)| slot)).ok_or_else(|| {
        let names: Vec<_> = voters(drives).iter().map(|d| d.name().to_owned()).collect();
        PoolError::Unopenable(format!("no valid root on any of {}", names.join(", ")))
    })
}

/// Writes the root to the voters that do not have it. Those that do are not touched: theirs may be the only one. Returns
/// which slots could not be read, in words.
pub(crate) async fn mend_roots(drives: &[Arc<Drive>], root: &Root) -> Result<Vec<String>, PoolError> {
    let slot = root.generation.get() as usize % 2;
    let mut told = Vec::new();
    for drive in voters(drives) {
        for (number, bytes) in drive.read_roots().await.into_iter().enumerate() {
            let is_there = bytes.as_ref().is_ok_and(|bytes| bytes[..] == *root.as_bytes());
            if number == slot && !is_there {
                drive.write_root(slot, Buf::copy_of(root.as_bytes())).await?;
            }
            if let Err(error) = bytes {
                let then = match number == slot {
                    true => "it was written anew from another drive's",
                    false => "the next checkpoint writes it anew",
                };
                let (name, at) = (drive.name(), ROOT_OFFSETS[number]);
                told.push(format!(
                    "drive {name}: the root slot at byte {at} cannot be read ({error}); {then}"
                ));
            }
        }
    }
    Ok(told)
}

/// Writes the root to its slot of every voter; durable on return.
pub(crate) async fn harden_root(drives: &[Arc<Drive>], root: &Root) -> Result<(), PoolError> {
    let slot = slot_of(root);
    let writes = voters(drives).iter().map(|drive| drive.write_root(slot, Buf::copy_of(root.as_bytes())));
    for outcome in join_all(writes).await {
        outcome?;
    }
    Ok(())
}

/// A root that follows `root` and says the same, but for whether the pool was closed.
pub(crate) fn following(root: &Root, epoch: u64, closed: bool) -> Root {
    let mut next = *root;
    next.epoch = epoch.into();
    next.generation = (root.generation.get() + 1).into();
    next.closed = u32::from(closed).into();
    next.seal();
    next
}
