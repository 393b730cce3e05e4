//! What a seed is like: its drives, options, load, faults, and how each of its boots ends.

use crate::{
    choices::{Choices, Faults, Load},
    model::Window,
};
use quoin_base::{GIB, KIB, Layout, MIB, SECTOR_BYTES};
use quoin_drive::Roles;
use quoin_pool::{FormatOptions, PoolOptions};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

/// The longest address space a volume has: 512⁴ blocks.
pub(crate) const VOLUME_END: u64 = 1 << 49;
const SLAB_BYTES: u64 = 256 * KIB;
/// Where volumes end that are forked in turns: a few of their places hang on each node above the leaves.
const TURNS_END: u64 = 16 * GIB;
/// The fewest journal extents a pool takes.
const LEAST_EXTENTS: u64 = 16;
/// The fewest slabs that a drive's journal takes.
const LEAST_JOURNAL_SLABS: u64 = 4;
const SECTORS_PER_MIB: u32 = (MIB / SECTOR_BYTES) as u32;

/// How a boot ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// All that was asked for is done, then the pool is closed.
    Close,
    /// Cut at a disk operation or step counted from the boot's beginning.
    DiskOp(u64),
    Step(u64),
    /// Cut so long after so many checkpoints of this boot.
    Checkpoint(u64, Duration),
    /// Cut while a root is being written: the so many-th write to a root slot.
    Root(u64),
    /// Cut while the journal is being written: the so many-th write to it.
    Journal(u64),
    /// Cut when so many sectors were read as a write in flight wrote them.
    Seen(u64),
    /// Cut when what was to be read before the load was read.
    Verified,
    /// Cut when the first of the clients has done its part.
    Work,
}

/// A boot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Boot {
    pub ending: Ending,
    /// The cut kills the process and spares the drives' caches.
    pub kill: bool,
    /// The faults of the seed are at work.
    pub faulty: bool,
    /// Everything in doubt, or everything at all, is read before the clients start.
    pub read_doubtful: bool,
    pub read_all: bool,
    /// The drives are checked offline before it.
    pub check: bool,
    /// What each client does.
    pub operations: u32,
}

/// A seed's fixed choices.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub drives: Vec<(u64, Roles)>,
    pub format: FormatOptions,
    pub pool: PoolOptions,
    pub threads: usize,
    pub clients: usize,
    pub faults: Faults,
    pub load: Load,
    pub boots: u32,
    pub rng: ChaCha8Rng,
    /// The one drive that is much slower than the others.
    pub slow_drive: Option<usize>,
    /// The first of the drives that faults are confined to, if they are.
    pub first_victim: usize,
    /// The last boot was killed: drives may still have in their caches what it wrote.
    pub killed: bool,
}

/// A random number between the two, small ones as likely as large ones.
pub(crate) fn log_uniform(rng: &mut ChaCha8Rng, from: u64, to: u64) -> u64 {
    let (low, high) = ((from as f64).ln(), (to as f64 + 1.0).ln());
    (rng.random_range(low..high).exp() as u64).clamp(from, to)
}

/// From no read cache to one that holds all; of a stream of its own.
fn cache_bytes(seed: u64) -> u64 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(78);
    if rng.random_bool(0.2) { 0 } else { log_uniform(&mut rng, 40 * KIB, 16 * MIB) }
}

/// What may be read ahead: nothing, what is too little for all streams, or plenty; of a stream of its own.
fn ahead_bytes(seed: u64) -> u64 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(81);
    if rng.random_bool(0.1) { 0 } else { log_uniform(&mut rng, 64 * KIB, 8 * MIB) }
}

/// From which length on writes are placed; of a stream of its own.
fn place_from(seed: u64) -> u64 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(80);
    pick(&mut rng, &[8 * KIB, 16 * KIB, 64 * KIB, u64::MAX])
}

/// After how long a lane of the journal is idle; of a stream of its own.
fn idle_after(seed: u64) -> Duration {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(84);
    Duration::from_micros(log_uniform(&mut rng, 100, 500_000))
}

