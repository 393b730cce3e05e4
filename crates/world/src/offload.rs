//! Work that needs only a processor, done beside the thread that wants it.

use crate::{OneShot, World, one_shot};

/// Work that waits for nothing, uses no disk and ends soon: some milliseconds at the most.
pub type Job = Box<dyn FnOnce() + Send>;

/// Runs `work` on a [worker](World::workers). The one-shot brings its result, or `None` if the world ended first.
///
/// A sleeping worker takes some ten microseconds to begin, so callers do shorter work themselves.
pub fn offload<T: Send + 'static>(
    world: &dyn World,
    work: impl FnOnce() -> T + Send + 'static,
) -> OneShot<T> {
    let (sender, receiver) = one_shot();
    world.offload(Box::new(move || sender.send(work())));
    receiver
}
