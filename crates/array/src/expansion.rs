//! Pools that grow with their drives, while hosts use them.
//!
//! First all files are made longer, durably, and then one drive after the other takes what its file or device has. What is cut off
//! in between harms nothing: a drive goes by its label, and taking what is there (`--to-devices`) does the rest.

use crate::{Array, ArrayError, DriveFile, ExpandError, events::Told};
use quoin_api::{self as api, Severity};
use quoin_base::{DriveIndex, MIB};
use quoin_drive::{Member, MemberState};
use quoin_pool::{DriveLen, Growth, Pool, PoolError, PoolStats};
use std::{collections::BTreeMap, sync::Arc};

/// What lengths of files are rounded up to.
const FILE_UNIT_BYTES: u64 = MIB;
/// The most that drives grow by at once.
const MOST_PERCENT: u32 = 10_000;

/// A drive that is to grow.
struct Chosen {
    path: String,
    /// Where it is, if that is not its path.
    at: String,
    index: DriveIndex,
    len_bytes: u64,
    /// What its file is to be made, unless it is as long already.
    to_make: Option<u64>,
}

impl Array {
    /// Has the pool grow with its drives. Files are made longer if that is asked for; otherwise it takes what files and devices
    /// have by now.
    ///
    /// # Errors
    /// [`ExpandError`] if it cannot grow so, with the drive and the reason: nothing changed then, unless the error says which
    /// drives grew. [`DriveChangeError`](crate::DriveChangeError) if a name does not mean one drive; [`ArrayError::Pool`] if the
    /// pool is not open or goes offline.
    pub async fn expand_pool(&self, request: api::PoolExpand) -> Result<api::PoolExpansion, ArrayError> {
        let pool = self.pool()?;
        let mut chosen = self.drives_to_grow(&pool, &request)?;
        if request.percent.is_some() || request.bytes.is_some() {
            self.plan_files(&mut chosen, &request).await?;
        } else {
            take_what_is_there(&pool, &mut chosen, request.drives.is_empty())?;
        }
        // What it comes to, of all drives together.
        let wanted: Vec<_> = chosen.iter().map(Chosen::wanted).collect();
        let growth = pool.growth(&wanted).map_err(refused)?;
        if request.dry_run {
            return Ok(view(&pool, &chosen, &growth, true));
        }
        for one in &chosen {
            if let Some(len_bytes) = one.to_make {
                let made = self.drives().bay().begin_lengthen(&one.at, len_bytes).await;
                made.unwrap_or_else(|| Err("making it longer was interrupted".to_owned())).map_err(
                    |why| {
                        let why = format!("the file of drive {} was not made longer: {why}", one.path);
                        ExpandError::Partly { grown: Vec::new(), why }
                    },
                )?;
            }
        }
        // From here on each drive that has grown stays so.
        let (done, outcome) = pool.grow_drives(&wanted).await;
        let grown: Vec<_> = chosen.iter().take(done.len()).map(|one| one.path.clone()).collect();
        match outcome {
            Ok(()) => {}
            Err(error @ PoolError::Offline { .. }) => return Err(error.into()),
            Err(error) => {
                self.tell_growth(&pool, &grown, &growth);
                return Err(ExpandError::Partly { grown, why: error.to_string() }.into());
            }
        }
        self.tell_growth(&pool, &grown, &growth);
        let growth = Growth { usable_after_bytes: usable_after(&pool.stats(), &growth), ..growth };
        Ok(view(&pool, &chosen, &growth, false))
    }

    /// Records what drives grew, and has thresholds reckon with the space that there is now.
    fn tell_growth(&self, pool: &Pool, grown: &[String], growth: &Growth) {
        if grown.is_empty() {
            return;
        }
        let new_slabs = |one: &quoin_pool::DriveGrowth| one.after.len_bytes - one.before.len_bytes;
        let bytes: u64 = growth.drives.iter().take(grown.len()).map(new_slabs).sum();
        let stats = pool.stats();
        let text = format!(
            "grew by {bytes} bytes of {} drives: {}; space for host data was {} bytes and is {}",
            grown.len(),
            grown.join(", "),
            growth.usable_before_bytes,
            usable_after(&stats, growth)
        );
        let told = Told::new(self.pool_name(), crate::words::shortened(&text))
            .change("usable_bytes", growth.usable_before_bytes, usable_after(&stats, growth))
            .with("drives", grown);
        self.log().record_told(Severity::Info, told);
        self.watch_space(&stats);
    }

