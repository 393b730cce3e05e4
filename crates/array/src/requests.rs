//! Requests that carry a key of their sender's choice: which of them were carried out, so that none is carried out twice.
//!
//! Invariants:
//! 1. The note of a request is in the transaction that carries the request out: a crash leaves both or neither.
//! 2. A request has one note. Further transactions of the same request do not replace it.
//! 3. There are at most [`KEPT_MOST`] notes. The oldest is deleted in the transaction that adds one too many.
//! 4. A note that cannot be read hinders nothing; it is deleted.
//!
//! A key whose note is older than [`KEPT_FOR`] is free again. Ages are by the wall clock, as they have to outlive the process.

use crate::{
    current_request,
    record::{REQUEST_OBJECT, decode, encode},
};
use parking_lot::Mutex;
use quoin_pool::{Pool, Transaction};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How long a key is known.
const KEPT_FOR_MS: u64 = 24 * 3600 * 1000;
/// How many keys are known.
const KEPT_MOST: usize = 1000;
/// How many notes one transaction deletes at most, so that it stays small.
const DELETED_AT_ONCE: usize = 4;
/// The most bytes of a transaction that the note of a request and the deletions with it take.
pub(crate) const REQUEST_BYTES_MAX: usize = 1 << 10;
/// The longest name of an object in a note; the names of two objects fit.
const OBJECT_BYTES_MAX: usize = 256;

/// A request that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedOut {
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// What the request asked for.
    pub fingerprint: String,
    /// The object that the request made or changed, with its kind: `volume v1`.
    pub object: String,
}

/// The notes of the pool that is open, or was open last.
#[derive(Default)]
pub(crate) struct Requests(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    by_key: BTreeMap<String, CarriedOut>,
    unreadable: Vec<String>,
}

/// A note that is part of a transaction not yet committed.
#[must_use]
pub(crate) struct StagedRequest {
    key: String,
    note: CarriedOut,
    deleted: Vec<String>,
}

impl CarriedOut {
    fn is_known_at(&self, now_ms: u64) -> bool {
        // Notes from the future are as good as old ones: the clock was set back.
        now_ms.abs_diff(self.at_ms) < KEPT_FOR_MS
    }
}

impl Requests {
    /// Takes over the notes of a newly opened pool.
    pub(crate) fn restore(&self, pool: &Pool) {
        let mut notes = Notes::default();
        for (key, value) in pool.list(REQUEST_OBJECT) {
            match decode(&key, &value) {
                Ok(note) => drop(notes.by_key.insert(key, note)),
                Err(_) => notes.unreadable.push(key),
            }
        }
        *self.0.lock() = notes;
    }

    /// Puts the note of the request that this task carries out into its transaction; `None` if it has no key or a note already.
    pub(crate) fn stage(
        &self,
        tx: Transaction,
        object: &str,
        now_ms: u64,
    ) -> (Transaction, Option<StagedRequest>) {
        let Some(request) = current_request() else { return (tx, None) };
        let notes = self.0.lock();
        if notes.by_key.get(&request.key).is_some_and(|note| note.is_known_at(now_ms)) {
            return (tx, None);
        }
        let (fingerprint, mut object) = (request.fingerprint.clone(), object.to_owned());
        object.truncate(object.floor_char_boundary(OBJECT_BYTES_MAX));
        let note = CarriedOut { at_ms: now_ms, fingerprint, object };
        let deleted = notes.surplus(&request.key, now_ms);
        let deletions = deleted.iter().fold(tx, |tx, key| tx.delete(REQUEST_OBJECT, key));
        let tx = deletions.put(REQUEST_OBJECT, &request.key, encode(&note));
        (tx, Some(StagedRequest { key: request.key.clone(), note, deleted }))
    }

    /// The transaction of this note was committed.
    pub(crate) fn saved(&self, StagedRequest { key, note, deleted }: StagedRequest) {
        let mut notes = self.0.lock();
        for key in &deleted {
            notes.by_key.remove(key);
        }
        notes.unreadable.retain(|key| !deleted.contains(key));
        notes.by_key.insert(key, note);
        assert!(notes.by_key.len() <= KEPT_MOST, "invariant 3: too many requests are noted");
    }

