//! What the clients were told: every commit that was acknowledged, kept outside of the database.
//!
//! The content of the database is, to the ledger, a map from [`Key`] to the checksum of the value. A client's
//! transaction is a list of [`Change`]s of keys that belong to this client alone, so each ledger is
//! exact: after an acknowledged commit the changes are there, after an error during a commit either all or
//! none of them are ([`Ledger::doubt`]), and [`Ledger::settle`] finds out which.

use std::collections::BTreeMap;

/// A row of the trial's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// A row of `entry`, whose body changes seldom.
    Entry(i64),
    /// A row of `counter`, updated all the time.
    Counter(i64),
}

/// What identifies a value: the checksum of an entry's body, the value of a counter.
pub(crate) type Sum = i64;

/// A row's value after a transaction; `None` if it was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: Key,
    pub(crate) to: Option<Sum>,
}

/// One client's view of its own rows.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    rows: BTreeMap<Key, Sum>,
    /// Changes of a transaction whose commit was sent and not answered.
    doubt: Option<Vec<Change>>,
    /// Commits acknowledged.
    pub(crate) commits: u64,
}

/// How a doubtful transaction turned out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    Nothing,
    Committed,
    Absent,
}

impl Ledger {
    pub(crate) fn rows(&self) -> &BTreeMap<Key, Sum> {
        &self.rows
    }

    /// Records a commit that is about to be sent.
    pub(crate) fn sending(&mut self, changes: Vec<Change>) {
        assert!(self.doubt.is_none(), "a client settles its doubts before it goes on");
        self.doubt = Some(changes);
    }

    /// The commit sent last was acknowledged.
    pub(crate) fn acknowledged(&mut self) {
        let changes = self.doubt.take().expect("a commit was sent");
        self.apply(&changes);
        self.commits += 1;
    }

    /// The transaction sent last certainly did not happen: the server refused it.
    pub(crate) fn refused(&mut self) {
        self.doubt = None;
    }

    pub(crate) fn in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// Compares with all rows of this client as they are found in the database, settling a doubt first.
    /// The error lists what is lost, wrong, or there though it never should be.
    pub(crate) fn settle(&mut self, found: &BTreeMap<Key, Sum>) -> Result<Settled, String> {
        let settled = match self.doubt.take() {
            None => Settled::Nothing,
            Some(changes) if changes.iter().all(|change| found.get(&change.key) == change.to.as_ref()) => {
                self.apply(&changes);
                Settled::Committed
            }
            Some(_) => Settled::Absent,
        };
        let problems = self.problems(found);
        if problems.is_empty() {
            return Ok(settled);
        }
        let shown = problems.iter().take(10).cloned().collect::<Vec<_>>().join("\n  ");
        Err(format!(
            "{} rows differ from what was acknowledged (doubt: {settled:?}):\n  {shown}",
            problems.len()
        ))
    }

    fn problems(&self, found: &BTreeMap<Key, Sum>) -> Vec<String> {
        let lost_or_wrong = self.rows.iter().filter_map(|(key, sum)| match found.get(key) {
            Some(there) if there == sum => None,
            Some(there) => Some(format!("{key:?} is {there:x}, acknowledged was {sum:x}")),
            None => Some(format!("{key:?} is lost, acknowledged was {sum:x}")),
        });
        let ghosts = found.iter().filter(|(key, _)| !self.rows.contains_key(key));
        lost_or_wrong
            .chain(ghosts.map(|(key, sum)| format!("{key:?} = {sum:x} is there, but must not be")))
            .collect()
    }

    fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match change.to {
                Some(sum) => self.rows.insert(change.key, sum),
                None => self.rows.remove(&change.key),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(id: i64, to: Option<Sum>) -> Change {
        Change { key: Key::Entry(id), to }
    }

    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.sending(vec![change(1, Some(10)), change(2, Some(20))]);
        ledger.acknowledged();
        ledger
    }

    #[test]
    fn a_doubtful_transaction_is_there_wholly_or_not_at_all() {
        let before = BTreeMap::from([(Key::Entry(1), 10), (Key::Entry(2), 20)]);
        let after = BTreeMap::from([(Key::Entry(1), 11)]);
        let half = BTreeMap::from([(Key::Entry(1), 11), (Key::Entry(2), 20)]);
        for (found, expected) in
            [(&before, Ok(Settled::Absent)), (&after, Ok(Settled::Committed)), (&half, Err(()))]
        {
            let mut ledger = ledger();
            ledger.sending(vec![change(1, Some(11)), change(2, None)]);
            assert_eq!(ledger.settle(found).map_err(drop), expected);
        }
    }

    #[test]
    fn lost_stale_and_ghost_rows_are_named() {
        let found = BTreeMap::from([(Key::Entry(2), 19), (Key::Entry(3), 30)]);
        let said = ledger().settle(&found).expect_err("all is wrong");
        for part in ["3 rows differ", "Entry(1) is lost", "Entry(2) is 13", "Entry(3) = 1e is there"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}
