//! What front ends keep of a volume over a restart: objects of the catalog beside the volume's record, which go with it.
//!
//! The volume keeps them for front ends, which say what they mean.

use crate::{
    BlockDevice, DeviceError, Kept, Volume,
    record::{RESERVATIONS_OBJECT, SETTINGS_OBJECT, key},
};
use parking_lot::Mutex;
use quoin_base::ByteRange;
use quoin_pool::{ObjectKind, Pool, Transaction};
use std::collections::BTreeMap;

impl Kept {
    const ALL: [Kept; 2] = [Kept::Reservations, Kept::Settings];

    fn object(self) -> ObjectKind {
        match self {
            Self::Reservations => RESERVATIONS_OBJECT,
            Self::Settings => SETTINGS_OBJECT,
        }
    }
}

/// What is kept of one volume, in the order of [`Kept::ALL`].
#[derive(Default)]
pub(crate) struct KeptBytes(Mutex<[Option<Vec<u8>>; Kept::ALL.len()]>);

impl KeptBytes {
    pub(crate) fn get(&self, what: Kept) -> Option<Vec<u8>> {
        self.0.lock()[what as usize].clone()
    }

    /// What is kept now, for another object of the same volume.
    pub(crate) fn copied(&self) -> Self {
        Self(Mutex::new(self.0.lock().clone()))
    }

    fn set(&self, what: Kept, bytes: Option<Vec<u8>>) {
        self.0.lock()[what as usize] = bytes;
    }
}

/// What the catalog keeps of all volumes.
pub(crate) struct KeptObjects([BTreeMap<String, Vec<u8>>; Kept::ALL.len()]);

impl KeptObjects {
    pub(crate) fn read(pool: &Pool) -> Self {
        Self(Kept::ALL.map(|what| pool.list(what.object()).into_iter().collect()))
    }

    /// Has a volume take over what the catalog says of it.
    pub(crate) fn restore(&mut self, volume: &Volume) {
        for what in Kept::ALL {
            volume.kept.set(what, self.0[what as usize].remove(&key(volume.id())));
        }
    }
}

impl Volume {
    /// Hardens what front ends have to know.
    pub(crate) async fn put_kept(&self, what: Kept, bytes: Option<Vec<u8>>) -> Result<(), DeviceError> {
        // NOTE: in turn with other changes of volumes: one that was deleted meanwhile gets no object any more.
        let _turn = self.marking.changes.lock().await;
        let whole = ByteRange::new(0, self.size_bytes());
        let pool = self.pool_for(whole)?;
        let tx = match &bytes {
            Some(bytes) => Transaction::new().put(what.object(), &key(self.id()), bytes.clone()),
            None => Transaction::new().delete(what.object(), &key(self.id())),
        };
        pool.commit(tx).await.map_err(|error| self.device_error(whole, error))?;
        self.kept.set(what, bytes);
        Ok(())
    }
}