    /// The drives that are meant: those named, or all that hold data.
    fn drives_to_grow(&self, pool: &Pool, request: &api::PoolExpand) -> Result<Vec<Chosen>, ArrayError> {
        let members = pool.members();
        if request.drives.is_empty() {
            let out_of_service: Vec<_> = members.all.iter().filter(|member| is_out(member)).collect();
            if !out_of_service.is_empty() {
                let named: Vec<_> = out_of_service.iter().map(|member| self.path_and_state(member)).collect();
                let why = format!(
                    "not all drives serve: {}; bring them back or remove them first, or name the drives that are to grow",
                    named.join(", ")
                );
                return Err(ExpandError::Refused { why }.into());
            }
        }
        let mut chosen = Vec::new();
        if request.drives.is_empty() {
            let holds_data = members.all.iter().filter(|member| member.is_needed() && member.roles.data);
            for member in holds_data {
                let path = self.path_of_number(member.index).unwrap_or_default();
                chosen.push((path, member.index));
            }
        }
        for given in &request.drives {
            let path = self.drives().path_of(given)?;
            let Some(index) = self.drives().number_of(&path) else {
                return Err(crate::DriveChangeError::NotInPool { drive: path }.into());
            };
            if chosen.iter().all(|(_, known)| *known != index) {
                chosen.push((path, index));
            }
        }
        let of = |(path, index): (String, DriveIndex)| {
            let drive = pool.drive(index);
            let at = drive.as_ref().map_or(path.clone(), |drive| drive.name().to_owned());
            let len_bytes = drive.map_or(0, |drive| drive.label().len_bytes);
            Chosen { path, at, index, len_bytes, to_make: None }
        };
        Ok(chosen.into_iter().map(of).collect())
    }

    fn path_of_number(&self, index: DriveIndex) -> Option<String> {
        let paths = self.drives().each(|slot| (slot.number() == Some(index)).then(|| slot.path().to_owned()));
        paths.into_iter().flatten().next()
    }

    fn path_and_state(&self, member: &Member) -> String {
        let path = self.path_of_number(member.index).unwrap_or_else(|| format!("number {}", member.index));
        format!("{path} ({})", member.state)
    }

    /// How long each file is to be made, and whether its file system has room for that.
    async fn plan_files(&self, chosen: &mut [Chosen], request: &api::PoolExpand) -> Result<(), ArrayError> {
        let refused = |why: String| ArrayError::from(ExpandError::Refused { why });
        if request.percent.is_some_and(|percent| !(1..=MOST_PERCENT).contains(&percent)) {
            return Err(refused(format!("drives grow by 1 to {MOST_PERCENT} percent")));
        }
        if request.percent.is_some() && request.bytes.is_some() {
            return Err(refused("give either percents or bytes".into()));
        }
        let all: u64 = chosen.iter().map(|one| one.len_bytes).sum();
        // By file system: what is free there, what growing takes, and how many drives are there.
        let mut systems: BTreeMap<u64, (u64, u64, Vec<&str>)> = BTreeMap::new();
        for one in chosen {
            let file = self.file_of(one).await?;
            if file.is_device {
                return Err(refused(format!(
                    "drive {} is a block device, which the array cannot make larger: enlarge it there, then have the pool take \
                     what is there (--to-devices)",
                    one.path
                )));
            }
            let more = match (request.percent, request.bytes) {
                (Some(percent), _) => share(one.len_bytes, percent.into(), 100),
                (None, bytes) => share(bytes.unwrap_or(0), one.len_bytes, all.max(1)),
            };
            let to = one.len_bytes.saturating_add(more).checked_next_multiple_of(FILE_UNIT_BYTES);
            let to = to.filter(|to| *to <= i64::MAX as u64);
            one.len_bytes =
                to.ok_or_else(|| refused(format!("no file is as long as drive {} would be", one.path)))?;
            one.to_make = (file.len_bytes < one.len_bytes).then_some(one.len_bytes);
            let takes = one.len_bytes.saturating_sub(file.len_bytes);
            let system = systems.entry(file.file_system).or_insert((file.free_bytes, 0, Vec::new()));
            system.1 = system.1.saturating_add(takes);
            system.2.push(&one.path);
        }
        match systems.into_values().find(|(free, takes, _)| takes > free) {
            None => Ok(()),
            Some((free, takes, drives)) => {
                let why = format!(
                    "the file system that holds {} has {free} bytes free, and growing takes {takes} bytes there",
                    drives.join(", ")
                );
                Err(ExpandError::NoRoom { why }.into())
            }
        }
    }

