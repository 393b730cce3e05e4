//! The catalog as it must be: transactions take effect whole, in the order in which they return.

use quoin_base::{Compression, VolumeId};
use quoin_pool::{ObjectKind, Pool, Transaction};
use std::collections::{BTreeMap, BTreeSet};

/// The kinds of objects used.
pub(crate) const OBJECT_KINDS: [ObjectKind; 3] = [ObjectKind(1), ObjectKind(2), ObjectKind(7)];

/// A change that a transaction makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Put(ObjectKind, String, Vec<u8>),
    Delete(ObjectKind, String),
    Create(VolumeId),
    DeleteVolume(VolumeId),
    Reserve(VolumeId, u64),
    /// Source and target.
    Fork(VolumeId, VolumeId),
}

type Objects = BTreeMap<(ObjectKind, String), Vec<u8>>;

/// The objects and volumes there are.
#[derive(Clone, Default, PartialEq, Eq)]
struct Content {
    objects: Objects,
    volumes: BTreeSet<VolumeId>,
    /// Bytes promised to volumes, of those that were promised any.
    reserved: BTreeMap<VolumeId, u64>,
}

/// What the catalog holds, and which transactions may hold or not.
#[derive(Default)]
pub(crate) struct CatalogModel {
    /// Volumes are deduplicated, and clients write what was written before.
    pub deduplicates: bool,
    content: Content,
    pending: BTreeMap<u64, Vec<Change>>,
    doubtful: Vec<Vec<Change>>,
    /// Every volume ever named in a transaction, and those that came to exist.
    known: BTreeSet<VolumeId>,
    existed: BTreeSet<VolumeId>,
    /// How many transactions were about a volume's reservation.
    reservations: BTreeMap<VolumeId, u64>,
    next: u64,
}

/// The catalog's key of a volume: a volume exists exactly if its key does.
pub(crate) fn volume_key(volume: VolumeId) -> String {
    format!("volume-{}", volume.0)
}

impl Content {
    fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Put(kind, key, value) => {
                    self.objects.insert((*kind, key.clone()), value.clone());
                }
                Change::Delete(kind, key) => {
                    self.objects.remove(&(*kind, key.clone()));
                }
                Change::Create(volume) => {
                    self.volumes.insert(*volume);
                }
                Change::DeleteVolume(volume) => {
                    self.volumes.remove(volume);
                    self.reserved.remove(volume);
                }
                Change::Reserve(volume, 0) => drop(self.reserved.remove(volume)),
                Change::Reserve(volume, bytes) if self.volumes.contains(volume) => {
                    self.reserved.insert(*volume, *bytes);
                }
                Change::Reserve(..) => {}
                Change::Fork(_, target) => {
                    self.volumes.insert(*target);
                }
            }
        }
    }
}

/// How volumes are reduced in seeds with deduplication. A third of them is not, so that large writes to them are placed.
const REDUCTIONS: [(Compression, bool); 6] = [
    (Compression::Off, false),
    (Compression::Lz4, true),
    (Compression::Zstd, true),
    (Compression::Off, false),
    (Compression::Off, true),
    (Compression::Lz4, false),
];

/// How a volume is reduced from now on: in one way when it is created, in another when its reservation changes.
fn reduce(tx: Transaction, volume: VolumeId, bytes: u64, deduplicates: bool) -> Transaction {
    let way = volume.0 as usize + usize::from(bytes > 0);
    if deduplicates {
        let (compression, is_deduplicated) = REDUCTIONS[way % REDUCTIONS.len()];
        tx.compress(volume, compression).deduplicate(volume, is_deduplicated)
    } else {
        tx.compress(volume, Compression::ALL[way % Compression::ALL.len()])
    }
}

fn transaction(changes: &[Change], deduplicates: bool) -> Transaction {
    changes.iter().fold(Transaction::new(), |tx, change| match change {
        Change::Put(kind, key, value) => tx.put(*kind, key, value.clone()),
        Change::Delete(kind, key) => tx.delete(*kind, key),
        Change::Create(volume) => reduce(tx.create_volume(*volume), *volume, 0, deduplicates),
        Change::DeleteVolume(volume) => tx.delete_volume(*volume),
        Change::Reserve(volume, bytes) => reduce(tx.reserve(*volume, *bytes), *volume, *bytes, deduplicates),
        Change::Fork(source, target) => tx.fork(*source, *target),
    })
}

impl CatalogModel {
    pub(crate) fn new(deduplicates: bool) -> Self {
        Self { deduplicates, ..Self::default() }
    }

