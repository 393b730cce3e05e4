//! Immutable snapshots, as management sees them: made, kept, and released when their time is over.

use crate::{
    Array, ArrayError,
    catalog::Turn,
    clock::{after_a_pause, set_back_ms},
    events::Told,
};
use quoin_api::{self as api, Severity};
use quoin_volume::{BlockDevice, RetentionState, Volume};
use std::{sync::Arc, time::Duration};

const WHAT: &str = "retention clock";

impl Array {
    /// Makes a snapshot immutable, or for longer than it is.
    ///
    /// # Errors
    /// `NotFound` if the volume does not exist, `NoSnapshot` if it is not a snapshot; `RetentionTime` or
    /// `RetainedLonger` for the time; `InUse` while clients may write to it, without `force`. `Offline` or
    /// `Pool` if the pool cannot commit the change.
    pub async fn retain_snapshot(
        &self,
        name: &str,
        request: api::SnapshotRetain,
    ) -> Result<api::Volume, ArrayError> {
        let turn = self.catalog().turn().await;
        let volume = self.volume(name)?;
        let text = format!("made immutable for {} s", request.retain_s);
        let own = Told::new(format!("volume {name}"), text).change(
            "retain_until_ms",
            self.volumes().retained_until_ms(&volume),
            self.until_ms(request.retain_s),
        );
        self.retain(&turn, std::slice::from_ref(&volume), &request, own).await?;
        Ok(self.volume_view(&volume))
    }

    /// Makes snapshots immutable, all or none.
    pub(crate) async fn retain(
        &self,
        turn: &Turn<'_>,
        snapshots: &[Arc<Volume>],
        request: &api::SnapshotRetain,
        own: impl Into<Told>,
    ) -> Result<(), ArrayError> {
        let forced = self.require_no_writers("snapshot not made immutable", snapshots, request.force)?;
        let time = Duration::from_secs(request.retain_s);
        let (tx, staged) = self.stage(turn, own.into().and(&forced));
        self.volumes().retain(snapshots, time, tx).await.map_err(ArrayError::not("not retained"))?;
        self.log().saved(staged);
        Ok(())
    }

    /// When a retention of this length that begins now ends, on the clock that will apply.
    pub(crate) fn until_ms(&self, retain_s: u64) -> u64 {
        let now_ms =
            self.volumes().retention().map_or_else(|| self.world().wall_clock_ms(), |state| state.clock_ms);
        now_ms.saturating_add(retain_s.saturating_mul(1000))
    }

    /// How the retention clock is; `None` while nothing is immutable.
    pub(crate) fn retention_view(&self) -> Option<api::Retention> {
        let state = self.volumes().retention()?;
        Some(api::Retention {
            immutable_snapshots: state.snapshots as u64,
            clock_ms: state.clock_ms,
            behind_ms: state.wall_ms.cast_signed().wrapping_sub(state.clock_ms.cast_signed()),
            wall_clock_set_back: set_back_ms(&state).is_some(),
        })
    }

    /// Reports the state of the clocks of a newly opened pool, if there is something to report.
    pub(crate) fn note_pause(&self) {
        // Jumps are reported from here on.
        self.look_at_clocks();
        if let Some((severity, text)) = self.volumes().retention().as_ref().and_then(after_a_pause) {
            self.log().record(severity, WHAT, text);
        }
    }

    /// Looks at the clocks, keeps the mark fresh, and releases snapshots whose retention has ended.
    pub(crate) async fn keep_retention(&self) {
        let state = self.look_at_clocks();
        if (state.is_some() || !self.volumes().binned().is_empty())
            && let Err(error) = self.release_and_mark().await
        {
            tracing::debug!(%error, "the retention clock is looked at again");
        }
    }

    fn look_at_clocks(&self) -> Option<RetentionState> {
        let state = self.volumes().retention();
        let told = self.clock().look(self.world().now(), self.world().wall_clock_ms(), state.as_ref());
        for (severity, text) in told {
            self.log().record(severity, WHAT, text);
        }
        state
    }

    async fn release_and_mark(&self) -> Result<(), ArrayError> {
        self.volumes().mark_retention(false).await?;
        if !self.volumes().any_to_release() {
            return Ok(());
        }
        let turn = self.catalog().turn().await;
        let mut kept = None;
        let stage = |over: &[Arc<Volume>]| {
            let names: Vec<_> = over.iter().map(|volume| volume.name()).collect();
            let text = format!("no longer immutable, their retention has ended: {}", names.join(", "));
            let (tx, staged) = self.stage(&turn, Told::new("snapshots", text));
            kept = Some(staged);
            tx
        };
        self.volumes().release(stage).await?;
        if let Some(staged) = kept {
            self.log().saved(staged);
        }
        Ok(())
    }

    /// Writes the mark, so that the clock continues from now at the next start.
    pub(crate) async fn stop_retention(&self) {
        if let Err(error) = self.volumes().mark_retention(true).await {
            self.log().record(
                Severity::Notice,
                WHAT,
                format!("the retention clock's mark was not written: {error}"),
            );
        }
    }
}
