//! Deduplication, as events tell of it.

use quoin_api::Deduplication;

/// `deduplicated`, for events.
pub(crate) fn told(deduplication: Deduplication) -> &'static str {
    match deduplication {
        Deduplication::Off => "not deduplicated",
        Deduplication::On => "deduplicated",
    }
}
