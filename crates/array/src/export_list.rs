//! Exports as the catalog has them.

use crate::{
    ArrayError, ExportError,
    record::{EXPORT_OBJECT, ExportRecord, decode},
};
use quoin_pool::Pool;
use quoin_target::ExportRules;
use std::collections::BTreeMap;

/// Exports by name, as the catalog has them.
pub(crate) type Exported = BTreeMap<String, ExportRecord>;

impl ExportRecord {
    pub(crate) fn rules(&self) -> Result<ExportRules, ExportError> {
        ExportRules::new(&self.networks, &self.tls_clients)
            .map_err(|why| ExportError::Rule { name: self.name.clone(), why })
    }
}

pub(crate) fn read_exports(pool: &Pool) -> Result<Exported, ArrayError> {
    let mut exported = Exported::new();
    for (key, value) in pool.list(EXPORT_OBJECT) {
        let record: ExportRecord = decode(&key, &value)?;
        record.rules().map_err(|error| ArrayError::Record { key: key.clone(), why: error.to_string() })?;
        exported.insert(key, record);
    }
    Ok(exported)
}
