//! What administrators see, as the model and the array have it, and changes of it.

use crate::{
    change::{Bin, Change},
    model::Model,
    vol::{Objects, Vol, text},
};
use quoin_api::{OriginKind, VolumeKind};
use quoin_array::{Array, EventSelection};
use std::collections::{BTreeMap, BTreeSet};

/// What the array shows.
pub(crate) fn observe(array: &Array) -> Result<Objects, String> {
    let mut objects = Objects::new();
    for volume in array.list_volumes().map_err(|e| e.to_string())? {
        let kind = match volume.origin.as_ref().map(|origin| origin.kind) {
            None => "volume",
            Some(OriginKind::Snapshot) => "snapshot",
            Some(OriginKind::Clone) => "clone",
        };
        let template = volume.kind == VolumeKind::Template;
        let seen = text(
            kind,
            volume.size_bytes,
            volume.block_bytes,
            volume.thick,
            template,
            volume.retain_until_ms.is_some(),
            volume.group.as_deref(),
            volume.mappings.first().map(|mapping| mapping.lun),
        );
        objects.insert(format!("volume {}", volume.name), seen);
    }
    for group in array.list_groups().map_err(|e| e.to_string())? {
        objects.insert(format!("group {}", group.name), "there".to_owned());
    }
    Ok(objects)
}

impl Model {
    /// A change begins; its number.
    pub(crate) fn begin(&mut self, change: Change) -> u32 {
        let number = self.number();
        self.busy.extend(change.names().cloned());
        let ids: BTreeSet<u32> = change
            .volumes
            .iter()
            .flat_map(|(_, before, after)| [before, after])
            .flatten()
            .map(|vol| vol.id)
            .collect();
        ids.into_iter().for_each(|id| *self.touched.entry(id).or_default() += 1);
        self.pending.push(Change { number, ..change });
        self.begun += 1;
        number
    }

    fn take(&mut self, number: u32) -> Option<Change> {
        let at = self.pending.iter().position(|change| change.number == number)?;
        let change = self.pending.remove(at);
        for name in change.names() {
            self.busy.remove(name);
        }
        Some(change)
    }

    /// A change was acknowledged.
    pub(crate) fn done(&mut self, number: u32) {
        let Some(change) = self.take(number) else { return };
        if let Some(fork) = change.fork {
            self.history.end_fork(fork, true);
        }
        self.apply(&change);
    }

    /// A change was refused: it had no effect.
    pub(crate) fn refused(&mut self, number: u32) {
        let fork = self.take(number).and_then(|change| change.fork);
        fork.into_iter().for_each(|fork| self.history.cancel_fork(fork));
    }

    fn apply(&mut self, change: &Change) {
        let stay: BTreeSet<u32> =
            change.volumes.iter().filter_map(|(.., after)| Some(after.as_ref()?.id)).collect();
        for (name, before, _) in &change.volumes {
            self.volumes.remove(name);
            if let Some(gone) = before.as_ref().filter(|before| !stay.contains(&before.id)) {
                if change.bin == Bin::Fill {
                    // What it holds stays, and is what it holds when it comes back.
                    self.bin.insert(name.clone(), Vol { group: None, lun: None, ..gone.clone() });
                    continue;
                }
                self.history.volume_deleted(gone.id);
                self.frozen.remove(&gone.id);
            }
        }
        if let Bin::Purge(name) = &change.bin {
            self.purged(name);
        }
        for (name, _, after) in &change.volumes {
            if let Some(after) = after {
                self.bin.retain(|_, deleted| deleted.id != after.id);
                self.volumes.insert(name.clone(), after.clone());
                if !after.is_frozen() {
                    self.frozen.remove(&after.id);
                }
            }
        }
        for (name, comes) in &change.groups {
            if *comes {
                self.groups.insert(name.clone());
            } else {
                self.groups.remove(name);
                self.sets.retain(|set| set.group != *name);
            }
        }
    }

