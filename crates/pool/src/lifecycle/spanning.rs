//! Transactions that span slices: all their parts take effect, or none.
//!
//! Each slice has a log of its own. So every slice first *prepares*: its part goes to its journal with the transaction's id.
//! Once all parts are hardened, the first of the slices *decides*: its catalog names the id. Only then is the transaction
//! acknowledged. A part whose transaction nobody decided never happened: replay leaves it out.
//!
//! An example: volumes 1 of slice 0 and 2 of slice 1 are forked together.
//!
//! ```text
//! slice 0   … write to 1 │ prepare 5-9: fork 1 │ write to 1 … │ decide 5-9 │
//! slice 1   …            │ prepare 5-9: fork 2 │ write to 2 …
//! ```
//!
//! Without the decision both volumes are after a crash what they were, with all writes. Forks are of one moment in all slices:
//! a slice's writers are held from before its record takes its sequence until that of every other slice has.
//!
//! Invariants:
//! 1. A decision is appended only when all parts are hardened.
//! 2. No checkpoint holds a part of a transaction that is not decided.
//! 3. A decision is forgotten only when no slice would replay its part any more.
//! 4. An object is in the catalog of one slice: a change of it goes there.

use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    journal::Room,
    lifecycle::{
        pool::Pool,
        slice::Slice,
        transactions::{Admitted, Appended},
    },
    meta::{DECISION_OBJECT, ObjectKind, Operation, Transaction, TransactionId},
};
use quoin_base::{KIB, Sequence, SliceId};
use quoin_world::{
    AsyncMutex, Mutex,
    atomic::{AtomicU64, Ordering},
};
use std::{collections::BTreeMap, sync::Arc};

/// What is kept free in the journal of each slice for a part and a decision; no more than a record may have.
const ROOM_BYTES: u64 = 256 * KIB;
/// How full a journal may be when a transaction begins: fuller than writes of hosts make it.
const FULL_FROM: f64 = 0.97;
/// The most decisions that one record forgets.
const MOST_FORGOTTEN: usize = 500;

/// What a pool with several slices knows of transactions that span them.
#[derive(Default)]
pub(crate) struct Spanning {
    /// Held from the division of a transaction until it has taken effect.
    turn: AsyncMutex,
    next: AtomicU64,
    decisions: Mutex<Vec<Decision>>,
}

/// A decision that some slice's catalog holds.
pub(crate) struct Decision {
    pub id: TransactionId,
    /// Whose catalog holds it.
    pub home: SliceId,
    /// Where the parts are that replay may meet.
    pub parts: Vec<(SliceId, Sequence)>,
}

impl Spanning {
    pub(crate) fn new(decisions: Vec<Decision>) -> Self {
        Self { decisions: Mutex::new(decisions), ..Self::default() }
    }
}

impl Pool {
    /// Makes the changes of a transaction in the slices that they concern.
    pub(crate) async fn commit_in_slices(&self, transaction: Transaction) -> Result<(), PoolError> {
        // What waits for space must not keep others waiting.
        for (slice, part) in self.divide(transaction.clone())? {
            self.slice(slice).prepare_for(&part).await?;
        }
        let _turn = self.spanning().turn.lock().await;
        let mut parts = self.divide(transaction)?;
        match parts.len() {
            0 | 1 => {
                let (slice, part) = parts.pop_first().unwrap_or_default();
                self.slice(slice).commit_with_room(part).await
            }
            _ => self.commit_parts(parts).await,
        }
    }

    /// The part of each slice. Objects that are there stay where they are; new ones go where the volume is that was concerned
    /// last before, or first.
    fn divide(&self, transaction: Transaction) -> Result<BTreeMap<SliceId, Transaction>, PoolError> {
        let mut home = transaction.operations.iter().find_map(volume_slice).unwrap_or_default();
        let mut parts: BTreeMap<SliceId, Transaction> = BTreeMap::new();
        let mut moved: BTreeMap<(ObjectKind, String), SliceId> = BTreeMap::new();
        for operation in transaction.operations {
            let slice = match &operation {
                Operation::Put { kind, key, .. } | Operation::Delete { kind, key } => *moved
                    .entry((*kind, key.clone()))
                    .or_insert_with(|| self.holder_of(*kind, key).unwrap_or(home)),
                other => {
                    home = volume_slice(other).unwrap_or(home);
                    home
                }
            };
            if let Operation::Fork { source, target, .. } = &operation
                && source.slice() != target.slice()
            {
                return Err(PoolError::Refused(format!(
                    "volume {source} cannot be forked into volume {target}: they are in different slices"
                )));
            }
            if usize::from(slice.0) >= self.slices().len() {
                return Err(PoolError::Refused(format!("the pool has no slice {slice}")));
            }
            parts.entry(slice).or_default().operations.push(operation);
        }
        Ok(parts)
    }

