//! The pace of background writes: destage, cleaner and checkpoints leave room on drives for what hosts wait for.
//!
//! A drive answers a journal write only after the writes that it was given before. So while hosts write to a
//! drive, few bytes of the background are in flight on it, and while buffer and journal have room, the drive
//! rests in between. The fuller they are, the more the background gets. Near the point where writers are
//! stopped it gets all it wants, because hosts then wait for it.
//!
//! Moves of columns, that is rebuild, evacuation and balancing, read from drives and write to them and nothing waits for
//! them. They leave room for reads of hosts as well, which are counted while anything is moved.
//!
//! 1. A piece is let in when no other piece of the background is in flight on its drive, however little is
//!    allowed. So a piece waits only for one that the drive works on, or for a rest that ends.
//! 2. A piece counts until it is dropped, and a durable write until it returns.
//! 3. Writes for hosts never wait here.
//! 4. How much of the time columns are moved beside hosts is in [`turns`](super::turns).

use super::turns::{Operation, Turns};
use quoin_base::DriveIndex;
use quoin_world::{
    Event, Mutex, Nanos, RwLock, World,
    atomic::{AtomicU64, Ordering},
};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

/// Bytes of a row that go to its drive in one write.
pub(crate) const PIECE_BYTES: u64 = 256 << 10;
/// Pieces in flight while no host writes.
const PIECES_ALONE: u64 = 2;
/// Pieces in flight beside hosts, when these are about to be stopped.
const MOST_PIECES: u64 = 4;
/// How full buffer or journal are when the drive stops resting: before hosts are slowed.
const REST_BELOW: f64 = 0.5;
/// Below this it rests as long as it worked.
const REST_ALL_BELOW: f64 = 0.25;
/// How full they are when more than one piece may be in flight beside hosts, when most, and when any number.
const MORE_FROM: f64 = 0.65;
const MOST_FROM: f64 = 0.9;
const ALL_FROM: f64 = 0.95;
/// A drive rests no longer at a time, and no shorter: clocks wake in steps of a millisecond.
const LONGEST_REST: Duration = Duration::from_millis(10);
const SHORTEST_REST: Duration = Duration::from_millis(2);

/// Hosts use drives as long as their last operation is no longer ago.
const LATELY: Duration = Duration::from_millis(100);

/// Whether a request waits for the background, and the fill.
pub(crate) type Pressure = (bool, f64);

/// What a piece of the background is a part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// Rows of destage, cleaner and checkpoints. Hosts wait for these in the end.
    Rows,
    /// A column that is moved.
    Move,
}

/// What the pace depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Hosts write to the drive; for moves also: they read from it.
    pub hosts_use: bool,
    /// A request waits for the background: a drain or a checkpoint.
    pub is_awaited: bool,
    /// How full the fuller of buffer and journal is.
    pub fill: f64,
}

/// What the background gets of a drive.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Allowance {
    /// The most bytes in flight. One piece may always be.
    pub most_bytes: u64,
    /// How long the drive rests after a piece, as a part of the time that the piece took.
    pub rest_part: f64,
}

/// What the background gets.
pub(crate) fn allowance(figures: &Figures) -> Allowance {
    let Figures { hosts_use, is_awaited, fill } = *figures;
    let between = |from: f64, to: f64| ((fill - from) / (to - from)).clamp(0.0, 1.0);
    let most_bytes = match () {
        () if fill >= ALL_FROM => u64::MAX,
        () if !hosts_use => PIECES_ALONE * PIECE_BYTES,
        () => PIECE_BYTES + (between(MORE_FROM, MOST_FROM) * ((MOST_PIECES - 1) * PIECE_BYTES) as f64) as u64,
    };
    let rests = hosts_use && !is_awaited;
    Allowance { most_bytes, rest_part: if rests { 1.0 - between(REST_ALL_BELOW, REST_BELOW) } else { 0.0 } }
}

/// What is in flight on each drive.
#[derive(Default)]
pub(crate) struct Pace {
    /// By index.
    drives: RwLock<Vec<Arc<DrivePace>>>,
    /// Moves under way in all slices: meanwhile reads of hosts count.
    moves: AtomicU64,
    /// Reads and durable writes of hosts while anything was moved.
    host_operations: AtomicU64,
    /// How many there were when somebody looked last and found more, and when that was.
    last_look: Mutex<(Nanos, u64)>,
    /// How much of the time columns are moved beside hosts.
    turns: Turns,
    /// What tells how long operations of hosts take.
    world: OnceLock<Arc<dyn World>>,
}

