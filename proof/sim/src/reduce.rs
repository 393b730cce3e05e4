//! Reduction of what volumes have.

use crate::client::Client;
use quoin_pool::PoolError;
use rand::RngExt;

impl Client {
    /// Begins to reduce what a volume has, or stops that.
    pub(crate) fn reduce(&mut self) -> Result<(), String> {
        let Some((volume, ..)) = self.window() else { return Ok(()) };
        if self.rng.random_bool(0.1) {
            self.pool.stop_reducing(volume);
            return Ok(());
        }
        match self.pool.reduce(volume) {
            Ok(()) => {
                self.shared.totals.lock().reductions += 1;
                Ok(())
            }
            Err(PoolError::Refused(_)) => Ok(()),
            Err(error) => self.failed("reduce", volume, error),
        }
    }
}
