//! Snapshot reserves: one is set for a while, and what it does meanwhile is held against what it may do.
//!
//! 1. It deletes nothing but snapshots of what it limits, and sets of groups that they belong to as a whole; none that is
//!    immutable or mapped, and of a volume that was deleted not the newest. An event names what it deleted.
//! 2. It stops I/O only of volumes that have snapshots, and only while it is set.
//! 3. What it would do at once it does not do unless that was confirmed.
//!
//! While it is set no other change is about the volumes that it concerns: what goes goes by the reserve.

use crate::{
    admin::{Admin, kind},
    change::Change,
    episode::Episode,
    model::Model,
    scenario::log_uniform,
    shared::Shared,
    vol::{Named, Vol},
};
use quoin_api::{OriginKind, ReservePolicy, ReserveSet};
use quoin_array::{Array, EventSelection, ReserveOf};
use quoin_base::{KIB, MIB, SECTOR_BYTES};
use quoin_volume::{BlockDevice, DeviceError};
use quoin_world::World;
use rand::RngExt;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
    time::Duration,
};

/// How often, and at most how many times, it is looked what a reserve does.
const LOOK_EVERY: Duration = Duration::from_millis(700);
const MOST_LOOKS: u32 = 12;

impl Admin {
    pub(crate) async fn reserve(&mut self) -> Result<(), String> {
        let Some((number, episode)) = self.begin_reserve()? else { return Ok(()) };
        let outcome = self.keep_reserve(&episode).await;
        let removed = self.shared.array.set_reserve(&episode.of, None).await;
        let removed = removed.map_err(|error| format!("{:?} was not removed: {error}", episode.of));
        let ended = end(&self.shared, number);
        self.shared.model.lock().refused(number);
        outcome.and(removed.map(drop)).and(ended)
    }

    /// Chooses a reserve, and keeps others away from what it concerns.
    fn begin_reserve(&mut self) -> Result<Option<(u32, Episode)>, String> {
        let newest = newest_of_deleted(&self.shared.array)?;
        let mut model = self.shared.model.lock();
        let (of, sources) = match self.rng.random_range(0..4) {
            0 => (ReserveOf::Pool, None),
            1 => {
                let groups: Vec<_> = model.groups.iter().filter(|name| model.is_free(name)).collect();
                let Some(group) = groups.get(self.rng.random_range(0..groups.len().max(1))) else {
                    return Ok(None);
                };
                let members = model.volumes.values().filter(|vol| vol.group.as_ref() == Some(*group));
                (ReserveOf::Group((*group).clone()), Some(members.map(|vol| vol.id).collect()))
            }
            _ => {
                let Some((name, vol)) = model.pick(&mut self.rng, |_, _| true) else { return Ok(None) };
                (ReserveOf::Volume(name), Some(BTreeSet::from([vol.id])))
            }
        };
        let policy = if self.rng.random_bool(0.7) {
            ReservePolicy::DeleteOldest
        } else {
            ReservePolicy::OfflineVolume
        };
        let Some(episode) = model.episode(of, policy, sources, newest) else { return Ok(None) };
        let mut change = Change::new(format!("{policy} of {:?}", episode.of));
        for (name, vol) in &episode.claimed {
            change = change.volume(name, Some(vol.clone()), Some(vol.clone()));
        }
        let number = model.begin(change);
        if policy == ReservePolicy::OfflineVolume {
            model.stoppable.extend(episode.claimed.iter().map(|(_, vol)| vol.id));
        }
        model.reserving.insert(number, episode.clone());
        Ok(Some((number, episode)))
    }

    /// Sets the reserve, and looks for a while what it does.
    async fn keep_reserve(&mut self, episode: &Episode) -> Result<(), String> {
        let array = self.shared.array.clone();
        let percent = self.rng.random_bool(0.3).then(|| self.rng.random_range(1..=30));
        let bytes = percent.is_none().then(|| log_uniform(&mut self.rng, 4 * KIB, 8 * MIB));
        let (policy, confirm) = (episode.policy, self.rng.random_bool(0.8));
        let request = ReserveSet { percent, bytes, policy, confirm };
        match array.set_reserve(&episode.of, Some(request)).await {
            Ok(_) => self.shared.totals.lock().reserves += 1,
            Err(error) if kind(&error) == "unconfirmed" && !confirm => {
                self.shared.totals.lock().reserves_unconfirmed += 1;
                let gone = gone(&array, episode)?;
                return if gone.is_empty() {
                    Ok(())
                } else {
                    Err(format!("{:?} was not confirmed, and {gone:?} is deleted", episode.of))
                };
            }
            Err(error) if kind(&error) == "pool-full" || kind(&error) == "no-space" => return Ok(()),
            Err(error) => return Err(format!("{:?} was not set: {error}", episode.of)),
        }
        for _ in 0..self.rng.random_range(1..=MOST_LOOKS) {
            if self.shared.stop.load(Ordering::Relaxed) {
                break;
            }
            self.shared.world.sleep(LOOK_EVERY).await;
            self.look_at_stopped(episode).await?;
        }
        Ok(())
    }

