//! Consistency groups, as management sees them, and their sets of snapshots.

use crate::{
    Array, ArrayError, ForkError,
    events::Told,
    origin::{snapshot_spec, suffixed},
    qos_record::Limited,
    reserve_watch::Scope,
    words::shortened,
};
use quoin_api::{self as api, Utc};
use quoin_volume::{BlockDevice, ForkSpec, Group, Replacement, SetOf, Volume};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// A volume, and its snapshot in a set.
type Pair = (Arc<Volume>, Arc<Volume>);

/// The snapshots of a set.
struct Set {
    group: Group,
    name: String,
    taken_ms: u64,
    snapshots: Vec<Arc<Volume>>,
}

impl Array {
    /// Creates a group.
    ///
    /// # Errors
    /// `GroupName` or `GroupExists` for the name; `NotFound`, `NamedTwice`, `InGroup` or `GroupFull` for a
    /// volume that cannot join. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn create_group(&self, request: api::GroupCreate) -> Result<api::Group, ArrayError> {
        let api::GroupCreate { name, volumes } = request;
        let turn = self.catalog().turn().await;
        let of = if volumes.is_empty() { "no volumes yet".to_owned() } else { volumes.join(", ") };
        let own = told_of(&name, format!("created, of {}", shortened(&of))).with("volumes", &volumes);
        let (tx, staged) = self.stage(&turn, own);
        let title = "group not created";
        let group = self.volumes().create_group(&name, &volumes, tx).await.map_err(ArrayError::not(title))?;
        self.log().saved(staged);
        Ok(self.group_view(&group))
    }

    /// All groups, by name.
    ///
    /// # Errors
    /// `Offline` while the pool has not been open since the array started.
    pub fn list_groups(&self) -> Result<Vec<api::Group>, ArrayError> {
        self.require_catalog()?;
        Ok(self.volumes().groups().iter().map(|group| self.group_view(group)).collect())
    }

    /// One group.
    ///
    /// # Errors
    /// `NoGroup` if no group has the name. `Offline` while the pool has not been open since the array
    /// started.
    pub fn show_group(&self, name: &str) -> Result<api::Group, ArrayError> {
        Ok(self.group_view(&self.group(name)?))
    }

    /// Changes a group.
    ///
    /// # Errors
    /// `NoGroup` if no group has the name, `GroupName` or `GroupExists` for the new name. `Offline` or `Pool`
    /// if the pool cannot commit the change.
    pub async fn change_group(&self, name: &str, change: api::GroupChange) -> Result<api::Group, ArrayError> {
        let Some(new_name) = change.name else { return self.show_group(name) };
        let turn = self.catalog().turn().await;
        let group = self.group(name)?;
        if new_name == name {
            return Ok(self.group_view(&group));
        }
        let own = told_of(name, format!("renamed to {new_name}")).change("name", name, &new_name);
        let (tx, staged) = self.stage(&turn, own);
        let renamed = self.volumes().rename_group(name, &new_name, tx).await;
        let group = renamed.map_err(ArrayError::not("group not changed"))?;
        self.log().saved(staged);
        Ok(self.group_view(&group))
    }

    /// Puts a volume into a group.
    ///
    /// # Errors
    /// `NoGroup` or `NotFound` if one of the two does not exist; `InGroup` or `GroupFull` if the volume
    /// cannot join. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn add_to_group(&self, name: &str, volume: &str) -> Result<api::Group, ArrayError> {
        let turn = self.catalog().turn().await;
        let before = self.member_names(&self.group(name)?);
        let after: Vec<_> = before.iter().cloned().chain([volume.to_owned()]).collect();
        let own = told_of(name, format!("volume {volume} added")).change("volumes", before, after);
        let (tx, staged) = self.stage(&turn, own);
        let joined = self.volumes().join_group(name, volume, tx).await;
        let group = joined.map_err(ArrayError::not("group not changed"))?;
        self.log().saved(staged);
        self.follow_qos();
        Ok(self.group_view(&group))
    }

    /// Takes a volume out of a group.
    ///
    /// # Errors
    /// `NoGroup` or `NotFound` if one of the two does not exist, `NotInGroup` if the volume is not in the
    /// group. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn remove_from_group(&self, name: &str, volume: &str) -> Result<api::Group, ArrayError> {
        let turn = self.catalog().turn().await;
        let before = self.member_names(&self.group(name)?);
        let after: Vec<_> = before.iter().filter(|member| *member != volume).cloned().collect();
        let own = told_of(name, format!("volume {volume} removed")).change("volumes", before, after);
        let (tx, staged) = self.stage(&turn, own);
        let left = self.volumes().leave_group(name, volume, tx).await;
        let group = left.map_err(ArrayError::not("group not changed"))?;
        self.log().saved(staged);
        self.follow_qos();
        Ok(self.group_view(&group))
    }

    /// Deletes a group; its volumes and their snapshots stay.
    ///
    /// # Errors
    /// `NoGroup` if no group has the name. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn delete_group(&self, name: &str) -> Result<(), ArrayError> {
        let turn = self.catalog().turn().await;
        let group = self.group(name)?;
        let own = told_of(name, "deleted; its volumes and their snapshots stay")
            .without("volumes", self.member_names(&group))
            .without("sets", self.set_names(&group));
        let (tx, staged) = self.stage(&turn, own);
        let tx = self.without_reserve(tx, Scope::Group(group.id));
        let tx = self.without_limits(tx, &Limited::Group(group.id));
        self.volumes().delete_group(name, tx).await.map_err(ArrayError::not("group not deleted"))?;
        self.log().saved(staged);
        self.forget_reserves();
        self.forget_limits();
        Ok(())
    }

    /// Takes snapshots of all volumes of a group, as of one moment.
    ///
    /// # Errors
    /// `NoGroup` if no group has the name, `EmptyGroup` if it has no volumes, `SetExists` if the set's name
    /// is taken; `Exists` if a snapshot's name is taken. `Offline` or `Pool` if the pool cannot commit the
    /// change.
    pub async fn snapshot_group(
        self: &Arc<Self>,
        name: &str,
        request: api::GroupSnapshotCreate,
    ) -> Result<api::GroupSet, ArrayError> {
        let turn = self.catalog().turn().await;
        let group = self.group(name)?;
        let set = request.name.unwrap_or_else(|| self.free_set(&group));
        let retain = request.retain_s.map(Duration::from_secs);
        let specs = self.plan_set(&group, &set)?;
        let protected = !request.writable;
        let specs: Vec<_> = specs.into_iter().map(|spec| ForkSpec { retain, protected, ..spec }).collect();
        let kept = retain.map(|time| format!(", immutable for {} s", time.as_secs())).unwrap_or_default();
        let text = format!("set {set} taken: snapshots of {} volumes{kept}", specs.len());
        let own = told_of(name, text)
            .answered_with(format!("set {name}/{set}"))
            .with("set", &set)
            .with("snapshots", specs.iter().map(|spec| &spec.name).collect::<Vec<_>>())
            .with("writable", !protected)
            .with("retain_s", request.retain_s);
        let (tx, staged) = self.stage(&turn, own);
        self.volumes().fork(specs, tx).await.map_err(ArrayError::not("snapshots not taken"))?;
        self.log().saved(staged);
        self.trim_volumes();
        Ok(self.set_view(&self.set(&group, &set)?))
    }

    /// Restores all volumes of a group to a set of their snapshots.
    ///
    /// # Errors
    /// `NoGroup` or `NoSet` if one of the two does not exist, `NotWhole` if the set does not match the group;
    /// `Modified` or `InUse` without `force`. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn restore_group(
        self: &Arc<Self>,
        name: &str,
        set: &str,
        request: api::GroupRestore,
    ) -> Result<api::Group, ArrayError> {
        let api::GroupRestore { keep, force } = request;
        let turn = self.catalog().turn().await;
        let group = self.group(name)?;
        let replacements = self.pairs(&self.set(&group, set)?)?.into_iter();
        let replacements =
            replacements.map(|(target, source)| Replacement { target, source, refreshes: false }).collect();
        let keep = keep.map(|keep| self.plan_set(&group, &keep)).transpose()?.unwrap_or_default();
        let own = told_of(name, format!("restored from set {set}")).with("set", set);
        self.replace(&turn, replacements, keep, own, force).await?;
        Ok(self.group_view(&group))
    }

    /// Replaces the content of a set of snapshots by that of the volumes of the group now, as of one moment.
    ///
    /// # Errors
    /// `NoGroup` or `NoSet` if one of the two does not exist, `NotWhole` if the set does not match the group;
    /// `Immutable` for an immutable snapshot; `InUse` without `force`. `Offline` or `Pool` if the pool cannot
    /// commit the change.
    pub async fn refresh_group(
        self: &Arc<Self>,
        name: &str,
        set: &str,
        request: api::GroupRefresh,
    ) -> Result<api::GroupSet, ArrayError> {
        let turn = self.catalog().turn().await;
        let group = self.group(name)?;
        let pairs = self.pairs(&self.set(&group, set)?)?.into_iter();
        let replacements =
            pairs.map(|(source, target)| Replacement { target, source, refreshes: true }).collect();
        let own = told_of(name, format!("set {set} refreshed"))
            .answered_with(format!("set {name}/{set}"))
            .with("set", set);
        self.replace(&turn, replacements, Vec::new(), own, request.force).await?;
        Ok(self.set_view(&self.set(&group, set)?))
    }

    /// Makes all snapshots of a set immutable, or for longer than they are; all or none.
    ///
    /// # Errors
    /// `NoGroup` or `NoSet` if one of the two does not exist; `RetentionTime` or `RetainedLonger` for the
    /// time; `InUse` while clients may write to a snapshot, without `force`. `Offline` or `Pool` if the pool
    /// cannot commit the change.
    pub async fn retain_group_snapshot(
        &self,
        name: &str,
        set: &str,
        request: api::SnapshotRetain,
    ) -> Result<api::GroupSet, ArrayError> {
        let turn = self.catalog().turn().await;
        let group = self.group(name)?;
        let set = self.set(&group, set)?;
        let text = format!("set {} made immutable for {} s", set.name, request.retain_s);
        let before = set.snapshots.iter().map(|snapshot| self.volumes().retained_until_ms(snapshot)).min();
        let own = told_of(name, text)
            .answered_with(format!("set {name}/{}", set.name))
            .with("set", &set.name)
            .change("retain_until_ms", before.flatten(), self.until_ms(request.retain_s));
        self.retain(&turn, &set.snapshots, &request, own).await?;
        Ok(self.set_view(&set))
    }

    /// Deletes a set of snapshots; if hosts see any, only when `unmap` says that they shall lose it, and if any of them is
    /// logged in, only by force.
    ///
    /// # Errors
    /// `NoGroup` or `NoSet` if one of the two does not exist, `Immutable` for an immutable snapshot;
    /// `SetMapped` without `unmap`, `InUse` without `force`. `Offline` or `Pool` if the pool cannot commit
    /// the change.
    pub async fn delete_group_snapshot(
        &self,
        name: &str,
        set: &str,
        deletion: api::Deletion,
    ) -> Result<(), ArrayError> {
        let api::Deletion { unmap, force, now } = deletion;
        let turn = self.catalog().turn().await;
        let group = self.group(name)?;
        let Set { snapshots, taken_ms, .. } = self.set(&group, set)?;
        let forced = self.require_no_users("snapshots not deleted", &snapshots, force)?;
        let mut seen = Vec::new();
        for snapshot in &snapshots {
            let mappings = self.hosts().read().mappings_of_volume(snapshot.id());
            seen.extend(mappings.iter().map(|mapping| format!("{} by {}", snapshot.name(), mapping.host)));
            let exports = self.export_list().names_of(snapshot.id());
            seen.extend(exports.iter().map(|export| format!("{} as export {export}", snapshot.name())));
        }
        if !seen.is_empty() && !unmap && !force {
            return Err(ForkError::SetMapped { group: name.to_owned(), set: set.to_owned(), seen }.into());
        }
        let text = format!("set {set} deleted: snapshots of {} volumes{forced}", snapshots.len());
        let own = told_of(name, shortened(&text))
            .without("set", set)
            .without("taken_ms", taken_ms)
            .without("snapshots", snapshots.iter().map(|snapshot| snapshot.name()).collect::<Vec<_>>())
            .without("mappings_and_exports", seen);
        self.discard_all(&turn, &snapshots, own, now).await
    }

    pub(crate) fn group(&self, name: &str) -> Result<Group, ArrayError> {
        self.require_catalog()?;
        Ok(self.volumes().group(name)?)
    }

    fn member_names(&self, group: &Group) -> Vec<String> {
        self.volumes().members(group).iter().map(|volume| volume.name()).collect()
    }

    /// The snapshots to take for a set.
    pub(crate) fn plan_set(&self, group: &Group, set: &str) -> Result<Vec<ForkSpec>, ArrayError> {
        let members = self.volumes().members(group);
        if members.is_empty() {
            return Err(ForkError::EmptyGroup { group: group.name.clone() }.into());
        }
        if self.sets(group).iter().any(|existing| existing.name == set) {
            return Err(ForkError::SetExists { group: group.name.clone(), set: set.to_owned() }.into());
        }
        let one = |member: Arc<Volume>| {
            let name = suffixed(&member.name(), set);
            let of = SetOf { group: group.id, name: set.to_owned() };
            ForkSpec { set: Some(of), ..snapshot_spec(member, name) }
        };
        Ok(members.into_iter().map(one).collect())
    }

    /// The names of the sets of a group.
    pub(crate) fn set_names(&self, group: &Group) -> Vec<String> {
        self.sets(group).into_iter().map(|set| set.name).collect()
    }

    /// The sets of a group, oldest first.
    fn sets(&self, group: &Group) -> Vec<Set> {
        let mut sets: BTreeMap<String, Set> = BTreeMap::new();
        for snapshot in self.volumes().list() {
            let Some(origin) = snapshot.origin() else { continue };
            let Some(of) = origin.set.filter(|set| set.group == group.id) else { continue };
            let set = sets.entry(of.name.clone()).or_insert_with(|| {
                let (group, taken_ms) = (group.clone(), origin.taken_ms);
                Set { group, name: of.name, taken_ms, snapshots: Vec::new() }
            });
            set.snapshots.push(snapshot);
        }
        let mut sets: Vec<_> = sets.into_values().collect();
        sets.sort_by_key(|set| set.taken_ms);
        sets
    }

    fn set(&self, group: &Group, name: &str) -> Result<Set, ArrayError> {
        let found = self.sets(group).into_iter().find(|set| set.name == name);
        found.ok_or_else(|| ForkError::NoSet { group: group.name.clone(), set: name.to_owned() }.into())
    }

    /// The volumes of the group, each with its snapshot in the set; or why they do not match.
    fn pairs(&self, set: &Set) -> Result<Vec<Pair>, ForkError> {
        let snapshot_of: BTreeMap<_, _> = set
            .snapshots
            .iter()
            .filter_map(|snapshot| Some((snapshot.origin()?.source, snapshot.clone())))
            .collect();
        let members = self.volumes().members(&set.group);
        let without = members.iter().filter(|member| !snapshot_of.contains_key(&member.id()));
        let without: Vec<_> = without.map(|member| member.name()).collect();
        let strange = snapshot_of.iter().filter(|(source, _)| !set.group.members.contains(source));
        let strange: Vec<_> = strange.map(|(_, snapshot)| snapshot.name()).collect();
        let why = match (without.as_slice(), strange.as_slice()) {
            ([], []) => {
                let pair =
                    |member: Arc<Volume>| Some((member.clone(), snapshot_of.get(&member.id())?.clone()));
                return Ok(members.into_iter().filter_map(pair).collect());
            }
            (without @ [_, ..], _) => format!("it has no snapshot of {}", without.join(", ")),
            (_, strange) => format!("the volumes of {} are not in the group", strange.join(", ")),
        };
        Err(ForkError::NotWhole { group: set.group.name.clone(), set: set.name.clone(), why })
    }

    /// A name for a set created without one: the time.
    fn free_set(&self, group: &Group) -> String {
        let stamp = Utc::of_ms(self.world().wall_clock_ms()).stamp();
        let (sets, members) = (self.sets(group), self.volumes().members(group));
        let numbered = (2..).map(|n| format!("{stamp}-{n}"));
        let free = |name: &String| {
            let taken = |member: &Arc<Volume>| self.volumes().get(&suffixed(&member.name(), name)).is_ok();
            !sets.iter().any(|set| set.name == *name) && !members.iter().any(taken)
        };
        std::iter::once(stamp.clone()).chain(numbered).find(free).unwrap_or(stamp)
    }

    fn group_view(&self, group: &Group) -> api::Group {
        let volumes = self.member_names(group);
        let sets = self.sets(group).iter().map(|set| self.set_view(set)).collect();
        let Group { name, id, created_ms, .. } = group.clone();
        api::Group { name, id, volumes, sets, created_ms }
    }

    fn set_view(&self, set: &Set) -> api::GroupSet {
        let incomplete = match self.pairs(set) {
            Err(ForkError::NotWhole { why, .. }) => Some(why),
            _ => None,
        };
        api::GroupSet {
            name: set.name.clone(),
            taken_ms: set.taken_ms,
            snapshots: set.snapshots.iter().map(|snapshot| snapshot.name()).collect(),
            retain_until_ms: set
                .snapshots
                .iter()
                .map(|s| self.volumes().retained_until_ms(s))
                .min()
                .flatten(),
            modified_ms: set.snapshots.iter().filter_map(|snapshot| snapshot.modified_ms()).min(),
            incomplete,
        }
    }
}

/// The event of a change of a group.
fn told_of(group: &str, text: impl Into<String>) -> Told {
    Told::new(format!("group {group}"), text)
}