/// Some seeds have so few ids of layers that they are used again within the run; of a stream of its own.
fn layer_ids(seed: u64) -> u32 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(82);
    pick(&mut rng, &[60, 100, u32::MAX])
}

/// Most seeds have one slice, the others three; of a stream of its own.
fn slices(seed: u64) -> u8 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(81);
    if rng.random_bool(0.3) { 3 } else { 1 }
}

/// On how many drives an extent of the journal lies; of a stream of its own.
fn columns(seed: u64) -> u8 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(85);
    pick(&mut rng, &[1, 1, 1, 2, 2, 3])
}

/// Whether the drives of a journal with columns hold nothing else, so that the pool can do without one; of a stream of its own.
fn is_journal_apart(seed: u64) -> bool {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(86);
    rng.random_bool(0.6)
}

/// What few seeds have; of a stream of its own, so that the other seeds stay what they are.
struct Rare {
    load: Option<Load>,
    faults: Option<Faults>,
    drives: Option<usize>,
}

impl Rare {
    fn of(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(79);
        let drives = rng.random_bool(0.06).then_some(8);
        let load = rng.random_bool(0.15).then(|| pick(&mut rng, &[Load::Sparse, Load::Sparse, Load::Turns]));
        let rare = [Faults::Rot, Faults::Latent, Faults::Roots, Faults::Late, Faults::Column];
        let faults = rng.random_bool(0.15).then(|| pick(&mut rng, &rare));
        Self { load, faults, drives }
    }
}

/// What most seeds draw their load from.
const LOADS: [Load; 8] =
    [Load::Mixed, Load::Hot, Load::Full, Load::Churn, Load::Uniform, Load::Rewrite, Load::Forks, Load::Forks];
/// Whether few seeds have these faults.
fn is_rare(faults: Faults) -> bool {
    matches!(faults, Faults::Rot | Faults::Latent | Faults::Roots | Faults::Late | Faults::Column)
}

/// What most seeds draw their faults from.
const FAULTS: [Faults; 9] = [
    Faults::None,
    Faults::None,
    Faults::None,
    Faults::Slow,
    Faults::Slow,
    Faults::Errors,
    Faults::Death,
    Faults::Hang,
    Faults::Silent,
];

/// What the layout of the drives has to make room for.
#[derive(Clone, Copy)]
struct Journal {
    columns: u8,
    slices: u8,
}

/// How many drives there are, and which of them hold the journal.
struct Arrangement {
    journal: Journal,
    count: usize,
    /// So many drives, the first ones, hold the journal and nothing else.
    apart: usize,
    /// The first drive alone holds the journal.
    one_journal: bool,
    /// The journal's bytes on each drive that holds some of it.
    journal_bytes: u64,
    /// How data is protected.
    protection: Layout,
}

impl Arrangement {
    fn draw(
        rng: &mut ChaCha8Rng,
        seed: u64,
        rare_count: Option<usize>,
        faults: Faults,
        journal: Journal,
    ) -> Self {
        let Journal { columns, slices } = journal;
        let drawn_count = rng.random_range(1..=3usize);
        let count = match faults {
            // What is lost on one drive is on another.
            Faults::Roots => drawn_count + 1,
            _ => rare_count.unwrap_or(drawn_count),
        };
        let apart = if columns > 1 && is_journal_apart(seed) { usize::from(columns) } else { 0 };
        let count = if apart > 0 { apart + count.clamp(1, 2) } else { count.max(columns.into()) };
        let one_journal = count > 1 && rng.random_bool(0.4) && columns == 1;
        let journal_drives = match () {
            () if one_journal => 1,
            () if apart > 0 => apart as u64,
            () => count as u64,
        };
        let least_slabs = LEAST_EXTENTS * u64::from(columns);
        let journal_slabs = least_slabs.div_ceil(journal_drives) + rng.random_range(0..=2);
        let journal_slabs = journal_slabs.max(LEAST_JOURNAL_SLABS) * u64::from(slices);
        Self {
            journal,
            count,
            apart,
            one_journal,
            journal_bytes: journal_slabs * SLAB_BYTES,
            protection: Layout::NONE,
        }
    }

