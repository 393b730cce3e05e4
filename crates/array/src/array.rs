//! The array: its state, and how a change of it is made.

use crate::space::{SpacePercents, SpaceWatch};
use crate::{
    ArrayError, Bay,
    access::Access,
    bin_setting::BinSetting,
    clock::ClockWatch,
    copies::Copies,
    drives::Drives,
    events::{Events, Told},
    export_list::Exported,
    giving_back::GivingBack,
    reserve_watch::Reserves,
    schedule_record::Schedules,
    scrub::Scrubs,
};
use parking_lot::Mutex;
use quoin_base::{DriveIndex, PoolId};
use quoin_pool::{Pool, PoolOptions, Transaction};
use quoin_target::{Exports, Target};
use quoin_volume::{PoolSlot, Volume, VolumeError, Volumes};
use quoin_world::{AsyncMutex, Event as Wake, Nanos, World};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// The settings with which an array starts.
#[derive(Clone, Debug)]
pub struct ArrayOptions {
    /// What people call it.
    pub name: String,
    /// The identity of its pool; drives of another are refused.
    pub pool: PoolId,
    /// The target's iSCSI name.
    pub iqn: String,
    /// The version of the software, to report.
    pub version: String,
    /// Addresses at which iSCSI is served, to report.
    pub portals: Vec<String>,
    /// Addresses at which NBD is served, to report.
    pub nbd: Vec<String>,
    /// How its pool is opened.
    pub pool_options: PoolOptions,
    /// When there is something to say about its space.
    pub space: SpacePercents,
}

/// One array. It makes changes one after the other, each in one transaction with its event.
pub struct Array {
    pub(crate) world: Arc<dyn World>,
    pub(crate) bay: Box<dyn Bay>,
    pub(crate) options: ArrayOptions,
    pub(crate) slot: Arc<PoolSlot>,
    pub(crate) volumes: Volumes,
    pub(crate) access: Mutex<Access>,
    pub(crate) exported: Mutex<Exported>,
    pub(crate) exports: Arc<Exports<Volume>>,
    pub(crate) events: Events,
    pub(crate) schedules: Mutex<Schedules>,
    pub(crate) space: Mutex<SpaceWatch>,
    pub(crate) giving_back: Mutex<GivingBack>,
    pub(crate) clock: Mutex<ClockWatch>,
    pub(crate) reserves: Mutex<Reserves>,
    pub(crate) bin: Mutex<BinSetting>,
    pub(crate) scrubs: Mutex<Scrubs>,
    pub(crate) copies: Mutex<Copies>,
    pub(crate) target: Arc<Target<Volume>>,
    pub(crate) drives: Mutex<Drives>,
    /// Drives that the pool went on without, as far as it was reported; `None`: the pool was not open yet.
    pub(crate) given_up: Mutex<Option<BTreeSet<DriveIndex>>>,
    pub(crate) changes: AsyncMutex,
    pub(crate) started: Nanos,
    /// Opening the pool was tried to its end at least once.
    pub(crate) attempted: AtomicBool,
    /// Since when the pool is open, or is not, by the wall clock.
    pub(crate) state_since_ms: AtomicU64,
    /// Runs of schedules since the process started.
    pub(crate) schedule_runs: AtomicU64,
    /// Of them, those that failed.
    pub(crate) schedule_failures: AtomicU64,
    /// The catalog was read at least once.
    pub(crate) restored: AtomicBool,
    pub(crate) stopping: AtomicBool,
    pub(crate) wake: Wake,
}

impl Array {
    /// An array whose pool is not open yet; [`Array::run`] opens it and keeps it open.
    pub fn new(
        world: Arc<dyn World>,
        bay: Box<dyn Bay>,
        target: Arc<Target<Volume>>,
        options: ArrayOptions,
    ) -> Arc<Self> {
        let slot = Arc::new(PoolSlot::empty("the pool is being opened"));
        Arc::new_cyclic(|array: &Weak<Self>| Self {
            volumes: Volumes::new(world.clone(), slot.clone()),
            access: Mutex::default(),
            exported: Mutex::default(),
            exports: Arc::default(),
            events: Events::new(world.clone(), bay.notes()),
            schedules: Mutex::default(),
            space: Mutex::new(SpaceWatch::new(options.space)),
            giving_back: Mutex::default(),
            clock: Mutex::default(),
            reserves: Mutex::default(),
            bin: Mutex::default(),
            scrubs: Mutex::default(),
            copies: Mutex::default(),
            drives: Mutex::new(Drives::new(&*bay, &world, {
                let array = array.clone();
                move |drive, answers| {
                    if let Some(array) = array.upgrade() {
                        array.drive_answers(drive, answers);
                    }
                }
            })),
            given_up: Mutex::default(),
            changes: AsyncMutex::new(),
            started: world.now(),
            attempted: AtomicBool::new(false),
            state_since_ms: AtomicU64::new(world.wall_clock_ms()),
            schedule_runs: AtomicU64::new(0),
            schedule_failures: AtomicU64::new(0),
            restored: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            wake: Wake::new(),
            world,
            bay,
            options,
            slot,
            target,
        })
    }

    /// The target that serves its volumes.
    pub fn target(&self) -> &Arc<Target<Volume>> {
        &self.target
    }

    /// Whether volumes, hosts and mappings are known: true for good once the pool has been opened.
    pub fn is_restored(&self) -> bool {
        self.restored.load(Ordering::Acquire)
    }

    /// Fails while the catalog has not been read yet: until then it is unknown which objects exist.
    pub(crate) fn require_catalog(&self) -> Result<(), ArrayError> {
        if self.is_restored() { Ok(()) } else { self.pool().map(drop) }
    }

    pub(crate) fn pool(&self) -> Result<Arc<Pool>, ArrayError> {
        self.slot.get().map_err(|reason| VolumeError::Offline { reason }.into())
    }

    /// Commits a change together with its event. Called with `changes` held.
    pub(crate) async fn commit_told(&self, tx: Transaction, told: Told) -> Result<(), ArrayError> {
        let pool = self.pool()?;
        let (tx, staged) = self.events.stage_told(tx, told);
        pool.commit(tx).await?;
        self.events.saved(staged);
        Ok(())
    }
}
