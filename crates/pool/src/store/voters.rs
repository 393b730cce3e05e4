//! Voters that are appointed while the pool serves, in the place of one that leaves or was lost.
//!
//! A voter has the table of members and the newest root of each slice. A drive that is to become one gets both before the
//! table that calls it one is written, and no root is written in between: so there is never a voter that lacks a root that
//! counts.

use super::{Store, roots::newest};
use crate::error::PoolError;
use quoin_base::DriveIndex;
use quoin_drive::{Drive, Members};
use quoin_world::Buf;
use std::sync::Arc;
use zerocopy::IntoBytes;

impl Store {
    /// Makes other drives voters until there are enough beside this one, which votes no more.
    pub(super) async fn appoint_beside(&self, leaving: DriveIndex) -> Result<(), PoolError> {
        self.appoint(Some(leaving)).await
    }

    /// Whether drives could vote that do not, and more voters are wanted.
    pub(crate) fn lacks_voters(&self) -> bool {
        let members = self.members();
        let mut enough = Members::clone(&members);
        enough.appoint_voters();
        enough.voters().count() > members.voters().count()
    }

    /// Makes drives voters until there are enough.
    pub(crate) async fn appoint_enough(&self) -> Result<(), PoolError> {
        self.appoint(None).await
    }

    async fn appoint(&self, leaving: Option<DriveIndex>) -> Result<(), PoolError> {
        let _turn = self.rooting.lock().await;
        let before = self.members();
        let mut after = Members::clone(&before);
        if let Some(member) = leaving.and_then(|leaving| after.get_mut(leaving)) {
            member.votes = false;
        }
        after.appoint_voters();
        let votes = |members: &Members, index| members.get(index).is_some_and(|member| member.votes);
        let new = after.voters().map(|member| member.index).filter(|index| !votes(&before, *index));
        let appointed: Vec<DriveIndex> = new.collect();
        if appointed.is_empty() {
            return Ok(());
        }
        for index in &appointed {
            let drive = self.columns.drive(*index)?.clone();
            // NOTE: the table in force first. One that calls it a voter may be on any of them after that.
            if let Err(error) = drive.write_members(&before).await {
                // It may be lost, and nobody may have found out yet.
                self.do_without(*index, error.into()).await?;
                return Ok(());
            }
            self.bring_roots(&drive).await?;
        }
        self.change_appointing(&appointed, |members| {
            for member in &mut members.all {
                member.votes =
                    Some(member.index) != leaving && (member.votes || appointed.contains(&member.index));
            }
            Ok(())
        })
        .await
    }

    /// Writes the newest root of each slice to a drive.
    async fn bring_roots(&self, drive: &Arc<Drive>) -> Result<(), PoolError> {
        for slice in self.slices() {
            let slots = self.root_slots(slice).await;
            let Some(root) = newest(&slots) else { continue };
            let slot = root.generation.get() as usize % 2;
            drive.write_root(slice, slot, Buf::copy_of(root.as_bytes())).await?;
        }
        Ok(())
    }
}
