//! Snapshot reserves: watch what snapshots hold, say when it is much, and do what the policy says when it is too much.
//!
//! The figure of what they hold is a lower bound: the pool's host data less the blocks mapped in volumes and clones,
//! which may share them. So nothing is deleted or stopped for space that snapshots do not hold.
//!
//! 1. There is one reserve for the pool, and one for each volume and group at most; each is enforced on its own.
//! 2. The reserve of a volume or group is deleted in the transaction that deletes the volume or group.
//! 3. What setting a reserve deletes or takes offline at once is confirmed first.

use crate::{
    Array, ArrayError, ReserveError, ReserveOf,
    catalog::Turn,
    events::Told,
    record::encode,
    reserve_choice::{Choice, Victim},
    reserve_watch::{Holding, Level, OWN_RESERVES_MAX, Overfull, ReserveRecord, Scope},
    words::{shortened, utc_text},
};
use quoin_api::{self as api, ReservePolicy, ReserveScope, Severity};
use quoin_base::VolumeId;
use quoin_pool::{Pool, PoolStats, Transaction};
use quoin_volume::{BlockDevice, OriginKind, Volume};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
/// When nothing could be deleted, the array retries after this time.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// The most snapshots that one transaction deletes; a set is smaller.
const DELETED_AT_ONCE: usize = quoin_volume::MEMBERS_MAX;
/// The most snapshots or volumes that a refusal names.
const NAMED_MAX: usize = 10;

/// As many of these as a message names.
fn some_of(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED_MAX);
    let named = names[..names.len() - more].join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

impl Array {
    /// All snapshot reserves: the pool's, whether it has one or not, those of volumes, those of groups.
    ///
    /// # Errors
    /// `Offline` while the pool has not been open since the array started.
    pub fn list_reserves(&self) -> Result<Vec<api::Reserve>, ArrayError> {
        self.require_catalog()?;
        let own = self.reserves().own_scopes();
        let mut reserves: Vec<_> = own.into_iter().filter_map(|scope| self.reserve_view(scope)).collect();
        reserves.sort_by(|a, b| (a.scope, &a.name).cmp(&(b.scope, &b.name)));
        Ok(self.reserve_view(Scope::Pool).into_iter().chain(reserves).collect())
    }

    /// The snapshot reserve of the pool, of a volume or of a group, whether it has one or not.
    ///
    /// # Errors
    /// `NotFound` or `NoGroup` if the volume or group does not exist. `Offline` while the pool has not been
    /// open since the array started.
    pub fn show_reserve(&self, of: &ReserveOf) -> Result<api::Reserve, ArrayError> {
        self.view_of(self.scope_of(of)?)
    }

    /// What setting a snapshot reserve would delete or take offline at once. Changes nothing.
    ///
    /// # Errors
    /// `NotFound` or `NoGroup` if the volume or group does not exist, [`ReserveError::Invalid`] for a reserve
    /// that cannot be. `Offline` while the pool is not open.
    pub async fn preview_reserve(
        &self,
        of: &ReserveOf,
        request: &api::ReserveSet,
    ) -> Result<api::ReservePreview, ArrayError> {
        let _turn = self.catalog().turn().await;
        let (pool, scope, record) = (self.pool()?, self.scope_of(of)?, ReserveRecord::of(request)?);
        Ok(self.preview(&pool, scope, &record))
    }

