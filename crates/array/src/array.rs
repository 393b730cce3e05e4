//! The array: its owners, and how a change is committed.
//!
//! Each part of its state has an owner, whose methods say what may be done with it. The files that carry out requests ask
//! the owners and do not see their fields.

use crate::{
    ArrayError, ArrayOptions, Bay, Listen,
    absences::Absences,
    bin_setting::BinSetting,
    catalog::{Catalog, Turn},
    clock::ClockWatch,
    copies::Copies,
    drive_leaving::Leaving,
    drives::Drives,
    events::{Events, Staged, Told},
    export_list::ExportList,
    failing_drives::FailingDrives,
    giving_back::GivingBack,
    history::History,
    host_access::HostAccess,
    lifecycle::Lifecycle,
    policies::Policies,
    portal_list::Portals,
    qos_record::Qos,
    rebuild::Rebuilds,
    reductions::Reductions,
    reserve_watch::Reserves,
    schedule_list::Schedules,
    scrub::Scrubs,
    slow_drives::SlowDrives,
    space::SpaceWatch,
};
use parking_lot::{Mutex, MutexGuard};
use quoin_pool::{Pool, Transaction};
use quoin_target::{Exports, Target};
use quoin_volume::{Volume, Volumes};
use quoin_world::World;
use std::sync::{Arc, OnceLock, Weak};

/// One array. It makes changes one after the other, each in one transaction with its event.
pub struct Array {
    world: Arc<dyn World>,
    options: ArrayOptions,
    life: Lifecycle,
    catalog: Catalog,
    log: Events,
    drives: Drives,
    volumes: Volumes,
    hosts: HostAccess,
    exports: ExportList,
    schedules: Mutex<Schedules>,
    space: Mutex<SpaceWatch>,
    giving_back: Mutex<GivingBack>,
    clock: Mutex<ClockWatch>,
    reserves: Mutex<Reserves>,
    bin: Mutex<BinSetting>,
    scrubs: Mutex<Scrubs>,
    leaving: Mutex<Leaving>,
    absences: Mutex<Absences>,
    rebuilds: Mutex<Rebuilds>,
    slow_drives: Mutex<SlowDrives>,
    failing_drives: Mutex<FailingDrives>,
    policies: Mutex<Policies>,
    portals: Mutex<Portals>,
    listen: OnceLock<Box<dyn Listen>>,
    limits: Mutex<Qos>,
    copies: Mutex<Copies>,
    reductions: Mutex<Reductions>,
    history: Mutex<History>,
}

impl Array {
    /// An array whose pool is not open yet; [`Array::run`] opens it and keeps it open.
    pub fn new(
        world: Arc<dyn World>,
        bay: Box<dyn Bay>,
        target: Arc<Target<Volume>>,
        options: ArrayOptions,
    ) -> Arc<Self> {
        let catalog = Catalog::new();
        let random = world.clone();
        target.draw_from(move || random.random_u64());
        Arc::new_cyclic(|array: &Weak<Self>| Self {
            life: Lifecycle::new(world.now(), world.wall_clock_ms()),
            volumes: catalog.volumes(world.clone()),
            catalog,
            log: Events::new(world.clone(), bay.notes()),
            drives: Drives::new(bay, &world, {
                let array = array.clone();
                move |drive, answers| {
                    if let Some(array) = array.upgrade() {
                        array.drive_answers(drive, answers);
                    }
                }
            }),
            hosts: HostAccess::new(target),
            exports: ExportList::default(),
            schedules: Mutex::default(),
            space: Mutex::new(SpaceWatch::new(options.space)),
            giving_back: Mutex::default(),
            clock: Mutex::default(),
            reserves: Mutex::default(),
            bin: Mutex::default(),
            scrubs: Mutex::default(),
            leaving: Mutex::default(),
            absences: Mutex::default(),
            rebuilds: Mutex::default(),
            slow_drives: Mutex::default(),
            failing_drives: Mutex::default(),
            policies: Mutex::default(),
            portals: Mutex::default(),
            listen: OnceLock::new(),
            limits: Mutex::default(),
            copies: Mutex::default(),
            reductions: Mutex::default(),
            history: Mutex::default(),
            world,
            options,
        })
    }

    /// Sets what accepts iSCSI connections; to be called before [`Array::run`]. Without it nothing does.
    pub fn listen_with(&self, listen: Box<dyn Listen>) {
        let _ = self.listen.set(listen);
    }

    /// The target that serves its volumes.
    pub fn target(&self) -> &Arc<Target<Volume>> {
        self.hosts.target()
    }

    /// The exports, to serve.
    pub fn exports(&self) -> &Arc<Exports<Volume>> {
        self.exports.served()
    }

