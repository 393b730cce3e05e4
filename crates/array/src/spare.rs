//! Space that is kept free for the loss of drives: what is wanted, and what the pool keeps.
//!
//! The pool keeps less than is wanted while there is no room for it: after a drive was removed, for instance. Then that is
//! said once, and tried again every so often.

use crate::{Array, ArrayError};
use quoin_api::{self as api, Severity};
use quoin_pool::{Pool, PoolError, Spare};
use quoin_world::Nanos;
use std::time::Duration;

/// How often it is tried again to keep as many domains spare as are wanted.
const TRY_EVERY: Duration = Duration::from_secs(60);

/// Fault domains that are to be kept spare.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpareWatch {
    wanted: u8,
    /// It was said that fewer are.
    is_told: bool,
    tried_at: Option<Nanos>,
}

impl SpareWatch {
    /// So many are wanted from now on.
    pub(crate) fn want(&mut self, domains: u8) {
        *self = Self { wanted: domains, ..Self::default() };
    }

    pub(crate) fn wanted(&self) -> u8 {
        self.wanted
    }

    /// What is wanted beside what the pool keeps.
    pub(crate) fn view(&self, kept: Spare) -> api::Spare {
        api::Spare {
            domains: self.wanted,
            kept_domains: kept.domains,
            used_domains: kept.used,
            bytes: kept.bytes,
        }
    }

    /// Whether to try to keep what is wanted.
    fn is_due(&mut self, kept: u8, now: Nanos) -> bool {
        if kept >= self.wanted {
            self.tried_at = None;
            return false;
        }
        let is_due = self.tried_at.is_none_or(|at| now.since(at) >= TRY_EVERY);
        if is_due {
            self.tried_at = Some(now);
        }
        is_due
    }
}

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
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_is_tried_again_every_minute() {
        let mut watch = SpareWatch::default();
        watch.want(2);
        let at = |seconds: u64| Nanos(seconds * 1_000_000_000);
        let due = [0, 1, 59, 60, 61].map(|seconds| watch.is_due(1, at(seconds)));
        assert_eq!(due, [true, false, false, true, false]);
        assert!(!watch.is_due(2, at(200)));
        assert!(watch.is_due(1, at(201)), "it is tried at once when there is less than before");
    }
}
