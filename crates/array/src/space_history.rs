//! Takes samples of the pool's space, shows them, and says when the pool will be full.

use crate::{
    Array, ArrayError,
    history::{FORECAST_MS, HOUR_MS, forecast, sample},
    record::{HISTORY_OBJECT, encode},
};
use quoin_api::{SpaceForecast, SpaceSample};
use quoin_pool::{Pool, Transaction};

impl Array {
    /// The history of the pool's space from some moment on, in milliseconds since 1970: of each day the last sample, or of each
    /// hour where that is kept.
    ///
    /// # Errors
    /// `Offline` until the pool was opened.
    pub fn space_history(&self, since_ms: u64, is_hourly: bool) -> Result<Vec<SpaceSample>, ArrayError> {
        self.require_catalog()?;
        let now_ms = self.world().wall_clock_ms();
        let (history, time_ms) = (self.history(), since_ms.min(now_ms)..=now_ms);
        Ok(if is_hourly { history.of(time_ms).cloned().collect() } else { history.daily(time_ms) })
    }

    /// When the pool will be full, by how its use grew within the last 30 days.
    ///
    /// # Errors
    /// `Offline` while the pool is not open.
    pub fn space_forecast(&self) -> Result<SpaceForecast, ArrayError> {
        let (space, now_ms) = (self.pool_space()?, self.world().wall_clock_ms());
        let history = self.history();
        let past = history.of(now_ms.saturating_sub(FORECAST_MS)..=now_ms);
        let mut samples: Vec<_> = past.map(|sample| (sample.at_ms, sample.used_bytes())).collect();
        samples.push((now_ms, space.usable_bytes.saturating_sub(space.free_bytes)));
        Ok(forecast(&samples, space.free_bytes))
    }

    /// Takes a sample if one is due.
    pub(crate) async fn tend_history(&self, pool: &Pool) {
        let (now_ms, now) = (self.world().wall_clock_ms(), self.world().now());
        if !self.history().is_due(now_ms, now) {
            return;
        }
        let Ok(space) = self.pool_space() else { return };
        let _turn = self.catalog().turn().await;
        let (taken, hour) = (sample(now_ms, &space), now_ms / HOUR_MS);
        let too_old = self.history().too_old(hour);
        let tx = Transaction::new().put(HISTORY_OBJECT, &hour.to_string(), encode(&taken));
        let tx = too_old.iter().fold(tx, |tx, hour| tx.delete(HISTORY_OBJECT, &hour.to_string()));
        match pool.commit(tx).await {
            Ok(()) => self.history().add(taken, &too_old),
            Err(error) => {
                tracing::debug!(%error, "a sample of the pool's space was not saved");
                self.history().failed_at = Some(now);
            }
        }
    }
}
