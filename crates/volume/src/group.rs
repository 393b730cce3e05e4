//! Consistency groups: volumes of which snapshots are taken, and to which they are restored, as of one moment.
//!
//! Invariants:
//! 1. A volume is in at most one group.
//! 2. Members exist: the transaction that deletes a volume takes it out of its group.
//! 3. A group has at most [`MEMBERS_MAX`] members, so that a change of all of them fits one transaction.

use crate::{Volume, VolumeError, Volumes, check_name, record::encode};
use quoin_base::VolumeId;
use quoin_pool::{ObjectKind, Pool, Transaction};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};
use uuid::Uuid;

/// The kind of catalog object that holds a consistency group; the key is its identity, the value JSON.
pub const GROUP_OBJECT: ObjectKind = ObjectKind(8);

/// The most volumes of a group.
pub const MEMBERS_MAX: usize = 64;

const RECORD_VERSION: u32 = 1;

/// A consistency group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    version: u32,
    /// Its identity, by which snapshots know it.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Its volumes, in the order in which they joined.
    pub members: Vec<VolumeId>,
    /// When it was created, in milliseconds since the Unix epoch.
    pub created_ms: u64,
}

impl Group {
    pub(crate) fn decode(key: &str, bytes: &[u8]) -> Result<Self, VolumeError> {
        let bad = |why: String| VolumeError::Record { key: key.to_owned(), why };
        let group: Self = serde_json::from_slice(bytes).map_err(|e| bad(e.to_string()))?;
        match group.version {
            RECORD_VERSION => Ok(group),
            other => Err(bad(format!("is of version {other}, not {RECORD_VERSION}"))),
        }
    }
}

/// All groups, by identity.
#[derive(Clone, Default)]
pub(crate) struct Groups(BTreeMap<Uuid, Group>);

impl Groups {
    pub(crate) fn read(pool: &Pool) -> Result<Self, VolumeError> {
        let groups = pool.list(GROUP_OBJECT);
        let groups = groups.iter().map(|(key, value)| Group::decode(key, value));
        Ok(Self(groups.map(|group| group.map(|group| (group.id, group))).collect::<Result<_, _>>()?))
    }

    /// Takes a volume that is being deleted out of its group.
    pub(crate) fn forget(&mut self, volume: VolumeId) {
        self.0.values_mut().for_each(|group| group.members.retain(|member| *member != volume));
    }

    /// Sets what differs from `before`.
    pub(crate) fn put(&self, mut tx: Transaction, before: &Self) -> Transaction {
        for (id, group) in self.0.iter().filter(|(id, group)| before.0.get(id) != Some(*group)) {
            tx = tx.put(GROUP_OBJECT, &id.to_string(), encode(group));
        }
        let gone = before.0.keys().filter(|id| !self.0.contains_key(id));
        gone.fold(tx, |tx, id| tx.delete(GROUP_OBJECT, &id.to_string()))
    }

    fn of(&self, volume: VolumeId) -> Option<&Group> {
        self.0.values().find(|group| group.members.contains(&volume))
    }

    fn named(&mut self, name: &str) -> Result<&mut Group, VolumeError> {
        let found = self.0.values_mut().find(|group| group.name == name);
        found.ok_or_else(|| VolumeError::NoGroup { name: name.to_owned() })
    }

    /// Puts a volume into a group.
    fn join(&mut self, group: Uuid, volume: &Volume) -> Result<(), VolumeError> {
        let other = self.of(volume.id()).map(|other| other.name.clone());
        let Some(group) = self.0.get_mut(&group) else { return Ok(()) };
        let name = || crate::BlockDevice::name(volume);
        if let Some(other) = other {
            return Err(VolumeError::InGroup { volume: name(), group: group.name.clone(), other });
        }
        if group.members.len() == MEMBERS_MAX {
            return Err(VolumeError::GroupFull { group: group.name.clone(), volume: name() });
        }
        group.members.push(volume.id());
        Ok(())
    }
}

