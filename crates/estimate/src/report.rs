//! What an estimate says.

use crate::{
    EstimateOptions, Skipped,
    find::{AllSkipped, shown},
    reduced::{Choice, Dedup, Reduced, of_logical},
    scan::{Bytes, OfSize},
};
use serde::Serialize;
use std::path::PathBuf;

/// What was looked at.
pub(crate) struct Looked {
    pub sizes: Vec<OfSize>,
    pub bytes: Vec<Bytes>,
    pub skipped: AllSkipped,
    pub seconds: f64,
}

/// A set of data, or all of it, and what is left of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Scope {
    /// The path; `all` for all of it.
    pub name: String,
    /// Files and devices.
    pub files: u64,
    /// Their size, each filled up to whole pages of 4 KiB.
    pub logical_bytes: u64,
    /// Of these, bytes in holes, which need not be read.
    pub hole_bytes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// What is left, by block size, codec and deduplication.
    pub options: Vec<Reduced>,
}

impl Scope {
    /// What is left with an option.
    pub fn option(&self, block_bytes: u32, compression: &str, dedup: Dedup) -> Option<&Reduced> {
        self.options.iter().find(|option| {
            option.block_bytes == block_bytes && option.compression == compression && option.dedup == dedup
        })
    }

    /// Block sizes, in the order that they were asked for.
    pub fn block_sizes(&self) -> Vec<u32> {
        let mut sizes: Vec<_> = self.options.iter().map(|option| option.block_bytes).collect();
        sizes.dedup();
        sizes
    }

    /// Codecs, `off` first.
    pub fn compressions(&self) -> Vec<String> {
        let first = self.options.first().map(|option| (option.block_bytes, option.dedup));
        let of_first = self.options.iter().filter(|option| Some((option.block_bytes, option.dedup)) == first);
        of_first.map(|option| option.compression.clone()).collect()
    }

    /// The most that is deduplicated.
    pub fn most_dedup(&self) -> Dedup {
        self.options.iter().map(|option| option.dedup).max().unwrap_or(Dedup::Off)
    }
}

/// What data would take on an array.
#[derive(Clone, Debug, Serialize)]
pub struct Estimate {
    /// All of the data.
    pub all: Scope,
    /// Each set.
    pub sets: Vec<Scope>,
    /// What was not read, and why: the first thousand of it.
    pub skipped: Vec<Skipped>,
    /// How much more was not read.
    pub more_skipped: u64,
    /// How much could not be read, though it was to be.
    pub failed: u64,
    /// How long it took.
    pub seconds: f64,
    /// Of what has data, the part that was to be read: 1 for all of it.
    pub sample: f64,
}

impl Estimate {
    /// Whether nothing of what could be read is estimated from a sample.
    pub fn is_exact(&self) -> bool {
        let is_exact = |option: &Reduced| option.unique_blocks.is_exact() && option.stored_bytes.is_exact();
        self.all.read_bytes + self.all.hole_bytes == self.all.logical_bytes
            && self.all.options.iter().all(is_exact)
    }

    /// How good it is, in a sentence or two.
    pub fn quality(&self) -> String {
        let failed = match self.failed {
            0 => "",
            1 => "One path could not be read, see below; figures are of the rest.",
            _ => "Some paths could not be read, see below; figures are of the rest.",
        };
        let sampled = "Figures are estimated from samples, and ranges tell how far they may be off. Of deduplication the least counts.";
        match (self.is_exact(), failed) {
            (true, "") => "All was read: figures are exact.".to_owned(),
            (true, failed) => failed.to_owned(),
            (false, "") => sampled.to_owned(),
            (false, failed) => format!("{failed} {sampled}"),
        }
    }
}

pub(crate) fn report(paths: &[PathBuf], options: &EstimateOptions, looked: Looked) -> Estimate {
    let Looked { sizes, bytes, skipped, seconds } = looked;
    let names: Vec<_> = options.codecs.iter().map(ToString::to_string).collect();
    let codecs = || std::iter::once(None).chain(names.iter().map(String::as_str).enumerate().map(Some));
    let scope = |name: String, set: Option<usize>| {
        let dedups: &[Dedup] = match set {
            None if paths.len() > 1 => &[Dedup::Off, Dedup::Within, Dedup::Across],
            _ => &[Dedup::Off, Dedup::Within],
        };
        let sum = |of: fn(&Bytes) -> u64| match set {
            Some(set) => of(&bytes[set]),
            None => bytes.iter().map(of).sum(),
        };
        let mut reduced = Vec::new();
        for of_size in &sizes {
            for &dedup in dedups {
                reduced.extend(codecs().map(|codec| {
                    of_size.reduced(&bytes, Choice { set, codec, dedup, layouts: &options.layouts })
                }));
            }
        }
        Scope {
            name,
            files: sum(|bytes| bytes.files),
            logical_bytes: of_logical(&bytes, set),
            hole_bytes: sum(|bytes| bytes.holes),
            read_bytes: sum(|bytes| bytes.read),
            options: reduced,
        }
    };
    let sets = paths.iter().enumerate().map(|(set, path)| scope(shown(path), Some(set)));
    Estimate {
        sets: sets.collect(),
        all: scope("all".to_owned(), None),
        skipped: skipped.first,
        more_skipped: skipped.more,
        failed: skipped.failed,
        seconds,
        sample: options.sample,
    }
}
