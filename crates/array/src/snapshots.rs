//! Snapshots and clones, as management sees them: taken, restored from, refreshed, promoted, deleted.

use crate::{
    Array, ArrayError, ForkError,
    catalog::Turn,
    compression::of_api,
    events::Told,
    origin::{snapshot_spec, suffixed},
    words::{shortened, utc_text},
};
use quoin_api::{self as api, Deduplication, Utc};
use quoin_volume::{BlockDevice, Folder, ForkSpec, Origin, OriginKind, Replacement, Volume};
use std::{sync::Arc, time::Duration};

/// Which snapshots are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotSelection {
    /// Only of this volume.
    pub of: Option<String>,
    /// Only of the sets of this group.
    pub group: Option<String>,
}

impl Array {
    /// Takes a snapshot of a volume.
    ///
    /// # Errors
    /// `NotFound` if the volume does not exist; `Name`, `Exists`, `Tag` or `RetentionTime` for what is asked;
    /// `CannotReserve` or `HoldsSpace` if the pool has too little space. `Offline` or `Pool` if the pool
    /// cannot commit the change.
    pub async fn create_snapshot(
        self: &Arc<Self>,
        request: api::SnapshotCreate,
    ) -> Result<api::Volume, ArrayError> {
        let api::SnapshotCreate { volume, name, tags, writable, retain_s } = request;
        let turn = self.catalog().turn().await;
        let source = self.volume(&volume)?;
        let name = name.unwrap_or_else(|| self.free_name(&volume));
        let retain = retain_s.map(Duration::from_secs);
        let spec = ForkSpec { tags, retain, protected: !writable, ..snapshot_spec(source, name) };
        self.fork_one(&turn, spec).await
    }

    /// Makes a clone of a volume, snapshot or clone.
    ///
    /// # Errors
    /// `NotFound` if the source does not exist; `Name`, `Exists`, `Tag` or `Folder` for what is asked;
    /// `CannotReserve` or `HoldsSpace` if the pool cannot keep a thick clone's space. `Offline` or `Pool` if
    /// the pool cannot commit the change.
    pub async fn clone_volume(
        self: &Arc<Self>,
        source: &str,
        request: api::CloneCreate,
    ) -> Result<api::Volume, ArrayError> {
        let api::CloneCreate { name, thick, tags, folder } = request;
        let folder = folder.map(|path| Folder::parse(&path)).transpose();
        let folder = folder.map_err(ArrayError::not("clone not made"))?;
        let turn = self.catalog().turn().await;
        let source = self.volume(source)?;
        let (kind, protected) = (OriginKind::Clone, false);
        let thick = thick || self.policy_thick(&source) == Some(true);
        let compression = self.policy_compression(&source).map(of_api);
        let deduplication = self.policy_deduplication(&source).map(Deduplication::is_on);
        let spec = ForkSpec {
            kind,
            thick,
            compression,
            deduplication,
            tags,
            folder,
            protected,
            ..snapshot_spec(source, name)
        };
        self.fork_one(&turn, spec).await
    }

    async fn fork_one(self: &Arc<Self>, turn: &Turn<'_>, spec: ForkSpec) -> Result<api::Volume, ArrayError> {
        let (made, title) = match spec.kind {
            OriginKind::Snapshot => ("snapshot taken", "snapshot not taken"),
            OriginKind::Clone => ("clone made", "clone not made"),
        };
        let kept =
            spec.retain.map(|time| format!(", immutable for {} s", time.as_secs())).unwrap_or_default();
        let text = format!("{made} of volume {}{kept}", spec.source.name());
        let shown = match spec.kind {
            OriginKind::Snapshot => format!("snapshot {}", spec.name),
            OriginKind::Clone => format!("volume {}", spec.name),
        };
        let own = Told::new(format!("volume {}", spec.name), text)
            .answered_with(shown)
            .with("kind", spec.kind)
            .with("source", spec.source.name())
            .with("size_bytes", spec.source.size_bytes())
            .with("writable", !spec.protected)
            .with("retain_s", spec.retain.map(|time| time.as_secs()))
            .with("folder", spec.folder.as_ref().map(ToString::to_string))
            .with("tags", &spec.tags);
        let (tx, staged) = self.stage(turn, own);
        let made = self.volumes().fork(vec![spec], tx).await;
        let made = made.map_err(|error| self.not_for_bin(title, error))?;
        self.log().saved(staged);
        self.trim_volumes();
        Ok(self.volume_view(&made[0]))
    }

