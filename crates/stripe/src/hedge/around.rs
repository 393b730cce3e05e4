//! Reads of one column, and what is read instead when they are late.

use super::{HedgedReads, Hedging};
use crate::{
    Column, ColumnSet, Columns, Read, StripeError, StripeSet,
    read::{Lost, Slow},
};
use futures_util::future::{Either, select};
use quoin_base::{ByteRange, DriveIndex};
use quoin_world::{World, atomic::Ordering};
use std::{pin::pin, sync::Arc, time::Duration};

/// A drive that was late so many times since [`Columns::set_hedging`] is read around without being waited for.
const LATE_TIMES: usize = 4;

impl Columns {
    /// Reads wait by the clock of this world from now on. Without one, none is ever late.
    pub fn keep_time_by(&self, world: Arc<dyn World>) {
        // Whoever comes second has the same world.
        let _ = self.hedge().world.set(world);
    }

    /// Sets when reads are late, and allows so many more reads because of that. Drives that were late are tried again.
    pub fn set_hedging(&self, hedging: Hedging) {
        let us =
            hedging.late_after.map_or(0, |after| u64::try_from(after.as_micros()).unwrap_or(u64::MAX).max(1));
        self.hedge().late_after_us.store(us, Ordering::Relaxed);
        self.hedge().extra_reads.store(hedging.extra_reads, Ordering::Relaxed);
        self.forget_late();
    }

    /// Marks a drive as slow: it is read only where there is no other way. Or takes the mark away.
    pub fn mark_slow(&self, drive: DriveIndex, slow: bool) {
        if let Some(place) = self.pace_of(drive) {
            place.slow.store(slow, Ordering::Relaxed);
        }
    }

    /// Whether a drive is marked as slow.
    pub fn is_marked_slow(&self, drive: DriveIndex) -> bool {
        self.pace_of(drive).is_some_and(|pace| pace.slow.load(Ordering::Relaxed))
    }

    /// What reading around late drives came to.
    pub fn hedged_reads(&self) -> HedgedReads {
        let hedge = self.hedge();
        let [begun, won] = [&hedge.begun, &hedge.won].map(|count| count.load(Ordering::Relaxed));
        HedgedReads { begun, won }
    }

    /// Whether a column is not to be read if the range follows from others.
    pub(crate) fn is_slow(&self, column: Column) -> bool {
        self.pace_of(column.drive).is_some_and(|pace| {
            pace.slow.load(Ordering::Relaxed) || pace.late.load(Ordering::Relaxed) >= LATE_TIMES
        })
    }

    /// Reads a range that lies in one column from there; from the others if that takes too long and may be done.
    pub(crate) async fn read_direct(
        &self,
        set: &StripeSet,
        range: ByteRange,
        place: usize,
        slow: Slow,
    ) -> Result<Read, StripeError> {
        let geometry = set.geometry;
        let column = set.columns[place];
        let column_range = if geometry.data == 1 { range } else { geometry.column_range(range, place) };
        let direct = |content| Read { content, unread: ColumnSet::default() };
        let mut read = pin!(self.read_column(column, column_range));
        let hedge = self.hedge();
        let (us, world) = (hedge.late_after_us.load(Ordering::Relaxed), hedge.world.get());
        let is_timed = us > 0 && slow == Slow::ReadAround;
        let Some(world) = world.filter(|_| is_timed && self.tolerates(set) > 0) else {
            return read.await.map(direct);
        };
        // It goes on while others are asked: its drive may still be the first to answer.
        let late = world.sleep(Duration::from_micros(us));
        if let Either::Left((outcome, _)) = select(read.as_mut(), late).await {
            return outcome.map(direct);
        }
        if let Some(pace) = self.pace_of(column.drive) {
            pace.late.fetch_add(1, Ordering::Relaxed);
        }
        // Of a mirror another copy; else all of a stripe but this column.
        if !hedge.take(geometry.data.into()) {
            return read.await.map(direct);
        }
        hedge.begun.fetch_add(1, Ordering::Relaxed);
        let others = Lost::new(self, set, ColumnSet::one(place), slow);
        let other_way = Box::pin(self.read_other_way(set, range, others, None));
        match select(read, other_way).await {
            Either::Left((Ok(content), _)) => Ok(direct(content)),
            Either::Left((Err(error), other_way)) => match other_way.await {
                Ok(read) if error.is_of_the_drive() => {
                    Ok(Read { unread: read.unread.with(ColumnSet::one(place)), ..read })
                }
                _ => Err(error),
            },
            Either::Right((Ok(read), _)) => {
                hedge.won.fetch_add(1, Ordering::Relaxed);
                Ok(read)
            }
            // There was no other way after all.
            Either::Right((Err(_), read)) => read.await.map(direct),
        }
    }
}
