//! What hosts ask for: reads, writes, unmaps and block status, with what lies on their way: admission, read cache, read-ahead, checksums.

pub(crate) mod admission;
mod admit;
pub(crate) mod ahead;
pub(crate) mod allocation;
mod atomic;
pub(crate) mod below;
pub(crate) mod cache;
pub(crate) mod contents;
pub(crate) mod discard;
pub(crate) mod front;
mod maps;
pub(crate) mod pace;
mod partial;
pub(crate) mod parts;
pub(crate) mod placed;
pub(crate) mod read;
mod read_ahead;
mod sample;
pub(crate) mod stalls;
pub(crate) mod streams;
pub(crate) mod tail;
pub(crate) mod write;