    /// The snapshots that are selected, oldest first.
    ///
    /// # Errors
    /// `NotFound` or `NoGroup` if the selected volume or group does not exist. `Offline` while the pool has
    /// not been open since the array started.
    pub fn list_snapshots(&self, selection: &SnapshotSelection) -> Result<Vec<api::Volume>, ArrayError> {
        let of = selection.of.as_ref().map(|name| self.volume(name)).transpose()?.map(|volume| volume.id());
        self.require_catalog()?;
        let group = selection.group.as_ref().map(|name| self.group(name)).transpose()?.map(|group| group.id);
        let chosen = |origin: &Origin| {
            origin.kind == OriginKind::Snapshot
                && of.is_none_or(|of| origin.source == of)
                && group.is_none_or(|group| origin.set.as_ref().is_some_and(|set| set.group == group))
        };
        let volumes = of.map_or_else(|| self.volumes().list(), |of| self.volumes().forks_of(of));
        let snapshots = volumes.iter().filter(|volume| volume.origin().as_ref().is_some_and(chosen));
        Ok(snapshots.map(|volume| self.volume_view(volume)).collect())
    }

    /// One snapshot or clone.
    ///
    /// # Errors
    /// `NotFound` if the volume does not exist, [`ForkError::NotForked`] if it is neither a snapshot nor a
    /// clone. `Offline` while the pool has not been open since the array started.
    pub fn show_snapshot(&self, name: &str) -> Result<api::Volume, ArrayError> {
        Ok(self.volume_view(&self.forked(name)?.0))
    }

