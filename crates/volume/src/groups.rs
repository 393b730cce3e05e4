//! Groups among the volumes: found, created, renamed, changed and deleted.
//!
//! Every change is one transaction, made of a copy of the groups that takes the place of the one before once the
//! transaction is committed.

use crate::{
    Volume, VolumeError, Volumes, check_name,
    group::{Group, Groups},
};
use quoin_base::VolumeId;
use quoin_pool::Transaction;
use std::sync::Arc;
use uuid::Uuid;

impl Volumes {
    /// All groups, by name.
    pub fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<_> = self.groups.lock().all().cloned().collect();
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
        self.groups.lock().get(id).cloned()
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
            let id = self.random_uuid();
            groups.create(id, name.to_owned(), self.now_ms());
            for member in members {
                groups.join(id, &*self.get(member)?)?;
            }
            groups.named(name).cloned()
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
            groups.named(name).cloned()
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
            groups.remove(id).ok_or_else(|| VolumeError::NoGroup { name: name.to_owned() })
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