    /// Sets a snapshot reserve, or with `None` removes it.
    ///
    /// # Errors
    /// `NotFound` or `NoGroup` if the volume or group does not exist; [`ReserveError`] for a reserve that
    /// cannot be, is one too many, or has effects that were not confirmed. `Offline` or `Pool` if the pool
    /// cannot commit the change.
    pub async fn set_reserve(
        &self,
        of: &ReserveOf,
        request: Option<api::ReserveSet>,
    ) -> Result<api::Reserve, ArrayError> {
        let turn = self.catalog().turn().await;
        let (pool, scope) = (self.pool()?, self.scope_of(of)?);
        let record = request.as_ref().map(ReserveRecord::of).transpose()?;
        let before = self.reserves().record(scope);
        if record.is_none() && before.is_none() {
            return self.view_of(scope);
        }
        if let (Some(record), Some(request)) = (&record, &request) {
            self.require_room_for_reserve(scope)?;
            if !request.confirm {
                self.require_no_effect(scope, self.preview(&pool, scope, record))?;
            }
        }
        let (kind, key) = scope.place();
        let (tx, told) = match &record {
            None => (Transaction::new().delete(kind, &key), "removed".to_owned()),
            Some(record) => {
                let limit = self.limit_bytes(scope, record, &pool.stats());
                let told = format!("set to {limit} bytes, {} beyond", record.policy);
                (Transaction::new().put(kind, &key, encode(record)), told)
            }
        };
        let object = self.reserve_object(scope).unwrap_or_default();
        let told = if scope == Scope::Pool { told } else { format!("snapshot reserve {told}") };
        let (was, is) = (before.as_ref(), record.as_ref());
        let own = Told::new(object, told)
            .change("percent", was.and_then(|r| r.percent), is.and_then(|r| r.percent))
            .change("bytes", was.and_then(|r| r.bytes), is.and_then(|r| r.bytes))
            .change("policy", was.map(|r| r.policy), is.map(|r| r.policy));
        self.commit_told(&turn, tx, own).await?;
        match record {
            None => self.reserves().remove(scope),
            Some(record) => self.reserves().set(scope, record),
        }
        self.look_at_reserve(&pool, &pool.stats(), scope);
        self.stop_volumes();
        self.view_of(scope)
    }

    /// Adds to a transaction that the reserves of volumes that it deletes are deleted too.
    pub(crate) fn without_reserves(&self, tx: Transaction, volumes: &[Arc<Volume>]) -> Transaction {
        volumes.iter().fold(tx, |tx, volume| self.without_reserve(tx, Scope::Volume(volume.id())))
    }

    /// Adds to a transaction that a reserve is deleted.
    pub(crate) fn without_reserve(&self, tx: Transaction, scope: Scope) -> Transaction {
        let (kind, key) = scope.place();
        if self.reserves().is_set(scope) { tx.delete(kind, &key) } else { tx }
    }

    /// Forgets the reserves of volumes and groups that are deleted.
    pub(crate) fn forget_reserves(&self) {
        let scopes = self.reserves().scopes();
        let gone: Vec<_> = scopes.into_iter().filter(|scope| self.reserve_object(*scope).is_none()).collect();
        let mut reserves = self.reserves();
        gone.into_iter().for_each(|scope| reserves.remove(scope));
    }

    /// The reserves of volumes and groups as of the last look at them, for monitoring.
    pub(crate) fn reserve_figures(&self) -> Vec<crate::ReserveFigures> {
        let own = self.reserves().own_figures();
        let figures = own.into_iter().filter_map(|(scope, Holding { held_bytes, limit_bytes })| {
            let (kind, name) = self.reserve_name(scope)?;
            Some(crate::ReserveFigures { scope: kind, name: name?, limit_bytes, held_bytes })
        });
        figures.collect()
    }

    /// Looks how much of each reserve is in use, or of some if there are many; records events, takes volumes offline or
    /// back online. Returns the reserves for which something is to be deleted.
    pub(crate) fn look_at_reserves(&self, pool: &Pool, stats: &PoolStats) -> Vec<Scope> {
        let turn = self.reserves().turn();
        turn.iter().for_each(|scope| self.look_at_reserve(pool, stats, *scope));
        self.stop_volumes();
        let reserves = self.reserves();
        turn.into_iter().filter(|scope| reserves.overfull(*scope).is_some()).collect()
    }

    /// Looks at all of them, when the pool was opened.
    pub(crate) fn look_at_all_reserves(&self, pool: &Pool) {
        let all = self.reserves().scopes();
        let stats = pool.stats();
        all.into_iter().for_each(|scope| self.look_at_reserve(pool, &stats, scope));
        self.stop_volumes();
    }

