//! What a volume is by its origin: its kind, the moment that a snapshot shows, and how new snapshots are described.

use quoin_api as api;
use quoin_volume::{BlockDevice, ForkSpec, NAME_LEN_MAX, OriginKind, Tags, Volume};
use std::sync::Arc;

/// The kind of a volume.
pub(crate) fn kind(volume: &Volume) -> api::VolumeKind {
    match volume.origin().map(|origin| origin.kind) {
        _ if volume.is_template() => api::VolumeKind::Template,
        Some(OriginKind::Snapshot) => api::VolumeKind::Snapshot,
        Some(OriginKind::Clone) => api::VolumeKind::Clone,
        None => api::VolumeKind::Volume,
    }
}

/// Whether a volume is a snapshot.
pub(crate) fn is_snapshot(volume: &Volume) -> bool {
    volume.origin().is_some_and(|origin| origin.kind == OriginKind::Snapshot)
}

/// When a snapshot was taken, and the name that it shares with those of its set.
pub(crate) type Moment = (u64, String);

/// What only the snapshots or clones of one set have in common.
pub(crate) fn moment_of(volume: &Volume) -> Option<Moment> {
    let origin = volume.origin()?;
    let name = origin.set.map_or_else(|| volume.name(), |set| format!("{}/{}", set.group, set.name));
    Some((origin.taken_ms, name))
}

/// A snapshot, thin, read-only and without tags.
pub(crate) fn snapshot_spec(source: Arc<Volume>, name: String) -> ForkSpec {
    let (kind, tags) = (OriginKind::Snapshot, Tags::new());
    let (compression, deduplication, folder, set, retain) = (None, None, None, None, None);
    ForkSpec {
        source,
        name,
        kind,
        thick: false,
        compression,
        deduplication,
        tags,
        folder,
        set,
        protected: true,
        retain,
    }
}

/// `VOLUME.SUFFIX`, of a volume's name as much as fits.
pub(crate) fn suffixed(volume: &str, suffix: &str) -> String {
    let room = NAME_LEN_MAX.saturating_sub(suffix.len() + 1);
    format!("{}.{suffix}", &volume[..volume.len().min(room)])
}
