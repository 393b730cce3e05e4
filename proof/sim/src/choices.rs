//! What can be chosen of a seed on the command line: what goes wrong with drives, what clients do, and the pool's form.

/// What goes wrong with drives in a seed, besides power cuts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Faults {
    /// Nothing.
    None,
    /// One drive is much slower than the others, and all complete out of order.
    Slow,
    /// Now and then a read, write or flush fails.
    Errors,
    /// A drive stops working at some moment and comes back for the next boot.
    Death,
    /// Some reads of clients take very long, while everything else goes on.
    Late,
    /// A drive does not answer for a while, or not any more; what it was asked takes effect late.
    Hang,
    /// Writes to data segments are lost, misdirected or have a bit flipped, and nobody is told.
    Silent,
    /// Bits of what lies in data segments flip, metadata included, while the pool is written to.
    Rot,
    /// Sectors anywhere cannot be read until they are written again: labels, roots, journal, data and metadata.
    Latent,
    /// The roots of one drive of several are damaged between two boots: the pool must open all the same.
    Roots,
    /// One drive of several loses writes to its journal, and what it has of the journal is damaged or set back between two
    /// boots: the pool must open all the same, with all it had.
    Column,
    /// Drives of a protected pool vanish and come back with what they held, sooner or later, never more of them than it tolerates:
    /// hosts see nothing of it.
    Vanish,
    /// The same, and now and then more of them than it tolerates. Until they are back, blocks that cannot be computed without
    /// them fail to be read, or the pool goes offline. Then all can be read again.
    Beyond,
}

/// What the clients mostly do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// A bit of everything.
    Mixed,
    /// Many small writes to few blocks.
    Hot,
    /// Write until the pool is full, unmap, and again.
    Full,
    /// Volumes and catalog objects come and go.
    Churn,
    /// Whole blocks, one size, so that batches of all laps of the journal begin at the same places.
    Uniform,
    /// The same megabyte over and over in large writes: the journal fills up, the buffer does not.
    Rewrite,
    /// Snapshots, restores and deletions of volumes that are written all the time.
    Forks,
    /// The same for volumes of which little is written in many places: maps with many nodes.
    Sparse,
    /// One client forks such a volume, writes to it and deletes the fork, again and again, so that nodes of maps come free
    /// and are used again; the others read.
    Turns,
}

impl Faults {
    /// All of them.
    pub const ALL: [Faults; 13] = [
        Faults::None,
        Faults::Slow,
        Faults::Errors,
        Faults::Death,
        Faults::Late,
        Faults::Hang,
        Faults::Silent,
        Faults::Rot,
        Faults::Latent,
        Faults::Roots,
        Faults::Column,
        Faults::Vanish,
        Faults::Beyond,
    ];

    /// As the command line calls it.
    pub fn name(self) -> &'static str {
        match self {
            Faults::None => "none",
            Faults::Slow => "slow",
            Faults::Errors => "errors",
            Faults::Death => "death",
            Faults::Late => "late",
            Faults::Hang => "hang",
            Faults::Silent => "silent",
            Faults::Rot => "rot",
            Faults::Latent => "latent",
            Faults::Roots => "roots",
            Faults::Column => "column",
            Faults::Vanish => "vanish",
            Faults::Beyond => "beyond",
        }
    }

    /// Whether drives vanish and come back.
    pub(crate) fn has_drives_vanish(self) -> bool {
        matches!(self, Self::Vanish | Self::Beyond)
    }
}

impl Load {
    /// All of them.
    pub const ALL: [Load; 9] = [
        Load::Mixed,
        Load::Hot,
        Load::Full,
        Load::Churn,
        Load::Uniform,
        Load::Rewrite,
        Load::Forks,
        Load::Sparse,
        Load::Turns,
    ];

    /// As the command line calls it.
    pub fn name(self) -> &'static str {
        match self {
            Load::Mixed => "mixed",
            Load::Hot => "hot",
            Load::Full => "full",
            Load::Churn => "churn",
            Load::Uniform => "uniform",
            Load::Rewrite => "rewrite",
            Load::Forks => "forks",
            Load::Sparse => "sparse",
            Load::Turns => "turns",
        }
    }
}

/// What is fixed about a seed; the seed decides the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Choices {
    /// What goes wrong with drives.
    pub faults: Option<Faults>,
    /// What the clients do.
    pub load: Option<Load>,
    /// Next to no RAM for metadata and read cache: every page is loaded again and again.
    pub little_ram: bool,
    /// Into how many slices the pool is divided.
    pub slices: Option<u8>,
    /// On how many drives each extent of the journal lies.
    pub columns: Option<u8>,
    /// How data is protected: over as many drives as that takes, or a few more.
    pub layout: Option<quoin_base::Layout>,
    /// Drives leave in all seeds where they may.
    pub leaving: bool,
    /// Drives become longer in all seeds.
    pub growing: bool,
    /// Volumes are deduplicated in all seeds.
    pub deduplicated: bool,
    /// Volumes get other layouts while they are used. Of pools whose data is protected.
    pub policies: bool,
    /// A fault domain is kept spare: one drive may be lost at any time, also while the pool is full. Of pools whose data is
    /// protected.
    pub spare: bool,
    /// Prints each boot.
    pub verbose: bool,
}
