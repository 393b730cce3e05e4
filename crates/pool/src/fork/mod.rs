//! Forks: a snapshot, a clone, a restore are the same to the engine.
//!
//! A fork changes only RAM. Under the locks of all shards, so between two writes wherever they are, its record takes
//! its sequence, and the volumes go on with new layers. These are pending: their maps are made by the committer, once
//! all that was buffered of the layer they come from is destaged. Until then readers look through them, and nothing of
//! theirs is destaged.
//!
//! A fork is acknowledged when its record and every record before it, in whatever lane, are hardened. The source's
//! writers do not wait for that: if the fork is lost in a crash, they wrote to the layer as it was.

pub(crate) mod aliases;
mod as_forked;
pub(crate) mod changes;
pub(crate) mod copy;
pub(crate) mod deadlist;
pub(crate) mod forks;
mod ids;
pub(crate) mod layer;
pub(crate) mod layers;
pub(crate) mod lending;
pub(crate) mod lists;
pub(crate) mod tally;

use crate::{
    bugs::{Bug, planted},
    commit::committer::Committer,
    error::PoolError,
    fork::layer::Layer,
    lifecycle::{slice::Slice, transactions::Appended},
    meta::{Operation, Transaction},
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// How old what is buffered gets while a fork waits for it. No sooner: it would all be destaged at once, and hosts would
/// feel each fork.
pub(crate) const SETTLES_AFTER: Duration = Duration::from_millis(500);
/// How many pending layers may lie one on the other: a read looks through all of them.
const MOST_PENDING: usize = 8;

impl Slice {
    /// Waits while what is to be forked was forked too often to be destaged in between.
    pub(crate) async fn let_forks_settle(&self, transaction: &Transaction) -> Result<(), PoolError> {
        let settled = || {
            let layers = self.forks.read();
            let depth = |operation: &Operation| match operation {
                Operation::Fork { source, .. } => layers.pending_depth(*source),
                _ => 0,
            };
            let deepest = transaction.operations.iter().map(depth).max().unwrap_or(0);
            if deepest < MOST_PENDING || self.store.health().is_failed() {
                return Some(());
            }
            drop(layers);
            self.requests.hurry();
            None
        };
        self.log.progress().until(settled).await;
        self.store.health().check()
    }

    /// Makes a transaction with forks take effect, and hardens it.
    pub(crate) async fn harden_forks(&self, transaction: &Transaction) -> Result<(), PoolError> {
        let appended = self.append_transaction(transaction, || self.buffer.lock_all(), || Ok(()))?;
        self.harden_appended(&appended).await?;
        self.confirm(&appended);
        Ok(())
    }

    /// Hardens a transaction whose record is appended, and all that its forks hold.
    pub(crate) async fn harden_appended(&self, appended: &Appended) -> Result<(), PoolError> {
        if appended.forked.is_empty() {
            return self.log.journal.hardened(&appended.batch).await;
        }
        self.count_reserved();
        self.requests.nudge();
        self.log.journal.hardened(&appended.batch).await?;
        // Taken after the fork: these batches and those before them hold all that came before it. What it holds is
        // then decided, also for writes that nobody has been told of.
        let newest: Vec<_> = self.log.journal.lanes.iter().filter_map(|lane| lane.newest()).collect();
        for batch in newest.iter().filter(|_| !planted(Bug::ForkOwnLane)) {
            self.log.journal.hardened(batch).await?;
        }
        debug_assert!(
            self.is_decided(&appended.forked),
            "a fork is acknowledged before what it holds is decided"
        );
        Ok(())
    }

    /// Lets the volumes of forks be read and written.
    pub(crate) fn confirm(&self, appended: &Appended) {
        appended.forked.iter().for_each(|layer| layer.confirm(true));
        self.log.progress().notify();
    }

    /// Whether a crash would take nothing from what these layers hold: what is buffered of those that they come from is
    /// hardened.
    fn is_decided(&self, forked: &[Arc<Layer>]) -> bool {
        let pending = forked.iter().filter_map(|layer| layer.below());
        let below = pending.flat_map(|parent| std::iter::successors(Some(parent), |layer| layer.below()));
        let layers: BTreeSet<_> = below.map(|layer| layer.id).collect();
        self.buffer.is_hardened(&layers)
    }
}

impl Committer {
    /// Gives pending layers their maps as far as that can be. True if there was one.
    pub(crate) fn fork_some(&mut self) -> bool {
        let slice = self.slice.clone();
        let layers = {
            let layers = slice.forks.read();
            if layers.pending.is_empty() {
                return false;
            }
            layers.next_to_fork()
        };
        // Ready are those whose parents have nothing buffered: the parents' maps are complete.
        let parents: BTreeSet<_> = layers.iter().map(|(_, parent)| parent.id).collect();
        let held = slice.buffer.held_of(&parents);
        let is_complete = |parent: &Layer| !held.contains(&parent.id) || planted(Bug::ForkEarly);
        let ready: Vec<_> = layers.into_iter().filter(|(_, parent)| is_complete(parent)).collect();
        let mut pending = slice.forks.write();
        for (layer, parent) in &ready {
            layer.take_map(parent);
            pending.pending.remove(&layer.id);
        }
        drop(pending);
        if !ready.is_empty() {
            slice.requests.catalog_changed();
            self.committed();
        }
        !ready.is_empty()
    }
}
