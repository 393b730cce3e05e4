//! Reservations of a volume that survive a restart: an object of the catalog beside the volume's record, which goes with it.
//!
//! The volume keeps them for front ends, which say what they mean.

use crate::{
    BlockDevice, DeviceError, Volume,
    record::{RESERVATIONS_OBJECT, key},
};
use quoin_base::ByteRange;
use quoin_pool::Transaction;

impl Volume {
    /// Takes over what the catalog says.
    pub(crate) fn restore_reservations(&self, reservations: Option<Vec<u8>>) {
        *self.reservations.lock() = reservations;
    }

    /// Hardens what front ends have to know.
    pub(crate) async fn put_reservations(&self, reservations: Option<Vec<u8>>) -> Result<(), DeviceError> {
        // NOTE: in turn with other changes of volumes: one that was deleted meanwhile gets no object any more.
        let _turn = self.marking.changes.lock().await;
        let whole = ByteRange::new(0, self.size_bytes());
        let pool = self.pool_for(whole)?;
        let tx = match &reservations {
            Some(bytes) => Transaction::new().put(RESERVATIONS_OBJECT, &key(self.id()), bytes.clone()),
            None => Transaction::new().delete(RESERVATIONS_OBJECT, &key(self.id())),
        };
        pool.commit(tx).await.map_err(|error| self.device_error(whole, error))?;
        self.restore_reservations(reservations);
        Ok(())
    }
}
