//! Tasks that must not leave their thread, in a world whose tasks may.
//!
//! Connections hold what is not `Send`. A simulated world runs all its tasks on the one thread that runs it, so the
//! future stays in that thread's storage and the world gets its number.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

type Local = Pin<Box<dyn Future<Output = ()>>>;

thread_local! {
    static NEXT: Cell<u64> = const { Cell::new(0) };
    static TASKS: RefCell<BTreeMap<u64, Local>> = const { RefCell::new(BTreeMap::new()) };
}

/// Stands for a future in this thread's storage. Dropped, it drops that.
pub(super) struct LocalTask(u64);

impl LocalTask {
    pub(super) fn new(future: impl Future<Output = ()> + 'static) -> Self {
        let number = NEXT.replace(NEXT.get() + 1);
        TASKS.with_borrow_mut(|tasks| tasks.insert(number, Box::pin(future)));
        Self(number)
    }
}

fn take(number: u64) -> Option<Local> {
    TASKS.with_borrow_mut(|tasks| tasks.remove(&number))
}

impl Future for LocalTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Out of the storage while it runs: it may make others.
        let mut task = take(self.0).expect("it is polled on the thread that made it, and not after its end");
        let polled = task.as_mut().poll(cx);
        if polled.is_pending() {
            TASKS.with_borrow_mut(|tasks| tasks.insert(self.0, task));
        }
        polled
    }
}

impl Drop for LocalTask {
    fn drop(&mut self) {
        let task = take(self.0);
        drop(task);
    }
}