    async fn file_of(&self, drive: &Chosen) -> Result<DriveFile, ArrayError> {
        let told = self.in_time(self.drives().bay().begin_measure(&drive.at)).await;
        let told = told.unwrap_or_else(|| Err("it does not answer".to_owned()));
        told.map_err(|why| {
            let why = format!("the size of drive {} cannot be found out: {why}", drive.path);
            ExpandError::Refused { why }.into()
        })
    }
}

impl Chosen {
    fn wanted(&self) -> DriveLen {
        DriveLen { drive: self.index, len_bytes: self.len_bytes }
    }
}

/// So many parts of all of `of`, rounded up.
fn share(of: u64, parts: u64, all: u64) -> u64 {
    let share = (u128::from(of) * u128::from(parts)).div_ceil(u128::from(all));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Whether a drive does not serve that the pool has, or had and was not told to forget.
fn is_out(member: &Member) -> bool {
    !matches!(member.state, MemberState::Active | MemberState::Gone)
}

/// What files and devices have by now. Those that hold no more slabs than before are left out where none is named.
fn take_what_is_there(pool: &Arc<Pool>, chosen: &mut Vec<Chosen>, are_all: bool) -> Result<(), ArrayError> {
    for one in chosen.iter_mut() {
        one.len_bytes = pool.drive(one.index).map_or(0, |drive| drive.measure());
    }
    if !are_all {
        return Ok(());
    }
    let count = chosen.len();
    chosen.retain(|one| {
        let members = pool.members();
        let has = members.get(one.index).map_or(0, |member| member.slabs);
        let label = pool.drive(one.index).map(|drive| drive.label_of(one.len_bytes));
        // One that became shorter is refused by name.
        let shorter = pool.drive(one.index).is_some_and(|drive| one.len_bytes < drive.label().len_bytes);
        shorter || label.is_some_and(|label| label.slabs() > has)
    });
    if chosen.is_empty() {
        let why = format!(
            "there is nothing to grow by: the files and devices of all {count} drives hold as many slabs as the pool uses; make \
             them larger first, or have the array do it with --by"
        );
        return Err(ExpandError::Refused { why }.into());
    }
    Ok(())
}

/// What hosts may fill by now. Slabs that no slice has yet count as if all domains had as many; the reckoning of the growth knows
/// which ones have.
fn usable_after(stats: &PoolStats, growth: &Growth) -> u64 {
    stats.usable_bytes.min(growth.usable_after_bytes)
}

fn refused(error: PoolError) -> ArrayError {
    match error {
        PoolError::Refused(why) => ExpandError::Refused { why }.into(),
        error => error.into(),
    }
}

fn view(pool: &Pool, chosen: &[Chosen], growth: &Growth, dry_run: bool) -> api::PoolExpansion {
    let drive = |(one, growth): (&Chosen, &quoin_pool::DriveGrowth)| api::DriveExpansion {
        path: one.path.clone(),
        number: one.index.0,
        lengthens_file: one.to_make.is_some(),
        size_before_bytes: growth.before.len_bytes,
        size_after_bytes: growth.after.len_bytes,
        slabs_before: growth.before.slabs,
        slabs_after: growth.after.slabs,
        grant_pages: growth.after.grant_pages,
        most_grant_pages: growth.most_grant_pages,
    };
    api::PoolExpansion {
        dry_run,
        drives: chosen.iter().zip(&growth.drives).map(drive).collect(),
        layout: pool.protection().layout_now.to_string(),
        usable_before_bytes: growth.usable_before_bytes,
        usable_after_bytes: growth.usable_after_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_all_and_are_never_too_small() {
        assert_eq!((share(1000, 20, 100), share(1001, 20, 100)), (200, 201));
        assert_eq!((share(500, 1, 3), share(500, 2, 3)), (167, 334));
        assert_eq!(share(u64::MAX, 10_000, 100), u64::MAX);
    }
}
