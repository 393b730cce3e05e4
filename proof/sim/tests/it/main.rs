//! Fixed seeds, run as the command runs them.

mod seeds;
mod wire;
