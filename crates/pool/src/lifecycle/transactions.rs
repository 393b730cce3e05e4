//! Transactions of a slice: changes of its catalog and its volumes, each all or none, one after the other.
//! What holds while one has its turn is told in [`Transactions`](crate::journal::transactions::Transactions).

use crate::{
    error::PoolError,
    fork::layer::Layer,
    format::{RecordHeader, RecordKind, zeroed},
    journal::{Batch, Entry},
    lifecycle::pledge::Pledge,
    lifecycle::slice::Slice,
    meta::{Operation, Transaction},
};
use quoin_base::{Sequence, VolumeId, crc32c};
use quoin_world::{AsyncMutexGuard, Buf};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The longest catalog transaction, encoded.
const MAX_TRANSACTION_BYTES: usize = 64 * 1024;
/// How long a transaction waits, and how often, for ids of layers that may be used again.
const ID_PAUSES_MS: [u64; 4] = [0, 10, 100, 1000];

/// A transaction between its record and its effect. If it is dropped in between, the pool goes offline, and
/// replay decides whether the transaction took effect.
struct PendingTransaction<'a> {
    slice: &'a Slice,
    appending: bool,
    done: bool,
}

impl Drop for PendingTransaction<'_> {
    fn drop(&mut self) {
        if self.done || !self.appending {
            self.slice.log.transactions.unpin()
        } else {
            self.slice.store.health().fail("a catalog transaction was abandoned half way".into())
        }
    }
}

/// A transaction that has its slice's turn, with what is set aside for it.
pub(crate) struct Admitted<'a> {
    pub transaction: Transaction,
    pub slice: &'a Slice,
    // NOTE: dropped in this order. No other transaction has a turn before what was set aside is given back.
    pending: PendingTransaction<'a>,
    _pledge: Option<Pledge<'a>>,
    _turn: AsyncMutexGuard<'a>,
}

impl Admitted<'_> {
    /// Called before its record is appended. It must be [ended](Self::end) from then on.
    pub(crate) fn begin_appending(&mut self) {
        self.slice.log.transactions.pin_at(self.slice.log.journal.peek_sequence());
        self.pending.appending = true;
    }

    /// Ends it: it has taken effect, or has failed.
    pub(crate) fn end(mut self, outcome: Result<(), PoolError>) -> Result<(), PoolError> {
        self.pending.done = true;
        if outcome.is_ok() {
            self.slice.count_reserved();
            self.slice.requests.catalog_changed();
        }
        outcome
    }
}

/// The volumes there are after some operations of a transaction.
struct VolumesAfter<'a> {
    before: &'a BTreeMap<VolumeId, Arc<Layer>>,
    changed: BTreeMap<VolumeId, bool>,
}

impl VolumesAfter<'_> {
    fn contains(&self, volume: VolumeId) -> bool {
        self.changed.get(&volume).copied().unwrap_or_else(|| self.before.contains_key(&volume))
    }

    /// True if it was not there.
    fn insert(&mut self, volume: VolumeId) -> bool {
        !self.contains(volume) && self.changed.insert(volume, true).is_none_or(|was| !was)
    }

    /// True if it was there.
    fn remove(&mut self, volume: VolumeId) -> bool {
        self.contains(volume) && self.changed.insert(volume, false).is_none_or(|was| was)
    }
}

/// A transaction whose record is appended.
pub(crate) struct Appended {
    pub sequence: Sequence,
    pub batch: Arc<Batch>,
    /// The layers that volumes hold by a fork into them.
    pub forked: Vec<Arc<Layer>>,
}

impl Slice {
    /// An id for a new volume. It is never given to another once a transaction that creates it is committed.
    pub(crate) fn next_volume_id(&self) -> VolumeId {
        let id = self.log.transactions.take_volume();
        assert_eq!(id.slice(), self.id(), "a slice's volumes have ids of its own");
        id
    }

    /// Makes the changes of a transaction, all or none, hardened on return. Transactions take effect in the
    /// order in which they return. Forks of volumes hold every write acknowledged before the call, none that began after
    /// its return, and no write without those that it could have depended on.
    pub(crate) async fn commit(&self, transaction: Transaction) -> Result<(), PoolError> {
        self.prepare_for(&transaction).await?;
        self.commit_with_room(transaction).await
    }

    /// Sees to it that there is room for what a transaction promises and for its records.
    pub(crate) async fn prepare_for(&self, transaction: &Transaction) -> Result<(), PoolError> {
        let prepared = async {
            self.reckon_with_layouts(transaction).await?;
            self.make_room_for(transaction).await?;
            self.let_catalog_settle().await;
            Ok(())
        };
        self.store.unless_short_of_room(prepared).await
    }

    /// Waits while so much of the catalog changed that a checkpoint could not write more of it.
    async fn let_catalog_settle(&self) {
        let most = 2 * self.space.most_catalog_pages();
        let has_settled = || {
            if self.catalog_due_pages() < most || self.store.health().is_failed() {
                return Some(());
            }
            self.requests.nudge();
            None
        };
        self.log.progress().until(has_settled).await;
    }

    /// [`Slice::commit`] of a transaction for which room was made.
    pub(crate) async fn commit_with_room(&self, transaction: Transaction) -> Result<(), PoolError> {
        let mut admitted = self.take_turn(transaction).await?;
        admitted.begin_appending();
        let outcome = if admitted.transaction.forks() {
            self.harden_forks(&admitted.transaction).await
        } else {
            self.harden_transaction(&admitted.transaction).await
        };
        admitted.end(outcome)
    }

