//! What the array must remember: volumes, what they hold, groups, and the changes under way.

use crate::{
    change::Change,
    episode::Episode,
    vol::{Named, Objects, Vol},
};
use quoin_base::{ByteRange, SECTOR_BYTES};
use quoin_sim::{History, Window};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};

/// The most a volume has, in sectors.
pub(crate) const MOST_SECTORS: u32 = 6144;
/// The most volumes, snapshots and clones there are at a time.
pub(crate) const MOST_VOLUMES: usize = 12;
/// Immutable snapshots cannot be deleted again: so many there are at most.
const MOST_RETAINED: usize = 2;

/// A moment in the life of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moment {
    touched: u32,
    free: bool,
}

/// A set of snapshots of a group: each member's number and the snapshot's name.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    pub name: String,
    pub group: String,
    pub snapshots: Vec<(u32, String)>,
}

pub(crate) struct Model {
    pub history: History,
    pub volumes: BTreeMap<String, Vol>,
    /// What is in the recycle bin. The array may delete it for good when it needs the space, and says so.
    pub bin: BTreeMap<String, Vol>,
    pub groups: BTreeSet<String>,
    pub sets: Vec<Set>,
    pub pending: Vec<Change>,
    /// Volumes and groups that a change is about.
    pub busy: BTreeSet<String>,
    /// Volumes that no host writes to, by number.
    pub quiet: BTreeSet<u32>,
    /// Requests of hosts under way, by volume.
    pub requests: BTreeMap<u32, u32>,
    /// Content that must stay as it is: a hash of each sector.
    pub frozen: BTreeMap<u32, Vec<u64>>,
    /// How many changes of each volume began.
    pub touched: BTreeMap<u32, u32>,
    /// How snapshots are called that a schedule takes now.
    pub scheduled: BTreeSet<String>,
    /// Forks that schedules may make.
    pub expected: BTreeSet<usize>,
    /// Reserves that are set, by the number of the change.
    pub reserving: BTreeMap<u32, Episode>,
    /// Volumes that a reserve may have stopped, by number.
    pub stoppable: BTreeSet<u32>,
    /// The numbers of snapshots that were taken as a set, whatever became of the set.
    pub taken_together: Vec<Vec<u32>>,
    next: u32,
    /// Changes begun in this boot.
    pub begun: u32,
}

impl Model {
    pub(crate) fn new() -> Self {
        Self {
            history: History::new(),
            volumes: BTreeMap::new(),
            bin: BTreeMap::new(),
            groups: BTreeSet::new(),
            sets: Vec::new(),
            pending: Vec::new(),
            busy: BTreeSet::new(),
            quiet: BTreeSet::new(),
            requests: BTreeMap::new(),
            frozen: BTreeMap::new(),
            touched: BTreeMap::new(),
            scheduled: BTreeSet::new(),
            expected: BTreeSet::new(),
            reserving: BTreeMap::new(),
            stoppable: BTreeSet::new(),
            taken_together: Vec::new(),
            next: 0,
            begun: 0,
        }
    }

    /// A number that nothing had before.
    pub(crate) fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    pub(crate) fn add(&mut self, id: u32) {
        self.history.add_volume(id, &[Window { first: 0, sectors: MOST_SECTORS }]);
    }

    pub(crate) fn name_of(&self, id: u32) -> Option<String> {
        self.volumes.iter().find(|(_, vol)| vol.id == id).map(|(name, _)| name.clone())
    }

    pub(crate) fn is_free(&self, name: &str) -> bool {
        !self.busy.contains(name)
    }

    pub(crate) fn has_room(&self, count: usize) -> bool {
        let coming: usize = self.pending.iter().map(Change::creates).sum();
        self.volumes.len() + coming + count <= MOST_VOLUMES
    }

    pub(crate) fn may_retain(&self) -> bool {
        self.volumes.values().filter(|vol| vol.immutable).count() < MOST_RETAINED
    }

    /// One of the volumes that no change is about and that fit.
    pub(crate) fn pick(&self, rng: &mut ChaCha8Rng, fits: impl Fn(&str, &Vol) -> bool) -> Option<Named> {
        let fitting: Vec<_> =
            self.volumes.iter().filter(|(name, vol)| self.is_free(name) && fits(name, vol)).collect();
        let (name, vol) = fitting.get(rng.random_range(0..fitting.len().max(1)))?;
        Some(((*name).clone(), (*vol).clone()))
    }

    /// One of the deleted volumes that no change is about.
    pub(crate) fn pick_deleted(&self, rng: &mut ChaCha8Rng) -> Option<Named> {
        let free: Vec<_> = self.bin.iter().filter(|(name, _)| self.is_free(name)).collect();
        let (name, vol) = free.get(rng.random_range(0..free.len().max(1)))?;
        Some(((*name).clone(), (*vol).clone()))
    }

    /// A volume in the recycle bin is deleted for good.
    pub(crate) fn purged(&mut self, name: &str) {
        if let Some(vol) = self.bin.remove(name) {
            self.history.volume_deleted(vol.id);
            self.frozen.remove(&vol.id);
        }
    }

    /// A host's request to a volume is no longer under way.
    pub(crate) fn request_ended(&mut self, id: u32) {
        if let Some(requests) = self.requests.get_mut(&id) {
            *requests = requests.saturating_sub(1);
        }
    }

    /// How often a volume was touched, and whether nobody is at it now: what a request notes at its beginning.
    pub(crate) fn moment(&self, name: &str, id: u32) -> Moment {
        Moment { touched: self.touched.get(&id).copied().unwrap_or(0), free: self.is_free(name) }
    }

    /// Whether a change of the volume was under way at any time since.
    pub(crate) fn is_changed_since(&self, moment: Moment, name: &str, id: u32) -> bool {
        !moment.free || self.moment(name, id) != moment || self.name_of(id).is_none()
    }

    /// Everything that an administrator sees.
    pub(crate) fn objects(&self) -> Objects {
        let mut objects = Objects::new();
        for (name, vol) in &self.volumes {
            objects.insert(format!("volume {name}"), vol.seen());
        }
        for group in &self.groups {
            objects.insert(format!("group {group}"), "there".to_owned());
        }
        objects
    }

    /// What of the history a request is about.
    pub(crate) fn range(first: u32, sectors: u32) -> ByteRange {
        ByteRange::new(u64::from(first) * SECTOR_BYTES, u64::from(sectors) * SECTOR_BYTES)
    }

    /// All that was under way is over.
    pub(crate) fn crash(&mut self) {
        self.history.cut_off();
        self.busy.clear();
        self.quiet.clear();
        self.requests.clear();
    }
}

/// A hash of each sector.
pub(crate) fn hashes<'a>(slices: impl Iterator<Item = &'a [u8]>) -> Vec<u64> {
    let hash = |sector: &[u8]| {
        let words =
            sector.chunks(8).map(|word| word.iter().fold(0_u64, |all, byte| all << 8 | u64::from(*byte)));
        words.fold(0xCBF2_9CE4_8422_2325, |hash, word| {
            (hash ^ word).wrapping_mul(0x0100_0000_01B3).rotate_left(29)
        })
    };
    slices.flat_map(|slice| slice.chunks(SECTOR_BYTES as usize).map(hash)).collect()
}
