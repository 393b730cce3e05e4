//! Copies of ranges, as management sees them: it starts, shows, cancels and ends them, whatever their outcome.
//!
//! A copy is a task from its beginning to its end. If the pool goes offline before the end, the array ends the copy
//! after the pool reopens. A copy in the catalog that this process did not start was interrupted. The array ends it,
//! and an event asks people to start it again, since hosts may have written to its target.

use crate::{
    Array, ArrayError, CopyFigures, JobError, acting,
    copies::{Job, Outcome, told},
    current_actor,
    events::Told,
    words::shortened,
};
use futures_util::future::{Either, select};
use quoin_api::{self as api, CopyState, Severity};
use quoin_pool::Transaction;
use quoin_volume::{BlockDevice, CopyRecord, CopySpec, DeviceError, RangeCopy};
use quoin_world::Thread;
use std::{pin::pin, sync::Arc, time::Duration};
use uuid::Uuid;

/// How often a copy that cannot begin looks whether it is cancelled.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often a request that cancels a copy checks whether the copy has ended.
const CANCEL_LOOK_EVERY: Duration = Duration::from_millis(5);

impl Array {
    /// Begins to copy a range of a volume into another, or into itself.
    ///
    /// # Errors
    /// `NotFound` for a volume that does not exist, `InUse` while clients use the target without `force`;
    /// `CopyUnaligned`, `CopyRange`, `CopyTooSmall`, `CopyOntoItself` or `OtherBlock` for ranges that cannot
    /// be copied; `TooManyCopies` while as many run as may. `Offline` or `Pool` if the pool cannot commit the
    /// change.
    pub async fn copy_volume(
        self: &Arc<Self>,
        source: &str,
        request: api::CopyCreate,
    ) -> Result<api::VolumeCopy, ArrayError> {
        let api::CopyCreate { target, from_bytes, to_bytes, length_bytes, force } = request;
        let turn = self.catalog().turn().await;
        let (source, target) = (self.volume(source)?, self.volume(&target)?);
        let forced = self.require_no_users("volume not copied", std::slice::from_ref(&target), force)?;
        let mut kept = None;
        let stage = |record: &CopyRecord| {
            let CopyRecord { id, source, from_bytes, to_bytes, length_bytes, .. } = record;
            let text = format!(
                "copy {id} started: {length_bytes} bytes of volume {source} from byte {from_bytes} on, to byte \
                 {to_bytes}{forced}"
            );
            let own = Told::new(object(record), shortened(&text))
                .answered_with(format!("copy {id}"))
                .with("copy", id)
                .with("source", source)
                .with("from_bytes", from_bytes)
                .with("to_bytes", to_bytes)
                .with("length_bytes", length_bytes);
            let (tx, staged) = self.stage(&turn, own);
            kept = Some(staged);
            tx
        };
        let spec = CopySpec { source, target, from_bytes, to_bytes, length_bytes };
        let copy =
            self.volumes().begin_copy(spec, stage).await.map_err(ArrayError::not("volume not copied"))?;
        if let Some(staged) = kept {
            self.log().saved(staged);
        }
        let job = self.copies().add(Job::new(copy.record().clone(), self.world().now()));
        let (array, task) = (self.clone(), job.clone());
        self.spawn_for(&job, async move { array.run_copy(&task, copy).await });
        Ok(self.copy_view(&job))
    }

    /// The copies that run, and the last that ended, oldest first.
    ///
    /// # Errors
    /// `Offline` while the pool has not been open since the array started.
    pub fn list_copies(&self) -> Result<Vec<api::VolumeCopy>, ArrayError> {
        self.require_catalog()?;
        let jobs = self.copies().list();
        Ok(jobs.iter().map(|job| self.copy_view(job)).collect())
    }

    /// One copy.
    ///
    /// # Errors
    /// `NoCopy` if the number is unknown or its copy ended too long ago. `Offline` while the pool has not
    /// been open since the array started.
    pub fn show_copy(&self, id: u32) -> Result<api::VolumeCopy, ArrayError> {
        let job = self.copy_job(id)?;
        Ok(self.copy_view(&job))
    }

    /// Cancels a copy, and waits until it has ended. What is copied stays.
    ///
    /// # Errors
    /// `NoCopy` if the number is unknown, `CopyEnded` if the copy has ended, or ends otherwise before it notices
    /// the request. `Offline` if the pool goes offline before it ends.
    pub async fn cancel_copy(&self, id: u32) -> Result<(), ArrayError> {
        let job = self.copy_job(id)?;
        if let state @ (CopyState::Done | CopyState::Failed | CopyState::Cancelled) = job.state() {
            return Err(JobError::CopyEnded { id, state }.into());
        }
        job.cancel(current_actor());
        while !job.state().is_ended() {
            // While the pool is offline a copy does not end.
            self.pool()?;
            self.world().sleep(CANCEL_LOOK_EVERY).await;
        }
        match job.state() {
            CopyState::Cancelled => Ok(()),
            state => Err(JobError::CopyEnded { id, state }.into()),
        }
    }

    pub(crate) fn copy_figures(&self) -> CopyFigures {
        self.copies().figures()
    }

    fn copy_job(&self, id: u32) -> Result<Arc<Job>, ArrayError> {
        self.require_catalog()?;
        self.copies().find(id).cloned().ok_or(JobError::NoCopy { id }.into())
    }

