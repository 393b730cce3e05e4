//! The recycle bin: keeps deleted volumes for a set time, restores them on request, and frees their space early if the
//! pool needs it.
//!
//! Snapshots that schedules or the snapshot reserve delete do not enter it: they are deleted to keep a number, or to
//! free space.

use crate::{
    Array, ArrayError, BinError,
    bin_setting::BinSetting,
    catalog::Turn,
    events::Told,
    origin::kind,
    space::{freed_bytes, used_percent},
    words::{shortened, utc_text},
};
use quoin_api as api;
use quoin_pool::{Pool, PoolStats};
use quoin_volume::{BlockDevice, Recovery, Volume, VolumeError};
use std::sync::Arc;
use uuid::Uuid;

const WHAT: &str = "recycle bin";
/// The most volumes that one transaction deletes for good.
const PURGED_AT_ONCE: usize = 50;

impl Array {
    /// How long deleted volumes are kept, and what the recycle bin holds.
    ///
    /// # Errors
    /// `Offline` while the pool has not been open since the array started.
    pub fn show_recycle_bin(&self) -> Result<api::RecycleBin, ArrayError> {
        self.require_catalog()?;
        Ok(self.bin_view())
    }

    pub(crate) fn bin_view(&self) -> api::RecycleBin {
        let binned = self.volumes().binned();
        let pool = self.catalog().open_pool().ok();
        api::RecycleBin {
            keep_s: self.bin().seconds(),
            volumes: binned.len() as u64,
            held_bytes: pool.map(|pool| freed_bytes(&pool, &binned)),
        }
    }