    fn look_at_reserve(&self, pool: &Pool, stats: &PoolStats, scope: Scope) {
        let Some(object) = self.reserve_object(scope) else { return };
        let Some(record) = self.reserves().record(scope) else { return };
        let holding = self.holding(pool, stats, scope, &record);
        let Some((before, level)) = self.reserves().note(scope, holding) else { return };
        let Holding { held_bytes, limit_bytes } = holding;
        let share =
            format!("snapshots hold {held_bytes} bytes of the {limit_bytes} bytes of the snapshot reserve");
        let (severity, text) = match level {
            _ if level == before => return,
            Level::Full if record.policy == ReservePolicy::OfflineVolume => {
                (Severity::Warning, format!("{share}: volumes with snapshots are taken offline"))
            }
            Level::Full => (Severity::Warning, format!("{share}: the oldest that free space are deleted")),
            Level::Warning if level > before => (Severity::Warning, share),
            _ => (Severity::Info, format!("less again: {share}")),
        };
        self.log().record(severity, object, text);
    }

    /// Deletes the oldest snapshot or set that frees space, for the first of these reserves for which there is one.
    /// Does nothing while the space of earlier deletions is being reclaimed.
    pub(crate) async fn recover_reserves(&self, due: Vec<Scope>) {
        if due.is_empty() {
            return;
        }
        let turn = self.catalog().turn().await;
        let Ok(pool) = self.pool() else { return };
        let stats = pool.stats();
        if stats.removing_bytes > 0 || stats.sifting_entries > 0 || stats.joining_layers > 0 {
            return;
        }
        for scope in due {
            if self.recover_reserve(&turn, &pool, &stats, scope).await {
                return;
            }
        }
    }

