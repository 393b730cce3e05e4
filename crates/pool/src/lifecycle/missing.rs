//! Opening a pool while drives are missing that it needs: whether it can do without them.
//!
//! Nothing is written before that is known. Invariants:
//! 1. The table of members that was found counts. A change of it goes on without no more voters than the layout tolerates
//!    failures, so any set of voters that is larger has it. With fewer voters only an administrator knows that the pool was not
//!    used with the missing ones alone.
//! 2. Every segment in use, every page of metadata and every part of the journal that replay needs is on the drives that are
//!    there.

use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    lifecycle::open::open_checkpoint,
    store::{Store, journal_domains},
};
use quoin_base::DriveIndex;
use quoin_drive::{Drive, DriveSet, Member, Members};
use std::sync::Arc;

/// The drives that are missing, if the pool can be opened without them. `confirmed`: an administrator said that it was not used
/// with those alone.
///
/// # Errors
/// [`PoolError::Drive`] or [`PoolError::Unopenable`] if it cannot.
pub(super) async fn missing_drives(
    drives: &[Arc<Drive>],
    confirmed: bool,
) -> Result<Vec<DriveIndex>, PoolError> {
    let set = DriveSet::of_some(drives.to_vec()).await?;
    if set.missing.is_empty() {
        return Ok(Vec::new());
    }
    let refusal = set.refusal();
    let refuse = |why: String| Err(PoolError::Unopenable(format!("{refusal}; it cannot do without: {why}")));
    let (missing, members) = (set.missing.clone(), set.members.clone());
    let Some(label) = set.drives.first().map(|drive| drive.label()) else { return Err(refusal.into()) };
    let parity = usize::from(label.layout.parity());
    if parity == 0 {
        return Err(refusal.into());
    }
    let is_there = |member: &&Member| !missing.contains(&member.index);
    let voters = members.voters().filter(is_there).count();
    if voters <= parity && !confirmed && !planted(Bug::OpenMinority) {
        return refuse(format!(
            "only {voters} of the drives that know which drives the pool has are there, and the others may have gone on without \
             them. If you know that they have not, start the array with --without-missing"
        ));
    }
    // What the drives that are there hold.
    let columns = usize::from(label.journal_columns);
    if let Some(why) = lost_of_journal(&members, &missing, columns) {
        return refuse(why);
    }
    let store = Arc::new(Store::inspect_set(set).await?);
    for slice in store.slices() {
        let opened = match open_checkpoint(store.clone(), slice).await {
            Ok(opened) => opened,
            Err(error) => return refuse(error.to_string()),
        };
        if let Some(why) = opened.io.segments.lost_now() {
            return refuse(why);
        }
    }
    Ok(missing)
}

/// What of the journal may be on no other drive, if anything.
fn lost_of_journal(members: &Members, missing: &[DriveIndex], columns: usize) -> Option<String> {
    let set: Vec<_> = members.in_journal().collect();
    // Extents that began before a drive came back are not on it.
    let settled: Vec<_> = set.iter().copied().filter(|member| !member.is_returning()).collect();
    let is_lost = [set, settled].into_iter().any(|set| {
        let all = journal_domains(members, set.iter().map(|member| member.index));
        let lost = set.iter().map(|member| member.index).filter(|drive| missing.contains(drive));
        let lost = journal_domains(members, lost);
        lost > 0 && lost >= columns.min(all)
    });
    is_lost.then(|| "a part of the journal may be on no other drive".to_owned())
}
