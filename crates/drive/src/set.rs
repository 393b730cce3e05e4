//! The drives of one pool, opened together.
//!
//! Which drives a pool has is what the newest table of members says that is found on any of the drives given.
//! It counts when all its voters are there and each has an intact table, of whatever age: a change is written
//! to every voter of the table before it that is still needed, so if there were a newer one, one of them would
//! have it. A table that is found on some voters only comes from an interrupted change. Taking it and dropping
//! it would both be right. Opening takes it and writes it to all voters, under a new epoch, as soon as it has
//! raised that on all drives.
//!
//! A set may also be found without some of the drives that the table calls needed: [`DriveSet::open_some`]. Whether the table
//! counts all the same, and whether the others hold enough, is for the pool to decide.

use crate::{Drive, DriveError, Member, MemberState, Members, MembersCopy};
use quoin_base::{DriveId, DriveIndex, Epoch};
use quoin_world::Disk;
use std::{collections::BTreeMap, future::Future, sync::Arc};

/// The drives of a pool as its newest table of members has them.
pub struct DriveSet {
    /// Those it needs, in the order of their numbers.
    pub drives: Vec<Arc<Drive>>,
    /// The table.
    pub members: Members,
    /// What was given and is not one of them: the drive's name, and why it was left out.
    pub left_out: Vec<(String, DriveError)>,
    /// Copies of the table that are damaged or cannot be read, in words.
    pub damaged: Vec<String>,
    /// Drives that it needs and that are not there; none unless that was allowed.
    pub missing: Vec<DriveIndex>,
}

/// Whether drives that are needed may be missing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lacking {
    Refused,
    Allowed,
}

/// Opens the drives of one pool that it needs, in the order of their numbers. What else is among `disks`, such as a drive
/// that failed, is left out, whether it can be opened or not: [`DriveSet::open`] tells.
///
/// # Errors
/// Those of [`DriveSet::open`].
pub async fn open_set(disks: Vec<Arc<dyn Disk>>) -> Result<Vec<Arc<Drive>>, DriveError> {
    Ok(DriveSet::open(disks).await?.drives)
}

/// The same with [`Drive::inspect`]: changes nothing on any drive.
///
/// # Errors
/// Those of [`DriveSet::open`], but for errors of writing.
pub async fn inspect_set(disks: Vec<Arc<dyn Disk>>) -> Result<Vec<Arc<Drive>>, DriveError> {
    Ok(DriveSet::of_disks(disks, Drive::inspect, Lacking::Refused).await?.drives)
}

impl DriveSet {
    /// Opens all drives given. Every drive that the pool needs must be there once. One that cannot be opened is left out:
    /// it may be one that failed, and only the table of members on the others tells. A drive more than one epoch behind
    /// the newest was away while the pool went on and is refused; one epoch behind is what [`raise_set`] leaves when it
    /// is interrupted.
    ///
    /// # Errors
    /// The first drive's own error if none can be opened, [`DriveError::NotOpened`] if the pool needs drives
    /// that may be among those that cannot; otherwise the errors of [`DriveSet::of`].
    pub async fn open(disks: Vec<Arc<dyn Disk>>) -> Result<Self, DriveError> {
        Self::of_disks(disks, Drive::open, Lacking::Refused).await
    }

    /// The same, but drives that the pool needs may be missing, or lag behind: [`DriveSet::missing`] tells.
    ///
    /// # Errors
    /// Those of [`DriveSet::open`], but for drives that are missing.
    pub async fn open_some(disks: Vec<Arc<dyn Disk>>) -> Result<Self, DriveError> {
        Self::of_disks(disks, Drive::open, Lacking::Allowed).await
    }

    async fn of_disks<F>(
        disks: Vec<Arc<dyn Disk>>,
        open: impl Fn(Arc<dyn Disk>) -> F,
        lacking: Lacking,
    ) -> Result<Self, DriveError>
    where
        F: Future<Output = Result<Arc<Drive>, DriveError>>,
    {
        let (mut drives, mut refused) = (Vec::with_capacity(disks.len()), Vec::new());
        for disk in disks {
            let name = disk.name().to_owned();
            match open(disk).await {
                Ok(drive) => drives.push(drive),
                Err(error) => refused.push((name, error)),
            }
        }
        // The drives that could be opened tell whether the others are needed.
        let set = match (drives.is_empty(), refused.is_empty()) {
            (true, false) => return Err(refused.remove(0).1),
            _ => Self::find(drives, lacking).await,
        };
        match set {
            Ok(mut set) => {
                set.left_out.append(&mut refused);
                Ok(set)
            }
            // What is missing may be among those that cannot be opened.
            Err(missing @ (DriveError::Missing { .. } | DriveError::NoMembers { .. }))
                if !refused.is_empty() =>
            {
                let why: Vec<_> = refused.iter().map(|(_, error)| error.to_string()).collect();
                Err(DriveError::NotOpened { why: why.join("; "), missing: Box::new(missing) })
            }
            Err(error) => Err(error),
        }
    }

