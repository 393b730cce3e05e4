//! What the model lets a read return, and what it does not.

use super::{History, OpId, Place, Window};
use crate::stamp::{self, Value};

const VOLUME: u32 = 1;

struct Rig(History);

impl Rig {
    fn new() -> Self {
        let mut history = History::new();
        history.add_volume(VOLUME, &[Window { first: 0, sectors: 64 }]);
        Self(history)
    }

    fn begin(&mut self, first: u32, sectors: u32) -> OpId {
        self.0.begin(VOLUME, 0, first, sectors, false)
    }

    fn write(&mut self, first: u32, sectors: u32) -> OpId {
        let id = self.begin(first, sectors);
        self.0.end(id, true);
        id
    }

    fn saw(&mut self, begun: u32, at: u32, id: Option<OpId>) -> Result<(), String> {
        let value = id.map_or(Value::ZEROES, |id| self.0.value(id));
        let data = stamp::content(value, VOLUME, u64::from(at), 1);
        self.0.read_returned(begun, VOLUME, 0, at, std::iter::once(&data[..]))
    }

    fn read(&mut self, at: u32, id: Option<OpId>) -> Result<(), String> {
        let begun = self.0.begin_read();
        self.saw(begun, at, id)
    }
}

#[test]
fn an_acknowledged_write_is_what_is_read() {
    let mut rig = Rig::new();
    rig.read(3, None).unwrap();
    let a = rig.write(0, 16);
    rig.read(3, Some(a)).unwrap();
    assert!(rig.read(3, None).unwrap_err().contains("settled"));
    let b = rig.write(3, 1);
    rig.read(3, Some(b)).unwrap();
    rig.0.crash();
    rig.read(3, Some(b)).unwrap();
    rig.read(4, Some(a)).unwrap();
    assert!(rig.read(3, Some(a)).is_err());
    let other = stamp::content(rig.0.value(b), VOLUME, 9, 1);
    let begun = rig.0.begin_read();
    assert!(rig.0.read_returned(begun, VOLUME, 0, 3, std::iter::once(&other[..])).is_err());
}

#[test]
fn concurrent_writes_may_end_in_either_order_until_one_was_seen() {
    for seen_first in [true, false] {
        let mut rig = Rig::new();
        let (a, b) = (rig.begin(0, 1), rig.begin(0, 1));
        rig.0.end(a, true);
        rig.0.end(b, true);
        let (seen, gone) = if seen_first { (a, b) } else { (b, a) };
        rig.read(0, Some(seen)).unwrap();
        assert!(rig.read(0, Some(gone)).is_err());
        rig.0.crash();
        rig.read(0, Some(seen)).unwrap();
    }
}

#[test]
fn a_read_may_return_what_was_there_at_any_time_while_it_went_on() {
    let mut rig = Rig::new();
    let a = rig.write(0, 1);
    let (early, late) = (rig.0.begin_read(), rig.0.begin_read());
    let b = rig.write(0, 1);
    rig.saw(early, 0, Some(a)).unwrap();
    rig.saw(late, 0, Some(b)).unwrap();
    assert!(rig.read(0, Some(a)).is_err());
}

#[test]
fn what_was_seen_must_not_vanish_though_it_was_never_acknowledged() {
    let mut rig = Rig::new();
    let a = rig.write(0, 1);
    let b = rig.begin(0, 1);
    rig.read(0, Some(b)).unwrap();
    rig.0.crash();
    assert!(rig.read(0, Some(a)).is_err());
    rig.read(0, Some(b)).unwrap();
}

#[test]
fn in_doubt_is_decided_by_the_first_read_for_good() {
    for happened in [true, false] {
        let mut rig = Rig::new();
        let a = rig.write(0, 1);
        let b = rig.begin(0, 1);
        rig.0.crash();
        rig.0.crash();
        let (seen, other) = if happened { (b, a) } else { (a, b) };
        rig.read(0, Some(seen)).unwrap();
        rig.0.crash();
        assert!(rig.read(0, Some(other)).is_err());
    }
}