    /// The volumes that the reserve stopped are some that it may stop, and refuse I/O.
    async fn look_at_stopped(&self, episode: &Episode) -> Result<(), String> {
        let stopped = stopped(&self.shared.array, &episode.of)?;
        let may_stop = |name: &String| {
            episode.policy == ReservePolicy::OfflineVolume
                && episode.claimed.iter().any(|(claimed, _)| claimed == name)
        };
        if let Some(name) = stopped.iter().find(|name| !may_stop(name)) {
            return Err(format!("{:?} stopped {name}, and must not", episode.of));
        }
        let Some(name) = stopped.first() else { return Ok(()) };
        let Ok(volume) = self.shared.array.volume(name) else { return Err(format!("{name} is gone")) };
        let outcome = volume.read(Model::range(0, (4096 / SECTOR_BYTES) as u32)).await;
        match outcome {
            Err(DeviceError::Stopped { .. }) => self.shared.totals.lock().reserves_stopped += 1,
            // It went on between the two looks.
            _ if !self::stopped(&self.shared.array, &episode.of)?.contains(name) => {}
            outcome => return Err(format!("{name} is stopped, and a read gets {:?}", outcome.map(drop))),
        }
        Ok(())
    }
}

impl Model {
    /// What a reserve concerns; `None` if it limits nothing, or if another change is about some of it.
    fn episode(
        &self,
        of: ReserveOf,
        policy: ReservePolicy,
        sources: Option<BTreeSet<u32>>,
        newest: BTreeSet<String>,
    ) -> Option<Episode> {
        let is_source = |id: u32| sources.as_ref().is_none_or(|some| some.contains(&id));
        let source_of = |vol: &Vol| match vol.origin {
            Some((OriginKind::Snapshot, source)) => Some(source),
            _ => None,
        };
        let own: BTreeSet<u32> = self
            .volumes
            .values()
            .filter(|vol| source_of(vol).is_some_and(is_source))
            .map(|vol| vol.id)
            .collect();
        if own.is_empty() {
            return None;
        }
        let with_own = self.taken_together.iter().filter(|ids| ids.iter().any(|id| own.contains(id)));
        let with_own: BTreeSet<u32> = with_own.flatten().copied().collect();
        let goes = |vol: &Vol| own.contains(&vol.id) || with_own.contains(&vol.id);
        let claims = |vol: &Vol| goes(vol) || is_source(vol.id);
        let claimed: Vec<Named> = self
            .volumes
            .iter()
            .filter(|(_, vol)| claims(vol))
            .map(|(name, vol)| (name.clone(), vol.clone()))
            .collect();
        if claimed.iter().any(|(name, _)| !self.is_free(name)) {
            return None;
        }
        let snapshots: BTreeSet<_> =
            claimed.iter().filter(|(_, vol)| goes(vol)).map(|(name, _)| name.clone()).collect();
        let sets = self.sets.iter().map(|set| set.snapshots.iter().map(|(_, name)| name.clone()));
        let sets = sets.map(BTreeSet::from_iter).filter(|set: &BTreeSet<_>| set.is_subset(&snapshots));
        let mut last_of: BTreeMap<u32, (u32, BTreeSet<String>)> = BTreeMap::new();
        for (name, vol) in claimed.iter().filter(|(name, _)| newest.contains(name)) {
            if let Some(source) = source_of(vol).filter(|source| self.name_of(*source).is_none()) {
                let touched = self.touched.get(&source).copied().unwrap_or(0);
                last_of.entry(source).or_insert((touched, BTreeSet::new())).1.insert(name.clone());
            }
        }
        Some(Episode { of, policy, sets: sets.collect(), snapshots, claimed, last_of })
    }
}