impl Volumes {
    /// All groups, by name.
    pub fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<_> = self.groups.lock().0.values().cloned().collect();
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        groups
    }

    /// The group of this name.
    ///
    /// # Errors
    /// [`VolumeError::NoGroup`].
    pub fn group(&self, name: &str) -> Result<Group, VolumeError> {
        self.groups.lock().named(name).cloned()
    }

    /// The group that a volume is in.
    pub fn group_of(&self, volume: VolumeId) -> Option<Group> {
        self.groups.lock().of(volume).cloned()
    }

    /// The group of this identity.
    pub fn group_by_id(&self, id: Uuid) -> Option<Group> {
        self.groups.lock().0.get(&id).cloned()
    }

    /// Its volumes.
    pub fn members(&self, group: &Group) -> Vec<Arc<Volume>> {
        group.members.iter().filter_map(|id| self.by_id(*id)).collect()
    }

    /// Creates a group; commits `with` in the same transaction.
    ///
    /// # Errors
    /// [`VolumeError::GroupName`] or [`VolumeError::GroupExists`] for its name; [`VolumeError::NotFound`],
    /// [`VolumeError::InGroup`] or [`VolumeError::GroupFull`] for its first member that cannot be one.
    /// [`VolumeError::Offline`] if no pool is open, [`VolumeError::Pool`] if it refuses or fails the
    /// transaction.
    pub async fn create_group(
        &self,
        name: &str,
        members: &[String],
        with: Transaction,
    ) -> Result<Group, VolumeError> {
        check_name(name).map_err(VolumeError::GroupName)?;
        self.change_groups(with, |groups| {
            if let Ok(existing) = groups.named(name) {
                let (name, members) = (name.to_owned(), existing.members.len());
                return Err(VolumeError::GroupExists { name, members });
            }
            let (version, created_ms) = (RECORD_VERSION, self.now_ms());
            let (id, name) = (self.random_uuid(), name.to_owned());
            groups.0.insert(id, Group { version, id, name, members: Vec::new(), created_ms });
            for member in members {
                groups.join(id, &*self.get(member)?)?;
            }
            Ok(groups.0[&id].clone())
        })
        .await
    }

    /// Gives a group another name; commits `with` in the same transaction.
    ///
    /// # Errors
    /// [`VolumeError::NoGroup`]; [`VolumeError::GroupName`] or [`VolumeError::GroupExists`] for the new name.
    /// [`VolumeError::Offline`] if no pool is open, [`VolumeError::Pool`] if it refuses or fails the
    /// transaction.
    pub async fn rename_group(
        &self,
        name: &str,
        new_name: &str,
        with: Transaction,
    ) -> Result<Group, VolumeError> {
        check_name(new_name).map_err(VolumeError::GroupName)?;
        self.change_groups(with, |groups| {
            let id = groups.named(name)?.id;
            match groups.named(new_name) {
                Ok(existing) if existing.id != id => {
                    let (name, members) = (new_name.to_owned(), existing.members.len());
                    Err(VolumeError::GroupExists { name, members })
                }
                _ => {
                    let group = groups.named(name)?;
                    group.name = new_name.to_owned();
                    Ok(group.clone())
                }
            }
        })
        .await
    }

    /// Puts a volume into a group; commits `with` in the same transaction.
    ///
    /// # Errors
    /// [`VolumeError::NoGroup`] or [`VolumeError::NotFound`]; [`VolumeError::InGroup`] if the volume is in a
    /// group already; [`VolumeError::GroupFull`]. [`VolumeError::Offline`] if no pool is open,
    /// [`VolumeError::Pool`] if it refuses or fails the transaction.
    pub async fn join_group(
        &self,
        name: &str,
        volume: &str,
        with: Transaction,
    ) -> Result<Group, VolumeError> {
        self.change_groups(with, |groups| {
            let id = groups.named(name)?.id;
            groups.join(id, &*self.get(volume)?)?;
            Ok(groups.0[&id].clone())
        })
        .await
    }

    /// Takes a volume out of a group; commits `with` in the same transaction.
    ///
    /// # Errors
    /// [`VolumeError::NoGroup`] or [`VolumeError::NotFound`]; [`VolumeError::NotInGroup`].
    /// [`VolumeError::Offline`] if no pool is open, [`VolumeError::Pool`] if it refuses or fails the
    /// transaction.
    pub async fn leave_group(
        &self,
        name: &str,
        volume: &str,
        with: Transaction,
    ) -> Result<Group, VolumeError> {
        self.change_groups(with, |groups| {
            let group = groups.named(name)?;
            let id = self.get(volume)?.id();
            if !group.members.contains(&id) {
                return Err(VolumeError::NotInGroup { volume: volume.to_owned(), group: name.to_owned() });
            }
            group.members.retain(|member| *member != id);
            Ok(group.clone())
        })
        .await
    }

    /// Deletes a group; its volumes and their snapshots stay. Commits `with` in the same transaction.
    ///
    /// # Errors
    /// [`VolumeError::NoGroup`]. [`VolumeError::Offline`] if no pool is open, [`VolumeError::Pool`] if it
    /// refuses or fails the transaction.
    pub async fn delete_group(&self, name: &str, with: Transaction) -> Result<Group, VolumeError> {
        self.change_groups(with, |groups| {
            let id = groups.named(name)?.id;
            groups.0.remove(&id).ok_or_else(|| VolumeError::NoGroup { name: name.to_owned() })
        })
        .await
    }

    async fn change_groups<T>(
        &self,
        with: Transaction,
        change: impl FnOnce(&mut Groups) -> Result<T, VolumeError>,
    ) -> Result<T, VolumeError> {
        let _turn = self.changes.lock().await;
        let before = self.groups.lock().clone();
        let mut groups = before.clone();
        let outcome = change(&mut groups)?;
        self.pool()?.commit(groups.put(with, &before)).await?;
        *self.groups.lock() = groups;
        Ok(outcome)
    }
}