    /// Finds the set among drives that are open.
    ///
    /// # Errors
    /// [`DriveError::NoDrives`], [`DriveError::OtherPool`] or [`DriveError::Duplicate`] if the drives are not
    /// those of one pool. [`DriveError::NoMembers`], [`DriveError::MembersLost`] or [`DriveError::Missing`]
    /// if a table of members, or a drive that it needs, is not there. [`DriveError::Differs`] or
    /// [`DriveError::Stale`] if a drive does not fit the table or was away.
    pub async fn of(drives: Vec<Arc<Drive>>) -> Result<Self, DriveError> {
        Self::find(drives, Lacking::Refused).await
    }

    /// The same, but drives may be missing, as with [`DriveSet::open_some`].
    ///
    /// # Errors
    /// Those of [`DriveSet::of`], but for drives that are missing.
    pub async fn of_some(drives: Vec<Arc<Drive>>) -> Result<Self, DriveError> {
        Self::find(drives, Lacking::Allowed).await
    }

    async fn find(mut drives: Vec<Arc<Drive>>, lacking: Lacking) -> Result<Self, DriveError> {
        let Some(first) = drives.first() else { return Err(DriveError::NoDrives) };
        let pool = first.label().pool;
        for drive in &drives {
            let found = drive.label().pool;
            if found != pool {
                return Err(DriveError::OtherPool { drive: drive.name().into(), found, expected: pool });
            }
        }
        drives.sort_by_key(|d| (d.index(), d.label().drive));
        let is_twice = |[a, b]: &&[Arc<Drive>; 2]| a.label().drive == b.label().drive;
        if let Some([a, b]) = drives.array_windows().find(is_twice) {
            let (first, second) = (a.name().into(), b.name().into());
            return Err(DriveError::Duplicate { first, second, index: a.index() });
        }

        // What the tables say.
        let mut tables = BTreeMap::new();
        let mut damaged = Vec::new();
        for drive in &drives {
            let table = Table::read(drive, &mut damaged).await;
            tables.insert(drive.label().drive, table);
        }
        // The newest table on any drive tells which drives the pool has.
        let of_pool = |table: &Table| table.newest.clone().filter(|members| members.pool == pool);
        let Some(members) = tables.values().filter_map(of_pool).max_by_key(Members::age) else {
            return Err(DriveError::NoMembers { present: listed(&drives) });
        };

        // Which of the drives are members.
        let mut left_out = Vec::new();
        drives.retain(|drive| match stranger(drive, &members) {
            None => true,
            Some(why) => {
                left_out.push((drive.name().to_owned(), why));
                false
            }
        });
        // One that lags behind was away while the others were opened: it is as if it was missing.
        if lacking == Lacking::Allowed {
            let stale: Vec<_> = stale(&drives).collect();
            drives.retain(|drive| stale.iter().all(|(name, _)| name != drive.name()));
            left_out.extend(stale);
        }
        let is_there = |member: &&Member| drives.iter().any(|drive| drive.label().drive == member.drive);
        let absent: Vec<_> = members.needed().filter(|member| !is_there(member)).collect();
        if !absent.is_empty() && (lacking == Lacking::Refused || drives.is_empty()) {
            return Err(missing(&members, &drives));
        }
        let missing = absent.into_iter().map(|member| member.index).collect();
        for drive in &drives {
            fits(drive, &members)?;
        }
        // A voter without a table may have had a newer one than that which was found.
        vouched_for(&members, &drives, &tables)?;
        if let Some((_, why)) = stale(&drives).next() {
            return Err(why);
        }
        Ok(Self { drives, members, left_out, damaged, missing })
    }

    /// Why the set cannot be used without what is missing.
    pub fn refusal(&self) -> DriveError {
        missing(&self.members, &self.drives)
    }
}

fn missing(members: &Members, drives: &[Arc<Drive>]) -> DriveError {
    let is_there = |member: &&Member| drives.iter().any(|drive| drive.label().drive == member.drive);
    let missing = members.needed().filter(|member| !is_there(member));
    let missing: Vec<_> = missing.map(|m| format!("{} ({})", m.index, m.drive)).collect();
    let (total, present) = (members.needed().count(), listed(drives));
    DriveError::Missing { total, missing: missing.join(", "), present }
}

/// Those that were away while the pool was opened more than once.
fn stale(drives: &[Arc<Drive>]) -> impl Iterator<Item = (String, DriveError)> {
    let newest = newest_epoch(drives);
    let lags = move |drive: &&Arc<Drive>| drive.epoch().0.saturating_add(1) < newest.0;
    drives.iter().filter(lags).map(move |drive| {
        let name = drive.name().to_owned();
        (name.clone(), DriveError::Stale { drive: name, found: drive.epoch(), newest })
    })
}

