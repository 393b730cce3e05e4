//! Drives that leave: evacuated by request, removed when nothing is left on them, and replaced by others.
//!
//! The pool knows which drives leave. What is to become of one afterwards is an object of the catalog, so that a restart goes
//! on with it: a drive that is to be removed is removed once nothing refers to it, whenever that is.

use crate::{
    Array, ArrayError, DriveChangeError,
    events::Told,
    progress::Progress,
    record::{LEAVING_OBJECT, decode, encode},
};
use quoin_api::{self as api, NextStep, Severity};
use quoin_base::DriveIndex;
use quoin_drive::MemberState;
use quoin_pool::{Evacuation, Pool, PoolError, Transaction};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// What is to become of a drive that leaves or failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeavingRecord {
    pub(crate) drive: u16,
    /// Its path in the configuration.
    pub(crate) path: String,
    /// It is removed when nothing refers to it any more.
    pub(crate) removes: bool,
    /// The drive that takes its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replaced_by: Option<String>,
    pub(crate) started_ms: u64,
    pub(crate) total_bytes: u64,
}

/// The progress of drives that leave, and which of them were reported as done.
#[derive(Default)]
pub(crate) struct Leaving {
    drives: BTreeMap<DriveIndex, (Progress, bool)>,
}

fn key(drive: DriveIndex) -> String {
    format!("{:05}", drive.0)
}

/// The problem of the object of a drive that leaves, if it has one.
pub(crate) fn leaving_problem(key: &str, bytes: &[u8]) -> Option<String> {
    match decode::<LeavingRecord>(key, bytes) {
        Ok(record) if self::key(DriveIndex(record.drive)) == key => None,
        Ok(record) => Some(format!("it is of drive {}", record.drive)),
        Err(error) => Some(error.to_string()),
    }
}

impl Array {
    /// Has a drive leave: what it holds moves to the others while hosts use the pool. `given` is its path or the end of it.
    ///
    /// # Errors
    /// [`DriveChangeError`] if no one drive is meant, or if it cannot leave, with what is lacking; [`ArrayError::Pool`] if the
    /// pool is not open or goes offline.
    pub async fn evacuate_drive(
        &self,
        given: &str,
        request: api::DriveEvacuate,
    ) -> Result<api::Drive, ArrayError> {
        let (pool, path, index) = self.member_of(given)?;
        if self.leave(&pool, &path, index, request.narrower).await? {
            self.note_leaving(&pool, &path, index, false, None).await?;
        }
        self.show_drive(&path)
    }

    /// Has a drive that leaves stay.
    ///
    /// # Errors
    /// [`DriveChangeError`] if no one drive is meant or it does not leave; [`ArrayError::Pool`] if the pool is not open or goes
    /// offline.
    pub async fn cancel_evacuation(&self, given: &str) -> Result<api::Drive, ArrayError> {
        let (pool, path, index) = self.member_of(given)?;
        if !pool.cancel_evacuation(index).await? {
            return Err(DriveChangeError::NotLeaving { drive: path }.into());
        }
        let turn = self.catalog().turn().await;
        let told = Told::new(format!("drive {path}"), "stays: its evacuation was cancelled")
            .change("state", "leaving", "active");
        self.commit_told(&turn, Transaction::new().delete(LEAVING_OBJECT, &key(index)), told).await?;
        self.leaving().drives.remove(&index);
        self.failing_drives().forgive(index);
        self.show_drive(&path)
    }

    /// Removes a drive: it is evacuated first, unless it failed, and taken out of the configuration when nothing refers to it.
    ///
    /// # Errors
    /// Those of [`Array::evacuate_drive`].
    pub async fn remove_drive(
        &self,
        given: &str,
        request: api::DriveEvacuate,
    ) -> Result<api::Drive, ArrayError> {
        let (pool, path, index) = self.member_of(given)?;
        self.leave_for_good(&pool, &path, index, request.narrower, None).await?;
        self.after_leaving(&pool, &path, index).await
    }

    /// Replaces a drive by another: adds that one in its fault domain, has the first one leave, and removes it. What was done
    /// of it already is not done again.
    ///
    /// # Errors
    /// Those of [`Array::add_drive`] and of [`Array::evacuate_drive`]. If the first drive cannot leave, the other one was
    /// added all the same.
    pub async fn replace_drive(
        &self,
        given: &str,
        request: api::DriveReplace,
    ) -> Result<api::Drive, ArrayError> {
        let (pool, path, index) = self.member_of(given)?;
        let api::DriveReplace { path: new, domain, force, narrower } = request;
        let is_there = self.drives().number_of(&new).is_some_and(|index| {
            pool.members().get(index).is_some_and(|member| member.state == MemberState::Active)
        });
        if !is_there {
            let of_old = pool.members().get(index).map(|member| member.domain.clone());
            let domain = domain.or(of_old.filter(|domain| !domain.is_empty()));
            // It is for what the other one is for, also if that failed.
            let role =
                pool.members().get(index).map(|member| match (member.roles.journal, member.roles.data) {
                    (true, true) => api::DriveRole::Both,
                    (true, false) => api::DriveRole::Journal,
                    _ => api::DriveRole::Data,
                });
            self.add_drive(api::DriveAdd { path: new.clone(), domain, role, force }).await?;
        }
        self.leave_for_good(&pool, &path, index, narrower, Some(new)).await?;
        self.after_leaving(&pool, &path, index).await
    }