    /// Whether something was deleted.
    async fn recover_reserve(&self, turn: &Turn<'_>, pool: &Pool, stats: &PoolStats, scope: Scope) -> bool {
        let Some(object) = self.reserve_object(scope) else { return false };
        let overfull = self.reserves().overfull(scope);
        let Some(Overfull { record, level, stuck }) = overfull else { return false };
        let now = self.world().now();
        if stuck.is_some_and(|since| now.since(since) < RETRY_AFTER) {
            return false;
        }
        let (mut choice, limit_bytes) = (self.choice(pool, scope), self.limit_bytes(scope, &record, stats));
        let holding = Holding { held_bytes: choice.held_bytes(), limit_bytes };
        if level.next(holding) != Level::Full {
            return false;
        }
        let victim = choice.choose_next();
        drop(choice);
        let outcome = match victim {
            Some(victim) => self.delete_victim(turn, &object, victim, holding).await.map(|()| true),
            None => Ok(false),
        };
        match outcome {
            Ok(true) => return true,
            Ok(false) if stuck.is_none() => {
                let text = "snapshots hold more than the snapshot reserve, and no snapshot that may be deleted frees \
                            space. Immutable, mapped and exported snapshots stay, and so does the newest snapshot of a \
                            deleted volume: raise the reserve, or delete snapshots";
                self.log().record(Severity::Error, object, text);
            }
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "a snapshot beyond the reserve was not deleted"),
        }
        self.reserves().note_stuck(scope, now);
        false
    }

    async fn delete_victim(
        &self,
        turn: &Turn<'_>,
        object: &str,
        victim: Victim,
        before: Holding,
    ) -> Result<(), ArrayError> {
        let Holding { held_bytes: held, limit_bytes: limit } = before;
        let Victim { moments, taken_ms, freed_bytes, held_bytes } = victim;
        let mut batches: Vec<Vec<Arc<Volume>>> = Vec::new();
        for moment in moments {
            match batches.last_mut().filter(|batch| batch.len() + moment.len() <= DELETED_AT_ONCE) {
                Some(batch) => batch.extend(moment),
                None => batches.push(moment),
            }
        }
        for batch in batches {
            let names: Vec<_> = batch.iter().map(|volume| volume.name()).collect();
            let text = format!(
                "snapshots held {held} bytes, the snapshot reserve is {limit} bytes: deleted the oldest that free space, \
                 taken {}, which gives back {freed_bytes} bytes: {}",
                utc_text(taken_ms),
                names.join(", ")
            );
            let own = Told::new(object, shortened(&text)).warning();
            let own = own.without("snapshots", &names).change("held_bytes", held, held_bytes);
            self.delete_all(turn, &batch, own).await?;
        }
        Ok(())
    }

    /// The choice for a reserve, as things are now.
    fn choice<'a>(&self, pool: &'a Pool, scope: Scope) -> Choice<'a> {
        let own = self.snapshots_in(scope).iter().map(|volume| volume.id()).collect();
        Choice::new(pool, own, self.volumes().list(), |volume| self.why_it_stays(volume).is_none())
    }

    /// How much snapshots hold of a reserve.
    fn holding(&self, pool: &Pool, stats: &PoolStats, scope: Scope, record: &ReserveRecord) -> Holding {
        Holding { held_bytes: self.held_in(pool, scope), limit_bytes: self.limit_bytes(scope, record, stats) }
    }

    /// The effects that a reserve would have at once.
    fn preview(&self, pool: &Pool, scope: Scope, record: &ReserveRecord) -> api::ReservePreview {
        let holding = self.holding(pool, &pool.stats(), scope, record);
        let Holding { held_bytes, limit_bytes } = holding;
        let mut preview = api::ReservePreview {
            limit_bytes,
            held_bytes,
            would_delete: Vec::new(),
            held_after_bytes: held_bytes,
            would_take_offline: Vec::new(),
        };
        let mut level = Level::Normal.next(holding);
        if record.policy == ReservePolicy::OfflineVolume {
            let volumes = self.volumes().list();
            let sources = self.sources_in(scope, &volumes);
            let stopping = |volume: &&Arc<Volume>| {
                level == Level::Full && sources.contains(&volume.id()) && !volume.is_stopped()
            };
            preview.would_take_offline =
                volumes.iter().filter(stopping).map(|volume| volume.name()).collect();
            return preview;
        }
        let mut choice = self.choice(pool, scope);
        while level == Level::Full {
            let Some(Victim { moments, taken_ms, freed_bytes, held_bytes }) = choice.choose_next() else {
                break;
            };
            let snapshots = moments.iter().flatten().map(|volume| volume.name()).collect();
            preview.would_delete.push(api::ReserveDeletion { snapshots, taken_ms, freed_bytes });
            preview.held_after_bytes = held_bytes;
            level = level.next(Holding { held_bytes, limit_bytes });
        }
        preview
    }

    /// Refuses to set a reserve that deletes snapshots or takes volumes offline.
    fn require_no_effect(&self, scope: Scope, preview: api::ReservePreview) -> Result<(), ArrayError> {
        let api::ReservePreview { would_delete, would_take_offline, .. } = preview;
        let freed: u64 = would_delete.iter().map(|deletion| deletion.freed_bytes).sum();
        let deleted: Vec<_> = would_delete.into_iter().flat_map(|deletion| deletion.snapshots).collect();
        let effect = match (deleted.as_slice(), would_take_offline.as_slice()) {
            ([], []) => return Ok(()),
            ([], offline) => format!("it would take these volumes offline at once: {}", some_of(offline)),
            (deleted, _) => format!(
                "it would delete these snapshots at once, which frees {freed} bytes: {}",
                some_of(deleted)
            ),
        };
        let which = self.reserve_object(scope).unwrap_or_default();
        Err(ReserveError::Unconfirmed { which, effect }.into())
    }

    fn require_room_for_reserve(&self, scope: Scope) -> Result<(), ArrayError> {
        if self.reserves().has_room_for(scope) {
            return Ok(());
        }
        let which = self.reserve_object(scope).unwrap_or_default();
        Err(ReserveError::TooMany { which, most: OWN_RESERVES_MAX }.into())
    }

    fn scope_of(&self, of: &ReserveOf) -> Result<Scope, ArrayError> {
        self.require_catalog()?;
        Ok(match of {
            ReserveOf::Pool => Scope::Pool,
            ReserveOf::Volume(name) => Scope::Volume(self.volume(name)?.id()),
            ReserveOf::Group(name) => Scope::Group(self.group(name)?.id),
        })
    }

    /// The kind of object that a reserve is for, and its name unless it is the pool; `None` if the object was deleted.
    fn reserve_name(&self, scope: Scope) -> Option<(ReserveScope, Option<String>)> {
        Some(match scope {
            Scope::Pool => (ReserveScope::Pool, None),
            Scope::Volume(id) => (ReserveScope::Volume, Some(self.volumes().by_id(id)?.name())),
            Scope::Group(id) => (ReserveScope::Group, Some(self.volumes().group_by_id(id)?.name)),
        })
    }

    /// The object of events of a reserve; `None` if it was deleted.
    pub(crate) fn reserve_object(&self, scope: Scope) -> Option<String> {
        let (kind, name) = self.reserve_name(scope)?;
        Some(name.map_or_else(|| "snapshot reserve".to_owned(), |name| format!("{kind} {name}")))
    }

    fn view_of(&self, scope: Scope) -> Result<api::Reserve, ArrayError> {
        self.require_catalog()?;
        // The caller has just found the volume or group by its name.
        self.reserve_view(scope).ok_or_else(|| ReserveError::Invalid.into())
    }

    fn reserve_view(&self, scope: Scope) -> Option<api::Reserve> {
        let (kind, name) = self.reserve_name(scope)?;
        let pool = self.catalog().open_pool().ok();
        let stats = pool.as_ref().map(|pool| pool.stats());
        let record = self.reserves().record(scope);
        let limit = record.as_ref().zip(stats.as_ref());
        Some(api::Reserve {
            scope: kind,
            name,
            percent: record.as_ref().and_then(|record| record.percent),
            limit_bytes: limit.map(|(record, stats)| self.limit_bytes(scope, record, stats)),
            policy: record.map(|record| record.policy),
            held_bytes: pool.map(|pool| self.held_in(&pool, scope)),
            offline_volumes: self.stopped_by(|by| by == scope),
        })
    }

    /// How much the snapshots of a reserve may hold.
    fn limit_bytes(&self, scope: Scope, record: &ReserveRecord, stats: &PoolStats) -> u64 {
        let Some(percent) = record.percent else { return record.bytes.unwrap_or(0) };
        let whole = match scope {
            Scope::Pool => stats.usable_bytes,
            Scope::Volume(id) => self.volumes().by_id(id).map_or(0, |volume| volume.size_bytes()),
            Scope::Group(id) => {
                let members = self.volumes().group_by_id(id).map(|group| self.volumes().members(&group));
                members.unwrap_or_default().iter().map(|volume| volume.size_bytes()).sum()
            }
        };
        whole / 100 * u64::from(percent)
    }

    /// How much space deleting all snapshots of a reserve frees.
    fn held_in(&self, pool: &Pool, scope: Scope) -> u64 {
        let snapshots = self.snapshots_in(scope);
        pool.space_of(&snapshots.iter().map(|volume| volume.id()).collect()).freed_bytes
    }

    /// The snapshots that a reserve limits.
    pub(crate) fn snapshots_in(&self, scope: Scope) -> Vec<Arc<Volume>> {
        let covers = self.covered(scope);
        let of_it = |volume: &Arc<Volume>| {
            let origin = volume.origin().filter(|origin| origin.kind == OriginKind::Snapshot);
            origin.is_some_and(|origin| covers.as_ref().is_none_or(|some| some.contains(&origin.source)))
        };
        let volumes = match &covers {
            None => self.volumes().list(),
            Some(some) => some.iter().flat_map(|id| self.volumes().forks_of(*id)).collect(),
        };
        let mut snapshots: Vec<_> = volumes.into_iter().filter(of_it).collect();
        snapshots.sort_by_key(|volume| volume.id());
        snapshots
    }

    /// The volumes whose snapshots a reserve limits; `None` for all.
    pub(crate) fn covered(&self, scope: Scope) -> Option<BTreeSet<VolumeId>> {
        match scope {
            Scope::Pool => None,
            Scope::Volume(id) => Some(BTreeSet::from([id])),
            Scope::Group(id) => {
                let group = self.volumes().group_by_id(id);
                Some(group.into_iter().flat_map(|group| group.members).collect())
            }
        }
    }
}
