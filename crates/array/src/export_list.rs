//! The keeper of exports: as the catalog has them, and as NBD clients are served with them.
//!
//! Invariants:
//! 1. After each change exactly the exports whose volume and rules are known are served.
//! 2. A change has the turn to make changes.

use crate::{
    ArrayError, ExportError,
    catalog::Turn,
    permit::permit,
    record::{EXPORT_OBJECT, ExportRecord, decode},
};
use parking_lot::{RwLock, RwLockReadGuard};
use quoin_api as api;
use quoin_base::VolumeId;
use quoin_pool::Pool;
use quoin_target::{ExportClient, ExportRules, Exports};
use quoin_volume::{Volume, Volumes};
use std::{collections::BTreeMap, sync::Arc};

/// Exports by name, as the catalog has them.
pub(crate) type Exported = BTreeMap<String, ExportRecord>;

/// The keeper of exports.
#[derive(Default)]
pub(crate) struct ExportList {
    records: RwLock<Exported>,
    served: Arc<Exports<Volume>>,
}

impl ExportRecord {
    pub(crate) fn rules(&self) -> Result<ExportRules, ExportError> {
        ExportRules::new(&self.networks, &self.tls_clients)
            .map_err(|why| ExportError::Rule { name: self.name.clone(), why })
    }
}

/// Reads the exports in the catalog of a pool.
pub(crate) fn read_exports(pool: &Pool) -> Result<Exported, ArrayError> {
    let mut exported = Exported::new();
    for (key, value) in pool.list(EXPORT_OBJECT) {
        let record: ExportRecord = decode(&key, &value)?;
        record.rules().map_err(|error| ArrayError::Record { key: key.clone(), why: error.to_string() })?;
        exported.insert(key, record);
    }
    Ok(exported)
}

impl ExportList {
    /// The exports as the catalog has them.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Exported> {
        self.records.read()
    }

    /// The exports that are served.
    pub(crate) fn served(&self) -> &Arc<Exports<Volume>> {
        &self.served
    }

    /// Changes the exports, and with them the exports that are served.
    pub(crate) fn change(&self, _: &Turn<'_>, volumes: &Volumes, change: impl FnOnce(&mut Exported)) {
        let mut records = self.records.write();
        change(&mut records);
        self.served.retain(|name| records.contains_key(name));
        for record in records.values() {
            match (volumes.by_id(record.volume), record.rules()) {
                (Some(volume), Ok(rules)) => {
                    self.served.set(&record.name, volume, rules, permit(record.access()));
                }
                // An export whose volume or rules are unknown is shown to no client.
                _ => self.served.retain(|name| name != record.name),
            }
        }
    }

    /// The access that an export gives to clients.
    pub(crate) fn access_of(&self, name: &str) -> Option<api::Access> {
        self.read().get(name).map(ExportRecord::access)
    }

    /// The names under which a volume is exported.
    pub(crate) fn names_of(&self, volume: VolumeId) -> Vec<String> {
        let records = self.read();
        records.values().filter(|export| export.volume == volume).map(|export| export.name.clone()).collect()
    }

    /// The clients that are connected to an export.
    pub(crate) fn clients_of(&self, name: &str) -> Vec<ExportClient> {
        self.served.get(name).map(|export| export.clients()).unwrap_or_default()
    }
}