    /// The drive that is meant, which the pool has or once had.
    fn member_of(&self, given: &str) -> Result<(Arc<Pool>, String, DriveIndex), ArrayError> {
        let pool = self.pool()?;
        let known = self.list_drives();
        // One that is not in the configuration goes by its number.
        let is_listed = |drive: &&api::Drive| drive.path == given;
        let (path, number) = match known.iter().find(is_listed) {
            Some(drive) => (drive.path.clone(), drive.number),
            None => {
                let path = self.drives().path_of(given)?;
                let number = known.iter().find(|drive| drive.path == path).and_then(|drive| drive.number);
                (path, number)
            }
        };
        match number.map(DriveIndex).filter(|index| pool.members().get(*index).is_some()) {
            Some(index) => Ok((pool, path, index)),
            None => Err(DriveChangeError::NotInPool { drive: path }.into()),
        }
    }

    /// False if it leaves already.
    async fn leave(
        &self,
        pool: &Arc<Pool>,
        path: &str,
        index: DriveIndex,
        narrower: bool,
    ) -> Result<bool, ArrayError> {
        let is_narrower = pool.narrower_without(index).is_some();
        pool.evacuate_drive(index, narrower).await.map_err(|error| match error {
            PoolError::Refused(why) => {
                let confirm = is_narrower && !narrower;
                DriveChangeError::NotEvacuated { drive: path.to_owned(), why, confirm }.into()
            }
            error => error.into(),
        })
    }

    async fn leave_for_good(
        &self,
        pool: &Arc<Pool>,
        path: &str,
        index: DriveIndex,
        narrower: bool,
        replaced_by: Option<String>,
    ) -> Result<(), ArrayError> {
        let state = pool.members().get(index).map(|member| member.state);
        if state == Some(MemberState::Active) {
            self.leave(pool, path, index, narrower).await?;
        }
        self.note_leaving(pool, path, index, true, replaced_by).await
    }

    /// Notes what is to become of a drive, and reports it.
    async fn note_leaving(
        &self,
        pool: &Arc<Pool>,
        path: &str,
        index: DriveIndex,
        removes: bool,
        replaced_by: Option<String>,
    ) -> Result<(), ArrayError> {
        let total_bytes = left_of(pool, index).map_or(0, |left| left.bytes);
        let known = record_of(pool, index);
        let started_ms = known.as_ref().map_or(self.world().wall_clock_ms(), |known| known.started_ms);
        let total_bytes = known.as_ref().map_or(total_bytes, |known| known.total_bytes);
        let (drive, path) = (index.0, path.to_owned());
        let record = LeavingRecord { drive, path, removes, replaced_by, started_ms, total_bytes };
        if known.as_ref() == Some(&record) {
            return Ok(());
        }
        let then = match (&record.replaced_by, removes) {
            (Some(other), _) => format!("; it is removed when that is done, and {other} takes its place"),
            (None, true) => "; it is removed when that is done".to_owned(),
            (None, false) => String::new(),
        };
        let text = format!("leaves: {total_bytes} bytes on it move to the other drives{then}");
        let told = Told::new(format!("drive {}", record.path), text).with("state", "leaving");
        let tx = Transaction::new().put(LEAVING_OBJECT, &key(index), encode(&record));
        let turn = self.catalog().turn().await;
        self.commit_told(&turn, tx, told).await?;
        self.leaving().drives.entry(index).or_insert_with(|| (Progress::of(total_bytes), false));
        Ok(())
    }

    /// The drive, which may be gone by now.
    async fn after_leaving(
        &self,
        pool: &Arc<Pool>,
        path: &str,
        index: DriveIndex,
    ) -> Result<api::Drive, ArrayError> {
        let before = self.list_drives().into_iter().find(|drive| drive.path == path);
        self.tend_leaving(pool).await;
        let is_gone = pool.members().get(index).is_some_and(|member| member.state == MemberState::Gone);
        match before.filter(|_| is_gone) {
            Some(drive) => Ok(api::Drive {
                state: api::DriveState::Removed,
                online: false,
                leaving: None,
                next: None,
                ..drive
            }),
            None => self.show_drive(path),
        }
    }

