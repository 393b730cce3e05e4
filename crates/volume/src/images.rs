//! Images of volumes: what hosts have copied is copied from them.
//!
//! A host that clones a machine sends thousands of commands, each of which copies a few MiB. An *image* is a hidden volume, forked
//! from the source. It serves all commands that come while the ranges they name are as they were when it was made, so that most
//! commands need neither a fork nor a checkpoint of their own. An object of the catalog names it.
//!
//! Promises:
//! 1. An image holds, of the range for which it was asked for, what the volume held at a moment of the request.
//! 2. It stays as long as anybody has it, and a while longer, for the next command.
//! 3. What is left of it after a crash is deleted when the pool is open again.

use crate::{
    BlockDevice, DeviceError, Volume, VolumeError, Volumes,
    image::{IMAGE_OBJECT, Image, ImageRecord},
    record::{encode, key},
};
use quoin_base::{ByteRange, VolumeId};
use quoin_pool::{PoolError, Transaction};
use quoin_world::Nanos;
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// An image that no command has asked for so long is deleted.
const IDLE: Duration = Duration::from_secs(10);
/// How long the deletion of images waits for destage before it asks for it: a drain would hold up the next image.
const PATIENCE: Duration = Duration::from_secs(60);

impl Volume {
    /// The latest image, if it holds what the volume has in this range.
    async fn fitting_image(&self, range: ByteRange) -> Result<Option<Arc<Image>>, DeviceError> {
        let Some((image, _)) = self.latest.0.lock().clone() else { return Ok(None) };
        let pool = self.pool_for(range)?;
        if Arc::as_ptr(&pool) != image.pool.as_ptr() {
            return Ok(None);
        }
        let is_same = pool.is_as_forked(self.id(), image.id, range).await;
        if !is_same.map_err(|error| self.device_error(range, error))? {
            return Ok(None);
        }
        if let Some((_, used)) = &mut *self.latest.0.lock() {
            *used = self.marking.world.now();
        }
        Ok(Some(image))
    }

    /// An image that holds what the volume has in this range now.
    pub(crate) async fn image_of(&self, range: ByteRange) -> Result<Arc<Image>, DeviceError> {
        if let Some(image) = self.fitting_image(range).await? {
            return Ok(image);
        }
        // One is made at a time. Whoever waited has one that was made since.
        let _turn = self.imaging.lock().await;
        if let Some(image) = self.fitting_image(range).await? {
            return Ok(image);
        }
        let image = Arc::new(self.make_image(range).await?);
        *self.latest.0.lock() = Some((image.clone(), self.marking.world.now()));
        Ok(image)
    }

    async fn make_image(&self, range: ByteRange) -> Result<Image, DeviceError> {
        let failed = |error: PoolError| self.device_error(range, error);
        let (pool, image) = {
            let _turn = self.marking.changes.lock().await;
            let pool = self.pool_for(range)?;
            let id = pool.next_volume_id_near(self.id());
            let record = ImageRecord::new(id, self.id());
            let (source, images) = (self.name(), self.marking.images.clone());
            // NOTE: before the transaction: also of one whose outcome stays unknown nothing is left.
            let image = Image { id, source, pool: Arc::downgrade(&pool), images };
            let tx = Transaction::new().put(IMAGE_OBJECT, &key(id), encode(&record));
            pool.commit(tx.fork(self.id(), id)).await.map_err(failed)?;
            (pool, image)
        };
        pool.settle_fork(image.id).await.map_err(failed)?;
        Ok(image)
    }

    /// Gives the range from byte `to` on what an image holds in `from`. Hardened on return.
    pub(crate) async fn take_from(&self, to: u64, image: &Image, from: ByteRange) -> Result<(), DeviceError> {
        let target = ByteRange::new(to, from.len);
        let _pass = self.enter_to_write(target).await?;
        let pool = self.writable_pool_for(target)?;
        if Arc::as_ptr(&pool) != image.pool.as_ptr() {
            let reason = "it went offline and was opened again".to_owned();
            return Err(DeviceError::Offline { volume: self.name(), reason });
        }
        let mut done = 0;
        while done < from.len {
            let rest = ByteRange::new(to + done, from.len - done);
            let copied = pool.copy_some(image.id, from.offset + done, self.id(), rest).await;
            done += copied.map_err(|error| match error {
                PoolError::Medium { volume, offset, reason, .. } if volume == image.id => {
                    DeviceError::Medium { volume: image.source.clone(), offset, reason }
                }
                error => self.device_error(rest, error),
            })?;
        }
        Ok(())
    }

    /// Lets go of its image if no command has asked for it for a while.
    fn let_go_of_idle_image(&self, now: Nanos) {
        self.latest.0.lock().take_if(|(_, used)| now.since(*used) >= IDLE);
    }
}

impl Volumes {
    /// Whether there are images that nobody needs any more.
    pub fn has_idle_images(&self) -> bool {
        let now = self.world.now();
        for volume in self.list() {
            volume.let_go_of_idle_image(now);
        }
        !self.images.retired.lock().is_empty()
    }

    /// Deletes images that nobody needs any more. Waits until what was copied from them is destaged.
    ///
    /// # Errors
    /// [`VolumeError::Offline`] if no pool is open, [`VolumeError::Pool`] if it goes offline meanwhile or refuses.
    pub async fn delete_idle_images(&self) -> Result<(), VolumeError> {
        let _deleting = self.images.deleting.lock().await;
        if self.images.retired.lock().is_empty() {
            return Ok(());
        }
        let pool = self.pool()?;
        let retired: BTreeSet<VolumeId> = {
            let mut retired = self.images.retired.lock();
            // Those of an earlier opening are listed anew by each opening.
            retired.retain(|_, of| of.as_ptr() == Arc::as_ptr(&pool));
            retired.keys().copied().collect()
        };
        // NOTE: after they were retired: nothing more is copied from them.
        pool.settle_copies(PATIENCE).await?;
        let _turn = self.changes.lock().await;
        let existing: BTreeSet<String> = pool.list(IMAGE_OBJECT).into_iter().map(|(key, _)| key).collect();
        for id in retired {
            // One that failed to be made may not be there.
            if existing.contains(&key(id)) {
                pool.commit(Transaction::new().delete(IMAGE_OBJECT, &key(id)).delete_volume(id)).await?;
            }
            self.images.retired.lock().remove(&id);
        }
        Ok(())
    }
}