/// What a drive has of the table of members.
struct Table {
    newest: Option<Members>,
    /// What is wrong with a copy.
    damage: Option<String>,
}

impl Table {
    async fn read(drive: &Drive, told: &mut Vec<String>) -> Self {
        let mut table = Self { newest: None, damage: None };
        for (offset, copy) in crate::MEMBERS_OFFSETS.into_iter().zip(drive.read_members().await) {
            match copy {
                MembersCopy::Sound(members) => {
                    table.newest = table.newest.into_iter().chain([members]).max_by_key(Members::age);
                }
                MembersCopy::Blank => {}
                MembersCopy::Damaged(why) => {
                    told.push(format!(
                        "drive {}: the table of members at byte {offset}: {why}",
                        drive.name()
                    ));
                    table.damage = Some(why);
                }
            }
        }
        table
    }
}

/// Why a drive is left out of the set, if so.
fn stranger(drive: &Drive, members: &Members) -> Option<DriveError> {
    let label = drive.label();
    let member = members.get(label.index).filter(|member| member.drive == label.drive);
    let why = match member.map(|member| member.state) {
        Some(MemberState::Active | MemberState::Leaving) => return None,
        Some(MemberState::Absent) => {
            "it was away while the pool went on without it; once the pool is open, the array brings it up to date and takes it \
             back"
        }
        Some(MemberState::Failed) => {
            "it failed and the pool went on without it, so what it holds is stale; take it out of the configuration, and \
             erase it before it is used again"
        }
        Some(MemberState::Gone) => {
            "it left the pool and holds nothing that is needed; take it out of the configuration, and erase it before it \
             is used again"
        }
        None => {
            "adding it did not come to an end, or it is of an older state of the pool; take it out of the configuration, \
             and erase it before it is added again"
        }
    };
    let (drive, index, id) = (drive.name().to_owned(), label.index, label.drive);
    Some(DriveError::NotMember { drive, index, id, why })
}

/// A member's label says what the table says, or more slabs: the drive grew, and the table does not tell yet.
fn fits(drive: &Drive, members: &Members) -> Result<(), DriveError> {
    let label = drive.label();
    let Some(member) = members.get(label.index) else { return Ok(()) };
    let told = |slabs, roles| format!("{slabs} slabs and {roles:?}");
    if label.slabs() >= member.slabs && label.roles == member.roles {
        return Ok(());
    }
    Err(DriveError::Differs {
        drive: drive.name().to_owned(),
        found: told(label.slabs(), label.roles),
        expected: told(member.slabs, member.roles),
    })
}

/// Checks that every voter has an intact table.
fn vouched_for(
    members: &Members,
    drives: &[Arc<Drive>],
    tables: &BTreeMap<DriveId, Table>,
) -> Result<(), DriveError> {
    for voter in members.voters() {
        let Some(table) = tables.get(&voter.drive).filter(|table| table.newest.is_none()) else { continue };
        let drive = drives.iter().find(|drive| drive.label().drive == voter.drive);
        let name = drive.map(|drive| drive.name().to_owned()).unwrap_or_default();
        let why = table.damage.clone().unwrap_or_else(|| "there is none".to_owned());
        return Err(DriveError::MembersLost { drive: name, why });
    }
    Ok(())
}

fn listed(drives: &[Arc<Drive>]) -> String {
    let listed: Vec<_> = drives.iter().map(|d| format!("{} ({})", d.index(), d.name())).collect();
    if listed.is_empty() { "none".into() } else { listed.join(", ") }
}

/// Raises all drives of an opened set to one epoch above the newest and returns it.
///
/// Laggards are first brought to the newest: at every moment the drives' epochs differ by one at most, so
/// however often this is interrupted, [`open_set`] still takes the set.
///
/// # Errors
/// [`DriveError::Fenced`] if another owner raised a drive meanwhile, and the other errors of
/// [`Drive::raise_epoch`]. Drives before the one that failed keep their new epoch.
pub async fn raise_set(drives: &[Arc<Drive>]) -> Result<Epoch, DriveError> {
    let newest = newest_epoch(drives);
    let next = Epoch(newest.0 + 1);
    // NOTE: laggards first, so that epochs never differ by more than one.
    for drive in drives.iter().filter(|d| d.epoch() < newest) {
        drive.raise_epoch(newest).await?;
    }
    // A drive that another owner raised to this epoch meanwhile refuses.
    for drive in drives {
        drive.raise_epoch(next).await?;
    }
    for drive in drives {
        assert!(drive.epoch() >= next, "drive {} is of epoch {next} at least", drive.name());
    }
    Ok(next)
}

fn newest_epoch(drives: &[Arc<Drive>]) -> Epoch {
    drives.iter().map(|d| d.epoch()).max().unwrap_or_default()
}
