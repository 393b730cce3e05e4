//! Reader epochs: a place is used again only when nobody can still look at it.

use super::holds_but_not_with;
use crate::{bugs::Bug, segment::readers::ReaderEpochs};
use quoin_world::{
    Thread,
    atomic::{AtomicU64, Ordering},
};
use shuttle::thread;
use std::sync::Arc;

struct Shared {
    epochs: ReaderEpochs,
    /// Where the content is.
    place: AtomicU64,
    /// Places below are used for something else.
    reused: AtomicU64,
}

#[test]
fn a_place_is_not_used_again_while_a_reader_may_look_at_it() {
    holds_but_not_with(Bug::LapReaders, 4000, 10, || {
        let shared = Arc::new(Shared {
            epochs: ReaderEpochs::new(2),
            place: AtomicU64::new(1),
            reused: AtomicU64::new(1),
        });
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let _reading = shared.epochs.enter(Some(Thread::Data(reader)));
                    let place = shared.place.load(Ordering::SeqCst);
                    thread::yield_now();
                    assert!(shared.reused.load(Ordering::SeqCst) <= place, "place {place} was used again");
                })
            })
            .collect();
        // What the committer does: move, tag, start a new epoch, use again when all have left.
        for next in 2..6 {
            shared.place.store(next, Ordering::SeqCst);
            let freed_at = shared.epochs.current();
            for _ in 0..2 {
                shared.epochs.advance();
                if shared.epochs.passed(freed_at) {
                    shared.reused.store(next, Ordering::SeqCst);
                }
            }
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}
