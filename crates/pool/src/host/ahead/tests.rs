//! What the budget holds, what a purge takes, and that nobody waits for what is not read any more.

use super::*;
use futures_util::FutureExt;
use quoin_world::Buf;

const BLOCK: usize = 8192;

fn ahead(budget_bytes: u64) -> ReadAhead {
    ReadAhead::new(1, budget_bytes, BLOCK as u64)
}

/// Reads blocks from `first` on.
fn begin(ahead: &ReadAhead, first: u64, blocks: u64, at_ms: u64) -> Option<Reading> {
    let ram = blocks * BLOCK as u64;
    ahead.begin((first..first + blocks).map(BlockNumber).collect(), ram, Nanos(at_ms * 1_000_000))
}

fn done(reading: &Reading) {
    let content = |number: &BlockNumber| {
        let mut buf = Buf::zeroed(BLOCK);
        buf.as_mut_slice()[..8].copy_from_slice(&number.0.to_le_bytes());
        Some(buf.into_slice())
    };
    reading.done(reading.0.numbers.iter().map(content).collect());
}

fn number_of(held: &Ahead) -> Option<u64> {
    let content = held.content().now_or_never().expect("it is not on its way");
    content.map(|content| u64::from_le_bytes(content[..8].try_into().unwrap()))
}

#[test]
fn a_block_goes_when_its_end_was_read_and_a_run_with_its_last_block() {
    let ahead = ahead(1 << 20);
    done(&begin(&ahead, 100, 2, 0).unwrap());
    let half = ahead.take(BlockNumber(100), false).unwrap();
    let whole = ahead.take(BlockNumber(100), true).unwrap();
    assert_eq!((number_of(&half), number_of(&whole)), (Some(100), Some(100)));
    assert!(ahead.take(BlockNumber(100), true).is_none());
    assert_eq!(ahead.held_bytes(), 2 * BLOCK as u64);
    drop((half, whole, ahead.take(BlockNumber(101), true)));
    assert_eq!(ahead.held_bytes(), 0);
    assert_eq!((ahead.read_bytes(), ahead.unused_bytes()), (2 * BLOCK as u64, 2 * BLOCK as u64));
}

#[test]
fn what_a_host_got_is_not_unused() {
    let ahead = ahead(1 << 20);
    done(&begin(&ahead, 1, 2, 0).unwrap());
    let held = ahead.take(BlockNumber(1), true).unwrap();
    ahead.used(&held, &held.content().now_or_never().flatten().unwrap());
    drop(held);
    ahead.purge(BlockNumber(2));
    assert_eq!((ahead.held_bytes(), ahead.unused_bytes()), (0, BLOCK as u64));
}

#[test]
fn what_is_purged_is_gone_also_while_it_is_being_read() {
    let ahead = ahead(1 << 20);
    let reading = begin(&ahead, 1, 2, 0).unwrap();
    ahead.purge(BlockNumber(1));
    done(&reading);
    assert!(ahead.take(BlockNumber(1), true).is_none());
    assert_eq!(number_of(&ahead.take(BlockNumber(2), true).unwrap()), Some(2));
}

#[test]
fn who_waits_for_a_read_that_ends_in_nothing_goes_on() {
    let ahead = ahead(1 << 20);
    let reading = begin(&ahead, 1, 2, 0).unwrap();
    let held = ahead.take(BlockNumber(1), true).unwrap();
    assert!(held.content().now_or_never().is_none());
    drop(reading);
    assert_eq!(number_of(&held), None);
    assert_eq!(ahead.read_bytes(), 0);
}

#[test]
fn only_what_is_old_makes_way() {
    let ahead = ahead(4 * BLOCK as u64);
    done(&begin(&ahead, 0, 2, 0).unwrap());
    done(&begin(&ahead, 10, 2, 900).unwrap());
    assert!(begin(&ahead, 20, 1, 990).is_none());
    done(&begin(&ahead, 20, 2, 1000).unwrap());
    assert!(ahead.take(BlockNumber(0), true).is_none() && ahead.take(BlockNumber(1), true).is_none());
    assert!(ahead.take(BlockNumber(10), false).is_some() && ahead.take(BlockNumber(20), false).is_some());
    assert!(ahead.held_bytes() <= 4 * BLOCK as u64);
    assert_eq!(ahead.unused_bytes(), 2 * BLOCK as u64);
    assert!(begin(&ahead, 30, 5, 9000).is_none(), "more than all of it");
}

#[test]
fn a_number_entered_anew_is_not_forgotten_with_its_old_run() {
    let ahead = ahead(4 * BLOCK as u64);
    done(&begin(&ahead, 0, 2, 0).unwrap());
    ahead.purge(BlockNumber(0));
    done(&begin(&ahead, 0, 1, 900).unwrap());
    done(&begin(&ahead, 50, 2, 1000).unwrap());
    assert!(ahead.take(BlockNumber(1), false).is_none());
    assert_eq!(number_of(&ahead.take(BlockNumber(0), false).unwrap()), Some(0));
}

#[test]
fn runs_that_are_gone_are_forgotten_though_there_is_room() {
    let ahead = ahead(1 << 20);
    let stays = begin(&ahead, 0, 1, 0).unwrap();
    for first in 1..10_000 {
        drop(begin(&ahead, first, 1, 0).unwrap());
        drop(ahead.take(BlockNumber(first), true));
    }
    assert!(ahead.runs.lock().begun.len() < 200);
    drop(stays);
}
