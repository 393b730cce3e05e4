//! Volumes and their groups by their public interface, on simulated drives.

mod compression;
mod copies;
mod deduplication;
mod near;
mod parts;
mod recycle_bin;
mod rig;
mod trimming;
