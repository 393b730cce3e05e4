//! Space that is kept free for the loss of drives: what is wanted, and what the pool keeps.
//!
//! The pool keeps less than is wanted while there is no room for it: after a drive was removed, for instance. Then that is
//! said once, and tried again every so often.

use crate::{Array, ArrayError};
use quoin_api::{self as api, Severity};
use quoin_pool::{Pool, PoolError};

impl Array {
    /// What is kept free for the loss of drives.
    pub(crate) fn spare_view(&self, pool: &Pool) -> api::Spare {
        let kept = pool.spare();
        self.space().spare().view(kept)
    }

    /// Has the pool keep so many fault domains spare, or refuses it.
    pub(crate) async fn keep_spare(&self, pool: &Pool, domains: u8) -> Result<(), ArrayError> {
        pool.set_spare(domains).await.map_err(|error| match error {
            PoolError::Refused(why) => ArrayError::Setting { why },
            error => error.into(),
        })
    }

    /// Keeps as many fault domains spare as are wanted, once there is room for them.
    pub(crate) async fn tend_spare(&self, pool: &Pool) {
        let (kept, now) = (pool.spare().domains, self.world().now());
        if !self.space().spare_mut().is_due(kept, now) {
            return;
        }
        let wanted = self.space().spare().wanted();
        let outcome = pool.set_spare(wanted).await;
        let was_told = {
            let mut space = self.space();
            // It may have been changed meanwhile.
            if space.spare().wanted() != wanted {
                return;
            }
            std::mem::replace(&mut space.spare_mut().is_told, outcome.is_err())
        };
        match outcome {
            Ok(()) if was_told => {
                let text = "the space that is to be kept for the loss of drives is free again, and is kept";
                self.log().record(Severity::Notice, self.pool_name(), text.to_owned());
            }
            Err(PoolError::Refused(why)) if !was_told => {
                let text = format!("the space that is to be kept for the loss of drives is not free: {why}");
                self.log().record(Severity::Warning, self.pool_name(), text);
            }
            Ok(()) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
