//! What is done with bytes that nobody can be trusted to have written: the bodies of all fuzz targets.
//!
//! A [`Target`] takes any bytes and returns; a panic, an endless loop or memory without bound is a defect of
//! the code under it. `proof/fuzz/` gives the targets to libFuzzer; the tests of this crate replay the checked-in
//! inputs and a few thousand changed ones of each without it. Where checksums guard a structure the target
//! makes them right again, so that what lies behind them is reached.
//!
//! Does not: look for races (the models in `quoin-pool` do) or for wrong histories (`quoin-sim` does).

mod catalog;
mod chap;
mod config;
mod image;
mod input;
mod json;
mod label;
mod lists;
mod mutate;
mod nbd;
mod negotiation;
mod packed;
mod pdu;
mod pool;
mod ram;
mod scsi;
mod session;
mod world;

pub use mutate::Mutations;

/// One thing to throw bytes at.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, also of its folders below `proof/fuzz/`.
    pub name: &'static str,
    /// What the bytes stand for, in a line.
    pub about: &'static str,
    /// Takes any bytes. Panics when what it tries breaks its word.
    pub run: fn(&[u8]),
    /// Inputs that real encoders made, each with a name.
    pub seeds: fn() -> Vec<(&'static str, Vec<u8>)>,
    /// Byte strings a fuzzer should know: magic numbers, keys, operation codes.
    pub words: fn() -> Vec<Vec<u8>>,
    /// How many changed inputs the ordinary tests try for each checked-in one.
    pub mutations: u64,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    pdu::FRAMES,
    pdu::TEXT,
    pdu::LOGIN,
    chap::CHAP,
    session::SESSION,
    scsi::COMMANDS,
    lists::LISTS,
    negotiation::NEGOTIATION,
    nbd::CONNECTION,
    label::LABEL,
    catalog::CATALOG,
    pool::JOURNAL,
    pool::IMAGE,
    packed::PACKED,
    json::BODIES,
    config::FILE,
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
