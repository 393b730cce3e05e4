//! Fault domains that are to be kept spare, and when to try again if fewer are.

use quoin_api as api;
use quoin_pool::Spare;
use quoin_world::Nanos;
use std::time::Duration;

/// How often it is tried again to keep as many domains spare as are wanted.
const TRY_EVERY: Duration = Duration::from_secs(60);

/// Fault domains that are to be kept spare.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpareWatch {
    wanted: u8,
    /// It was said that fewer are.
    pub(crate) is_told: bool,
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
    pub(crate) fn is_due(&mut self, kept: u8, now: Nanos) -> bool {
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