    /// Sets for how long volumes are kept that are deleted from now on; 0 seconds: not at all.
    ///
    /// # Errors
    /// [`BinError::Keep`] for more than 100 years. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn set_recycle_bin(&self, request: api::RecycleBinSet) -> Result<api::RecycleBin, ArrayError> {
        let setting = BinSetting::of_seconds(request.keep_s)?;
        let turn = self.catalog().turn().await;
        let before = *self.bin();
        if setting == before {
            return self.show_recycle_bin();
        }
        let text = match setting.keep() {
            None => "turned off: volumes are deleted for good at once".to_owned(),
            Some(_) => format!("deleted volumes are kept for {} s", request.keep_s),
        };
        let own = Told::new(WHAT, text).change("keep_s", before.seconds(), request.keep_s);
        self.commit_told(&turn, setting.put(), own).await?;
        *self.bin() = setting;
        self.show_recycle_bin()
    }

    /// The deleted volumes that can be restored, oldest deletion first.
    ///
    /// # Errors
    /// `Offline` while the pool has not been open since the array started.
    pub fn list_deleted(&self) -> Result<Vec<api::DeletedVolume>, ArrayError> {
        self.require_catalog()?;
        Ok(self.volumes().binned().iter().map(|volume| self.deleted_view(volume)).collect())
    }

    /// One deleted volume, by its name or identity.
    ///
    /// # Errors
    /// [`BinError::NotFound`] if no deleted volume has the name or identity, [`BinError::Ambiguous`] if
    /// several have the name. `Offline` while the pool has not been open since the array started.
    pub fn show_deleted(&self, which: &str) -> Result<api::DeletedVolume, ArrayError> {
        Ok(self.deleted_view(&*self.deleted(which)?))
    }

    /// Restores a deleted volume: it is mapped to no host and in no group.
    ///
    /// # Errors
    /// [`BinError::NotFound`] or [`BinError::Ambiguous`] as in [`Array::show_deleted`];
    /// [`BinError::NameTaken`] if another volume has the name by now, [`BinError::CannotReserve`] if the pool
    /// cannot keep a thick volume's space. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn restore_deleted(
        self: &Arc<Self>,
        which: &str,
        request: api::RecycleBinRestore,
    ) -> Result<api::Volume, ArrayError> {
        let api::RecycleBinRestore { name, thin } = request;
        let turn = self.catalog().turn().await;
        let volume = self.deleted(which)?;
        let before = volume.name();
        let name = name.unwrap_or_else(|| before.clone());
        let thick = volume.is_thick() && !thin;
        let renamed = if name == before { String::new() } else { format!("; it was called {before}") };
        let own = Told::new(format!("volume {name}"), format!("restored from the recycle bin{renamed}"))
            .change("in_recycle_bin", true, false)
            .change("name", &before, &name)
            .change("thick", volume.is_thick(), thick);
        let (tx, staged) = self.stage(&turn, own);
        let recovery = Recovery { name: Some(name), thin };
        let refused = |error| match error {
            VolumeError::Exists { name, .. } => BinError::NameTaken { volume: which.to_owned(), name }.into(),
            VolumeError::CannotReserve { wanted_bytes, free_bytes, .. } => {
                BinError::CannotReserve { volume: which.to_owned(), wanted_bytes, free_bytes }.into()
            }
            error => ArrayError::not("volume not restored")(error),
        };
        let volume = self.volumes().recover(&volume, recovery, tx).await.map_err(refused)?;
        self.log().saved(staged);
        self.trim_volumes();
        self.stop_volumes();
        Ok(self.volume_view(&volume))
    }

    /// Deletes for good a volume that is in the recycle bin.
    ///
    /// # Errors
    /// [`BinError::NotFound`] or [`BinError::Ambiguous`] as in [`Array::show_deleted`]. `Offline` or `Pool`
    /// if the pool cannot commit the change.
    pub async fn purge_deleted(&self, which: &str) -> Result<(), ArrayError> {
        let turn = self.catalog().turn().await;
        let volume = self.deleted(which)?;
        let own = self.purged(&volume, "deleted for good from the recycle bin");
        self.purge(&turn, &[volume], own).await
    }

    /// Deletes volumes: puts them into the recycle bin, unless it is off or they are to be deleted for good `now`.
    pub(crate) async fn discard_all(
        &self,
        turn: &Turn<'_>,
        volumes: &[Arc<Volume>],
        own: Told,
        now: bool,
    ) -> Result<(), ArrayError> {
        let keep = self.bin().keep();
        let Some(keep) = keep.filter(|_| !now) else {
            return self.delete_all(turn, volumes, own).await;
        };
        let until_ms = self.world().wall_clock_ms().saturating_add(keep.as_millis() as u64);
        let own = own.and(&format!("; the recycle bin keeps the data until {}", utc_text(until_ms))).change(
            "in_recycle_bin",
            false,
            true,
        );
        self.remove_all(turn, volumes, own, Some(keep)).await
    }

    /// A refusal of the layer below under a title. One for want of space names the recycle bin if that holds some.
    pub(crate) fn not_for_bin(&self, title: &'static str, error: VolumeError) -> ArrayError {
        let VolumeError::CannotReserve { name, wanted_bytes, free_bytes } = error else {
            return ArrayError::not(title)(error);
        };
        match self.bin_view().held_bytes.filter(|held| *held > 0) {
            Some(held_bytes) => {
                BinError::HoldsSpace { title, name, wanted_bytes, free_bytes, held_bytes }.into()
            }
            None => ArrayError::not(title)(VolumeError::CannotReserve { name, wanted_bytes, free_bytes }),
        }
    }

    /// Deletes for good the volumes whose time is over and, oldest first, those whose space the pool needs.
    pub(crate) async fn tend_recycle_bin(&self, pool: &Pool, stats: &PoolStats) {
        if self.volumes().binned().is_empty() {
            return;
        }
        let expired: Vec<_> = self
            .volumes()
            .expired()
            .into_iter()
            .filter(|volume| self.volumes().is_purgeable(volume))
            .collect();
        for few in expired.chunks(PURGED_AT_ONCE) {
            let names: Vec<_> = few.iter().map(|volume| volume.name()).collect();
            let text = format!("deleted for good, the time to restore them is over: {}", names.join(", "));
            let own = Told::new(WHAT, shortened(&text));
            self.purge_or_wait(few, own).await;
        }
        if self.space().needs_bin(stats) && stats.sifting_entries == 0 && stats.joining_layers == 0 {
            self.empty_some(pool, stats).await;
        }
    }

    /// Deletes for good the oldest volume whose deletion frees anything, and those without which it would not.
    async fn empty_some(&self, pool: &Pool, stats: &PoolStats) {
        let may_go = |volume: &Arc<Volume>| self.volumes().is_purgeable(volume);
        let binned: Vec<_> = self.volumes().binned().into_iter().filter(may_go).collect();
        let used = used_percent(stats);
        for volume in fewest_that_free(&binned, |volumes| freed_bytes(pool, volumes)) {
            let text = format!("deleted for good early: the pool is {used:.0} % full and needs the space");
            let own = self.purged(&volume, &text).warning();
            self.purge_or_wait(&[volume], own).await;
        }
    }

    async fn purge_or_wait(&self, volumes: &[Arc<Volume>], own: Told) {
        let turn = self.catalog().turn().await;
        if let Err(error) = self.purge(&turn, volumes, own).await {
            tracing::debug!(%error, "the recycle bin is looked at again");
        }
    }

    async fn purge(&self, turn: &Turn<'_>, volumes: &[Arc<Volume>], own: Told) -> Result<(), ArrayError> {
        let (tx, staged) = self.stage(turn, own);
        self.volumes().purge(volumes, tx).await.map_err(ArrayError::not("volume not deleted for good"))?;
        self.log().saved(staged);
        Ok(())
    }

    /// The event of the final deletion of a volume in the bin.
    fn purged(&self, volume: &Volume, text: &str) -> Told {
        let deleted = volume.deleted().map(|deleted| utc_text(deleted.at_ms)).unwrap_or_default();
        Told::new(format!("volume {}", volume.name()), format!("{text}; it was deleted on {deleted}"))
            .without("uuid", volume.uuid())
            .without("size_bytes", volume.size_bytes())
    }

    /// The deleted volume of this identity or name.
    fn deleted(&self, which: &str) -> Result<Arc<Volume>, ArrayError> {
        self.require_catalog()?;
        if let Some(volume) = Uuid::try_parse(which).ok().and_then(|uuid| self.volumes().binned_by_uuid(uuid))
        {
            return Ok(volume);
        }
        let mut named = self.volumes().binned();
        named.retain(|volume| volume.name() == which);
        match named.as_slice() {
            [] => Err(BinError::NotFound { which: which.to_owned() }.into()),
            [volume] => Ok(volume.clone()),
            many => {
                let told = |volume: &Arc<Volume>| {
                    let deleted = volume.deleted().map(|deleted| utc_text(deleted.at_ms)).unwrap_or_default();
                    format!("{} (deleted on {deleted})", volume.uuid())
                };
                let which = which.to_owned();
                Err(BinError::Ambiguous { which, volumes: many.iter().map(told).collect() }.into())
            }
        }
    }

    fn deleted_view(&self, volume: &Volume) -> api::DeletedVolume {
        let stats = volume.stats();
        let deleted = volume.deleted();
        api::DeletedVolume {
            name: volume.name(),
            uuid: volume.uuid(),
            kind: kind(volume),
            size_bytes: volume.size_bytes(),
            block_bytes: volume.block_bytes(),
            thick: volume.is_thick(),
            tags: volume.tags(),
            folder: volume.folder().into(),
            origin: volume.origin().map(|origin| self.origin_view(&origin)),
            created_ms: volume.created_ms(),
            deleted_ms: deleted.as_ref().map_or(0, |deleted| deleted.at_ms),
            deleted_by: deleted.and_then(|deleted| deleted.by),
            expires_ms: self.volumes().expires_ms(volume).unwrap_or(0),
            mapped_bytes: stats.map(|stats| stats.mapped_bytes),
            freed_by_delete_bytes: stats.map(|stats| stats.freed_by_delete_bytes),
        }
    }
}