    /// Looks at the drives that leave: removes those on which nothing is left, and reports those that were evacuated.
    pub(crate) async fn tend_leaving(&self, pool: &Arc<Pool>) {
        let now = self.world().now();
        let evacuations: BTreeMap<_, _> =
            pool.evacuations().into_iter().map(|left| (left.drive, left)).collect();
        let records = records(pool);
        let mut evacuated = Vec::new();
        {
            let mut leaving = self.leaving();
            leaving.drives.retain(|drive, _| evacuations.contains_key(drive));
            for (drive, left) in &evacuations {
                let total = records.get(drive).map_or(0, |record| record.total_bytes);
                let (progress, is_told) =
                    leaving.drives.entry(*drive).or_insert_with(|| (Progress::of(total), false));
                progress.look(now, left.bytes);
                if left.is_done && !std::mem::replace(is_told, true) {
                    evacuated.push(*drive);
                }
            }
        }
        for (drive, record) in records {
            let state = pool.members().get(drive).map(|member| member.state);
            let outcome = match state {
                Some(MemberState::Gone) => self.finish_removal(drive, &record).await,
                Some(MemberState::Leaving | MemberState::Failed) if record.removes => {
                    self.remove_if_done(pool, drive, &record).await
                }
                // It stays after all: a cancellation was interrupted.
                Some(MemberState::Active) | None => self.forget_leaving(drive).await,
                Some(_) => {
                    if evacuated.contains(&drive) {
                        let text = "holds nothing of the pool any more; remove it: quoin drive remove";
                        self.log().record(Severity::Info, format!("drive {}", record.path), text.to_owned());
                    }
                    Ok(())
                }
            };
            if let Err(error) = outcome {
                tracing::debug!(path = record.path, %error, "a drive that leaves cannot be removed now");
            }
        }
    }

    async fn remove_if_done(
        &self,
        pool: &Arc<Pool>,
        drive: DriveIndex,
        record: &LeavingRecord,
    ) -> Result<(), ArrayError> {
        if pool.remove_drive(drive).await? { self.finish_removal(drive, record).await } else { Ok(()) }
    }

    /// The pool does not have the drive any more: neither has the configuration from now on.
    async fn finish_removal(&self, drive: DriveIndex, record: &LeavingRecord) -> Result<(), ArrayError> {
        let path = &record.path;
        let in_config = match self.drives().bay().forget(path) {
            Ok(()) => String::new(),
            Err(why) => format!(
                ". It could not be taken out of quoin.toml ({why}): do so before the array starts again"
            ),
        };
        self.drives().forget(drive);
        let instead =
            record.replaced_by.as_ref().map(|other| format!(", replaced by {other}")).unwrap_or_default();
        let told = Told::new(format!("drive {path}"), format!("was removed{instead}{in_config}"))
            .with("state", "removed");
        let turn = self.catalog().turn().await;
        self.commit_told(&turn, Transaction::new().delete(LEAVING_OBJECT, &key(drive)), told).await
    }

    async fn forget_leaving(&self, drive: DriveIndex) -> Result<(), ArrayError> {
        let turn = self.catalog().turn().await;
        let (tx, staged) = self.stage_waiting(&turn, Transaction::new().delete(LEAVING_OBJECT, &key(drive)));
        self.pool()?.commit(tx).await?;
        self.log().saved(staged);
        Ok(())
    }

    /// How far each drive is that leaves, and what becomes of it.
    pub(crate) fn leaving_views(&self, pool: &Pool) -> BTreeMap<DriveIndex, api::DriveLeaving> {
        let records = records(pool);
        let leaving = self.leaving();
        let of = |left: Evacuation| {
            let record = records.get(&left.drive);
            let mut progress = leaving.drives.get(&left.drive).map_or_else(
                || Progress::of(record.map_or(0, |record| record.total_bytes)),
                |(progress, _)| progress.clone(),
            );
            progress.look(self.world().now(), left.bytes);
            let view = api::DriveLeaving {
                removes: record.is_some_and(|record| record.removes),
                replaced_by: record.and_then(|record| record.replaced_by.clone()),
                started_ms: record.map(|record| record.started_ms),
                left_bytes: left.bytes,
                total_bytes: progress.total_bytes(),
                percent: progress.percent(),
                bytes_per_s: progress.bytes_per_s(),
                remaining_s: progress.remaining_s(),
                holds_journal: left.holds_journal,
                is_done: left.is_done,
            };
            (left.drive, view)
        };
        pool.evacuations().into_iter().map(of).collect()
    }
}

fn left_of(pool: &Pool, drive: DriveIndex) -> Option<Evacuation> {
    pool.evacuations().into_iter().find(|left| left.drive == drive)
}

fn record_of(pool: &Pool, drive: DriveIndex) -> Option<LeavingRecord> {
    records(pool).remove(&drive)
}

/// The drives that were asked to leave.
fn records(pool: &Pool) -> BTreeMap<DriveIndex, LeavingRecord> {
    let objects = pool.list(LEAVING_OBJECT).into_iter();
    // One that cannot be read is found by the check.
    let read = objects.filter_map(|(key, bytes)| decode::<LeavingRecord>(&key, &bytes).ok());
    read.map(|record| (DriveIndex(record.drive), record)).collect()
}

/// What to do next about a drive that leaves.
pub(crate) fn next_of(leaving: &api::DriveLeaving, path: &str) -> Option<String> {
    (leaving.is_done && !leaving.removes).then(|| NextStep::RemoveDrive { drive: path }.into())
}