    /// Compares the recycle bin with what it must hold: only what the array said that it needed the space of may be missing.
    fn compare_bin(&mut self, array: &Array) -> Result<u64, String> {
        let deleted = array.list_deleted().map_err(|e| e.to_string())?;
        let there: BTreeMap<_, _> = deleted.into_iter().map(|volume| (volume.name.clone(), volume)).collect();
        if let Some(name) = there.keys().find(|name| !self.bin.contains_key(*name)) {
            return Err(format!("volume {name} is in the recycle bin, and must not be"));
        }
        let (mut gone, told) = (0, early(array));
        for (name, vol) in self.bin.clone() {
            match there.get(&name) {
                Some(seen) if (seen.size_bytes, seen.thick) == (vol.size_bytes, vol.thick) => {}
                Some(seen) => {
                    return Err(format!("volume {name} in the recycle bin is {seen:?}, not {vol:?}"));
                }
                None if told.contains(&name) => {
                    self.purged(&name);
                    gone += 1;
                }
                None => return Err(format!("volume {name} is lost: it must be in the recycle bin")),
            }
        }
        Ok(gone)
    }

    /// What of the changes that a crash cut off took effect: as many as had, and as had not.
    fn settle(&mut self, seen: &Objects, binned: &BTreeSet<String>) -> Result<(u64, u64), String> {
        let (mut applied, mut dropped) = (0, 0);
        for change in std::mem::take(&mut self.pending) {
            if let Bin::Purge(name) = &change.bin {
                if binned.contains(name) {
                    dropped += 1;
                } else {
                    self.apply(&change);
                    applied += 1;
                }
                continue;
            }
            let sides = change.sides();
            let is = |key: &String, side: &Option<String>| seen.get(key) == side.as_ref();
            let (after, before) = (
                sides.iter().all(|(key, _, after)| is(key, after)),
                sides.iter().all(|(key, before, _)| is(key, before)),
            );
            match (after, before) {
                // A replacement by content of the same size shows in the content only.
                (true, true) => change.fork.into_iter().for_each(|fork| self.history.end_fork(fork, false)),
                (true, false) => {
                    if let Some(fork) = change.fork {
                        self.history.end_fork(fork, true);
                    }
                    self.apply(&change);
                    applied += 1;
                }
                (false, true) => {
                    change.fork.into_iter().for_each(|fork| self.history.cancel_fork(fork));
                    dropped += 1;
                }
                (false, false) => {
                    let shown: Vec<_> = sides
                        .iter()
                        .map(|(key, before, after)| {
                            format!("\n  {key}: {:?}, before {before:?}, after {after:?}", seen.get(key))
                        })
                        .collect();
                    return Err(format!("{} took effect in part:{}", change.what, shown.concat()));
                }
            }
        }
        Ok((applied, dropped))
    }

    /// Compares what the array shows with what it must show.
    /// What of the changes cut off took effect and what did not, and how many volumes left the recycle bin by themselves.
    pub(crate) fn compare(&mut self, array: &Array, after_crash: bool) -> Result<(u64, u64, u64), String> {
        let seen = observe(array)?;
        let binned = array.list_deleted().map_err(|e| e.to_string())?;
        let binned = binned.into_iter().map(|volume| volume.name).collect();
        let settled = if after_crash { self.settle(&seen, &binned)? } else { (0, 0) };
        let expected = self.objects();
        for key in seen.keys().chain(expected.keys()) {
            if seen.get(key) != expected.get(key) {
                let (seen, expected) = (seen.get(key), expected.get(key));
                return Err(format!("{key} is {seen:?}, and must be {expected:?}"));
            }
        }
        let gone = self.compare_bin(array)?;
        Ok((settled.0, settled.1, gone))
    }
}

/// The volumes of which the array says that it deleted them for good since it needed their space.
fn early(array: &Array) -> BTreeSet<String> {
    let events = array.events(EventSelection { limit: usize::MAX, ..EventSelection::default() });
    let early = events.into_iter().filter(|event| event.text.starts_with("deleted for good early"));
    early.filter_map(|event| Some(event.object.strip_prefix("volume ")?.to_owned())).collect()
}
