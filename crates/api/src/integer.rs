//! Integers of requests: `int64` in the document is signed, as it is for most clients, and the server takes no more.

use serde::{Deserialize, Deserializer, de::Error};

/// The largest integer that a request may hold.
pub const MAX_INTEGER: u64 = i64::MAX as u64;

/// Reads an integer of a request.
///
/// # Errors
/// That of the deserializer; or the integer is above [`MAX_INTEGER`].
pub fn int64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    within(u64::deserialize(deserializer)?)
}

/// Reads an integer of a request that may be left out or null.
///
/// # Errors
/// As [`int64`].
pub fn optional_int64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Option::<u64>::deserialize(deserializer)?.map(within).transpose()
}

fn within<E: Error>(value: u64) -> Result<u64, E> {
    if value > MAX_INTEGER {
        return Err(E::custom(format_args!("{value} is too large: at most {MAX_INTEGER}")));
    }
    Ok(value)
}
