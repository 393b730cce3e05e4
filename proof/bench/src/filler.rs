//! What writes carry when nobody is to verify it.

use clap::ValueEnum;
use quoin_initiator::Rng;
use serde::Serialize;

use crate::pages::Pages;

/// Kinds of contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Carry {
    /// 16 random bytes in every 4 KiB, and what was sent before around them: no two blocks alike.
    Stamps,
    /// What looks like pages of a database table, which compresses, no two alike.
    Pages,
    /// Random bytes, which do not compress, as what is encrypted or compressed already.
    Random,
    /// The same in each block.
    Equal,
    /// A random block, then an equal one, in turns.
    Turns,
}

/// Makes contents of a kind.
pub(crate) enum Filler {
    Stamps,
    Pages(Box<Pages>),
    Random,
    Equal,
    Turns(bool),
}

impl Filler {
    pub(crate) fn new(carry: Carry, rng: &mut Rng) -> Filler {
        match carry {
            Carry::Stamps => Filler::Stamps,
            Carry::Pages => Filler::Pages(Box::new(Pages::new(rng))),
            Carry::Random => Filler::Random,
            Carry::Equal => Filler::Equal,
            Carry::Turns => Filler::Turns(false),
        }
    }

    pub(crate) fn fill(&mut self, rng: &mut Rng, data: &mut [u8]) {
        match self {
            Filler::Stamps => data.chunks_mut(512).step_by(8).for_each(|sector| rng.fill(&mut sector[..16])),
            Filler::Pages(pages) => pages.fill(rng, data),
            Filler::Random => rng.fill(data),
            Filler::Equal => data.fill(b'Q'),
            Filler::Turns(is_random) => {
                *is_random = !*is_random;
                if *is_random { rng.fill(data) } else { data.fill(b'Q') }
            }
        }
    }
}