    /// As many drives as the layout takes, or a few more. All hold data, and journal.
    fn protect(&mut self, rng: &mut ChaCha8Rng, protection: Layout) {
        self.count = usize::from(protection.columns()) + rng.random_range(0..=2);
        self.count = self.count.max(self.journal.columns.into());
        (self.apart, self.one_journal, self.protection) = (0, false, protection);
        let least_slabs = LEAST_EXTENTS * u64::from(self.journal.columns);
        // Enough on the drives that are left when as many are lost as the layout tolerates.
        let least_slabs = 2 * least_slabs.div_ceil(self.count as u64 - u64::from(protection.parity()));
        let journal_slabs = (least_slabs + rng.random_range(0..=2)).max(LEAST_JOURNAL_SLABS);
        self.journal_bytes = journal_slabs * u64::from(self.journal.slices) * SLAB_BYTES;
    }

    /// The length and the roles of each drive.
    fn drives(&self, rng: &mut ChaCha8Rng, load: Load) -> Vec<(u64, Roles)> {
        let Self { count, apart, one_journal, journal_bytes, .. } = *self;
        let slices = u64::from(self.journal.slices);
        let data_slabs = log_uniform(rng, 28, if load == Load::Full { 48 } else { 72 });
        let data_slabs = (data_slabs + u64::from(slices > 1)) * slices;
        // A segment takes a slab of each column, and so many of them are kept.
        let kept = if self.protection == Layout::NONE { 1 } else { self.protection.columns().max(4) };
        let data_slabs = data_slabs * u64::from(kept);
        (0..count)
            .map(|i| {
                let journal = if apart > 0 { i < apart } else { i == 0 || !one_journal };
                let data = if apart > 0 { i >= apart } else { !one_journal || i > 0 || rng.random_bool(0.5) };
                let with_data = (count - apart) as u64 - u64::from(one_journal);
                let share = data_slabs / with_data.max(1) + 1;
                let slabs = if data { share } else { 0 };
                let bytes = 2 * MIB + if journal { journal_bytes } else { 0 } + slabs * SLAB_BYTES;
                (bytes + rng.random_range(0..4) * 4096, Roles { journal, data })
            })
            .collect()
    }
}

/// The faults of a seed: drives vanish only where the pool can do without them, and are drawn for some such seeds.
fn faults_of(choices: Choices, seed: u64, drawn: Faults) -> Faults {
    match (choices.layout.filter(|layout| layout.parity() > 0), drawn) {
        (None, drawn) if drawn.has_drives_vanish() => Faults::None,
        (Some(_), drawn) if choices.faults.is_none() && seed % 3 == 1 && !is_rare(drawn) => match seed % 9 {
            1 => Faults::Beyond,
            _ => Faults::Vanish,
        },
        (_, faults) => faults,
    }
}

fn pool_options(rng: &mut ChaCha8Rng, seed: u64, slices: u8) -> PoolOptions {
    let slices = u64::from(slices);
    PoolOptions {
        buffer_bytes: log_uniform(rng, 256 * KIB, 6 * MIB) * slices,
        metadata_bytes: log_uniform(rng, 32 * KIB, 512 * KIB) * slices,
        dirty_bytes: log_uniform(rng, 96 * KIB, 256 * KIB) * slices,
        // Too little for most of what there is, or enough.
        index_bytes: [64, 4 * KIB, MIB][seed as usize % 3] * slices,
        cache_bytes: cache_bytes(seed),
        ahead_bytes: ahead_bytes(seed),
        destage_after: Duration::from_micros(log_uniform(rng, 500, 200_000)),
        checkpoint_after: Duration::from_micros(log_uniform(rng, 2_000, 500_000)),
        replay_bytes: if seed.is_multiple_of(3) { 4 * SLAB_BYTES * slices } else { u64::MAX },
        idle_after: idle_after(seed),
        place_from: place_from(seed),
        catalog_records_per_page: [2, 3, 8, usize::MAX][seed as usize % 4],
        layer_ids: layer_ids(seed),
        without_missing: false,
    }
}

