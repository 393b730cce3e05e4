//! Wrong orders to plant, so that the race models can show they find them. Without the feature `shuttle` every
//! question is answered "no" at compile time.

/// An order of steps that must not be, on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Race {
    /// [`Event::until`](crate::Event::until) does not look at its condition again once it is registered.
    WaitWithoutLook,
    /// A one-shot looks for a waker before it says that it is closed.
    WakeBeforeClose,
    /// A completion takes the waker before it has the outcome.
    WakeBeforeOutcome,
    /// A lock looks for who is next before it is free.
    NextBeforeFree,
    /// A reader does not look again whether its epoch is still the current one.
    EnterWithoutLook,
    /// A batch tells those who wait for it before it is hardened.
    TellBeforeHardened,
    /// A write takes its sequence before it holds the buffer's shard.
    SequenceBeforeShard,
    /// The tail is limited by a sequence that is read after the buffer was looked at.
    TailReadLate,
    /// A read does not look again at what the buffer held when the map was read.
    MapWithoutLook,
    /// Room in the journal is given to two who see the same room.
    RoomTwice,
}

#[cfg(feature = "shuttle")]
mod planted {
    use super::Race;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Race>> = const { Cell::new(None) };
    }

    /// Plants `race`, or none, for everything that runs on this OS thread from now on.
    pub fn plant_race(race: Option<Race>) {
        PLANTED.set(race);
    }

    /// Whether it is planted.
    pub fn has_race(race: Race) -> bool {
        PLANTED.get() == Some(race)
    }
}

#[cfg(feature = "shuttle")]
pub use planted::{has_race, plant_race};

/// Whether it is planted: never.
#[cfg(not(feature = "shuttle"))]
pub const fn has_race(_: Race) -> bool {
    false
}
