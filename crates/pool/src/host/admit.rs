//! Admitting writes: see [`crate::host::admission`].

use crate::{
    error::PoolError,
    host::{
        admission::Waiting,
        pace::{SLOW_FROM, STOP_AT},
        stalls::Waits,
    },
    journal::Room,
    lifecycle::slice::Slice,
    store::pace::Pressure,
};
use quoin_world::atomic::Ordering;

impl Slice {
    /// Waits until a write of `len` bytes may be appended, and keeps room for it in the journal. The wait grows
    /// as buffer and journal fill up, so that hosts slow down to the rate of destage before they are stopped.
    pub(super) async fn admit(&self, len: u64, waits: &mut Waits) -> Result<Room<'_>, PoolError> {
        let fill = self.fill(len);
        let mut waited_since = None;
        if fill > SLOW_FROM {
            waited_since = Some(self.world().now());
            self.requests.nudge();
            if let Some(delay) = self.front.admission.pace.delay(self.world().now(), fill, len) {
                self.counters.host.throttled.add(1);
                self.world().sleep(delay).await;
            }
        }
        let room = || {
            if self.store.health().is_failed() {
                Some(Err(self.store.health().error()))
            } else {
                // The room it would wait for does not come while a drive has none.
                match self.take_room(len) {
                    None if self.store.is_short_of_room() => Some(Err(PoolError::NoSpace)),
                    room => room.map(Ok),
                }
            }
        };
        // First come, first served: a writer that comes while others wait does not take their room.
        let waits_alone = self.front.admission.queued.load(Ordering::Acquire) == 0;
        let room = match waits_alone.then(room).flatten() {
            Some(room) => room,
            None => {
                let _waiting = Waiting::new(&self.front.admission.queued);
                let _turn = self.front.admission.turn.lock().await;
                self.log.progress().until(room).await
            }
        };
        if let Some(since) = waited_since {
            waits.room += self.world().now().since(since);
        }
        room
    }

    /// Keeps room for `len` bytes if there is any.
    fn take_room(&self, len: u64) -> Option<Room<'_>> {
        let room =
            (self.buffer_fill(len) < STOP_AT).then(|| self.log.journal.keep_room(len, STOP_AT)).flatten();
        if room.is_none() {
            self.requests.nudge();
        }
        room
    }

    /// How full the fuller of buffer and journal would be with `len` bytes more.
    pub(crate) fn fill(&self, len: u64) -> f64 {
        self.buffer_fill(len).max(self.log.journal.fill(len))
    }

    /// What the pace of background writes depends on: whether a request waits for the committer, and the fill.
    pub(crate) fn pressure(&self) -> Pressure {
        (self.requests.is_awaited(), self.fill(0))
    }

    /// How full the buffer would be with `len` bytes more.
    pub(crate) fn buffer_fill(&self, len: u64) -> f64 {
        let ram = (self.buffer.ram_bytes() + len) as f64 / self.options().buffer_bytes as f64;
        ram.max(self.buffer.run_fill())
    }
}