    /// Restores a volume to the content of a snapshot or clone.
    ///
    /// # Errors
    /// `NotFound` if a volume does not exist, [`ForkError::SourceDeleted`] if the source is gone and no other
    /// is named; [`ForkError::Modified`] or `InUse` without `force`; `IsTemplate` or `Immutable` for the
    /// target. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn restore_snapshot(
        self: &Arc<Self>,
        name: &str,
        request: api::SnapshotRestore,
    ) -> Result<api::Volume, ArrayError> {
        let api::SnapshotRestore { to, keep, force } = request;
        let turn = self.catalog().turn().await;
        let source = self.volume(name)?;
        let target = match to {
            Some(to) => self.volume(&to)?,
            None => self.source_of(name, false)?,
        };
        let replacement = Replacement { target: target.clone(), source, refreshes: false };
        let keep = keep.map(|keep| snapshot_spec(target.clone(), keep));
        let own = Told::new(format!("volume {}", target.name()), format!("restored from {name}"));
        self.replace(&turn, vec![replacement], keep.into_iter().collect(), own, force).await?;
        Ok(self.volume_view(&target))
    }

    /// Replaces the content of a snapshot or clone by the current content of its source or of another volume.
    ///
    /// # Errors
    /// [`ForkError::NotForked`], [`ForkError::OneOfSet`] or [`ForkError::SourceDeleted`] if it cannot be
    /// refreshed by itself; `InUse` without `force`; `Immutable` for the target. `Offline` or `Pool` if the
    /// pool cannot commit the change.
    pub async fn refresh_snapshot(
        self: &Arc<Self>,
        name: &str,
        request: api::SnapshotRefresh,
    ) -> Result<api::Volume, ArrayError> {
        let api::SnapshotRefresh { from, force } = request;
        let turn = self.catalog().turn().await;
        let (target, origin) = self.forked(name)?;
        if let Some((group, set)) = self.set_of(&origin) {
            return Err(ForkError::OneOfSet { name: name.to_owned(), group, set }.into());
        }
        let source = match from {
            Some(from) => self.volume(&from)?,
            None => self.source_of(name, true)?,
        };
        let text = format!("refreshed from volume {}", source.name());
        let own = Told::new(format!("volume {name}"), text).change(
            "source",
            self.source_name(&origin),
            source.name(),
        );
        let replacement = Replacement { target: target.clone(), source, refreshes: true };
        self.replace(&turn, vec![replacement], Vec::new(), own, force).await?;
        Ok(self.volume_view(&target))
    }

    /// Makes a snapshot or clone a volume in its own right.
    ///
    /// # Errors
    /// `NotFound` if the volume does not exist, [`ForkError::NotForked`] if it is neither a snapshot nor a
    /// clone; `Immutable` if it is immutable. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn promote_snapshot(&self, name: &str) -> Result<api::Volume, ArrayError> {
        let turn = self.catalog().turn().await;
        let (volume, origin) = self.forked(name)?;
        let source = self.source_name(&origin);
        let set = self.set_of(&origin);
        let own =
            Told::new(format!("volume {name}"), format!("promoted: no longer linked to volume {source}"))
                .change("kind", origin.kind, api::VolumeKind::Volume)
                .without("source", source)
                .without("taken_ms", origin.taken_ms)
                .without("group", set.as_ref().map(|(group, _)| group))
                .without("set", set.as_ref().map(|(_, set)| set))
                .without("modified_ms", volume.modified_ms())
                .change("writable", !volume.is_protected(), true);
        let (tx, staged) = self.stage(&turn, own);
        self.volumes().promote(&volume, tx).await.map_err(ArrayError::not("not promoted"))?;
        self.log().saved(staged);
        Ok(self.volume_view(&volume))
    }

    /// Deletes a snapshot or clone; see [`Array::delete_volume`].
    ///
    /// # Errors
    /// [`ForkError::NotForked`] if it is neither a snapshot nor a clone; else as [`Array::delete_volume`].
    pub async fn delete_snapshot(&self, name: &str, deletion: api::Deletion) -> Result<(), ArrayError> {
        self.forked(name)?;
        self.delete_volume(name, deletion).await
    }

    /// Replaces the content of volumes; before it, and without a write in between, makes the snapshots of `keep`.
    ///
    pub(crate) async fn replace(
        self: &Arc<Self>,
        turn: &Turn<'_>,
        replacements: Vec<Replacement>,
        keep: Vec<ForkSpec>,
        own: Told,
        force: bool,
    ) -> Result<(), ArrayError> {
        let title = "content not replaced";
        let targets: Vec<_> = replacements.iter().map(|r| r.target.clone()).collect();
        let modified: Vec<_> = replacements.iter().filter_map(|r| told_modified(&r.source)).collect();
        if !modified.is_empty() && !force {
            return Err(ForkError::Modified { modified }.into());
        }
        let forced = self.require_no_users(title, &targets, force)?;
        let though =
            if modified.is_empty() { String::new() } else { format!(", though {}", modified.join("; ")) };
        let own = told_of_content(own.and(&though), &replacements, &keep).and(&forced);
        let held = self.volumes().hold(replacements).await.map_err(ArrayError::not(title))?;
        if !keep.is_empty() {
            let kept = keep.iter().map(|spec| spec.name.clone()).collect::<Vec<_>>().join(", ");
            let text = shortened(&format!("the content before the restore is kept as {kept}"));
            let names: Vec<_> = keep.iter().map(|spec| &spec.name).collect();
            let first = Told::new(own.object.clone(), text).with("snapshots", names).first_step();
            let (tx, staged) = self.stage(turn, first);
            self.volumes().fork(keep, tx).await.map_err(ArrayError::not(title))?;
            self.log().saved(staged);
        }
        let (tx, staged) = self.stage(turn, own);
        let outcome = self.volumes().replace(&held, tx).await;
        drop(held);
        // Also after a failure, which may leave it open what took effect.
        targets.iter().for_each(|target| self.export_list().served().disconnect(target.uuid()));
        outcome.map_err(ArrayError::not(title))?;
        self.log().saved(staged);
        self.trim_volumes();
        Ok(())
    }

    /// The snapshot or clone of this name, and where it comes from.
    fn forked(&self, name: &str) -> Result<(Arc<Volume>, Origin), ArrayError> {
        let volume = self.volume(name)?;
        match volume.origin() {
            Some(origin) => Ok((volume, origin)),
            None => Err(ForkError::NotForked { name: name.to_owned() }.into()),
        }
    }

    /// The volume that a snapshot or clone comes from.
    fn source_of(&self, name: &str, refresh: bool) -> Result<Arc<Volume>, ArrayError> {
        let (_, origin) = self.forked(name)?;
        self.volumes().by_id(origin.source).ok_or_else(|| {
            let (name, source_name) = (name.to_owned(), origin.source_name);
            let source = self.volumes().binned().into_iter().find(|volume| volume.id() == origin.source);
            let in_bin = source.map(|volume| volume.uuid());
            ForkError::SourceDeleted { name, source_name, refresh, in_bin }.into()
        })
    }

    fn source_name(&self, origin: &Origin) -> String {
        self.volumes().by_id(origin.source).map_or_else(|| origin.source_name.clone(), |volume| volume.name())
    }

    /// The group and set that a snapshot is one of.
    fn set_of(&self, origin: &Origin) -> Option<(String, String)> {
        let set = origin.set.as_ref()?;
        Some((self.volumes().group_by_id(set.group)?.name, set.name.clone()))
    }

    pub(crate) fn origin_view(&self, origin: &Origin) -> api::Origin {
        let set = self.set_of(origin);
        api::Origin {
            kind: match origin.kind {
                OriginKind::Snapshot => api::OriginKind::Snapshot,
                OriginKind::Clone => api::OriginKind::Clone,
            },
            source: self.source_name(origin),
            source_deleted: self.volumes().by_id(origin.source).is_none(),
            taken_ms: origin.taken_ms,
            group: set.as_ref().map(|(group, _)| group.clone()),
            set: set.map(|(_, set)| set),
        }
    }

    /// A name for a snapshot created without one: the name of the volume and the time.
    fn free_name(&self, volume: &str) -> String {
        let name = suffixed(volume, &Utc::of_ms(self.world().wall_clock_ms()).stamp());
        let numbered = (2..).map(|n| suffixed(volume, &format!("{}-{n}", &name[name.len() - 15..])));
        std::iter::once(name.clone())
            .chain(numbered)
            .find(|name| self.volumes().get(name).is_err())
            .unwrap_or(name)
    }
}