    /// The slice whose catalog has an object.
    fn holder_of(&self, kind: ObjectKind, key: &str) -> Option<SliceId> {
        self.slices()
            .iter()
            .find(|slice| slice.metadata.catalog.get(kind, key).is_some())
            .map(|slice| slice.id())
    }

    async fn commit_parts(&self, parts: BTreeMap<SliceId, Transaction>) -> Result<(), PoolError> {
        assert!(parts.len() > 1, "a transaction that spans slices has a part in several");
        // Every slice agrees, and has room for what will be appended, before anything is.
        let number = self.spanning().next.fetch_add(1, Ordering::Relaxed);
        let id = TransactionId { epoch: self.store().epoch(), number };
        let mut admitted = Vec::new();
        for (slice, mut part) in parts {
            part.operations.push(Operation::Prepare(id));
            admitted.push(self.slice(slice).take_turn(part).await?);
        }
        let mut rooms = Vec::new();
        for part in &admitted {
            rooms.push(room_in(part.slice).await?);
        }

        // NOTE: from here on whoever drops the future takes the pool offline.
        for part in &mut admitted {
            part.begin_appending();
            part.slice.log.transactions.set_undecided(true);
        }
        let outcome = self.prepare_and_decide(id, &admitted).await;
        if outcome.is_err() {
            // Some parts may be on drives, and others not: replay decides.
            let why = "a transaction over several slices failed half way".to_owned();
            self.store().health().fail(why);
        }
        for part in admitted {
            let slice = part.slice;
            slice.log.transactions.set_undecided(outcome.is_err());
            slice.log.progress().notify();
            let _ = part.end(if outcome.is_ok() { Ok(()) } else { Err(self.store().health().error()) });
        }
        outcome
    }

    async fn prepare_and_decide(&self, id: TransactionId, parts: &[Admitted<'_>]) -> Result<(), PoolError> {
        let mut appended = Vec::new();
        append_together(parts, &mut appended)?;
        // The innermost was appended first.
        appended.reverse();
        assert_eq!(appended.len(), parts.len(), "transaction {id} has a record in each of its slices");
        let places: Vec<_> =
            parts.iter().zip(&appended).map(|(part, a)| (part.slice.id(), a.sequence)).collect();
        let home = parts[0].slice;
        if planted(Bug::DecideEarly) {
            self.decide(id, home, places.clone()).await?;
        }
        for (part, appended) in parts.iter().zip(&appended) {
            part.slice.harden_appended(appended).await?;
        }
        if !planted(Bug::DecideEarly) {
            self.decide(id, home, places).await?;
        }
        for (part, appended) in parts.iter().zip(&appended) {
            if part.transaction.forks() {
                part.slice.confirm(appended);
            } else {
                part.slice.apply(&part.transaction, appended.sequence);
            }
        }
        Ok(())
    }

    /// Has the catalog of `home` name a transaction, durably, and forget those that nobody will ask for again.
    async fn decide(
        &self,
        id: TransactionId,
        home: &Slice,
        parts: Vec<(SliceId, Sequence)>,
    ) -> Result<(), PoolError> {
        let mut decision = Transaction::new().put(DECISION_OBJECT, &id.to_string(), Vec::new());
        let is_over = |(slice, sequence): &(SliceId, Sequence)| {
            let tail = self.slice(*slice).log.durable_tail().0;
            tail > sequence.0 || planted(Bug::ForgetDecisions)
        };
        // The same record forgets decisions for which no slice would replay its part any more.
        let mut known = std::mem::take(&mut *self.spanning().decisions.lock());
        known.retain(|old| {
            let has_room = decision.operations.len() <= MOST_FORGOTTEN;
            let is_over = has_room && old.home == home.id() && old.parts.iter().all(is_over);
            if is_over {
                let key = old.id.to_string();
                decision.operations.push(Operation::Delete { kind: DECISION_OBJECT, key });
            }
            !is_over
        });
        known.push(Decision { id, home: home.id(), parts });
        *self.spanning().decisions.lock() = known;
        let Appended { sequence, batch, .. } = home.append_transaction(&decision, || (), || Ok(()))?;
        home.log.journal.hardened(&batch).await?;
        home.apply(&decision, sequence);
        Ok(())
    }
}

/// The slice of the volume that an operation concerns.
fn volume_slice(operation: &Operation) -> Option<SliceId> {
    match operation {
        Operation::CreateVolume { volume, .. }
        | Operation::DeleteVolume(volume)
        | Operation::Reserve { volume, .. }
        | Operation::LayOut { volume, .. }
        | Operation::Compress { volume, .. }
        | Operation::Deduplicate { volume, .. }
        | Operation::Fork { source: volume, .. } => Some(volume.slice()),
        Operation::Put { .. } | Operation::Delete { .. } | Operation::Prepare(_) => None,
    }
}

/// Keeps room in a slice's journal, so that no record of the transaction has to wait for a checkpoint: that would wait for
/// the transaction.
async fn room_in(slice: &Slice) -> Result<Room<'_>, PoolError> {
    let bytes = ROOM_BYTES.min(slice.log.journal.max_record_bytes());
    let room = || match slice.log.journal.keep_room(bytes, FULL_FROM) {
        None if slice.store.health().is_failed() => Some(Err(slice.store.health().error())),
        // It does not come while a drive has no room.
        None if slice.store.is_short_of_room() => Some(Err(PoolError::NoSpace)),
        None => {
            slice.requests.nudge();
            None
        }
        Some(room) => Some(Ok(room)),
    };
    slice.log.progress().until(room).await
}