#[test]
fn a_block_is_wholly_there_or_wholly_absent() {
    for happened in [true, false] {
        let mut rig = Rig::new();
        let a = rig.write(0, 20);
        let b = rig.begin(4, 14);
        rig.0.crash();
        let (seen, other) = if happened { (b, a) } else { (a, b) };
        rig.read(5, Some(seen)).unwrap();
        assert!(rig.read(8, Some(other)).is_err(), "the same block");
        let mut rig = Rig::new();
        let a = rig.write(0, 20);
        let b = rig.begin(4, 14);
        rig.0.crash();
        let (seen, other) = if happened { (b, a) } else { (a, b) };
        rig.read(5, Some(seen)).unwrap();
        rig.read(17, Some(other)).unwrap();
        rig.read(2, Some(a)).unwrap();
    }
}

#[test]
fn a_failed_write_may_be_there_and_a_later_one_outdates_it() {
    let mut rig = Rig::new();
    let a = rig.write(0, 1);
    let b = rig.begin(0, 1);
    rig.0.end(b, false);
    let c = rig.begin(0, 1);
    rig.0.end(c, false);
    rig.read(0, Some(b)).unwrap();
    assert!(rig.read(0, Some(a)).is_err());
    let d = rig.write(0, 1);
    assert!(rig.read(0, Some(b)).is_err());
    rig.read(0, Some(d)).unwrap();
    assert_eq!(rig.0.mapped_blocks(VOLUME), Some(1));
    rig.0.volume_deleted(VOLUME);
    assert!(rig.read(0, Some(d)).unwrap_err().contains("deletion"));
}

#[test]
fn what_one_sector_tells_about_another_does_not_forbid_what_the_same_read_may_return() {
    let mut rig = Rig::new();
    let a = rig.write(0, 16);
    let _doubtful = rig.begin(0, 16);
    rig.0.crash();
    let c = rig.begin(4, 4);
    let begun = rig.0.begin_read();
    rig.0.end(c, true);
    let data = stamp::content(rig.0.value(a), VOLUME, 0, 16);
    rig.0.read_returned(begun, VOLUME, 0, 0, std::iter::once(&data[..])).unwrap();
    rig.read(5, Some(c)).unwrap();
}

#[test]
fn a_copy_brings_what_the_source_holds_for_certain() {
    let mut rig = Rig::new();
    let target = 2;
    rig.0.add_volume(target, &[Window { first: 0, sectors: 64 }]);
    let first = rig.write(0, 16);
    let open = rig.begin(16, 16);
    let place = |volume: u32, first: u32| Place { volume, window: 0, first };
    let copied = rig.0.begin_copy(place(VOLUME, 8), place(target, 8), 16);
    assert_eq!(copied, None, "a write is under way there");
    rig.0.end(open, true);
    let over = rig.0.begin(target, 0, 0, 48, false);
    rig.0.end(over, true);
    let ids = rig.0.begin_copy(place(VOLUME, 8), place(target, 8), 32).unwrap();
    assert_eq!(ids.len(), 3, "two writes and zeroes");
    let see = |rig: &mut Rig, at: u32, of: Option<OpId>, volume: u32| {
        let data = stamp::content(of.map_or(Value::ZEROES, |id| rig.0.value(id)), volume, u64::from(at), 1);
        let begun = rig.0.begin_read();
        rig.0.read_returned(begun, target, 0, at, std::iter::once(&data[..]))
    };
    // Under way it may be seen or not.
    see(&mut rig, 30, Some(over), target).unwrap();
    see(&mut rig, 8, Some(first), VOLUME).unwrap();
    ids.iter().for_each(|id| rig.0.end(*id, true));
    see(&mut rig, 20, Some(open), VOLUME).unwrap();
    see(&mut rig, 39, None, target).unwrap();
    see(&mut rig, 40, Some(over), target).unwrap();
    see(&mut rig, 24, Some(over), target).unwrap_err();
}

#[test]
fn zeroes_that_a_slow_read_returns_may_be_those_of_before() {
    let mut rig = Rig::new();
    let slow = rig.0.begin_read();
    let unmap = rig.0.begin(VOLUME, 0, 0, 16, true);
    rig.write(0, 16);
    rig.saw(slow, 3, None).unwrap();
    rig.write(0, 16);
    // The unmap was not seen yet: it may come now.
    rig.read(3, None).unwrap();
    rig.0.end(unmap, true);
}