    pub(crate) fn find(&self, key: &str, now_ms: u64) -> Option<CarriedOut> {
        self.0.lock().by_key.get(key).filter(|note| note.is_known_at(now_ms)).cloned()
    }
}

impl Notes {
    /// The notes to delete when `key` is added: expired ones, the oldest ones if there are too many, then unreadable
    /// ones.
    fn surplus(&self, key: &str, now_ms: u64) -> Vec<String> {
        let mut others: Vec<_> = self.by_key.iter().filter(|(other, _)| *other != key).collect();
        others.sort_by_key(|(_, note)| (note.is_known_at(now_ms), note.at_ms));
        let too_many = (others.len() + 1).saturating_sub(KEPT_MOST);
        let useless = others.iter().filter(|(_, note)| !note.is_known_at(now_ms)).count();
        let oldest = others[..too_many.max(useless)].iter().map(|(key, _)| (*key).clone());
        oldest.chain(self.unreadable.iter().cloned()).take(DELETED_AT_ONCE).collect()
    }
}

/// The problem of the note of a request, if it has one; for the offline check.
pub(crate) fn request_problem(key: &str, value: &[u8]) -> Option<String> {
    decode::<CarriedOut>(key, value).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Caller, RequestKey, acting};
    use futures_util::FutureExt;
    use std::sync::Arc;

    const HOUR_MS: u64 = 3600 * 1000;

    /// Stages and saves a request; false if it has a note already.
    fn carry_out(requests: &Requests, key: &str, now_ms: u64) -> bool {
        let request = Arc::new(RequestKey { key: key.to_owned(), fingerprint: "f".to_owned() });
        let task = async { requests.stage(Transaction::new(), &"volume v1".repeat(99), now_ms).1 };
        let caller = Caller { request: Some(request), ..Caller::default() };
        let staged = acting(caller, task).now_or_never().unwrap();
        staged.map(|staged| requests.saved(staged)).is_some()
    }

    fn count(requests: &Requests) -> usize {
        requests.0.lock().by_key.len()
    }

    #[test]
    fn a_request_is_noted_once_and_for_a_day() {
        let requests = Requests::default();
        assert!(requests.stage(Transaction::new(), "volume v1", 0).1.is_none(), "it has no key");
        assert!(carry_out(&requests, "k", 50 * HOUR_MS));
        assert!(!carry_out(&requests, "k", 51 * HOUR_MS), "invariant 2");
        let note = requests.find("k", 73 * HOUR_MS).unwrap();
        assert_eq!((note.at_ms, note.object.len()), (50 * HOUR_MS, OBJECT_BYTES_MAX));
        assert!(encode(&note).len() + DELETED_AT_ONCE * 64 <= REQUEST_BYTES_MAX);
        assert!(requests.find("k", 74 * HOUR_MS).is_none(), "the day is over");
        assert!(requests.find("k", 26 * HOUR_MS).is_none(), "the clock was set back by a day");
        assert!(carry_out(&requests, "k", 75 * HOUR_MS), "the key is free again");
        assert_eq!(count(&requests), 1);
    }

    #[test]
    fn the_oldest_makes_room() {
        let requests = Requests::default();
        requests.0.lock().unreadable = vec!["x".to_owned(), "y".to_owned()];
        for number in 0..=KEPT_MOST as u64 {
            assert!(carry_out(&requests, &number.to_string(), number));
        }
        assert_eq!((count(&requests), requests.0.lock().unreadable.len()), (KEPT_MOST, 0));
        assert!(requests.find("0", KEPT_MOST as u64).is_none() && requests.find("1", 0).is_some());
        let later = 48 * HOUR_MS;
        assert!(carry_out(&requests, "later", later));
        assert_eq!(count(&requests), KEPT_MOST + 1 - DELETED_AT_ONCE, "old ones go a few at a time");
        assert!(requests.find("later", later).is_some());
    }
}
