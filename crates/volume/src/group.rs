//! Consistency groups: volumes of which snapshots are taken, and to which they are restored, as of one moment.
//!
//! Invariants:
//! 1. A volume is in at most one group.
//! 2. Members exist: the transaction that deletes a volume takes it out of its group.
//! 3. A group has at most [`MEMBERS_MAX`] members, so that a change of all of them fits one transaction.

use crate::{BlockDevice, Volume, VolumeError, limits::MEMBERS_MAX, record::encode};
use quoin_base::VolumeId;
use quoin_pool::{ObjectKind, Pool, Transaction};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The kind of catalog object that holds a consistency group; the key is its identity, the value JSON.
pub const GROUP_OBJECT: ObjectKind = ObjectKind(8);

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

    pub(crate) fn all(&self) -> impl Iterator<Item = &Group> {
        self.0.values()
    }

    pub(crate) fn get(&self, id: Uuid) -> Option<&Group> {
        self.0.get(&id)
    }

    pub(crate) fn of(&self, volume: VolumeId) -> Option<&Group> {
        self.0.values().find(|group| group.members.contains(&volume))
    }

    pub(crate) fn named(&mut self, name: &str) -> Result<&mut Group, VolumeError> {
        let found = self.0.values_mut().find(|group| group.name == name);
        found.ok_or_else(|| VolumeError::NoGroup { name: name.to_owned() })
    }

    /// Adds a group without members.
    pub(crate) fn create(&mut self, id: Uuid, name: String, created_ms: u64) {
        self.0.insert(id, Group { version: RECORD_VERSION, id, name, members: Vec::new(), created_ms });
    }

    pub(crate) fn remove(&mut self, id: Uuid) -> Option<Group> {
        self.0.remove(&id)
    }

    /// Puts a volume into a group.
    pub(crate) fn join(&mut self, group: Uuid, volume: &Volume) -> Result<(), VolumeError> {
        let other = self.of(volume.id()).map(|other| other.name.clone());
        let Some(group) = self.0.get_mut(&group) else { return Ok(()) };
        if let Some(other) = other {
            return Err(VolumeError::InGroup { volume: volume.name(), group: group.name.clone(), other });
        }
        if group.members.len() == MEMBERS_MAX {
            return Err(VolumeError::GroupFull { group: group.name.clone(), volume: volume.name() });
        }
        group.members.push(volume.id());
        Ok(())
    }
}
