//! Bugs to plant, so that tests can show they find them. Without the feature `planted-bugs` none
//! is.

/// A way to break the stripe layer on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// The parity of the last stripe of a row is not computed.
    ForgetLastParity,
    /// The columns that a write did not reach are not told of.
    HideFailedColumns,
    /// A column that does not hold what it should is read all the same.
    ReadMissing,
    /// What was found wrong is written again to the next column.
    RewriteNextColumn,
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
