//! Tokens: what hosts have kept of units, to be written elsewhere by whoever has the token.
//!
//! Invariants:
//! 1. A token that was not used for the time that was asked for is gone, and so is what it kept.
//! 2. There are no more than [`TOKENS_MAX`]; the one that was unused longest goes first.

use parking_lot::Mutex;
use quoin_base::ByteRange;
use quoin_world::Nanos;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

const TOKENS_MAX: usize = 256;

/// What a token stands for: parts of a unit, one after the other, each in an image.
pub(crate) struct Kept<I> {
    pub(crate) parts: Vec<(ByteRange, Arc<I>)>,
}

impl<I> Clone for Kept<I> {
    fn clone(&self) -> Self {
        Self { parts: self.parts.clone() }
    }
}

struct Entry<I> {
    secret: [u8; 16],
    kept: Kept<I>,
    lives: Duration,
    used: Nanos,
}

/// The tokens of a target.
pub(crate) struct Tokens<I> {
    entries: Mutex<BTreeMap<u64, Entry<I>>>,
    /// As the array last told: it looks after its hosts every second.
    now: AtomicU64,
    random_u64: OnceLock<Box<dyn Fn() -> u64 + Send + Sync>>,
    made: AtomicU64,
}

impl<I> Default for Tokens<I> {
    fn default() -> Self {
        let (entries, now, made) = (Mutex::default(), AtomicU64::new(0), AtomicU64::new(0));
        Self { entries, now, random_u64: OnceLock::new(), made }
    }
}

impl<I> Tokens<I> {
    /// Where numbers come from that nobody can foresee.
    pub(crate) fn draw_from(&self, random_u64: Box<dyn Fn() -> u64 + Send + Sync>) {
        let _ = self.random_u64.set(random_u64);
    }

    fn random(&self) -> u64 {
        match self.random_u64.get() {
            Some(random) => random(),
            None => self.made.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn now(&self) -> Nanos {
        Nanos(self.now.load(Ordering::Relaxed))
    }

    /// Tells the time. Tokens that were not used for too long are gone.
    pub(crate) fn tick(&self, now: Nanos) {
        self.now.store(now.0, Ordering::Relaxed);
        // NOTE: dropped without the lock: images go with them.
        let _gone: Vec<_> =
            self.entries.lock().extract_if(.., |_, entry| now.since(entry.used) >= entry.lives).collect();
    }

    /// Keeps what a token is to stand for; returns its number and secret.
    pub(crate) fn make(&self, kept: Kept<I>, lives: Duration) -> (u64, [u8; 16]) {
        let (id, halves) = (self.random(), [self.random(), self.random()]);
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&halves[0].to_be_bytes());
        secret[8..].copy_from_slice(&halves[1].to_be_bytes());
        let mut entries = self.entries.lock();
        let oldest = entries.iter().min_by_key(|(_, entry)| entry.used).map(|(id, _)| *id);
        let gone = oldest.filter(|_| entries.len() >= TOKENS_MAX).and_then(|id| entries.remove(&id));
        entries.insert(id, Entry { secret, kept, lives, used: self.now() });
        drop(entries);
        drop(gone);
        (id, secret)
    }

    /// What a token stands for, if there is such a token. It lives on.
    pub(crate) fn get(&self, id: u64, secret: [u8; 16]) -> Option<Kept<I>> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(&id).filter(|entry| entry.secret == secret)?;
        entry.used = self.now();
        Some(entry.kept.clone())
    }

    pub(crate) fn delete(&self, id: u64) {
        let gone = self.entries.lock().remove(&id);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn kept(number: u64) -> Kept<u64> {
        Kept { parts: vec![(ByteRange::new(0, 512), Arc::new(number))] }
    }

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn tokens_that_nobody_uses_go() {
        let tokens = Tokens::default();
        tokens.tick(at(100));
        let (first, second) = (tokens.make(kept(1), 30 * SECOND), tokens.make(kept(2), 60 * SECOND));
        tokens.tick(at(120));
        assert_eq!(*tokens.get(first.0, first.1).unwrap().parts[0].1, 1);
        tokens.tick(at(149));
        assert!(tokens.get(first.0, [7; 16]).is_none(), "the secret is wrong, which is no use");
        tokens.tick(at(150));
        assert!(tokens.get(first.0, first.1).is_none());
        assert!(tokens.get(second.0, second.1).is_some());
        tokens.delete(second.0);
        assert!(tokens.get(second.0, second.1).is_none());
    }

    #[test]
    fn what_was_unused_longest_makes_room() {
        let tokens = Tokens::default();
        let all: Vec<_> = (0..TOKENS_MAX as u64 + 1)
            .map(|number| {
                tokens.tick(at(number));
                tokens.make(kept(number), 10_000 * SECOND)
            })
            .collect();
        assert!(tokens.get(all[0].0, all[0].1).is_none());
        assert!(tokens.get(all[1].0, all[1].1).is_some());
    }
}
