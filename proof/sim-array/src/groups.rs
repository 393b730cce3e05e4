//! Consistency groups: made, snapshot as of one moment, restored, refreshed.

use crate::{
    admin::Admin,
    change::Change,
    model::Set,
    vol::{Named, Vol},
};
use quoin_api::{GroupCreate, GroupRestore, GroupSnapshotCreate, OriginKind};
use rand::RngExt;

/// Volumes of one group at most.
const MOST_MEMBERS: usize = 3;

impl Admin {
    pub(crate) async fn change_groups(&mut self) -> Result<(), String> {
        let goes = self.rng.random_bool(0.25);
        let (number, name, members) = {
            let mut model = self.shared.model.lock();
            let groups: Vec<_> = model.groups.iter().filter(|name| model.is_free(name)).cloned().collect();
            if goes && !groups.is_empty() {
                let name = groups[self.rng.random_range(0..groups.len())].clone();
                let members = model.volumes.iter().filter(|(_, vol)| vol.group.as_ref() == Some(&name));
                let members: Vec<_> = members.map(|(name, vol)| (name.clone(), vol.clone())).collect();
                if members.iter().any(|(name, _)| !model.is_free(name)) {
                    return Ok(());
                }
                let mut change = Change::new(format!("delete {name}")).group(&name, false);
                for (member, vol) in members {
                    let after = Vol { group: None, ..vol.clone() };
                    change = change.volume(&member, Some(vol), Some(after));
                }
                (model.begin(change), name, None)
            } else {
                let name = format!("g{}", model.number());
                let mut change = Change::new(format!("create {name}")).group(&name, true);
                let mut members = Vec::new();
                while members.len() < MOST_MEMBERS {
                    let fits =
                        |name: &str, vol: &Vol| vol.group.is_none() && !members.contains(&name.to_owned());
                    let Some((member, vol)) = model.pick(&mut self.rng, fits) else { break };
                    let after = Vol { group: Some(name.clone()), ..vol.clone() };
                    change = change.volume(&member, Some(vol), Some(after));
                    members.push(member);
                }
                (model.begin(change), name, Some(members))
            }
        };
        let outcome = match members {
            Some(volumes) => self.shared.array.create_group(GroupCreate { name, volumes }).await.map(drop),
            None => self.shared.array.delete_group(&name).await,
        };
        self.ended(number, outcome, &[]).map(drop)
    }

    /// A group that nobody is at, and its members.
    fn pick_group(&mut self) -> Option<(String, Vec<Named>)> {
        let model = self.shared.model.lock();
        let free: Vec<_> = model.groups.iter().filter(|name| model.is_free(name)).collect();
        let name = free.get(self.rng.random_range(0..free.len().max(1)))?.to_string();
        let members = model.volumes.iter().filter(|(_, vol)| vol.group.as_ref() == Some(&name));
        let members: Vec<_> = members.map(|(name, vol)| (name.clone(), vol.clone())).collect();
        let all_free = members.iter().all(|(name, _)| model.is_free(name));
        (all_free && !members.is_empty()).then_some((name, members))
    }

    pub(crate) async fn use_groups(&mut self) -> Result<(), String> {
        let Some((group, members)) = self.pick_group() else { return self.change_groups().await };
        if self.rng.random_bool(0.6) {
            self.snapshot_group(group, members).await
        } else {
            self.restore_group(group, members).await
        }
    }

    async fn snapshot_group(&mut self, group: String, members: Vec<Named>) -> Result<(), String> {
        let (number, set) = {
            let mut model = self.shared.model.lock();
            if !model.has_room(members.len()) {
                return Ok(());
            }
            let set = format!("set{}", model.number());
            let sources: Vec<_> = members
                .iter()
                .map(|(name, vol)| (name.clone(), vol.clone(), format!("{name}.{set}")))
                .collect();
            let what = format!("{set} of {group}");
            let change = model.fork_new(&what, OriginKind::Snapshot, false, &sources);
            let new = change.volumes.iter().filter(|(_, before, _)| before.is_none());
            let new = new.filter_map(|(_, _, after)| Some(after.as_ref()?.id)).collect();
            model.taken_together.push(new);
            let snapshots = members.iter().map(|(name, vol)| (vol.id, format!("{name}.{set}"))).collect();
            (model.begin(change), Set { name: set, group: group.clone(), snapshots })
        };
        let request = GroupSnapshotCreate { name: Some(set.name.clone()), writable: true, retain_s: None };
        let outcome = self.shared.array.snapshot_group(&group, request).await;
        if self.ended(number, outcome, &[])?.is_some() {
            self.shared.model.lock().sets.push(set);
            self.shared.totals.lock().sets += 1;
        }
        Ok(())
    }

    async fn restore_group(&mut self, group: String, members: Vec<Named>) -> Result<(), String> {
        let (number, set) = {
            let mut model = self.shared.model.lock();
            let pairs_of = |set: &Set| {
                let pair = |(name, vol): &Named| {
                    let (_, snapshot) = set.snapshots.iter().find(|(id, _)| *id == vol.id)?;
                    let from = model.volumes.get(snapshot).filter(|_| model.is_free(snapshot))?;
                    Some(((name.clone(), vol.clone()), (snapshot.clone(), from.clone())))
                };
                let pairs: Option<Vec<_>> = members.iter().map(pair).collect();
                pairs.filter(|pairs| set.group == group && pairs.len() == set.snapshots.len())
            };
            let found = model.sets.iter().find_map(|set| Some((set.name.clone(), pairs_of(set)?)));
            let Some((set, pairs)) = found else { return Ok(()) };
            if members.iter().any(|(_, vol)| vol.is_frozen()) {
                return Ok(());
            }
            let change = model.replace(&format!("restore {group} from {set}"), &pairs);
            (model.begin(change), set)
        };
        let request = GroupRestore { keep: None, force: true };
        let outcome = self.shared.array.restore_group(&group, &set, request).await;
        let made = self.ended(number, outcome, &["cannot-reserve", "in-use", "read-only"])?;
        self.shared.totals.lock().groups_restored += u64::from(made.is_some());
        Ok(())
    }
}
