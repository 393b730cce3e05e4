//! Schedules: one takes a snapshot when its time has come, another when it is asked to, and deletes the one before.

use crate::{
    admin::{Admin, REFUSALS, kind},
    change::Change,
    model::Model,
    shared::Shared,
    vol::Vol,
};
use quoin_api::{Deletion, Every, OriginKind, Rule, ScheduleCreate};
use quoin_array::Array;
use quoin_world::World;
use std::{collections::BTreeSet, time::Duration};

/// How often, and how many times, it is looked whether a snapshot was taken.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOKS: u32 = 150;
const MINUTE_MS: u64 = 60_000;
/// With so much space left no snapshot is refused for want of it.
const PLENTY_BYTES: u64 = 8 << 20;

/// How the snapshots of a volume are called that a schedule takes.
fn prefix(volume: &str) -> String {
    format!("{volume}.hourly-")
}

/// The snapshots with such names that schedules took. Others of that name are snapshots of those, without the tag.
fn taken(array: &Array, prefix: &str) -> Result<BTreeSet<String>, String> {
    let volumes = array.list_volumes().map_err(|e| e.to_string())?.into_iter();
    let scheduled = volumes.filter(|volume| volume.tags.contains_key("schedule"));
    Ok(scheduled.map(|volume| volume.name).filter(|name| name.starts_with(prefix)).collect())
}

impl Admin {
    pub(crate) async fn schedule(&mut self) -> Result<(), String> {
        let (number, volume, vol) = {
            let mut model = self.shared.model.lock();
            if !model.has_room(2) {
                return Ok(());
            }
            let Some((volume, vol)) = model.pick(&mut self.rng, |_, _| true) else { return Ok(()) };
            let change = Change::new(format!("schedule of {volume}"));
            let number = model.begin(change.volume(&volume, Some(vol.clone()), Some(vol.clone())));
            model.scheduled.insert(prefix(&volume));
            (number, volume, vol)
        };
        let name = format!("c{number}");
        let outcome = self.run_schedule(&name, &volume, &vol).await;
        let deleted = self.shared.array.delete_schedule(&name).await;
        let mut model = self.shared.model.lock();
        model.done(number);
        model.scheduled.remove(&prefix(&volume));
        model.busy.retain(|name| !name.starts_with(&prefix(&volume)));
        outcome.and(deleted.map_err(|error| format!("schedule {name} was not deleted: {error}")))
    }

    async fn run_schedule(&mut self, name: &str, volume: &str, vol: &Vol) -> Result<(), String> {
        let array = self.shared.array.clone();
        let before = taken(&array, &prefix(volume))?;
        let now = || Ok::<_, String>(&taken(&array, &prefix(volume))? - &before);
        let (fork, id) = self.begin_fork(vol);
        let minute = (self.shared.world.wall_clock_ms() / MINUTE_MS + 1) % 60;
        let request = ScheduleCreate {
            name: name.to_owned(),
            volume: Some(volume.to_owned()),
            group: None,
            rules: vec![Rule { every: Every::Hourly, keep: 1 }],
            at: format!("00:{minute:02}"),
            retain_s: None,
        };
        array.create_schedule(request).await.map_err(|error| format!("no schedule was made: {error}"))?;
        let mut first = BTreeSet::new();
        for _ in 0..LOOKS {
            self.shared.world.sleep(LOOK_EVERY).await;
            first = now()?;
            if !first.is_empty() {
                break;
            }
        }
        let Some(first) = first.pop_first() else {
            self.shared.model.lock().not_forked(fork);
            let free = array.status().capacity.map(|capacity| capacity.free_bytes);
            return if free.is_some_and(|free| free > PLENTY_BYTES) {
                Err(format!("schedule {name} took no snapshot in {LOOKS} s, with {free:?} bytes free"))
            } else {
                Ok(())
            };
        };
        self.took(fork, id, vol, &first);
        let (fork, id) = self.begin_fork(vol);
        if let Err(error) = array.run_schedule(name).await {
            self.shared.model.lock().not_forked(fork);
            return if REFUSALS.contains(&kind(&error).as_str()) {
                Ok(())
            } else {
                Err(format!("schedule {name} took no snapshot: {error}"))
            };
        }
        let now: Vec<_> = now()?.into_iter().collect();
        match now.as_slice() {
            [second] if *second != first => {
                self.took(fork, id, vol, second);
                self.shared.model.lock().forget(&first);
                Ok(())
            }
            now => {
                Err(format!("a schedule that keeps one snapshot took {first}, and then there are {now:?}"))
            }
        }
    }

    fn begin_fork(&self, vol: &Vol) -> (usize, u32) {
        let mut model = self.shared.model.lock();
        let id = model.number();
        let fork = model.fork(&[(vol.id, id)]);
        model.expected.insert(fork);
        (fork, id)
    }

    fn took(&self, fork: usize, id: u32, vol: &Vol, name: &str) {
        let mut model = self.shared.model.lock();
        model.expected.remove(&fork);
        model.history.end_fork(fork, true);
        model.volumes.insert(name.to_owned(), vol.forked(id, OriginKind::Snapshot));
        model.busy.insert(name.to_owned());
        self.shared.totals.lock().scheduled += 1;
    }
}

impl Model {
    fn not_forked(&mut self, fork: usize) {
        self.expected.remove(&fork);
        self.history.cancel_fork(fork);
    }

    /// A volume is gone.
    pub(crate) fn forget(&mut self, name: &str) {
        if let Some(vol) = self.volumes.remove(name) {
            self.history.volume_deleted(vol.id);
            self.frozen.remove(&vol.id);
        }
    }
}

/// After a crash: deletes the schedules that it left behind, and the snapshots of theirs that nobody was told of.
pub(crate) async fn clear_schedules(shared: &Shared) -> Result<(), String> {
    let failed = |error: quoin_array::ArrayError| format!("what a schedule left was not deleted: {error}");
    for schedule in shared.array.list_schedules().map_err(failed)? {
        shared.array.delete_schedule(&schedule.name).await.map_err(failed)?;
    }
    let prefixes = shared.model.lock().scheduled.clone();
    for prefix in prefixes {
        let there = taken(&shared.array, &prefix)?;
        let known: BTreeSet<_> = {
            let model = shared.model.lock();
            model.volumes.keys().filter(|name| name.starts_with(&prefix)).cloned().collect()
        };
        for unknown in there.difference(&known) {
            shared
                .array
                .delete_volume(unknown, Deletion { unmap: true, force: true, now: true })
                .await
                .map_err(failed)?;
        }
        // The one before goes once another is taken.
        let mut model = shared.model.lock();
        known.difference(&there).for_each(|gone| model.forget(gone));
        model.scheduled.remove(&prefix);
    }
    let mut model = shared.model.lock();
    while let Some(fork) = model.expected.pop_first() {
        model.history.cancel_fork(fork);
    }
    Ok(())
}