#[derive(Default)]
struct DrivePace {
    /// Writes that hosts wait for, in flight.
    durable: AtomicU64,
    /// How many there ever were, and how many when the last piece began.
    durable_ever: AtomicU64,
    durable_seen: AtomicU64,
    /// The same of reads that hosts wait for.
    reads: AtomicU64,
    reads_ever: AtomicU64,
    reads_seen: AtomicU64,
    /// Bytes of the background in flight.
    background_bytes: AtomicU64,
    /// How long the drive is to rest.
    due_rest_nanos: AtomicU64,
    /// Notified when a piece of the background has ended.
    ended: Event,
}

/// A write that hosts wait for, in flight.
pub(super) struct Durable<'a> {
    drive: Arc<DrivePace>,
    _timed: Option<Timed<'a>>,
}

/// Reads that hosts wait for, in flight.
pub(crate) struct HostRead<'a> {
    drives: Vec<Arc<DrivePace>>,
    _timed: Option<Timed<'a>>,
}

/// An operation that a host waits for while columns are moved.
struct Timed<'a> {
    operation: Operation,
    began: Nanos,
    turns: &'a Turns,
    world: &'a dyn World,
}

/// Something is being moved.
pub(crate) struct Moving<'a>(&'a Pace);

/// A piece of the background, in flight.
pub(crate) struct Piece {
    drive: Arc<DrivePace>,
    work: Work,
    bytes: u64,
    began: Nanos,
}

impl Pace {
    fn drive(&self, index: DriveIndex) -> Arc<DrivePace> {
        let at = usize::from(index.0);
        if let Some(drive) = self.drives.read().get(at) {
            return drive.clone();
        }
        let mut drives = self.drives.write();
        if drives.len() <= at {
            drives.resize_with(at + 1, Arc::default);
        }
        drives[at].clone()
    }

    /// Tells the time to it.
    pub(super) fn set_world(&self, world: Arc<dyn World>) {
        let _ = self.world.set(world);
    }

    /// Counts a write that hosts wait for.
    pub(super) fn durable(&self, index: DriveIndex) -> Durable<'_> {
        let drive = self.drive(index);
        drive.durable.fetch_add(1, Ordering::Relaxed);
        drive.durable_ever.fetch_add(1, Ordering::Relaxed);
        let moving = self.is_moving();
        if moving {
            self.host_operations.fetch_add(1, Ordering::Relaxed);
        }
        Durable { drive, _timed: moving.then(|| self.timed(Operation::Write)).flatten() }
    }

    fn timed(&self, operation: Operation) -> Option<Timed<'_>> {
        let world = &**self.world.get()?;
        Some(Timed { operation, began: world.now(), turns: &self.turns, world })
    }

    /// Counts a read that a host waits for, of any of these drives, if anything is being moved.
    pub(crate) fn host_read(&self, drives: impl Iterator<Item = DriveIndex>) -> Option<HostRead<'_>> {
        self.is_moving().then(|| {
            self.host_operations.fetch_add(1, Ordering::Relaxed);
            let drives: Vec<_> = drives.map(|index| self.drive(index)).collect();
            for drive in &drives {
                drive.reads.fetch_add(1, Ordering::Relaxed);
                drive.reads_ever.fetch_add(1, Ordering::Relaxed);
            }
            HostRead { drives, _timed: self.timed(Operation::Read) }
        })
    }

    /// Columns are moved until this is dropped.
    pub(crate) fn moving(&self) -> Moving<'_> {
        if self.moves.fetch_add(1, Ordering::Relaxed) == 0
            && let Some(world) = self.world.get()
        {
            self.turns.begin(world.now());
        }
        Moving(self)
    }

    /// Waits until columns may be moved beside hosts; `is_behind`: less was moved than is to be at least.
    pub(crate) async fn turn_to_move(&self, world: &dyn World, is_behind: impl Fn(Nanos) -> bool) {
        loop {
            let now = world.now();
            let are_used = self.do_hosts_use_drives(now);
            let wait = if are_used { self.turns.wait(now, is_behind(now)) } else { Duration::ZERO };
            if wait.is_zero() {
                return;
            }
            world.sleep(wait).await;
        }
    }

    fn is_moving(&self) -> bool {
        self.moves.load(Ordering::Relaxed) > 0
    }

    /// Whether hosts have used any drive lately, while something was moved.
    pub(crate) fn do_hosts_use_drives(&self, now: Nanos) -> bool {
        let operations = self.host_operations.load(Ordering::Relaxed);
        let mut last = self.last_look.lock();
        if last.1 != operations {
            *last = (now, operations);
        }
        last.1 > 0 && now.since(last.0) < LATELY
    }

    /// Lets a piece of `bytes` go to a drive when it is its turn.
    pub(crate) async fn enter(
        &self,
        index: DriveIndex,
        (work, bytes): (Work, u64),
        world: &dyn World,
        pressure: impl Fn() -> Pressure,
    ) -> Piece {
        let drive = self.drive(index);
        let allowance = || allowance(&drive.figures(work, pressure()));
        drive.ended.until(|| drive.enter(bytes, allowance().most_bytes).then_some(())).await;
        let mut piece = Piece { work, bytes, began: world.now(), drive: drive.clone() };
        // NOTE: after it was let in. Others wait for it meanwhile, so the drive rests and not this piece alone.
        let rest = Duration::from_nanos(drive.due_rest_nanos.load(Ordering::Relaxed));
        if rest >= SHORTEST_REST && allowance().rest_part > 0.0 {
            drive.due_rest_nanos.store(0, Ordering::Relaxed);
            world.sleep(rest.min(LONGEST_REST)).await;
            piece.began = world.now();
        }
        drive.durable_seen.store(drive.durable_ever.load(Ordering::Relaxed), Ordering::Relaxed);
        if work == Work::Move {
            drive.reads_seen.store(drive.reads_ever.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        piece
    }
}

impl DrivePace {
    /// Hosts that do one thing at a time have nothing in flight now and then.
    fn figures(&self, work: Work, (is_awaited, fill): Pressure) -> Figures {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let hosts_write = count(&self.durable) > 0 || count(&self.durable_ever) != count(&self.durable_seen);
        let hosts_read = count(&self.reads) > 0 || count(&self.reads_ever) != count(&self.reads_seen);
        Figures { hosts_use: hosts_write || work == Work::Move && hosts_read, is_awaited, fill }
    }

    /// Counts `bytes` of the background, if nothing else of it is in flight or no more than `most` is then.
    fn enter(&self, bytes: u64, most: u64) -> bool {
        let entered = |now: u64| (now == 0 || now.saturating_add(bytes) <= most).then_some(now + bytes);
        self.background_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, entered).is_ok()
    }
}