    /// Waits for the transaction's turn, and checks all that could keep it from taking effect, except failures.
    pub(crate) async fn take_turn(&self, mut transaction: Transaction) -> Result<Admitted<'_>, PoolError> {
        let len = transaction.encode().len();
        if len > MAX_TRANSACTION_BYTES {
            return Err(PoolError::Refused(format!(
                "a transaction of {len} bytes is longer than the {MAX_TRANSACTION_BYTES} allowed; split it"
            )));
        }
        let turn = self.log.transactions.take_turn().await;
        self.store.unless_short_of_room(self.let_forks_settle(&transaction)).await?;
        // NOTE: with the turn. What is possible here stays so until the transaction has taken effect.
        self.refuse_impossible(&transaction)?;
        self.number_layers(&mut transaction).await?;
        let pledge = self.pledge(&transaction)?;
        let pending = PendingTransaction { slice: self, appending: false, done: false };
        Ok(Admitted { transaction, slice: self, pending, _pledge: pledge, _turn: turn })
    }

    /// Gives ids to the layers that a transaction makes.
    async fn number_layers(&self, transaction: &mut Transaction) -> Result<(), PoolError> {
        let count = transaction.made_layers().count();
        let mut pauses_ms = ID_PAUSES_MS.into_iter();
        loop {
            if let Some(ids) = self.forks.read().ids.peek(count) {
                transaction.number_layers(ids);
                return Ok(());
            }
            let Some(pause_ms) = pauses_ms.next() else { break };
            // Once it is durable, ids that came free before can be reused, unless a reader still looks at them.
            self.store.unless_short_of_room(self.checkpoint()).await?;
            if self.forks.read().may_free_ids() {
                self.world().sleep(Duration::from_millis(pause_ms)).await;
            } else if self.forks.read().ids.peek(count).is_none() {
                break;
            }
        }
        Err(PoolError::Refused(
            "the pool cannot tell more volumes, snapshots and what is left of deleted ones apart; delete some, and try again \
             when their space has come back"
                .into(),
        ))
    }

    async fn harden_transaction(&self, transaction: &Transaction) -> Result<(), PoolError> {
        let Appended { sequence, batch, .. } = self.append_transaction(transaction, || (), || Ok(()))?;
        self.log.journal.hardened(&batch).await?;
        self.apply(transaction, sequence);
        Ok(())
    }

    fn refuse_impossible(&self, transaction: &Transaction) -> Result<(), PoolError> {
        let layers = self.forks.read();
        let mut volumes = VolumesAfter { before: &layers.volumes, changed: BTreeMap::new() };
        for operation in &transaction.operations {
            match operation {
                Operation::CreateVolume { volume, .. } if !volumes.insert(*volume) => {
                    return Err(PoolError::Refused(format!("volume {volume} exists already")));
                }
                Operation::DeleteVolume(volume) if !volumes.remove(*volume) => {
                    return Err(PoolError::NoSuchVolume(*volume));
                }
                Operation::Fork { source, .. } if !volumes.contains(*source) => {
                    return Err(PoolError::NoSuchVolume(*source));
                }
                Operation::Fork { source, target, .. } if source == target => {
                    return Err(PoolError::Refused(format!("volume {source} cannot be forked into itself")));
                }
                Operation::Fork { target, .. } => drop(volumes.insert(*target)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Appends the record of a transaction. `begin` runs before it takes its sequence; what it returns is held until
    /// the transaction, if it has forks, has taken effect in RAM and `end` has run.
    pub(crate) fn append_transaction<T>(
        &self,
        transaction: &Transaction,
        begin: impl FnOnce() -> T,
        end: impl FnOnce() -> Result<(), PoolError>,
    ) -> Result<Appended, PoolError> {
        let bytes = transaction.encode();
        let mut payload = Buf::zeroed(bytes.len().next_multiple_of(512));
        payload.as_mut_slice()[..bytes.len()].copy_from_slice(&bytes);
        let payload = payload.into_slice();
        let lane = self.log.journal.lane(self.world());
        let (mut sequence, mut forked) = (Sequence(0), Vec::new());
        let batch = lane.append(payload.len(), 1, |_, _| {
            let from = self.world().now();
            let held = begin();
            sequence = self.log.journal.take_sequence();
            if transaction.forks() {
                forked = self.apply(transaction, sequence);
                self.counters.forks.forked(self.world().now().since(from));
            }
            end()?;
            drop(held);
            let mut header: RecordHeader = zeroed();
            header.sequence = sequence.0.into();
            header.kind = RecordKind::Catalog as u8;
            header.sector = (bytes.len() as u64).into();
            header.payload_bytes = (payload.len() as u32).into();
            let crcs = payload.chunks(self.buffer.block_bytes as usize).map(|c| crc32c(c).0).collect();
            Ok::<_, PoolError>(Entry { header, crcs, payload: vec![payload.clone()], row: None })
        })?;
        Ok(Appended { sequence, batch, forked })
    }

    /// Applies a transaction in RAM. Returns the layers that volumes hold by a fork into them.
    pub(crate) fn apply(&self, transaction: &Transaction, sequence: Sequence) -> Vec<Arc<Layer>> {
        for operation in &transaction.operations {
            if let Operation::CreateVolume { volume: id, .. } | Operation::Fork { target: id, .. } = operation
            {
                self.log.transactions.volume_made(*id);
            }
        }
        self.store.note_layouts(transaction.layouts());
        // A checkpoint sees objects and layers as of the same transaction.
        let mut layers = self.forks.write();
        self.metadata.catalog.apply(transaction);
        layers.apply(transaction, sequence)
    }
}
