//! Which slices are short of slabs, and which can spare some. In RAM only: what is granted is in the grant pages.
//!
//! 1. A slice that is short says how many slabs it wants. Its committer takes ungranted slabs.
//! 2. Each slice says how many it could give back. While others want more than the ungranted slabs, the slice
//!    that can spare the most gives some back.
//! 3. A slice that wants slabs spares none, so that no two slices wait for each other.
//! 4. If no slab is ungranted and no other slice can spare one, the want is dropped and the slice's writers are told.

use quoin_base::SliceId;
use quoin_world::Mutex;
use std::collections::BTreeMap;

/// Wakes the committer of a slice to look at what is wanted.
type Wake = Box<dyn Fn() + Send + Sync>;

/// What a slice wants, and what it can spare, in slabs.
#[derive(Default)]
struct OfSlice {
    wanted: u64,
    spare: u64,
    wake: Option<Wake>,
}

impl OfSlice {
    fn can_spare(&self) -> u64 {
        if self.wanted > 0 { 0 } else { self.spare }
    }
}

/// What a slice must know of the others, in slabs.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Standing {
    /// What it waits for itself.
    pub wanted: u64,
    /// What others could give back.
    pub others_spare: u64,
    /// What it is to give back now.
    pub owed: u64,
}

#[derive(Default)]
pub(super) struct Claims {
    slices: Mutex<BTreeMap<SliceId, OfSlice>>,
}

impl Claims {
    pub(super) fn wake_with(&self, slice: SliceId, wake: Wake) {
        self.slices.lock().entry(slice).or_default().wake = Some(wake);
    }

    /// Notes that a slice wants so many slabs, or as many as before if those are more.
    pub(super) fn want(&self, slice: SliceId, slabs: u64) {
        let mut slices = self.slices.lock();
        let of = slices.entry(slice).or_default();
        if slabs <= of.wanted {
            return;
        }
        of.wanted = slabs;
        // Slices that can spare some clean now. Slices that want some look again, since this one spares none any more.
        wake(&slices, |id, of| id != slice && (of.spare > 0 || of.wanted > 0));
    }

    pub(super) fn wanted_by(&self, slice: SliceId) -> u64 {
        self.slices.lock().get(&slice).map_or(0, |of| of.wanted)
    }

    /// Notes that a slice got so many of the slabs that it wants.
    pub(super) fn got(&self, slice: SliceId, slabs: u64) {
        let mut slices = self.slices.lock();
        let of = slices.entry(slice).or_default();
        of.wanted = of.wanted.saturating_sub(slabs);
    }

    /// Notes that a slice cannot get any of the slabs that it wants.
    pub(super) fn got_none(&self, slice: SliceId) {
        self.got(slice, u64::MAX);
    }

    /// Notes how many slabs a slice could give back. `nobodys` are ungranted.
    pub(super) fn can_spare(&self, slice: SliceId, slabs: u64, nobodys: u64) -> Standing {
        let mut slices = self.slices.lock();
        let of = slices.entry(slice).or_default();
        let wanted = of.wanted;
        let before = std::mem::replace(&mut of.spare, slabs);
        if before > 0 && slabs == 0 {
            wake(&slices, |_, of| of.wanted > 0);
        }
        let others_spare = spare_of_others(&slices, slice);
        Standing { wanted, others_spare, owed: owed_by(&slices, slice, nobodys) }
    }

    /// Notes that a slice could give back no more slabs than these from now on.
    pub(super) fn can_spare_at_most(&self, slice: SliceId, slabs: u64) {
        let mut slices = self.slices.lock();
        let of = slices.entry(slice).or_default();
        let before = of.spare;
        of.spare = before.min(slabs);
        if before > 0 && slabs == 0 {
            wake(&slices, |_, of| of.wanted > 0);
        }
    }

    /// Tells slices that want slabs that some came free.
    pub(super) fn came_free(&self) {
        wake(&self.slices.lock(), |_, of| of.wanted > 0);
    }

    /// What slices other than this one could give back.
    pub(super) fn spare_of_others(&self, slice: SliceId) -> u64 {
        spare_of_others(&self.slices.lock(), slice)
    }

