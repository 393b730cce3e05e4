//! What makes less of what is written to a volume, as transactions say it to the pool.

use quoin_base::{Compression, VolumeId};
use quoin_pool::Transaction;

/// Says how a volume is compressed, and whether it is deduplicated. What is `None` stays as it is.
pub(crate) fn reduce(
    mut tx: Transaction,
    volume: VolumeId,
    (compression, deduplication): (Option<Compression>, Option<bool>),
) -> Transaction {
    if let Some(compression) = compression {
        tx = tx.compress(volume, compression);
    }
    if let Some(is_on) = deduplication {
        tx = tx.deduplicate(volume, is_on);
    }
    tx
}
