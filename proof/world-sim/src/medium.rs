//! What is on a disk: its durable content, and the writes that a power cut may still undo.
//!
//! Invariants:
//! 1. `durable` is the durable writes applied in the order of their completion, and nothing else.
//! 2. `log` holds completed writes in that order, from the oldest one that is not durable on; durable ones
//!    stay in it so that an older write kept in a power cut never covers a newer durable one.
//! 3. `newest` holds every page the log touches, with all of the log applied.

use quoin_base::SECTOR_BYTES;
use quoin_world::Slice;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

const PAGE: u64 = 4096;
type Page = Arc<[u8; PAGE as usize]>;

/// The content of a disk. Pages of zeroes take no memory; cloning shares pages.
#[derive(Clone, Default)]
pub struct Image(BTreeMap<u64, Page>);

/// What became of one un-flushed write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Kept,
    Lost,
    Torn,
}

struct Logged {
    order: u64,
    offset: u64,
    data: Vec<Slice>,
    durable: bool,
    /// A failed flush dropped it: no later one makes it durable.
    doomed: bool,
}

#[derive(Default)]
pub(crate) struct Medium {
    durable: Image,
    newest: Image,
    log: VecDeque<Logged>,
    next_order: u64,
}

impl Image {
    fn page(&self, number: u64) -> Option<&Page> {
        self.0.get(&number)
    }

    /// Writes `bytes` over the pages as `below` has them where this image has none.
    fn write(&mut self, offset: u64, bytes: &[u8], below: Option<&Image>) {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (number, start) = (at / PAGE, (at % PAGE) as usize);
            let (now, later) = rest.split_at(rest.len().min(PAGE as usize - start));
            let page = self.0.entry(number).or_insert_with(|| {
                below.and_then(|b| b.page(number)).cloned().unwrap_or_else(|| Arc::new([0; PAGE as usize]))
            });
            Arc::make_mut(page)[start..start + now.len()].copy_from_slice(now);
            at += now.len() as u64;
            rest = later;
        }
    }

    fn drop_zero_pages(&mut self, offset: u64, len: u64) {
        for number in offset / PAGE..(offset + len).div_ceil(PAGE) {
            if self.page(number).is_some_and(|p| p.iter().all(|&b| b == 0)) {
                self.0.remove(&number);
            }
        }
    }

    /// Writes the sectors of `data` that `keep` chooses.
    fn write_sectors(&mut self, offset: u64, data: &[Slice], mut keep: impl FnMut() -> bool) {
        let mut at = offset;
        for sector in data.iter().flat_map(|s| s.chunks(SECTOR_BYTES as usize)) {
            if keep() {
                self.write(at, sector, None);
            }
            at += sector.len() as u64;
        }
        self.drop_zero_pages(offset, at - offset);
    }
}

impl Medium {
    pub(crate) fn of(image: Image) -> Self {
        Self { durable: image, ..Self::default() }
    }