/// Of items, oldest first, the fewest that free anything, from the shortest prefix of the list that does; none if all
/// together free nothing. More items never free less.
fn fewest_that_free<T: Clone>(items: &[T], freed: impl Fn(&[T]) -> u64) -> Vec<T> {
    let frees = |some: &[T], needed: &[T]| freed(&[some, needed].concat()) > 0;
    if !frees(items, &[]) {
        return Vec::new();
    }
    let ends = last_that(items.len(), |end| !frees(&items[..end], &[]));
    // The last item of that prefix is needed. Of those before it, the newest possible are taken.
    let (mut needed, mut rest) = (vec![items[ends].clone()], &items[..ends]);
    // The space that the items free may change meanwhile: at worst the items run out.
    while !rest.is_empty() && needed.len() < PURGED_AT_ONCE && !frees(&[], &needed) {
        let at = last_that(rest.len(), |begin| frees(&rest[begin..], &needed));
        needed.push(rest[at].clone());
        rest = &rest[at + 1..];
    }
    needed.rotate_left(1);
    needed
}

/// The last number below `end` for which `holds` is true. `holds` must be true for 0 and false for every number after
/// one for which it is false.
fn last_that(end: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut is, mut is_not) = (0, end);
    while is_not - is > 1 {
        let middle = is.midpoint(is_not);
        if holds(middle) {
            is = middle;
        } else {
            is_not = middle;
        }
    }
    is
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_free_anything_go_and_no_more() {
        // Each frees what it says alone; 7 and 8 share what only both free.
        let freed = |items: &[u32]| {
            let alone: u64 = items.iter().filter(|item| **item >= 100).map(|item| u64::from(*item)).sum();
            alone + if items.contains(&7) && items.contains(&8) { 50 } else { 0 }
        };
        assert_eq!(fewest_that_free(&[100, 200], freed), [100]);
        assert_eq!(fewest_that_free(&[1, 2, 200, 100], freed), [200]);
        assert_eq!(fewest_that_free(&[1, 7, 2, 8, 200], freed), [7, 8]);
        // Three that free something only together, and many that do not.
        let three = |items: &[u32]| u64::from([5, 60, 90].iter().all(|one| items.contains(one)));
        assert_eq!(fewest_that_free(&(0..99).collect::<Vec<_>>(), three), [5, 60, 90]);
        assert_eq!(fewest_that_free(&[1, 7, 2], freed), [0_u32; 0]);
        assert_eq!(fewest_that_free(&[], freed), [0_u32; 0]);
    }
}
