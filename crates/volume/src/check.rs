//! The offline check of the volumes in a pool's catalog.

use crate::{
    VolumeSpec,
    record::{VOLUME_OBJECT, VolumeRecord},
};
use quoin_pool::CheckReport;
use std::collections::BTreeMap;

/// What a check finds wrong with the volumes of a catalog: each object decodes, has a volume in the pool, and
/// a name of its own, and as much space kept for it as it is due; each volume of the pool has an object. Adds to the report.
pub fn check_volumes(report: &mut CheckReport) {
    let mut known = BTreeMap::new();
    let objects: Vec<_> = report.objects.iter().filter(|((kind, _), _)| *kind == VOLUME_OBJECT).collect();
    let mut found = Vec::new();
    for ((_, key), value) in objects {
        match VolumeRecord::decode(key, value) {
            Err(error) => found.push((format!("volume object {key}"), error.to_string())),
            Ok(record) => {
                let what = format!("volume {}", record.name);
                if !report.volume_ids.contains(&record.id) {
                    found.push((
                        what.clone(),
                        format!("the pool has no volume {}; its data is lost", record.id),
                    ));
                }
                let spec = VolumeSpec {
                    name: record.name.clone(),
                    size_bytes: record.size_bytes,
                    block_bytes: record.block_bytes,
                    thick: record.thick,
                    tags: record.tags.clone(),
                };
                if let Err(error) = spec.check() {
                    found.push((what.clone(), error.to_string()));
                }
                let kept = report.reservations.get(&record.id).copied().unwrap_or(0);
                if kept != record.reserved_bytes() {
                    let due = record.reserved_bytes();
                    found
                        .push((what.clone(), format!("the pool keeps {kept} bytes for it instead of {due}")));
                }
                if known.values().any(|name| *name == record.name) {
                    found.push((what, "two volumes have this name".to_owned()));
                }
                known.insert(record.id, record.name);
            }
        }
    }
    for id in report.volume_ids.iter().filter(|id| !known.contains_key(id)) {
        found.push((format!("volume {id} of the pool"), "no object of the catalog describes it".to_owned()));
    }
    found.into_iter().for_each(|(what, problem)| report.add(what, problem));
}
