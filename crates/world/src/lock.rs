//! The locks and atomics of the engine.
//!
//! They are `parking_lot`'s and std's. With the feature `shuttle` they are ones whose every use is a point where a
//! model checker may switch threads, so that the code that ships is the code that is searched for races.

/// Atomics, as in [`std::sync::atomic`].
pub mod atomic {
    #[cfg(feature = "shuttle")]
    pub use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
    #[cfg(not(feature = "shuttle"))]
    pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
    // NOTE: the model checker runs one thread at a time, with all in one order: there a fence has nothing to do.
    pub use std::sync::atomic::fence;
}

#[cfg(feature = "shuttle")]
pub use modelled::{Mutex, RwLock};
#[cfg(not(feature = "shuttle"))]
pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(feature = "shuttle")]
pub use shuttle::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// Locks of the model checker with the interface of `parking_lot`: no poisoning.
#[cfg(feature = "shuttle")]
mod modelled {
    use shuttle::sync::{self, MutexGuard, RwLockReadGuard, RwLockWriteGuard};
    use std::sync::PoisonError;

    /// Mutual exclusion.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// Unlocked.
        pub const fn new(value: T) -> Self {
            Self(sync::Mutex::new(value))
        }

        /// Blocks until it is held.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Holds it if nobody else does.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }

        /// What it guards.
        pub fn into_inner(self) -> T {
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
        }

        /// What it guards; nobody else can hold it.
        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// Many readers or one writer.
    #[derive(Debug, Default)]
    pub struct RwLock<T>(sync::RwLock<T>);

    impl<T> RwLock<T> {
        /// Unlocked.
        pub const fn new(value: T) -> Self {
            Self(sync::RwLock::new(value))
        }

        /// Blocks until it is held for reading.
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        /// Blocks until it is held for writing.
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
