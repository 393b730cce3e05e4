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
    window: Option<Window>,
}

/// What a client's rows may be in a snapshot that was taken at some moment of a window: what was acknowledged when
/// the window was opened, and after it any number of the commits that were sent until it was closed, in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Window {
    acknowledged: BTreeMap<Key, Sum>,
    sent: Vec<Vec<Change>>,
}

impl Window {
    /// Commits of which the snapshot may have any number.
    pub(crate) fn sent(&self) -> usize {
        self.sent.len()
    }

    /// The state within the window that these rows are, with the number of commits it has beyond those acknowledged.
    pub(crate) fn find(&self, found: &BTreeMap<Key, Sum>) -> Result<(BTreeMap<Key, Sum>, usize), String> {
        let mut state = self.acknowledged.clone();
        let mut nearest = differences(&state, found);
        for commits in 0..=self.sent.len() {
            if state == *found {
                return Ok((state, commits));
            }
            let differ = differences(&state, found);
            if differ.len() < nearest.len() {
                nearest = differ;
            }
            apply(&mut state, self.sent.get(commits).map_or(&[], Vec::as_slice));
        }
        Err(format!(
            "no moment between the last acknowledged commit and {} later ones has these rows; at the nearest one {}",
            self.sent.len(),
            told(&nearest)
        ))
    }
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

    /// From now on every commit may be in a snapshot that is being taken.
    pub(crate) fn open_window(&mut self) {
        let sent = self.doubt.clone().into_iter().collect();
        self.window = Some(Window { acknowledged: self.rows.clone(), sent });
    }

    /// No commit that is sent from now on is in the snapshot.
    pub(crate) fn close_window(&mut self) -> Window {
        self.window.take().unwrap_or_default()
    }

    /// The database was taken back to a former state, which is known.
    pub(crate) fn taken_back_to(&mut self, rows: BTreeMap<Key, Sum>) {
        (self.rows, self.doubt) = (rows, None);
    }

    /// Records a commit that is about to be sent.
    pub(crate) fn sending(&mut self, changes: Vec<Change>) {
        assert!(self.doubt.is_none(), "a client settles its doubts before it goes on");
        if let Some(window) = &mut self.window {
            window.sent.push(changes.clone());
        }
        self.doubt = Some(changes);
    }

    /// The commit sent last was acknowledged.
    pub(crate) fn acknowledged(&mut self) {
        let changes = self.doubt.take().expect("a commit was sent");
        apply(&mut self.rows, &changes);
        self.commits += 1;
    }

    /// The transaction sent last certainly did not happen: the server refused it.
    pub(crate) fn refused(&mut self) {
        self.doubt = None;
        if let Some(window) = &mut self.window {
            window.sent.pop();
        }
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
                apply(&mut self.rows, &changes);
                Settled::Committed
            }
            Some(_) => Settled::Absent,
        };
        let problems = differences(&self.rows, found);
        if problems.is_empty() {
            return Ok(settled);
        }
        Err(format!("doubt: {settled:?}; {}", told(&problems)))
    }
}

/// What is lost, wrong, or there though it never should be.
fn differences(expected: &BTreeMap<Key, Sum>, found: &BTreeMap<Key, Sum>) -> Vec<String> {
    let lost_or_wrong = expected.iter().filter_map(|(key, sum)| match found.get(key) {
        Some(there) if there == sum => None,
        Some(there) => Some(format!("{key:?} is {there:x}, acknowledged was {sum:x}")),
        None => Some(format!("{key:?} is lost, acknowledged was {sum:x}")),
    });
    let ghosts = found.iter().filter(|(key, _)| !expected.contains_key(key));
    lost_or_wrong
        .chain(ghosts.map(|(key, sum)| format!("{key:?} = {sum:x} is there, but must not be")))
        .collect()
}

fn told(differences: &[String]) -> String {
    let shown = differences.iter().take(10).cloned().collect::<Vec<_>>().join("\n  ");
    format!("{} rows differ from what was acknowledged:\n  {shown}", differences.len())
}

fn apply(rows: &mut BTreeMap<Key, Sum>, changes: &[Change]) {
    for change in changes {
        match change.to {
            Some(sum) => rows.insert(change.key, sum),
            None => rows.remove(&change.key),
        };
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

    #[test]
    fn a_snapshot_is_some_moment_of_its_window_and_nothing_else() {
        let mut ledger = ledger();
        ledger.sending(vec![change(3, Some(30))]);
        ledger.open_window();
        ledger.acknowledged();
        ledger.sending(vec![change(4, Some(40))]);
        ledger.refused();
        ledger.sending(vec![change(1, None), change(5, Some(50))]);
        let window = ledger.close_window();
        ledger.acknowledged();
        ledger.sending(vec![change(6, Some(60))]);

        let rows = |rows: &[(i64, Sum)]| rows.iter().map(|(id, sum)| (Key::Entry(*id), *sum)).collect();
        let moments: [BTreeMap<Key, Sum>; 3] = [
            rows(&[(1, 10), (2, 20)]),
            rows(&[(1, 10), (2, 20), (3, 30)]),
            rows(&[(2, 20), (3, 30), (5, 50)]),
        ];
        for (commits, moment) in moments.iter().enumerate() {
            assert_eq!(window.find(moment), Ok((moment.clone(), commits)));
        }
        let torn = rows(&[(2, 20), (3, 30)]);
        assert!(window.find(&torn).unwrap_err().contains("Entry(1) is lost"));
        let acknowledged_lost = rows(&[(2, 20)]);
        assert!(window.find(&acknowledged_lost).unwrap_err().contains("1 rows differ"));
        let from_after = rows(&[(2, 20), (3, 30), (5, 50), (6, 60)]);
        assert!(window.find(&from_after).is_err());
    }
}