/// Adds to the event of a replacement where the new content comes from, what becomes of the previous content, and what
/// changes with it.
fn told_of_content(own: Told, replacements: &[Replacement], keep: &[ForkSpec]) -> Told {
    let mut own = own;
    let one_or_all = |names: Vec<String>| match <[String; 1]>::try_from(names) {
        Ok([name]) => serde_json::Value::from(name),
        Err(names) => names.into(),
    };
    let refreshes = replacements.iter().any(|replacement| replacement.refreshes);
    let sources = one_or_all(replacements.iter().map(|r| r.source.name()).collect());
    let taken_ms = |volume: &Volume| volume.origin().map(|origin| origin.taken_ms);
    if refreshes {
        let before = replacements.iter().filter_map(|r| taken_ms(&r.target)).min();
        own = own.with("refreshed_from", sources).with("previous_taken_ms", before);
        own = own.without("modified_ms", replacements.iter().filter_map(|r| r.target.modified_ms()).min());
    } else {
        let taken = replacements.iter().filter_map(|r| taken_ms(&r.source)).min();
        let names: Vec<_> = keep.iter().map(|spec| spec.name.clone()).collect();
        let (kept, told) = if names.is_empty() {
            ("not kept".into(), "; the previous content is not kept".to_owned())
        } else {
            let told = format!("; the previous content is kept as {}", names.join(", "));
            (one_or_all(names), told)
        };
        own = own.with("restored_from", sources).with("taken_ms", taken).with("previous_content", kept);
        own = own.and(&taken.map(|ms| format!("; it was taken on {}", utc_text(ms))).unwrap_or_default());
        own = own.and(&told);
    }
    for Replacement { target, source, .. } in replacements {
        let field = match replacements {
            [_] => "size_bytes".to_owned(),
            _ => format!("size_bytes of {}", target.name()),
        };
        own = own.change(&field, target.size_bytes(), source.size_bytes());
    }
    own
}

/// Says that a snapshot was modified after it was taken, and when; `None` if it was not.
fn told_modified(snapshot: &Volume) -> Option<String> {
    let at_ms = snapshot.modified_ms()?;
    Some(format!("snapshot {} was modified on {}", snapshot.name(), utc_text(at_ms)))
}
