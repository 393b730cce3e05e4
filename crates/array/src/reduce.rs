//! Reducing, on request, what volumes have: management begins, shows and cancels it.
//!
//! The pool does the work. It forgets it when it is closed, and nothing of it is in the catalog: who wants the rest reduced
//! begins it again.

use crate::{
    Array, ArrayError, JobError,
    compression::{to_api, told as compression_text},
    events::Told,
    jobs::{of_reduction, reduction_id},
    reductions::{Begun, End, Outcome},
};
use quoin_api::{Compression, Job, Severity};
use quoin_pool::{Pool, Transaction};
use quoin_volume::{BlockDevice, Volume};

/// The field of events.
const FIELD: &str = "reduction";

impl Array {
    /// Begins to compress and deduplicate what a volume, snapshot or clone has, as what is written to it is. Shows what runs
    /// already, if that was begun before.
    ///
    /// # Errors
    /// As [`Array::volume`] if it does not exist; [`JobError::NotReduced`] if it is neither compressed nor deduplicated.
    /// `Offline` or `Pool` if the pool cannot commit the event or begin.
    pub async fn reduce_volume(&self, name: &str) -> Result<Job, ArrayError> {
        let turn = self.catalog().turn().await;
        let (volume, pool) = (self.volume(name)?, self.pool()?);
        let ways = ways(&volume);
        if ways.is_empty() {
            return Err(JobError::NotReduced { name: name.to_owned() }.into());
        }
        self.note_reduced(&pool);
        let runs = self.reductions().runs(volume.id());
        if !runs {
            let text = format!("what it has is reduced in the background: {}", ways.join(" and "));
            let own = Told::new(object(&volume), text)
                .answered_with(format!("job {}", reduction_id(&volume)))
                .change(FIELD, "idle", "running");
            self.commit_told(&turn, Transaction::new(), own).await?;
            // NOTE: both under the lock, so that nobody looks in between.
            let mut reductions = self.reductions();
            pool.reduce(volume.id())?;
            reductions.begin(&pool, volume.id(), self.world().wall_clock_ms());
        }
        self.reductions()
            .of(volume.id())
            .map(|begun| of_reduction(&volume, begun))
            .ok_or_else(|| JobError::NotFound { id: reduction_id(&volume) }.into())
    }

    /// The reductions that run, and the last that ended.
    ///
    /// # Errors
    /// `Offline` while the pool is not open.
    pub(crate) fn list_reductions(&self) -> Result<Vec<Job>, ArrayError> {
        let pool = self.pool()?;
        self.note_reduced(&pool);
        let reductions = self.reductions();
        let job = |(id, begun): (_, &Begun)| Some(of_reduction(&*self.volumes().by_id_or_binned(id)?, begun));
        Ok(reductions.list().filter_map(job).collect())
    }

    /// Cancels the reduction of which this is the job. What was done stays.
    ///
    /// # Errors
    /// [`JobError::NotFound`] if there is none. `Offline` while the pool is not open.
    pub(crate) fn cancel_reduction(&self, id: &str) -> Result<(), ArrayError> {
        let pool = self.pool()?;
        let mut reductions = self.reductions();
        let volume = reductions
            .list()
            .filter_map(|(volume, _)| self.volumes().by_id_or_binned(volume))
            .find(|volume| reduction_id(volume) == id)
            .ok_or_else(|| JobError::NotFound { id: id.to_owned() })?;
        let ended = reductions.cancel(&pool, volume.id(), self.world().wall_clock_ms());
        drop(reductions);
        if let Some((severity, told)) = ended.and_then(|begun| told(&volume, &begun)) {
            self.log().record_told(severity, told);
        }
        Ok(())
    }

    /// Looks how far reductions are.
    pub(crate) fn tend_reductions(&self, pool: &Pool) {
        self.note_reduced(pool);
        let mut reductions = self.reductions();
        reductions.sample(self.world().now());
        reductions.forget_some(|id| self.volumes().by_id_or_binned(id).is_some());
    }

    /// Tells of those that ended since the last look. Whoever looks did not end them.
    fn note_reduced(&self, pool: &Pool) {
        let ended = self.reductions().look(pool, self.world().wall_clock_ms());
        for (id, begun) in ended {
            let Some(volume) = self.volumes().by_id_or_binned(id) else { continue };
            if let Some((severity, told)) = told(&volume, &begun) {
                self.log().record_by(None, severity, told);
            }
        }
    }
}

fn object(volume: &Volume) -> String {
    format!("volume {}", volume.name())
}

/// By what it becomes less.
fn ways(volume: &Volume) -> Vec<String> {
    let compression = volume.compression().map(to_api).filter(|way| *way != Compression::Off);
    let deduplicated = volume.deduplication().filter(|is_on| *is_on).map(|_| "deduplicated".to_owned());
    compression.map(compression_text).into_iter().chain(deduplicated).collect()
}

/// The severity and the event of one that ended.
fn told(volume: &Volume, begun: &Begun) -> Option<(Severity, Told)> {
    let End { outcome, .. } = begun.end()?;
    let (how, text) = match outcome {
        Outcome::Done => ("done", "what it has is reduced"),
        Outcome::Cancelled => ("cancelled", "its reduction was cancelled"),
        Outcome::Interrupted => {
            ("interrupted", "its reduction ended with the pool, which was closed; it can be begun again")
        }
    };
    let is_whole = *outcome != Outcome::Interrupted && !begun.is_incomplete();
    let severity = if is_whole { Severity::Info } else { Severity::Notice };
    let own = Told::new(object(volume), format!("{text}: {}", begun.told()))
        .change(FIELD, "running", how)
        .with("saved_bytes", begun.saved_bytes());
    Some((severity, own))
}
