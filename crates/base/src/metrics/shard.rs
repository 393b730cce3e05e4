//! Which part of an instrument a thread uses.

use std::{
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering},
};

/// Parts of an instrument: as many as an array has data threads when nobody says otherwise.
pub(super) const SHARDS: usize = 4;

/// A value on cache lines of its own: two of 64 bytes, since processors fetch them in pairs.
#[derive(Default, Debug)]
#[repr(align(128))]
pub(super) struct Alone<T>(pub(super) T);

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The shard of this thread. Threads get shards in turn, so up to [`SHARDS`] of them share none.
#[inline]
pub(super) fn of_this_thread() -> usize {
    SHARD.with(|shard| match shard.get() {
        usize::MAX => assign(shard),
        index => index,
    })
}

#[cold]
fn assign(shard: &Cell<usize>) -> usize {
    let index = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    shard.set(index);
    index
}
