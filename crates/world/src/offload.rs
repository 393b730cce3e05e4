//! Work for processors alone, done beside the thread that wants it.

use crate::{OneShot, World, one_shot};

/// Work that waits for nothing, uses no disk and ends soon: some milliseconds at the most.
pub type Job = Box<dyn FnOnce() + Send>;

/// Has `work` done on a [worker](World::workers). What it returns comes back through the one-shot; `None`, if the world
/// ended first.
///
/// It takes some ten microseconds until a worker that sleeps begins: shorter work is better done by the caller itself.
pub fn offload<T: Send + 'static>(
    world: &dyn World,
    work: impl FnOnce() -> T + Send + 'static,
) -> OneShot<T> {
    let (sender, receiver) = one_shot();
    world.offload(Box::new(move || sender.send(work())));
    receiver
}