    /// A transaction is about to be committed. An id that was given out before is refused.
    pub(crate) fn begin(&mut self, changes: Vec<Change>) -> Result<(u64, Transaction), String> {
        for change in &changes {
            if let Change::Reserve(volume, _) = change {
                *self.reservations.entry(*volume).or_default() += 1;
            }
            if let Change::Fork(_, target) = change {
                self.known.insert(*target);
            }
            if let Change::Create(volume) = change {
                self.known.insert(*volume);
                if self.existed.contains(volume) {
                    return Err(format!("volume id {volume} is given out a second time"));
                }
            }
        }
        let id = self.next;
        self.next += 1;
        let tx = transaction(&changes, self.deduplicates);
        self.pending.insert(id, changes);
        Ok((id, tx))
    }

    pub(crate) fn end(&mut self, id: u64, acknowledged: bool) {
        let Some(changes) = self.pending.remove(&id) else { return };
        if acknowledged { self.set(|content| content.apply(&changes)) } else { self.doubtful.push(changes) }
    }

    /// A transaction was refused and surely has no effect.
    pub(crate) fn refused(&mut self, id: u64) {
        self.pending.remove(&id);
    }

    fn set(&mut self, change: impl FnOnce(&mut Content)) {
        change(&mut self.content);
        self.existed.extend(self.content.volumes.iter().copied());
    }

    pub(crate) fn crash(&mut self) {
        self.doubtful.extend(std::mem::take(&mut self.pending).into_values());
    }

    pub(crate) fn volumes(&self) -> impl Iterator<Item = VolumeId> {
        self.content.volumes.iter().copied()
    }

    /// The bytes promised to a volume, and how many transactions so far were about that; `None` while one is under way
    /// or in doubt.
    pub(crate) fn reserved(&self, volume: VolumeId) -> Option<(u64, u64)> {
        let touches = |change: &Change| match change {
            Change::Reserve(of, _) | Change::Create(of) | Change::DeleteVolume(of) => *of == volume,
            Change::Fork(source, target) => *source == volume || *target == volume,
            Change::Put(..) | Change::Delete(..) => false,
        };
        let open = self.pending.values().chain(&self.doubtful).flatten().any(touches);
        let changes = self.reservations.get(&volume).copied().unwrap_or(0);
        (!open).then(|| (self.content.reserved.get(&volume).copied().unwrap_or(0), changes))
    }

    /// Compares with a pool. Transactions in doubt may have taken effect, each whole, in any order; what is
    /// found is certain from then on. Returns how many of them had.
    pub(crate) fn check(&mut self, pool: &Pool) -> Result<u32, String> {
        let found = self.read(pool);
        let doubtful = std::mem::take(&mut self.doubtful);
        let Some((content, applied)) = explain(&self.content, &doubtful, &found, 0) else {
            return Err(difference(&self.content, &found, doubtful.len()));
        };
        self.set(|now| *now = content);
        Ok(applied)
    }

    fn read(&self, pool: &Pool) -> Content {
        let mut content = Content::default();
        for kind in OBJECT_KINDS {
            for (key, value) in pool.list(kind) {
                content.objects.insert((kind, key), value);
            }
        }
        for volume in &self.known {
            let Some(stats) = pool.volume_stats(*volume) else { continue };
            content.volumes.insert(*volume);
            if stats.reserved_bytes > 0 {
                content.reserved.insert(*volume, stats.reserved_bytes);
            }
        }
        content
    }
}

/// The content that applying some of the transactions, in some order, makes of `from`, if it is `found`.
fn explain(
    from: &Content,
    doubtful: &[Vec<Change>],
    found: &Content,
    applied: u32,
) -> Option<(Content, u32)> {
    if from == found {
        return Some((from.clone(), applied));
    }
    for at in 0..doubtful.len().min(6) {
        let mut next = from.clone();
        next.apply(&doubtful[at]);
        let rest: Vec<_> = [&doubtful[..at], &doubtful[at + 1..]].concat();
        if let Some(explained) = explain(&next, &rest, found, applied + 1) {
            return Some(explained);
        }
    }
    None
}

fn difference(expected: &Content, found: &Content, doubtful: usize) -> String {
    let objects: BTreeSet<_> = expected.objects.keys().chain(found.objects.keys()).collect();
    let differing: Vec<_> = objects
        .into_iter()
        .filter(|key| expected.objects.get(*key) != found.objects.get(*key))
        .map(|key| {
            let told = |c: &Content| match c.objects.get(key) {
                Some(value) => String::from_utf8_lossy(&value[..value.len().min(24)]).into_owned(),
                None => "nothing".into(),
            };
            format!("{key:?}: expected {}, found {}", told(expected), told(found))
        })
        .collect();
    format!(
        "the catalog is not what its transactions made it, {doubtful} of them in doubt.\n  {}\n  volumes expected {:?}, found {:?}\n  \
         reserved expected {:?}, found {:?}",
        differing.join("\n  "),
        expected.volumes,
        found.volumes,
        expected.reserved,
        found.reserved
    )
}
