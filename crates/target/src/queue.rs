//! The queue of a unit: how many commands it takes at a time, and how many of them each session may have there.
//!
//! Sessions that have commands in the queue have equal parts of it. So a session finds room in a unit that others
//! flood, and the others give it up as their commands end. A command beyond a session's part is answered TASK SET FULL, upon
//! which a host sends fewer at a time (SAM-5 §5.3.1).

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

/// Commands that a unit takes at a time, of all sessions together. A session always has room for one.
const DEPTH: u32 = 2048;

/// How many sessions have commands with a unit.
#[derive(Default)]
pub(crate) struct Queue(AtomicU32);

/// The part of a queue that a session has.
pub(crate) struct Part {
    queue: Arc<Queue>,
    commands: AtomicU32,
}

/// The place of a command, until it is dropped.
pub(crate) struct Place(Arc<Part>);

impl Part {
    pub(crate) fn new(queue: Arc<Queue>) -> Arc<Self> {
        Arc::new(Self { queue, commands: AtomicU32::new(0) })
    }

    /// Takes a place in the queue; `None` if the session has as many as it may have now.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Place> {
        let sessions_here = &self.queue.0;
        let own = self.commands.fetch_add(1, Relaxed);
        let sessions =
            if own == 0 { sessions_here.fetch_add(1, Relaxed) + 1 } else { sessions_here.load(Relaxed) };
        // NOTE: counted before it is known whether it may be; dropped, it is not counted any more.
        let place = Place(self.clone());
        (own < (DEPTH / sessions.max(1)).max(1)).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Part { queue, commands } = &*self.0;
        let before = commands.fetch_sub(1, Relaxed);
        assert!(before > 0, "unit: a command left a queue that it was not in");
        if before == 1 {
            queue.0.fetch_sub(1, Relaxed);
        }
    }
}
