//! What is damaged: the offline check, scrubs, damage as it is told to the layers above, rebuilding, and the quarantine of damaged metadata.

pub(crate) mod away;
pub(crate) mod check;
pub(crate) mod damage;
pub(crate) mod quarantine;
pub(crate) mod rebuild;
pub(crate) mod rebuilding;
pub(crate) mod scrub;
mod unreadable;