    /// The content as a reader sees it now.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) {
        let mut at = offset;
        let mut rest = into;
        while !rest.is_empty() {
            let (number, start) = (at / PAGE, (at % PAGE) as usize);
            let (now, later) = rest.split_at_mut((PAGE as usize - start).min(rest.len()));
            match self.newest.page(number).or_else(|| self.durable.page(number)) {
                Some(page) => now.copy_from_slice(&page[start..start + now.len()]),
                None => now.fill(0),
            }
            at += now.len() as u64;
            rest = later;
        }
    }

    /// A write has completed.
    pub(crate) fn write(&mut self, offset: u64, data: Vec<Slice>, durable: bool) {
        if durable {
            self.durable.write_sectors(offset, &data, || true);
        }
        if durable && self.log.is_empty() {
            return;
        }
        let logged = Logged { order: self.next_order, offset, data, durable, doomed: false };
        self.next_order += 1;
        apply(&mut self.newest, &self.durable, &logged);
        self.log.push_back(logged);
    }

    /// Every write completed so far is older than this mark, every later one is not.
    pub(crate) fn mark(&self) -> u64 {
        self.next_order
    }

    /// A flush submitted at `mark` has completed.
    pub(crate) fn flush(&mut self, mark: u64) {
        for logged in self.log.iter_mut().filter(|l| l.order < mark && !l.doomed) {
            logged.durable = true;
        }
        for logged in self.log.iter().filter(|l| l.durable) {
            self.durable.write_sectors(logged.offset, &logged.data, || true);
        }
        while self.log.front().is_some_and(|l| l.durable) {
            self.log.pop_front();
        }
        self.newest = Image::default();
        for logged in &self.log {
            apply(&mut self.newest, &self.durable, logged);
        }
    }

    /// A flush submitted at `mark` has failed; those of its writes that `doom` chooses are never durable.
    pub(crate) fn fail_flush(&mut self, mark: u64, mut doom: impl FnMut() -> bool) {
        for logged in self.log.iter_mut().filter(|l| l.order < mark && !l.durable) {
            logged.doomed |= doom();
        }
    }

    /// The power is cut: each write that is not durable meets the fate `decide` gives it; a torn one keeps
    /// the sectors `keep` chooses.
    pub(crate) fn cut_power(&mut self, mut decide: impl FnMut() -> Fate, mut keep: impl FnMut() -> bool) {
        for logged in std::mem::take(&mut self.log) {
            let fate = match (logged.durable, logged.doomed) {
                (true, _) => Fate::Kept,
                (_, true) => Fate::Lost,
                _ => decide(),
            };
            match fate {
                Fate::Kept => self.durable.write_sectors(logged.offset, &logged.data, || true),
                Fate::Lost => {}
                Fate::Torn => self.durable.write_sectors(logged.offset, &logged.data, &mut keep),
            }
        }
        self.newest = Image::default();
    }

    /// The content as a reader sees it now, as an image of its own.
    pub(crate) fn image(&self) -> Image {
        let mut image = self.durable.clone();
        for (number, page) in &self.newest.0 {
            image.0.insert(*number, page.clone());
        }
        image
    }
}

fn apply(newest: &mut Image, durable: &Image, logged: &Logged) {
    let mut at = logged.offset;
    for slice in &logged.data {
        newest.write(at, slice, Some(durable));
        at += slice.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(medium: &mut Medium, offset: u64, byte: u8, durable: bool) {
        medium.write(offset, vec![Slice::copy_of(&[byte; 1024])], durable);
    }

    fn byte(medium: &Medium, offset: u64) -> u8 {
        let mut byte = [0];
        medium.read(offset, &mut byte);
        byte[0]
    }

    #[test]
    fn readers_see_the_newest_and_a_power_cut_undoes_what_is_not_durable() {
        let mut medium = Medium::default();
        write(&mut medium, 0, 1, false);
        let mark = medium.mark();
        write(&mut medium, 512, 2, false);
        assert_eq!((byte(&medium, 0), byte(&medium, 512), byte(&medium, 1536)), (1, 2, 0));
        medium.flush(mark);
        assert_eq!((byte(&medium, 0), byte(&medium, 512)), (1, 2));
        medium.cut_power(|| Fate::Lost, || false);
        assert_eq!((byte(&medium, 0), byte(&medium, 512), byte(&medium, 1024)), (1, 1, 0));
    }

    #[test]
    fn an_older_write_never_covers_a_newer_durable_one() {
        for flushed in [false, true] {
            let mut medium = Medium::default();
            write(&mut medium, 0, 1, false);
            let mark = medium.mark();
            write(&mut medium, 0, 2, true);
            if flushed {
                medium.flush(mark);
            }
            medium.cut_power(|| Fate::Kept, || true);
            assert_eq!(byte(&medium, 0), 2);
        }
    }

    #[test]
    fn a_failed_flush_dooms_for_good() {
        let mut medium = Medium::default();
        write(&mut medium, 0, 1, false);
        medium.fail_flush(medium.mark(), || true);
        medium.flush(medium.mark());
        assert_eq!(byte(&medium, 0), 1);
        medium.cut_power(|| Fate::Kept, || true);
        assert_eq!(byte(&medium, 0), 0);
    }

    #[test]
    fn a_torn_write_is_torn_at_sectors_and_zeroes_take_no_memory() {
        let mut medium = Medium::default();
        write(&mut medium, 0, 1, false);
        let mut odd = false;
        medium.cut_power(
            || Fate::Torn,
            || {
                odd = !odd;
                odd
            },
        );
        assert_eq!((byte(&medium, 511), byte(&medium, 512)), (1, 0));
        medium.write(0, vec![Slice::copy_of(&[0; 8192])], true);
        assert!(medium.durable.0.is_empty());
    }
}