impl Piece {
    /// The drive has done it, and is to rest after it, if hosts use it.
    pub(crate) fn done(self, now: Nanos, pressure: Pressure) {
        let part = allowance(&self.drive.figures(self.work, pressure)).rest_part;
        let rest = now.since(self.began).min(LONGEST_REST).mul_f64(part);
        self.drive.due_rest_nanos.fetch_add(rest.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let before = self.drive.background_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        assert!(before >= self.bytes, "{} bytes land of {before} in flight", self.bytes);
        self.drive.ended.notify();
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        self.turns.note(self.operation, self.began, self.world.now());
    }
}

impl Drop for Durable<'_> {
    fn drop(&mut self) {
        self.drive.durable.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for HostRead<'_> {
    fn drop(&mut self) {
        for drive in &self.drives {
            drive.reads.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.moves.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoin_world_sim::{SimOptions, SimWorld};
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    const DRIVE: DriveIndex = DriveIndex(2);

    #[test]
    fn what_the_background_gets_follows_from_hosts_and_fill() {
        let piece = PIECE_BYTES;
        for (hosts_use, is_awaited, fill, most_bytes, rest_part) in [
            (false, false, 0.0, 2 * piece, 0.0),
            (false, false, 0.9, 2 * piece, 0.0),
            (false, true, 0.96, u64::MAX, 0.0),
            (true, false, 0.0, piece, 1.0),
            (true, false, 0.25, piece, 1.0),
            (true, false, 0.375, piece, 0.5),
            (true, true, 0.25, piece, 0.0),
            (true, false, 0.5, piece, 0.0),
            (true, false, 0.65, piece, 0.0),
            (true, false, 0.9, 4 * piece, 0.0),
            (true, true, 0.9, 4 * piece, 0.0),
            (true, false, 0.95, u64::MAX, 0.0),
            (true, false, 2.0, u64::MAX, 0.0),
        ] {
            let figures = Figures { hosts_use, is_awaited, fill };
            assert_eq!(allowance(&figures), Allowance { most_bytes, rest_part }, "{figures:?}");
        }
        // The fuller, the more it gets.
        for percent in 0..100 {
            let at = |percent| {
                let fill = f64::from(percent) / 100.0;
                allowance(&Figures { hosts_use: true, is_awaited: false, fill })
            };
            let (now, then) = (at(percent), at(percent + 1));
            assert!(now.most_bytes >= PIECE_BYTES && now.most_bytes <= then.most_bytes, "at {percent}");
            assert!(now.rest_part >= then.rest_part, "at {percent}");
        }
    }

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_piece_goes_always_and_others_as_far_as_is_allowed() {
        let world = SimWorld::new(1, SimOptions::default());
        let pace = Pace::default();
        let enter = |bytes, fill| now(pace.enter(DRIVE, (Work::Rows, bytes), &*world, move || (true, fill)));
        let long = enter(10 * PIECE_BYTES, 0.0);
        assert!(long.is_some() && enter(512, 0.0).is_none(), "longer than anything allowed, and alone");
        assert!(
            now(pace.enter(DriveIndex(0), (Work::Rows, 512), &*world, || (true, 0.0))).is_some(),
            "another drive"
        );
        drop(long);
        let alone = enter(PIECE_BYTES, 0.0);
        let second = enter(PIECE_BYTES, 0.0);
        assert!(alone.is_some() && second.is_some() && enter(PIECE_BYTES, 0.0).is_none());
        drop(second);
        let durable = pace.durable(DRIVE);
        assert!(enter(PIECE_BYTES, 0.0).is_none(), "a host's write is out");
        let pressed = enter(PIECE_BYTES, 0.9);
        assert!(pressed.is_some() && enter(PIECE_BYTES, 0.99).is_some());
        drop((alone, pressed, durable));
        assert!(enter(PIECE_BYTES, 0.0).is_some());
        assert_eq!(pace.drive(DRIVE).background_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn moves_leave_room_for_reads_of_hosts_and_rows_do_not() {
        let world = SimWorld::new(1, SimOptions::default());
        let pace = Pace::default();
        let read = || pace.host_read([DriveIndex(0), DRIVE].into_iter());
        assert!(read().is_none(), "nothing is moved, so nothing is counted");
        let moving = pace.moving();
        let enter = |work| now(pace.enter(DRIVE, (work, PIECE_BYTES), &*world, || (false, 0.1)));
        drop(enter(Work::Move));
        let then = |ms: u64| Nanos(world.now().0 + ms * 1_000_000);
        assert!(!pace.do_hosts_use_drives(then(0)));
        let reading = read();
        assert!(reading.is_some() && pace.do_hosts_use_drives(then(0)) && pace.do_hosts_use_drives(then(99)));
        assert!(!pace.do_hosts_use_drives(then(100)), "drives that nothing is moved to do not stay in use");
        let first = enter(Work::Move).unwrap();
        assert!(enter(Work::Move).is_none(), "beside a read, one at a time");
        assert!(enter(Work::Rows).is_some(), "rows do not mind reads");
        first.done(Nanos(world.now().0 + 5_000_000), (false, 0.1));
        assert!(enter(Work::Move).is_none(), "the drive rests after it");
        drop(reading);
        drop(pace.durable(DriveIndex(0)));
        assert!(pace.do_hosts_use_drives(then(200)), "a write counts like a read");
        drop(moving);
        assert!(read().is_none());
    }

    #[test]
    fn a_drive_rests_after_what_it_did_beside_hosts() {
        let world = SimWorld::new(1, SimOptions::default());
        let pace = Pace::default();
        let millis = |n: u64| Nanos(world.now().0 + n * 1_000_000);
        let calm = || (false, 0.1);
        let rests = || now(pace.enter(DRIVE, (Work::Rows, 512), &*world, calm)).is_none();
        now(pace.enter(DRIVE, (Work::Rows, 512), &*world, calm)).unwrap().done(millis(5), calm());
        assert!(!rests(), "no host writes");
        for took in [1, 5] {
            let piece = now(pace.enter(DRIVE, (Work::Rows, 512), &*world, calm)).unwrap();
            drop(pace.durable(DRIVE));
            piece.done(millis(took), calm());
        }
        assert!(
            now(pace.enter(DRIVE, (Work::Rows, 512), &*world, || (true, 0.1))).is_some(),
            "somebody waits for it"
        );
        drop(pace.durable(DRIVE));
        assert!(
            now(pace.enter(DRIVE, (Work::Rows, 512), &*world, || (false, 0.6))).is_some(),
            "hosts would be slowed soon"
        );
        drop(pace.durable(DRIVE));
        let mut resting = pin!(pace.enter(DRIVE, (Work::Rows, PIECE_BYTES), &*world, calm));
        let mut poll = || resting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending());
        assert!(
            now(pace.enter(DRIVE, (Work::Rows, PIECE_BYTES), &*world, calm)).is_none(),
            "no other piece goes meanwhile"
        );
    }
}
