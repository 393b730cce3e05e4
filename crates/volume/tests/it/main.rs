//! Volumes and their groups by their public interface, on simulated drives.

mod copies;
mod near;
mod parts;
mod recycle_bin;
mod rig;
mod trimming;