    /// How many slabs a slice is to give back now, if `nobodys` are ungranted.
    pub(super) fn owed_by(&self, slice: SliceId, nobodys: u64) -> u64 {
        owed_by(&self.slices.lock(), slice, nobodys)
    }
}

fn spare_of_others(slices: &BTreeMap<SliceId, OfSlice>, slice: SliceId) -> u64 {
    slices.iter().filter(|(id, _)| **id != slice).map(|(_, of)| of.can_spare()).sum()
}

fn owed_by(slices: &BTreeMap<SliceId, OfSlice>, slice: SliceId, nobodys: u64) -> u64 {
    let wanted: u64 = slices.iter().filter(|(id, _)| **id != slice).map(|(_, of)| of.wanted).sum();
    // Usually no slice is short.
    let lacking = wanted.saturating_sub(nobodys);
    if lacking == 0 {
        return 0;
    }
    let roomiest = slices.iter().max_by_key(|(id, of)| (of.can_spare(), u8::MAX - id.0));
    match roomiest {
        Some((id, of)) if *id == slice => lacking.min(of.can_spare()),
        Some(_) | None => 0,
    }
}

fn wake(slices: &BTreeMap<SliceId, OfSlice>, whom: impl Fn(SliceId, &OfSlice) -> bool) {
    slices.iter().filter(|(id, of)| whom(**id, of)).filter_map(|(_, of)| of.wake.as_ref()).for_each(|f| f());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    #[test]
    fn who_can_spare_the_most_gives_what_nobody_holds_too_little_of() {
        let claims = Claims::default();
        let [a, b, c] = [0, 1, 2].map(SliceId);
        claims.can_spare(b, 5, 0);
        claims.can_spare(c, 9, 0);
        assert_eq!((claims.spare_of_others(a), claims.spare_of_others(b)), (14, 9));
        let owed = |nobodys| [a, b, c].map(|slice| claims.owed_by(slice, nobodys));
        assert_eq!(owed(0), [0, 0, 0], "nobody wants any");
        claims.want(a, 7);
        claims.want(a, 3);
        assert_eq!((claims.wanted_by(a), owed(0), owed(4), owed(7)), (7, [0, 0, 7], [0, 0, 3], [0, 0, 0]));
        claims.can_spare(c, 2, 0);
        assert_eq!(owed(0), [0, 5, 0]);
        assert_eq!(claims.can_spare(b, 5, 3), Standing { wanted: 0, others_spare: 2, owed: 4 });
        assert_eq!(claims.can_spare(a, 0, 3), Standing { wanted: 7, others_spare: 7, owed: 0 });
        // A slice that is short gives nothing, whatever it could spare.
        claims.want(b, 4);
        assert_eq!((owed(0), claims.spare_of_others(a)), ([0, 0, 2], 2));
        claims.got(b, 1);
        assert_eq!((claims.wanted_by(b), owed(0)), (3, [0, 0, 2]));
        claims.want(c, 1);
        assert_eq!((owed(0), [a, b, c].map(|slice| claims.spare_of_others(slice))), ([0; 3], [0; 3]));
        claims.got_none(a);
        claims.got_none(b);
        assert_eq!(owed(0), [0, 1, 0]);
    }

    #[test]
    fn those_are_woken_whom_it_concerns() {
        let claims = Claims::default();
        let woken: Vec<_> = (0..3).map(|_| Arc::new(AtomicU64::new(0))).collect();
        for (id, count) in (0..).map(SliceId).zip(&woken) {
            let count = count.clone();
            let wake = move || {
                count.fetch_add(1, Ordering::Relaxed);
            };
            claims.wake_with(id, Box::new(wake));
        }
        let taken = || woken.iter().map(|count| count.swap(0, Ordering::Relaxed)).collect::<Vec<_>>();
        claims.can_spare(SliceId(1), 3, 0);
        assert_eq!(taken(), [0, 0, 0]);
        claims.want(SliceId(0), 2);
        assert_eq!(taken(), [0, 1, 0]);
        claims.came_free();
        assert_eq!(taken(), [1, 0, 0]);
        claims.can_spare(SliceId(1), 1, 0);
        assert_eq!(taken(), [0, 0, 0]);
        claims.can_spare(SliceId(1), 0, 0);
        assert_eq!(taken(), [1, 0, 0]);
    }
}