    /// Whether volumes, hosts and mappings are known: true for good once the pool has been opened.
    pub fn is_restored(&self) -> bool {
        self.catalog.is_read()
    }

    /// Fails while the catalog has not been read yet: until then it is unknown which objects exist.
    pub(crate) fn require_catalog(&self) -> Result<(), ArrayError> {
        self.catalog.require_read()
    }

    /// The open pool.
    pub(crate) fn pool(&self) -> Result<Arc<Pool>, ArrayError> {
        self.catalog.pool()
    }

    /// The object of events of the pool.
    pub(crate) fn pool_name(&self) -> String {
        format!("pool {}", self.options.name)
    }

    /// Begins the transaction of a change, with its event.
    pub(crate) fn stage(&self, turn: &Turn<'_>, told: Told) -> (Transaction, Staged) {
        self.stage_with(turn, Transaction::new(), told)
    }

    /// Adds its event to the transaction of a change.
    pub(crate) fn stage_with(&self, _: &Turn<'_>, tx: Transaction, told: Told) -> (Transaction, Staged) {
        self.log.stage_told(tx, told)
    }

    /// Adds the events that wait to a transaction that has no event of its own.
    pub(crate) fn stage_waiting(&self, _: &Turn<'_>, tx: Transaction) -> (Transaction, Staged) {
        self.log.stage(tx, None)
    }

    /// Commits a change together with its event.
    pub(crate) async fn commit_told(
        &self,
        turn: &Turn<'_>,
        tx: Transaction,
        told: Told,
    ) -> Result<(), ArrayError> {
        let pool = self.pool()?;
        let (tx, staged) = self.stage_with(turn, tx, told);
        pool.commit(tx).await?;
        self.log.saved(staged);
        Ok(())
    }
}

/// The owners of its state.
impl Array {
    pub(crate) fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    pub(crate) fn options(&self) -> &ArrayOptions {
        &self.options
    }

    pub(crate) fn life(&self) -> &Lifecycle {
        &self.life
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub(crate) fn log(&self) -> &Events {
        &self.log
    }

    pub(crate) fn drives(&self) -> &Drives {
        &self.drives
    }

    pub(crate) fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    pub(crate) fn hosts(&self) -> &HostAccess {
        &self.hosts
    }

    pub(crate) fn export_list(&self) -> &ExportList {
        &self.exports
    }

    pub(crate) fn schedules(&self) -> MutexGuard<'_, Schedules> {
        self.schedules.lock()
    }

    pub(crate) fn space(&self) -> MutexGuard<'_, SpaceWatch> {
        self.space.lock()
    }

    pub(crate) fn giving_back(&self) -> MutexGuard<'_, GivingBack> {
        self.giving_back.lock()
    }

    pub(crate) fn clock(&self) -> MutexGuard<'_, ClockWatch> {
        self.clock.lock()
    }

    pub(crate) fn reserves(&self) -> MutexGuard<'_, Reserves> {
        self.reserves.lock()
    }

    pub(crate) fn bin(&self) -> MutexGuard<'_, BinSetting> {
        self.bin.lock()
    }

    pub(crate) fn rebuilds(&self) -> MutexGuard<'_, Rebuilds> {
        self.rebuilds.lock()
    }

    pub(crate) fn slow_drives(&self) -> MutexGuard<'_, SlowDrives> {
        self.slow_drives.lock()
    }

    pub(crate) fn failing_drives(&self) -> MutexGuard<'_, FailingDrives> {
        self.failing_drives.lock()
    }

    pub(crate) fn limits(&self) -> &Mutex<Qos> {
        &self.limits
    }

    pub(crate) fn portals(&self) -> MutexGuard<'_, Portals> {
        self.portals.lock()
    }

    pub(crate) fn listen(&self) -> &dyn Listen {
        &**self.listen.get_or_init(|| Box::new(Vec::new()))
    }

    pub(crate) fn policies(&self) -> MutexGuard<'_, Policies> {
        self.policies.lock()
    }

    pub(crate) fn leaving(&self) -> MutexGuard<'_, Leaving> {
        self.leaving.lock()
    }

    pub(crate) fn absences(&self) -> MutexGuard<'_, Absences> {
        self.absences.lock()
    }

    pub(crate) fn scrubs(&self) -> MutexGuard<'_, Scrubs> {
        self.scrubs.lock()
    }

    pub(crate) fn copies(&self) -> MutexGuard<'_, Copies> {
        self.copies.lock()
    }

    pub(crate) fn reductions(&self) -> MutexGuard<'_, Reductions> {
        self.reductions.lock()
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock()
    }
}
