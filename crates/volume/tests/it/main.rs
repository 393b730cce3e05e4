//! Volumes and their groups by their public interface, on simulated drives.

mod compression;
mod copies;
mod deduplication;
mod images;
mod modify;
mod near;
mod parts;
mod recycle_bin;
mod reserved;
mod rig;
mod trimming;
