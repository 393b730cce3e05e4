//! What limits say, and what a request takes of them.

use std::{num::NonZeroU64, ops, time::Duration};

/// So many units a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Units a second.
    pub per_s: NonZeroU64,
    /// For how long what was not used may be saved up, to be used at once later.
    pub burst: Duration,
}

/// Limits that apply together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Requests.
    pub ios: Option<Rate>,
    /// Bytes of data.
    pub bytes: Option<Rate>,
}

impl Limits {
    /// True if they limit nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// What requests take of limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Requests.
    pub ios: u64,
    /// Bytes of data.
    pub bytes: u64,
}

impl Cost {
    /// One request that moves so much data.
    pub fn of_bytes(bytes: u64) -> Self {
        Self { ios: 1, bytes }
    }
}

impl ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.ios += other.ios;
        self.bytes += other.bytes;
    }
}

impl ops::SubAssign for Cost {
    fn sub_assign(&mut self, other: Self) {
        self.ios -= other.ios;
        self.bytes -= other.bytes;
    }
}
