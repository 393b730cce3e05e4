//! The root slots of the voters: which root of a slice is the newest, and bringing it to every voter.
//!
//! Two slots a slice and voter, written alternately, so that a root that is being written never covers the newest one. A
//! root counts once it is hardened on all voters; what it freed is not used again before. So a slot that one voter cannot
//! read is of no importance as long as another voter's can be read: had a newer root counted, it would be there too. It is
//! overwritten before anything else is written, and so is one that is damaged, because it may hold a root that did not
//! count: read well one day, that one would win over what was built on the root before it.
//!
//! A voter that was just appointed has no root of the slice yet. What its slots do not hold says nothing, so only voters
//! with a root of the slice count where another voter's slot cannot be read.

use super::Store;
use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::{ROOT_MAGIC, Root},
};
use futures_util::future::join_all;
use quoin_base::{CheckpointGeneration, Epoch, SliceId};
use quoin_drive::{Drive, root_offset};
use quoin_world::Buf;
use std::sync::Arc;
use zerocopy::IntoBytes;

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

/// A slot of a voter, and what it holds.
pub(crate) struct RootSlot<'a> {
    pub drive: &'a str,
    /// 0 or 1.
    pub number: usize,
    pub content: Slot,
}

/// The newest of the roots: that of the highest epoch, and of its the one of the highest generation.
pub(crate) fn newest(slots: &[RootSlot<'_>]) -> Option<Root> {
    slots.iter().filter_map(|slot| slot.content.root()).max_by_key(|root| root.age()).copied()
}

impl Store {
    /// The drives whose root slots hold the slices' roots.
    pub(super) fn voters(&self) -> Vec<&Arc<Drive>> {
        let members = self.members();
        let votes = |drive: &&Arc<Drive>| members.get(drive.index()).is_some_and(|member| member.votes);
        self.drives().filter(votes).collect()
    }

    /// Both slots of every voter.
    pub(crate) async fn root_slots(&self, slice: SliceId) -> Vec<RootSlot<'_>> {
        let is_ours =
            |root: &Root| root.pool == *self.pool().0.as_bytes() && root.slice.get() == u32::from(slice.0);
        let mut slots = Vec::new();
        for drive in self.voters() {
            for (number, bytes) in drive.read_roots(slice).await.into_iter().enumerate() {
                let content = match bytes {
                    Err(error) => Slot::Unreadable(error.to_string()),
                    Ok(bytes) if bytes.iter().all(|byte| *byte == 0) => Slot::Blank,
                    Ok(bytes) => match Root::parse(&bytes[..]).filter(is_ours) {
                        Some(root) => Slot::Root(Box::new(root)),
                        None => Slot::Damaged,
                    },
                };
                slots.push(RootSlot { drive: drive.name(), number, content });
            }
        }
        slots
    }

    /// The newest root on the drives. Refused if it may be where no voter can be read.
    pub(crate) async fn newest_root(&self, slice: SliceId) -> Result<Root, PoolError> {
        let slots = self.root_slots(slice).await;
        let has_root = |drive| slots.iter().any(|slot| slot.drive == drive && slot.content.root().is_some());
        // The newest root may be in a slot that no drive with a root can read.
        for (number, at) in [0, 1].map(|number| root_offset(slice, number)).into_iter().enumerate() {
            let mut copies = slots.iter().filter(|slot| slot.number == number);
            let unreadable = copies.clone().find_map(|slot| match &slot.content {
                Slot::Unreadable(why) => Some(why),
                Slot::Root(_) | Slot::Blank | Slot::Damaged => None,
            });
            if let Some(why) = unreadable
                && copies.all(|slot| matches!(slot.content, Slot::Unreadable(_)) || !has_root(slot.drive))
            {
                return Err(PoolError::Unopenable(format!(
                    "the root slot at byte {at} can be read on no drive that has it ({why}), and the newest root may be \
                     there; have a drive read it, or copy the drive to another one that does, then start again"
                )));
            }
        }
        let root = newest(&slots).ok_or_else(|| {
            let names: Vec<_> = self.voters().into_iter().map(|d| d.name().to_owned()).collect();
            PoolError::Unopenable(format!("no valid root on any of {}", names.join(", ")))
        })?;
        if root.epoch.get() > self.epoch().0 {
            let why = format!("it is of epoch {}, later than {} of the drives", root.epoch, self.epoch());
            return Err(PoolError::corrupt("the root", why));
        }
        self.generations.lock().insert(slice, CheckpointGeneration(root.generation.get()));
        Ok(root)
    }

    /// Writes the root, the newest that counts, to the voters that do not have it, and over what may be a newer one that does
    /// not count. Voters that have it are not touched: theirs may be the only one. Returns which slots could not be read, in
    /// words.
    pub(crate) async fn mend_roots(&self, slice: SliceId, root: &Root) -> Result<Vec<String>, PoolError> {
        let newest = self.generations.lock().get(&slice).copied();
        assert_eq!(
            newest,
            Some(CheckpointGeneration(root.generation.get())),
            "only the newest root is brought to other drives"
        );
        let slot = root.generation.get() as usize % 2;
        // NOTE: a newer one was unreadable or damaged when the newest root was looked for, and is not any more.
        let is_old = |bytes: &[u8]| Root::parse(bytes).is_some_and(|other| other.age() <= root.age());
        let is_blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let mut told = Vec::new();
        for drive in self.voters() {
            for (number, bytes) in drive.read_roots(slice).await.into_iter().enumerate() {
                let is_good = match &bytes {
                    Ok(bytes) if number == slot => bytes[..] == *root.as_bytes(),
                    Ok(bytes) => is_old(&bytes[..]) || is_blank(&bytes[..]),
                    Err(_) => false,
                };
                if !is_good {
                    drive.write_root(slice, number, Buf::copy_of(root.as_bytes())).await?;
                }
                if let Err(error) = bytes {
                    let (name, at) = (drive.name(), root_offset(slice, number));
                    told.push(format!(
                        "drive {name}: the root slot at byte {at} cannot be read ({error}); it was written anew from \
                         another drive's"
                    ));
                }
            }
        }
        Ok(told)
    }

    /// Writes a new root to its slot of every voter; durable on return.
    pub(crate) async fn harden_root(&self, slice: SliceId, root: &Root) -> Result<(), PoolError> {
        assert_eq!(root.magic.get(), ROOT_MAGIC, "what is written as a root is one");
        assert_eq!(root.pool, *self.pool().0.as_bytes(), "a root is of the pool of its drives");
        assert_eq!(root.slice.get(), u32::from(slice.0), "a root goes to the slots of its slice");
        assert_eq!(root.epoch.get(), self.epoch().0, "a root is of its owner's epoch");
        let before = self.generations.lock().insert(slice, CheckpointGeneration(root.generation.get()));
        assert!(before < Some(CheckpointGeneration(root.generation.get())), "generations of roots grow");
        // NOTE: no drive becomes a voter meanwhile, or it would lack this root.
        let _turn = self.rooting.lock().await;
        let slot = slot_of(root);
        let voters = self.voters();
        let writes = voters.iter().map(|drive| drive.write_root(slice, slot, Buf::copy_of(root.as_bytes())));
        for (drive, outcome) in voters.iter().zip(join_all(writes).await) {
            if let Err(error) = outcome {
                // Then it is no voter any more, and the root is on all that are.
                self.do_without(drive.index(), error.into()).await?;
            }
        }
        Ok(())
    }
}

/// A root that follows `root` and says the same, but for whether the pool was closed.
pub(crate) fn following(root: &Root, epoch: Epoch, closed: bool) -> Root {
    let mut next = *root;
    next.epoch = epoch.0.into();
    next.generation = (root.generation.get() + 1).into();
    next.closed = u32::from(closed).into();
    next.seal();
    next
}
