//! Scrubs that clients run while others write.

use crate::client::Client;
use quoin_pool::{Scrub, ScrubCounts, ScrubPosition};

impl Client {
    /// A scrub under load finds nothing where nothing was damaged.
    pub(crate) async fn scrub(&mut self) -> Result<(), String> {
        let scrub = Scrub::new(self.pool.clone(), ScrubPosition::default(), ScrubCounts::default(), 0);
        match scrub.run().await {
            Ok(_) => {
                let (_, counts) = scrub.progress();
                self.shared.totals.lock().scrubbed_bytes += counts.bytes;
                // The head of a row that a drive lost may be that of an earlier row.
                let rows = if self.shared.spoiled { counts.damaged_rows } else { 0 };
                if counts.damage() - rows > 0 && !self.shared.damaged && !self.shared.may_fail {
                    Err(format!("a scrub found damage where there is none: {counts:?} {:?}", scrub.notes()))
                } else {
                    Ok(())
                }
            }
            Err(error) => self.shared.excuse(&self.pool, "scrub", &error),
        }
    }
}