    /// Runs a task of a copy on a data thread of its own, as far as there are such.
    fn spawn_for(&self, job: &Job, task: impl Future<Output = ()> + Send + 'static) {
        let thread = job.record().id.0 as usize % self.world().data_threads();
        self.world().spawn(Thread::Data(thread), Box::pin(task));
    }

    /// Copies all there is to copy, and ends the copy.
    async fn run_copy(self: &Arc<Self>, job: &Job, copy: RangeCopy) {
        let outcome = self.copy_all(job, &copy).await;
        // The next start reports that it was interrupted.
        if self.life().is_stopping() && outcome != Outcome::Done {
            return;
        }
        if let Outcome::Failed(why) = &outcome {
            let text = format!("{} and stay; {why}", told(job, "failed"));
            self.log().record(Severity::Error, object(job.record()), text);
        }
        job.stop(outcome, self.world().now());
        self.finish_copy(job).await;
    }

    async fn copy_all(&self, job: &Job, copy: &RangeCopy) -> Outcome {
        match self.settle(job, copy).await {
            None => return Outcome::Cancelled,
            Some(Err(error)) => return Outcome::Failed(error.to_string()),
            Some(Ok(())) => {}
        }
        loop {
            let done = job.done_bytes();
            if done >= job.record().length_bytes {
                return Outcome::Done;
            }
            if self.is_to_end(job) {
                return Outcome::Cancelled;
            }
            match copy.step(done).await {
                Ok(bytes) => {
                    job.advance_to(done + bytes);
                    self.copies().count(bytes);
                }
                Err(error) => return Outcome::Failed(error.to_string()),
            }
            self.world().yield_now().await;
        }
    }

    /// Waits until a copy can begin, which may be when drives are back; `None` if it is cancelled before.
    async fn settle(&self, job: &Job, copy: &RangeCopy) -> Option<Result<(), DeviceError>> {
        let cancelled = async {
            while !self.is_to_end(job) {
                self.world().sleep(LOOK_EVERY).await;
            }
        };
        match select(pin!(copy.settle()), pin!(cancelled)).await {
            Either::Left((settled, _)) => Some(settled),
            Either::Right(((), _)) => None,
        }
    }

    fn is_to_end(&self, job: &Job) -> bool {
        job.is_cancelled() || self.life().is_stopping()
    }

    /// Ends a copy that has stopped copying, if the pool is open.
    async fn finish_copy(&self, job: &Job) {
        if let Err(error) = acting(job.canceller(), self.end_copy(job)).await {
            tracing::debug!(%error, "a copy is ended when the pool is open again");
        }
        job.release();
    }

    async fn end_copy(&self, job: &Job) -> Result<(), ArrayError> {
        let id = job.record().id;
        let is_known = || self.volumes().copies().iter().any(|copy| copy.id == id);
        let settled = self.volumes().settle_copies().await?;
        let turn = self.catalog().turn().await;
        // A transaction whose outcome stayed unknown may have ended it.
        if is_known() {
            let (tx, staged) = match job.end_told() {
                Some(text) => {
                    let own = Told::new(object(job.record()), text)
                        .with("copy", id)
                        .change("state", CopyState::Running, job.state_at_end())
                        .with("done_bytes", job.done_bytes());
                    self.stage(&turn, own)
                }
                None => self.stage_waiting(&turn, Transaction::new()),
            };
            self.volumes().end_copy(id, &settled, tx).await?;
            self.log().saved(staged);
        }
        job.end(self.world().wall_clock_ms());
        self.copies().forget_some();
        Ok(())
    }

    /// Ends copies that no task is working on: those that were interrupted, and those that could not be ended before.
    pub(crate) async fn tend_copies(self: &Arc<Self>) {
        let is_idle = || self.copies().all_ended();
        if self.volumes().copies().is_empty() && is_idle() {
            return;
        }
        let _turn = self.catalog().turn().await;
        for record in self.volumes().copies() {
            if self.copies().find(record.id.0).is_none() {
                self.note_interrupted(record);
            }
        }
        let due = self.copies().take_up();
        for job in due {
            let (array, task) = (self.clone(), job.clone());
            self.spawn_for(&job, async move { array.finish_copy(&task).await });
        }
    }

    fn note_interrupted(&self, record: CopyRecord) {
        let CopyRecord { id, source, length_bytes, .. } = &record;
        let text = format!(
            "copy {id} of volume {source} was interrupted: an unknown part of its {length_bytes} bytes was copied; start \
             it again"
        );
        self.log().record(Severity::Warning, object(&record), text);
        self.copies().add(Job::interrupted(record, self.world().now()));
    }

    fn copy_view(&self, job: &Job) -> api::VolumeCopy {
        let CopyRecord { source, source_uuid, target, target_uuid, .. } = job.record();
        let volumes = self.volumes().list();
        let named = |uuid: &Uuid, name: &String| {
            let volume = volumes.iter().find(|volume| volume.uuid() == *uuid);
            volume.map_or_else(|| name.clone(), |volume| volume.name())
        };
        job.view(named(source_uuid, source), named(target_uuid, target), self.world().now())
    }
}

/// The object of events of a copy.
fn object(record: &CopyRecord) -> String {
    format!("volume {}", record.target)
}
