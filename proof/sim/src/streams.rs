//! Reading in sequence: what the pool reads ahead, and what becomes of it.

use crate::{
    client::{Client, read},
    scenario::log_uniform,
};
use quoin_world::World;
use rand::RngExt;
use std::{sync::atomic::Ordering, time::Duration};

/// The most reads of one stream.
const READS: u32 = 48;

impl Client {
    /// Reads a part of a window from its beginning or from some other place on, one read after the other. It may pause, write in
    /// between, and leave before the end: then what was read ahead stays.
    pub(crate) async fn stream(&mut self) -> Result<(), String> {
        let Some((volume, window, at)) = self.window() else { return Ok(()) };
        let rng = &mut self.rng;
        // Where others come by, too.
        let mut first =
            if rng.random_bool(0.6) { 0 } else { rng.random_range(0..at.sectors.div_ceil(16)) * 16 };
        let sectors = if rng.random_bool(0.7) {
            log_uniform(rng, 1, 16) as u32 * 16
        } else {
            log_uniform(rng, 1, 100) as u32
        };
        let (pause, write) = (rng.random_bool(0.3), rng.random_bool(0.3));
        for _ in 0..rng.random_range(3..=READS) {
            if first >= at.sectors || self.shared.stop.load(Ordering::Relaxed) {
                break;
            }
            let len = sectors.min(at.sectors - first);
            if let Err(error) = read(&self.shared, &self.pool, volume, window, first, len).await? {
                return self.failed("read", volume, error);
            }
            self.shared.totals.lock().stream_reads += 1;
            first += len;
            if pause && self.rng.random_bool(0.1) {
                let micros = log_uniform(&mut self.rng, 10, 60_000);
                self.shared.world.sleep(Duration::from_micros(micros)).await;
            }
            if write && self.rng.random_bool(0.2) {
                self.write().await?;
            }
        }
        Ok(())
    }
}
