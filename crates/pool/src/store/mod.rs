//! The drives as the pool has them: whether they serve, their root slots, and what it means when their file system is full.

pub(crate) mod health;
pub(crate) mod roots;
pub(crate) mod shortage;