/// What of it is not there any more.
fn gone(array: &Array, episode: &Episode) -> Result<BTreeSet<String>, String> {
    let there = array.list_volumes().map_err(|e| e.to_string())?;
    let there: BTreeSet<_> = there.into_iter().map(|volume| volume.name).collect();
    Ok(episode.claimed.iter().map(|(name, _)| name).filter(|name| !there.contains(*name)).cloned().collect())
}

fn stopped(array: &Array, of: &ReserveOf) -> Result<Vec<String>, String> {
    let reserve = array.show_reserve(of).map_err(|error| format!("{of:?} cannot be shown: {error}"))?;
    Ok(reserve.offline_volumes)
}

/// The newest snapshots, as of when they were taken, of each volume that was deleted.
fn newest_of_deleted(array: &Array) -> Result<BTreeSet<String>, String> {
    let mut newest: BTreeMap<String, (u64, BTreeSet<String>)> = BTreeMap::new();
    for volume in array.list_volumes().map_err(|e| e.to_string())? {
        let Some(origin) = volume.origin else { continue };
        if origin.kind != OriginKind::Snapshot || !origin.source_deleted {
            continue;
        }
        let last = newest.entry(origin.source).or_default();
        if origin.taken_ms > last.0 {
            *last = (origin.taken_ms, BTreeSet::new());
        }
        if origin.taken_ms == last.0 {
            last.1.insert(volume.name);
        }
    }
    Ok(newest.into_values().flat_map(|(_, names)| names).collect())
}

/// A reserve was removed: what it deleted is held against what it may delete, and forgotten.
fn end(shared: &Shared, number: u32) -> Result<(), String> {
    let Some(episode) = shared.model.lock().reserving.remove(&number) else { return Ok(()) };
    let Episode { of, policy, claimed, snapshots, sets, last_of } = &episode;
    let gone = gone(&shared.array, &episode)?;
    let wrong = |what: &str, which: &dyn std::fmt::Debug| {
        Err(format!("{of:?}, {policy}: {what}: {which:?}; gone are {gone:?}"))
    };
    let mut model = shared.model.lock();
    for (name, vol) in claimed.iter().filter(|(name, _)| gone.contains(name)) {
        let may_go = *policy == ReservePolicy::DeleteOldest && snapshots.contains(name);
        if !may_go || vol.immutable || vol.lun.is_some() {
            return wrong("deleted what it must not", &(name, vol));
        }
    }
    if let Some(set) = sets.iter().find(|set| !set.is_disjoint(&gone) && !set.is_subset(&gone)) {
        return wrong("deleted a part of a set", set);
    }
    for (source, (touched, last)) in last_of {
        let untouched = model.touched.get(source).copied().unwrap_or(0) == *touched;
        if untouched && last.is_subset(&gone) {
            return wrong("deleted the newest snapshot of a deleted volume", last);
        }
    }
    let named = named_by_events(&shared.array);
    if let Some(name) = gone.iter().find(|name| !named.contains(*name)) {
        return wrong("no event names", name);
    }
    gone.iter().for_each(|name| model.forget(name));
    shared.totals.lock().deleted_by_reserve += gone.len() as u64;
    drop(model);
    let stopped = stopped(&shared.array, of)?;
    if stopped.is_empty() { Ok(()) } else { Err(format!("{of:?} is removed, and {stopped:?} stay stopped")) }
}

/// The snapshots of which an event says that a reserve deleted them.
fn named_by_events(array: &Array) -> BTreeSet<String> {
    let events = array.events(EventSelection { limit: usize::MAX, ..EventSelection::default() });
    let changes = events.into_iter().flat_map(|event| event.changes);
    let lists = changes.filter(|change| change.field == "snapshots");
    let names = lists.flat_map(|change| change.before.as_array().cloned().unwrap_or_default());
    names.filter_map(|name| Some(name.as_str()?.to_owned())).collect()
}

/// After a crash: removes the reserves that it left behind.
pub(crate) async fn clear_reserves(shared: &Shared) -> Result<(), String> {
    let left: Vec<_> =
        shared.model.lock().reserving.iter().map(|(number, episode)| (*number, episode.of.clone())).collect();
    for (number, of) in left {
        let removed = shared.array.set_reserve(&of, None).await;
        removed.map_err(|error| format!("{of:?} was not removed: {error}"))?;
        end(shared, number)?;
    }
    shared.model.lock().stoppable.clear();
    Ok(())
}
