//! The array as people, scripts and hosts meet it: the binary, its command line and its front ends.

mod ailing;
mod beyond;
mod cli;
mod copies;
mod emulated;
mod estimate;
mod events;
mod full;
mod growing;
#[allow(dead_code, reason = "shared with tests that have a process of their own")]
mod initiator;
mod integrity;
#[allow(dead_code, reason = "shared with tests that have a process of their own")]
mod lab;
mod layouts;
mod leaving;
mod links;
mod memory;
mod nbd;
mod nbd_client;
mod organised;
mod parts;
mod policies;
mod portals;
mod qos;
mod recycle_bin;
mod requests;
mod reservations;
mod reserve;
mod scripts;
mod snapshots;
mod words;