fn pick<T: Copy>(rng: &mut ChaCha8Rng, of: &[T]) -> T {
    of[rng.random_range(0..of.len())]
}

impl Scenario {
    /// What follows from the seed, but for what is given.
    pub(crate) fn new(seed: u64, choices: Choices) -> Self {
        let Choices { faults, load, slices, columns, layout: protection, .. } = choices;
        let slices = slices.unwrap_or_else(|| self::slices(seed));
        let columns = columns.unwrap_or_else(|| self::columns(seed));
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(77);
        // NOTE: each draw moves on what the later ones draw. Another order makes other seeds.
        let (drawn_load, drawn_faults) = (pick(&mut rng, &LOADS), pick(&mut rng, &FAULTS));
        let rare = Rare::of(seed);
        let load = load.or(rare.load).unwrap_or(drawn_load);
        let faults = faults.or(rare.faults).unwrap_or(drawn_faults);
        let faults = faults_of(choices, seed, faults);
        // A pool that is nearly full may not have room for what was admitted when a drive is lost, unless it keeps some.
        let lacks_room = faults.has_drives_vanish() && load == Load::Full && !choices.spare;
        let load = if lacks_room { Load::Mixed } else { load };
        let threads = rng.random_range(1..=3);
        let columns = if faults == Faults::Column { columns.max(2) } else { columns };
        // With one more than its layout takes, volumes may have a stronger one.
        let more = u8::from(choices.policies && seed % 2 == 1);
        let columns = protection.map_or(columns, |layout| (layout.parity() + 1 + more).min(4));
        let journal = Journal { columns, slices };
        let mut layout = Arrangement::draw(&mut rng, seed, rare.drives, faults, journal);
        if let Some(protection) = protection {
            layout.protect(&mut rng, protection);
            if choices.spare {
                layout.count += 1;
            }
        }
        let drives = layout.drives(&mut rng, load);
        let format = FormatOptions {
            pool_name: format!("seed {seed}"),
            slab_bytes: SLAB_BYTES as u32,
            row_bytes: pick(&mut rng, &[16 << 10, 32 << 10, 64 << 10]),
            journal_bytes: Some(layout.journal_bytes),
            journal_columns: columns,
            layout: protection.unwrap_or(Layout::NONE),
            slices,
        };
        let pool = pool_options(&mut rng, seed, slices);
        let slow_drive = (faults == Faults::Slow).then(|| rng.random_range(0..layout.count));
        let drawn_clients = rng.random_range(1..=5);
        let clients = if load == Load::Turns { drawn_clients.max(3) } else { drawn_clients };
        let boots = rng.random_range(3..=7);
        let first_victim = seed as usize % drives.len();
        Self {
            drives,
            format,
            pool,
            threads,
            clients,
            faults,
            load,
            boots,
            rng,
            slow_drive,
            first_victim,
            killed: false,
        }
    }

    /// Whether its faults leave something wrong on drives.
    pub(crate) fn spoils(&self) -> bool {
        matches!(self.faults, Faults::Silent | Faults::Rot | Faults::Latent)
    }

    /// Whether the layout makes up for whatever its faults leave wrong: they hit no more drives than it can do without.
    pub(crate) fn is_made_up_for(&self) -> bool {
        self.format.layout.parity() > 0
    }

    /// Whether its faults may leave something wrong on this drive. With a layout that protects data they are confined to as
    /// many drives as that makes up for, the same ones in all boots.
    pub(crate) fn may_be_spoiled(&self, drive: usize) -> bool {
        let (count, most) = (self.drives.len(), usize::from(self.format.layout.parity()));
        most == 0 || (drive + count - self.first_victim % count) % count < most
    }

