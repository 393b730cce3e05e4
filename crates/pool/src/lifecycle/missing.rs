//! Opening a pool while drives are missing that it needs: whether it can do without them.
//!
//! Nothing is written before that is known. Invariants:
//! 1. The table of members that was found counts. A change of it goes on without no more voters than the layout tolerates
//!    failures, so any set of voters that is larger has it. With fewer voters only an administrator knows that the pool was not
//!    used with the missing ones alone.
//! 2. Every page of metadata and every part of the journal that replay needs is on the drives that are there. So is every segment
//!    of data, unless an administrator said that it is to be opened all the same: blocks that follow from nothing cannot be read
//!    then until drives are back.

use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    meta::LostNow,
    store::{Store, journal_domains},
};
use quoin_base::{DriveIndex, SliceId};
use quoin_drive::{Drive, DriveSet, Member, MemberState, Members};
use std::sync::Arc;

/// What the drives that are there hold of a slice.
pub(super) struct Held {
    /// The pool was closed, and nobody opened it since.
    pub(super) is_closed: bool,
    /// What cannot be read without the drives that are missing.
    pub(super) lost: LostNow,
}

/// The drives that are missing, if the pool can be opened without them. `confirmed`: an administrator said that it was not used
/// with those alone, and that it is to be opened also if data cannot be read without them. `look` tells what is there of a slice.
///
/// # Errors
/// [`PoolError::Drive`] or [`PoolError::Unopenable`] if it cannot.
pub(super) async fn missing_drives(
    drives: &[Arc<Drive>],
    confirmed: bool,
    look: impl AsyncFn(Arc<Store>, SliceId) -> Result<Held, PoolError>,
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
    let lost_of_journal = lost_of_journal(&members, &missing, label.journal_columns.into());
    let store = Arc::new(Store::inspect_set(set).await?);
    let mut unreadable = (0, 0);
    for slice in store.slices() {
        // Nothing of the journal is needed if the pool was closed and nobody opened it since.
        match look(store.clone(), slice).await {
            Err(error) => return refuse(error.to_string()),
            Ok(Held { lost: LostNow { metadata: Some(why), .. }, .. }) => return refuse(why),
            Ok(Held { is_closed: false, .. }) if lost_of_journal => {
                return refuse("a part of the journal may be on no other drive".to_owned());
            }
            Ok(Held { lost, .. }) => {
                unreadable.0 += lost.segments;
                unreadable.1 += lost.bytes;
            }
        }
    }
    let (segments, bytes) = unreadable;
    if segments > 0 && !confirmed {
        return refuse(format!(
            "{segments} segments with {bytes} bytes of data could not be read. To have everything else served until those drives \
             are back, start the array with --without-missing"
        ));
    }
    Ok(missing)
}

/// Whether a part of the journal may be on no drive that is there.
fn lost_of_journal(members: &Members, missing: &[DriveIndex], columns: usize) -> bool {
    // NOTE: what is needed may have begun before other drives were lost, or were back. It is not on those.
    let holds = |member: &&Member| member.roles.journal && member.state != MemberState::Gone;
    let is_lost =
        |member: &&Member| !member.in_journal || member.is_returning() || missing.contains(&member.index);
    let all: Vec<_> = members.all.iter().filter(holds).collect();
    let is_any_missing = all.iter().any(|member| member.in_journal && missing.contains(&member.index));
    let lost = all.iter().copied().filter(is_lost).map(|member| member.index);
    let lost = journal_domains(members, lost);
    let domains = journal_domains(members, all.iter().map(|member| member.index));
    is_any_missing && lost >= columns.min(domains)
}