/// Appends the record of every part. While the records of later ones take their sequences nobody writes to the volumes of
/// those before.
fn append_together(parts: &[Admitted<'_>], appended: &mut Vec<Appended>) -> Result<(), PoolError> {
    let Some((first, rest)) = parts.split_first() else { return Ok(()) };
    let slice = first.slice;
    let one = if first.transaction.forks() {
        slice.append_transaction(
            &first.transaction,
            || slice.buffer.lock_all(),
            || append_together(rest, appended),
        )?
    } else {
        append_together(rest, appended)?;
        slice.append_transaction(&first.transaction, || (), || Ok(()))?
    };
    appended.push(one);
    Ok(())
}

/// What slices that are being opened say of transactions that span them.
#[derive(Default)]
pub(crate) struct Decided {
    /// Those that are decided, and in whose catalog.
    homes: BTreeMap<TransactionId, SliceId>,
    /// Where replay met a part of one of them.
    parts: Vec<(TransactionId, SliceId, Sequence)>,
}

impl Decided {
    /// Notes the decisions among objects of a slice's catalog.
    pub(crate) fn note_objects<'a>(
        &mut self,
        slice: SliceId,
        objects: impl IntoIterator<Item = &'a (ObjectKind, String)>,
    ) {
        let decisions = objects.into_iter().filter(|(kind, _)| *kind == DECISION_OBJECT);
        self.homes.extend(decisions.filter_map(|(_, key)| Some((TransactionId::parse(key)?, slice))));
    }

    /// Notes the decisions that a record of a slice's journal says.
    pub(crate) fn note_record(&mut self, slice: SliceId, transaction: &Transaction) {
        for operation in &transaction.operations {
            if let Operation::Put { kind, key, .. } = operation {
                self.note_objects(slice, [&(*kind, key.clone())]);
            }
        }
    }

    /// Whether replay makes the changes of a record.
    pub(crate) fn takes_effect(&self, transaction: &Transaction) -> bool {
        let is_decided = |id: TransactionId| self.homes.contains_key(&id) || planted(Bug::ReplayUndecided);
        transaction.prepares().is_none_or(is_decided)
    }

    /// Notes that replay made the changes of a record.
    pub(crate) fn note_replayed(&mut self, slice: SliceId, sequence: Sequence, transaction: &Transaction) {
        self.parts.extend(transaction.prepares().map(|id| (id, slice, sequence)));
    }

    /// The decisions that catalogs hold, each with the parts that replay may meet again.
    pub(crate) fn into_decisions(self, slices: &[Arc<Slice>]) -> Vec<Decision> {
        let is_there = |id: &TransactionId, home: &SliceId| {
            slices[usize::from(home.0)].metadata.catalog.get(DECISION_OBJECT, &id.to_string()).is_some()
        };
        let parts_of = |id: TransactionId| {
            self.parts.iter().filter(move |part| part.0 == id).map(|part| (part.1, part.2)).collect()
        };
        let there = self.homes.iter().filter(|(id, home)| is_there(id, home));
        there.map(|(id, home)| Decision { id: *id, home: *home, parts: parts_of(*id) }).collect()
    }
}
