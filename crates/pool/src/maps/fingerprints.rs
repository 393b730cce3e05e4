//! Fingerprints of what is stored, and which block has which, as far as RAM remembers.
//!
//! 1. The block table has the fingerprint of a block from when its entry is filled in. What is remembered here is a hint: who finds a
//!    block by it looks into the table.
//! 2. A block is remembered once it is in the table, and forgotten when its entry is freed.

use crate::bugs::{Bug, planted};
use quoin_base::BlockNumber;
use quoin_reduction::{Fingerprint, FingerprintKey, Index};
use quoin_world::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};
use std::collections::BTreeSet;

pub(crate) struct Fingerprints {
    key: FingerprintKey,
    index: Index,
    /// Blocks in use that could not be read as they are to be.
    distrusted: Mutex<BTreeSet<BlockNumber>>,
    is_any_distrusted: AtomicBool,
}

impl Fingerprints {
    /// Made with a slice's key. So much RAM is used at the most.
    pub(crate) fn new(key: [u8; 32], bytes: u64) -> Self {
        Self {
            key: FingerprintKey::new(key),
            index: Index::new(bytes as usize),
            distrusted: Mutex::default(),
            is_any_distrusted: AtomicBool::new(false),
        }
    }

    /// The fingerprint of a block's content.
    pub(crate) fn of(&self, content: &[u8]) -> Fingerprint {
        self.key.fingerprint(content)
    }

    /// Blocks that may have this content.
    pub(crate) fn find(&self, fingerprint: Fingerprint) -> impl Iterator<Item = BlockNumber> {
        self.index.find(fingerprint)
    }

    /// Whether any may.
    pub(crate) fn may_have(&self, fingerprint: Fingerprint) -> bool {
        self.index.find(fingerprint).next().is_some()
    }

    /// Remembers a block.
    pub(crate) fn note(&self, fingerprint: Fingerprint, number: BlockNumber) {
        self.index.note(fingerprint, number);
    }

    /// Remembers it longer: it was found, and has the content.
    pub(crate) fn hit(&self, fingerprint: Fingerprint, number: BlockNumber) {
        self.index.hit(fingerprint, number);
    }

    /// Notes that a block could not be read as it is to be: nobody is to share it.
    pub(crate) fn distrust(&self, number: BlockNumber) {
        self.distrusted.lock().insert(number);
        self.is_any_distrusted.store(true, Ordering::Release);
    }

    pub(crate) fn trusts(&self, number: BlockNumber) -> bool {
        !self.is_any_distrusted.load(Ordering::Acquire) || !self.distrusted.lock().contains(&number)
    }

    /// Forgets a block, whose entry is freed.
    pub(crate) fn forget(&self, fingerprint: Fingerprint, number: BlockNumber) {
        if self.is_any_distrusted.load(Ordering::Acquire) {
            self.distrusted.lock().remove(&number);
        }
        if !planted(Bug::TrustIndex) {
            self.index.forget(fingerprint, number);
        }
    }
}
