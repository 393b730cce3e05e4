//! Volumes that snapshot reserves keep offline: which, why, and the events about them.

use crate::{
    Array,
    reserve_watch::{Change, Scope},
    words::shortened,
};
use quoin_api::Severity;
use quoin_base::VolumeId;
use quoin_pool::PoolState;
use quoin_volume::{BlockDevice, OriginKind, Volume};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

impl Array {
    /// Names of the volumes that reserves keep offline.
    pub(crate) fn stopped_volumes(&self) -> Vec<String> {
        self.stopped_by(|_| true)
    }

    /// Why a volume refuses all I/O; `None` if it serves.
    pub(crate) fn why_offline(&self, volume: &Volume) -> Option<String> {
        if volume.is_stopped() {
            let scope = self.reserves().keeps_offline(volume.id());
            let whose = match scope {
                Some(Scope::Volume(_)) => "its snapshots hold more than its snapshot reserve".to_owned(),
                Some(scope @ Scope::Group(_)) => format!(
                    "the snapshots of {} hold more than its snapshot reserve",
                    self.reserve_object(scope).unwrap_or_default()
                ),
                _ => "snapshots hold more than the pool's snapshot reserve".to_owned(),
            };
            return Some(format!("{whose}: delete snapshots, or raise the reserve"));
        }
        match self.catalog().open_pool() {
            Err(reason) => Some(format!("the pool is offline: {reason}")),
            Ok(pool) => match pool.state() {
                PoolState::Online => None,
                PoolState::Offline { reason } => Some(format!("the pool is offline: {reason}")),
            },
        }
    }

    /// Makes volumes that reserves keep offline reject I/O, and all others serve it; records events.
    pub(crate) fn stop_volumes(&self) {
        let volumes = self.volumes().list();
        let names: BTreeMap<_, _> = volumes.iter().map(|volume| (volume.id(), volume.name())).collect();
        let mut told: BTreeMap<(bool, Scope), Vec<String>> = BTreeMap::new();
        {
            let mut reserves = self.reserves();
            let mut offline = BTreeMap::new();
            for scope in reserves.stopping() {
                for id in self.sources_in(scope, &volumes) {
                    offline.entry(id).or_insert(scope);
                }
            }
            volumes.iter().for_each(|volume| volume.set_stopped(offline.contains_key(&volume.id())));
            for Change { is_taken_offline, volume, scope } in reserves.take_offline(offline) {
                told.entry((is_taken_offline, scope)).or_default().extend(names.get(&volume).cloned());
            }
        }
        for ((added, scope), names) in told.into_iter().filter(|(_, names)| !names.is_empty()) {
            let object = self.reserve_object(scope).unwrap_or_else(|| "snapshot reserve".to_owned());
            let (severity, text) = if added {
                (
                    Severity::Critical,
                    format!(
                        "volumes taken offline because snapshots hold more than the snapshot reserve; they refuse all \
                         I/O until snapshots hold less: delete snapshots, or raise the reserve. Offline: {}",
                        names.join(", ")
                    ),
                )
            } else {
                (Severity::Notice, format!("volumes back online: {}", names.join(", ")))
            };
            self.log().record(severity, object, shortened(&text));
        }
    }

    pub(crate) fn stopped_by(&self, by: impl Fn(Scope) -> bool) -> Vec<String> {
        let ids = self.reserves().offline_by(by);
        ids.into_iter().filter_map(|id| Some(self.volumes().by_id(id)?.name())).collect()
    }

    /// The volumes of a reserve that have snapshots.
    pub(crate) fn sources_in(&self, scope: Scope, volumes: &[Arc<Volume>]) -> BTreeSet<VolumeId> {
        let covers = self.covered(scope);
        let origins = volumes.iter().filter_map(|volume| volume.origin());
        let snapshots = origins.filter(|origin| origin.kind == OriginKind::Snapshot);
        let sources = snapshots.map(|origin| origin.source);
        sources.filter(|source| covers.as_ref().is_none_or(|some| some.contains(source))).collect()
    }
}
