//! Bugs to plant, so that the simulation can show it finds them. Without the feature `planted-bugs` none is.

/// A way to break the drive layer on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A drive is used again before the operations of its last opening are over.
    TakeBackEarly,
    /// A fence is told of as raised while writes that it refuses are in flight.
    FenceWithoutDrain,
    /// Writes of writer sessions below a fence are accepted.
    AcceptExpelled,
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants `bug`, or none, for everything that runs on this OS thread from now on.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    pub(crate) fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(feature = "planted-bugs")]
pub use planted::plant;
#[cfg(feature = "planted-bugs")]
pub(crate) use planted::planted;

#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}