    /// What the next boot is like; `last` is the closing one.
    pub(crate) fn next_boot(&mut self, last: bool) -> Boot {
        let rng = &mut self.rng;
        let after_kill = std::mem::take(&mut self.killed);
        let ending = match rng.random_range(0..18) {
            _ if last => Ending::Close,
            _ if after_kill && rng.random_bool(0.4) => Ending::Verified,
            12 | 15 => Ending::Root(log_uniform(rng, 1, 60)),
            16 | 17 => Ending::Journal(log_uniform(rng, 1, 200)),
            13 | 14 => Ending::Seen(log_uniform(rng, 1, 400)),
            0 => Ending::Close,
            1 | 2 => Ending::DiskOp(log_uniform(rng, 1, 40)),
            3 | 4 => Ending::DiskOp(log_uniform(rng, 20, 1500)),
            5 | 6 => Ending::Step(log_uniform(rng, 100, 30_000)),
            7..=9 => {
                Ending::Checkpoint(log_uniform(rng, 1, 12), Duration::from_micros(log_uniform(rng, 1, 3_000)))
            }
            _ => Ending::Work,
        };
        let ending = match self.faults {
            // What is on one column only must be on all when that one is damaged a little later.
            Faults::Column if !last && rng.random_bool(0.6) => {
                if rng.random() {
                    Ending::Verified
                } else {
                    Ending::Journal(log_uniform(rng, 1, 60))
                }
            }
            // Roots that are on some drives only, and what follows if nobody writes them to the others.
            Faults::Roots if !last && rng.random_bool(0.7) => {
                if rng.random() {
                    Ending::Root(log_uniform(rng, 1, 12))
                } else {
                    Ending::Journal(log_uniform(rng, 1, 60))
                }
            }
            _ => ending,
        };
        let base = match self.load {
            Load::Mixed | Load::Churn | Load::Forks | Load::Sparse | Load::Turns => 120,
            Load::Hot => 200,
            Load::Full => 90,
            Load::Uniform => 160,
            Load::Rewrite => 140,
        };
        let kill = ending != Ending::Verified && rng.random_bool(0.25);
        self.killed = kill && ending != Ending::Close;
        Boot {
            ending,
            kill,
            faulty: !last && rng.random_bool(0.6),
            read_doubtful: last || ending == Ending::Verified || rng.random_bool(0.7),
            read_all: rng.random_bool(0.1),
            check: rng.random_bool(0.15),
            operations: (base * rng.random_range(1..=4u32) / 2) / self.clients as u32 + 1,
        }
    }
}

/// Little in many places before `end`: each has a leaf of its own, and nodes above it that it shares with others.
fn sparse_windows(rng: &mut ChaCha8Rng, end: u64) -> Vec<Window> {
    let mut windows: Vec<Window> = Vec::new();
    for _ in 0..rng.random_range(12..=40) {
        let sectors = 16 * rng.random_range(1..=3);
        let byte = log_uniform(rng, 4 * MIB, end) / (4 * MIB) * (4 * MIB);
        let window = Window { first: byte.min(end - 4 * MIB) / SECTOR_BYTES, sectors };
        if windows.iter().all(|w| w.first != window.first) {
            windows.push(window);
        }
    }
    windows
}

/// The parts of a new volume's address space that are used.
pub(crate) fn windows(rng: &mut ChaCha8Rng, load: Load) -> Vec<Window> {
    let bases = [
        0,
        MIB - 64 * KIB,
        4 * MIB - 128 * KIB,
        2 * GIB - 24 * KIB,
        1 << 40,
        (1 << 40) + 4 * MIB,
        VOLUME_END,
    ];
    let mut windows: Vec<Window> = Vec::new();
    match load {
        Load::Sparse => return sparse_windows(rng, VOLUME_END),
        Load::Turns => return sparse_windows(rng, TURNS_END),
        _ => {}
    }
    for _ in 0..rng.random_range(1..=3) {
        let sectors = match load {
            Load::Full => rng.random_range(3..=8) * SECTORS_PER_MIB,
            _ => log_uniform(rng, 64, 4 * u64::from(SECTORS_PER_MIB)) as u32 / 16 * 16,
        };
        let base = pick(rng, &bases).min(VOLUME_END - u64::from(sectors) * SECTOR_BYTES);
        let window = Window { first: base / SECTOR_BYTES, sectors };
        let end = |w: &Window| w.first + u64::from(w.sectors);
        if windows.iter().all(|w| end(w) <= window.first || end(&window) <= w.first) {
            windows.push(window);
        }
    }
    windows
}
