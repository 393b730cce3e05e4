//! The store: the drives of a pool, and what concerns all its slices alike.
//!
//! A store knows drives and slabs, no volumes. Slices reach the drives through its methods alone.
//!
//! Invariants:
//! 1. Its drives are those that the table of members in force needs; all are of the same pool and cut into slabs of the same
//!    size. A slab belongs to the journal of one slice, or is granted to one slice, or is ungranted.
//! 2. A root is written only with the store's epoch, for the slice it goes to, and with a higher generation than any root
//!    of that slice that was read or written before. No root that is read is of a later epoch than the store's.
//! 3. Once the store failed it stays so: what the drives hold is known again only after it is opened anew.

mod absence;
mod absent;
mod add;
mod claims;
pub(crate) mod columns;
mod domains;
mod grants;
mod growing;
pub(crate) mod health;
mod journal;
mod leaving;
mod losing;
mod members;
pub(crate) mod pace;
pub(crate) mod rate;
mod repairing;
pub(crate) mod repairs;
pub(crate) mod roots;
pub(crate) mod shortage;
mod turns;
mod unreadable;
mod voters;

use crate::{
    bugs::{Bug, planted},
    error::PoolError,
    format::POOL_BLOCK_BYTES,
    meta::{Domain, Layouts},
};
use absence::Absence;
use claims::Claims;
pub(crate) use claims::Standing;
use domains::domains_of;
pub(crate) use domains::{domain_problem, journal_domains};
use futures_util::future::join_all;
use grants::Grants;
pub use growing::{DriveExtent, DriveGrowth, DriveLen};
use health::Health;
pub(crate) use losing::Loss;
use members::Membership;
use pace::Pace;
use quoin_base::{
    ByteRange, CheckpointGeneration, DriveIndex, Epoch, Layout, MembersGeneration, PoolId, SliceId,
};
use quoin_drive::{Drive, DriveSet, Label, Member, MemberState, Members, raise_set};
use quoin_stripe::{Column, ColumnSet, Columns, Read, StripeError, StripeSet, Written};
use quoin_world::{
    AsyncMutex, Buf, Mutex, Slice as Bytes,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use rate::Rate;
use repairs::Repairs;
use shortage::Shortage;
pub(crate) use shortage::{WaitsForSlabs, Writer};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// How often a drive is asked for a page before that counts as unreadable.
const TRIES: u32 = 5;

/// Asked with a drive, and with whether a drive is in the set.
type Needs = Box<dyn Fn(DriveIndex, &dyn Fn(DriveIndex) -> bool) -> bool + Send + Sync>;

/// What a slice has in segments, as the store sees it.
pub(crate) trait Tenant: Send + Sync {
    /// What would be lost without a drive, beside those for which `is_lost` is true.
    fn loss_of(&self, drive: DriveIndex, is_lost: &dyn Fn(DriveIndex) -> bool) -> Loss;

    /// Whether an absent drive holds the last copy of something.
    fn holds_last(&self, drive: DriveIndex) -> bool;

    /// The pool goes on without a drive, as the table of members of this generation says, which is durable.
    /// `is_absent`: it may come back, and what it holds is not made again so far.
    fn lose(&self, drive: DriveIndex, is_absent: bool, members: MembersGeneration);

    /// A drive that was absent has failed: what it holds is made again.
    fn give_up(&self, drive: DriveIndex);

    /// A drive that was absent is back, as the table of members of this generation says.
    fn take_back(&self, drive: DriveIndex, members: MembersGeneration);

    /// Other drives take new data than before.
    fn lay_out(&self);

    /// Why it could not keep count of so many slabs more in these domains, if so.
    fn cannot_count(&self, new: &BTreeMap<Domain, u64>) -> Option<String>;

    /// A drive is one of the journal's set, as the table of members in force says.
    fn join_journal(&self, drive: DriveIndex);

    /// Whether anything refers to a drive: in RAM, or in a checkpoint that may be opened.
    fn refers_to(&self, drive: DriveIndex) -> bool;

    /// A drive is gone, durably. Nothing referred to it.
    fn forget(&self, drive: DriveIndex);
}

pub(crate) struct Store {
    columns: Columns,
    /// That of the first drive; what all have in common is taken from it.
    label: Label,
    epoch: Epoch,
    membership: Membership,
    grants: Grants,
    claims: Claims,
    damaged: Vec<String>,
    health: Health,
    shortage: Shortage,
    pace: Pace,
    rate: Rate,
    balances: AtomicBool,
    /// Fault domains that are kept spare.
    spare_domains: AtomicU64,
    absence: Absence,
    repairs: Repairs,
    may_lack_room: AtomicBool,
    /// Held while a drive is added or leaves.
    adding: AsyncMutex,
    /// Held while a root is written, and while drives become voters.
    rooting: AsyncMutex,
    /// A drive that may leave: nothing new is put there while that is found out.
    may_leave: Mutex<Option<DriveIndex>>,
    /// Layouts that volumes have, or had since the pool was opened, beside the pool's.
    volume_layouts: Mutex<BTreeSet<Layout>>,
    /// Each says whether a slice has something in the journal on this drive and on no other of the set.
    needs: Mutex<Vec<Needs>>,
    tenants: Mutex<Vec<Arc<dyn Tenant>>>,
    /// By slice: the highest generation of a root that was read or written.
    generations: Mutex<BTreeMap<SliceId, CheckpointGeneration>>,
}

/// Opening.
impl Store {
    /// The store of new drives, each with the name of its fault domain. Each of several slices is granted `slabs_each` for a
    /// start.
    pub(crate) async fn format(
        drives: Vec<(Arc<Drive>, String)>,
        slabs_each: u64,
    ) -> Result<Self, PoolError> {
        let (drives, domains): (Vec<_>, Vec<_>) = drives.into_iter().unzip();
        let label = common_label(&drives)?;
        let grants = Grants::format(label.pool, &drives, label.slices, slabs_each as usize).await?;
        let labels: Vec<_> = drives.iter().map(|drive| drive.label()).collect();
        let members = Members::first(label.pool, &labels, domains);
        members::format(&drives, &members).await?;
        Ok(Self::new(drives, label, Epoch::default(), members, grants, Vec::new()))
    }

    /// Takes the drives over with a new epoch, so that no earlier owner writes any more. Those that are missing, which the pool
    /// needs and can do without, are absent from now on, at a time in milliseconds since 1970.
    pub(crate) async fn take_over_without(
        drives: Vec<Arc<Drive>>,
        (missing, now_ms): (&[DriveIndex], u64),
    ) -> Result<Self, PoolError> {
        let label = common_label(&drives)?;
        let epoch = raise_set(&drives).await?;
        // From here on no earlier owner writes to any of the drives.
        if !planted(Bug::SkipRecoveryFlush) {
            // What is read back now may still sit in a drive's volatile cache, and will be served.
            for outcome in join_all(drives.iter().map(|d| d.flush())).await {
                outcome?;
            }
        }
        let mended_labels = drives.iter().flat_map(|drive| {
            let name = drive.name();
            drive.mended().into_iter().map(move |what| format!("drive {name}: {what}"))
        });
        let mut mended: Vec<_> = mended_labels.collect();
        // NOTE: read again now that no earlier owner can change it.
        let set = DriveSet::of_some(drives).await?;
        if set.missing != missing {
            return Err(set.refusal().into());
        }
        let DriveSet { drives, members, damaged, .. } = set;
        mended.extend(damaged.into_iter().map(|what| format!("{what}; it was written anew")));
        // Which drives the pool has, then which slice holds what of them.
        let members = members::settle(&drives, members, epoch, (missing, now_ms)).await?;
        let (grants, told) = Grants::read(label.pool, epoch, &drives, true).await?;
        mended
            .extend(told.into_iter().map(|what| format!("{what}; it was written anew from the other copy")));
        Ok(Self::new(drives, label, epoch, members, grants, mended))
    }

    /// To look at the drives: nothing is written.
    pub(crate) async fn inspect(drives: Vec<Arc<Drive>>) -> Result<Self, PoolError> {
        Self::inspect_set(DriveSet::of(drives).await?).await
    }

    /// The same of a set, as if drives that it lacks were absent.
    pub(crate) async fn inspect_set(set: DriveSet) -> Result<Self, PoolError> {
        let DriveSet { drives, mut members, damaged, missing, .. } = set;
        let label = common_label(&drives)?;
        missing.into_iter().for_each(|drive| members.miss(drive, 0));
        let newest = drives.iter().map(|drive| drive.epoch()).max().unwrap_or_default();
        let (grants, mut told) = Grants::read(label.pool, newest, &drives, false).await?;
        told.splice(0..0, damaged);
        Ok(Self::new(drives, label, newest, members, grants, told))
    }

    fn new(
        drives: Vec<Arc<Drive>>,
        label: Label,
        epoch: Epoch,
        members: Members,
        grants: Grants,
        damaged: Vec<String>,
    ) -> Self {
        assert!(
            drives.iter().map(|drive| drive.index()).eq(members.needed().map(|member| member.index)),
            "drives are those that the pool needs, in the order of their numbers"
        );
        for drive in &drives {
            assert_eq!(drive.label().pool, label.pool, "drives are of one pool");
        }
        Self {
            may_lack_room: AtomicBool::new(drives.iter().any(|drive| drive.may_lack_room())),
            adding: AsyncMutex::new(),
            rooting: AsyncMutex::new(),
            may_leave: Mutex::default(),
            volume_layouts: Mutex::default(),
            columns: Columns::new(drives),
            label,
            epoch,
            membership: Membership::new(members),
            grants,
            claims: Claims::default(),
            damaged,
            health: Health::default(),
            shortage: Shortage::default(),
            pace: Pace::default(),
            rate: Rate::default(),
            balances: AtomicBool::new(false),
            spare_domains: AtomicU64::new(0),
            absence: Absence::default(),
            repairs: Repairs::default(),
            needs: Mutex::default(),
            tenants: Mutex::default(),
            generations: Mutex::default(),
        }
    }

    /// What was found damaged in labels, grant pages and tables of members, and has a sound copy, in words.
    pub(crate) fn damaged(&self) -> &[String] {
        &self.damaged
    }
}

/// The first drive's label, if the others agree with it and a pool can be laid out so.
fn common_label(drives: &[Arc<Drive>]) -> Result<Label, PoolError> {
    let first = drives.first().ok_or_else(|| PoolError::Refused("a pool has drives".into()))?;
    let label = first.label();
    let (slab, row) = (label.slab_bytes, label.row_bytes);
    let common = |label: &Label| {
        (label.slab_bytes, label.row_bytes, label.block_bytes, label.slices, label.journal_columns)
    };
    let problem = match () {
        () if label.block_bytes != POOL_BLOCK_BYTES => "the size of its blocks is not one of this version",
        () if !slab.is_power_of_two() || !(256 << 10..=64 << 20).contains(&slab) => {
            "the size of its slabs is impossible"
        }
        () if row < 16 << 10 || row > slab / 4 => "the size of its rows is impossible",
        () if drives.iter().any(|drive| common(&drive.label()) != common(&label)) => {
            "its drives differ in the sizes of slabs, rows or blocks, or in the number of slices or journal columns"
        }
        () => return Ok(label),
    };
    Err(PoolError::corrupt("the label of the pool's drives", problem))
}

/// What it is.
impl Store {
    pub(crate) fn pool(&self) -> PoolId {
        self.label.pool
    }

    pub(crate) fn pool_name(&self) -> &str {
        &self.label.pool_name
    }

    /// The term of this opening; when only looked at, the latest that a drive has seen.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn slab_bytes(&self) -> u32 {
        self.label.slab_bytes
    }

    pub(crate) fn row_bytes(&self) -> u32 {
        self.label.row_bytes
    }

    pub(crate) fn block_bytes(&self) -> u32 {
        self.label.block_bytes
    }

    /// How new segments are laid out, over the drives that they may lie on and their fault domains.
    pub(crate) fn layouts(&self) -> Layouts {
        self.layouts_but(*self.may_leave.lock())
    }

    /// What data is laid out as, if there are drives enough.
    pub(crate) fn layout(&self) -> Layout {
        self.label.layout
    }

    /// The fault domain of each drive that the pool has or once had.
    pub(crate) fn domains(&self) -> BTreeMap<DriveIndex, Domain> {
        domains_of(&self.members())
    }

    /// The slices of the pool.
    pub(crate) fn slices(&self) -> impl Iterator<Item = SliceId> + use<> {
        (0..self.label.slices).map(SliceId)
    }

    /// The number of slices.
    pub(crate) fn slice_count(&self) -> u64 {
        self.label.slices.into()
    }

    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    /// The drives that new segments may lie on.
    pub(crate) fn data_drive_count(&self) -> usize {
        let takes_data = |member: &&Member| member.roles.data && member.state == MemberState::Active;
        self.members().all.iter().filter(takes_data).count()
    }

    /// Slabs of all drives that it has, and of those it once had: there never were more at a time.
    pub(crate) fn slabs_ever(&self) -> u64 {
        self.members().slabs_ever()
    }

    /// Generation of the set of drives that the journal is written to.
    pub(crate) fn journal_set(&self) -> u64 {
        self.membership.journal_set()
    }

    /// Registers a question that the store asks before it goes on without a drive.
    pub(crate) fn ask_before_doing_without(&self, needs: Needs) {
        self.needs.lock().push(needs);
    }

    /// Registers a slice, which then knows what it would lose without a drive. Until all slices are, none is done without
    /// that holds segments.
    pub(crate) fn take_in_tenant(&self, tenant: Arc<dyn Tenant>) {
        self.tenants.lock().push(tenant);
    }

    /// Drives that the pool went on without, and the generation of the table that said so first.
    pub(crate) fn lost_drives(&self) -> impl Iterator<Item = (DriveIndex, MembersGeneration)> + use<> {
        let members = self.members();
        // One that is gone was referred to by nothing, and what is older may name it.
        let failed: Vec<_> = members.all.iter().filter(|member| !member.is_needed()).collect();
        let told: Vec<_> = failed.into_iter().map(|member| (member.index, member.failed_at)).collect();
        told.into_iter()
    }

    /// Whether the pool ever went on without a drive.
    pub(crate) fn has_lost_drives(&self) -> bool {
        self.members().all.iter().any(|member| !member.is_needed())
    }

    /// The slabs for data of each drive that it needs.
    pub(crate) fn data_slabs(&self) -> Vec<(DriveIndex, u64)> {
        let of = |drive: &Arc<Drive>| {
            let label = drive.label();
            let slabs = if label.roles.data { label.slabs() - label.journal_slabs } else { 0 };
            (label.index, slabs.into())
        };
        self.needed_drives().map(of).collect()
    }

    /// The slabs that a slice may use for segments, by drive.
    pub(crate) fn granted_to(&self, slice: SliceId) -> Vec<(DriveIndex, BTreeSet<u32>)> {
        self.grants.granted_to(slice)
    }

    /// The drives that the pool needs.
    fn needed_drives(&self) -> impl Iterator<Item = &Arc<Drive>> {
        let members = self.members();
        self.drives().filter(move |drive| members.get(drive.index()).is_some_and(Member::is_needed))
    }

    /// Whether a drive refuses this owner's writes, because another one has it.
    pub(crate) fn is_expelled(&self) -> bool {
        self.drives().any(|drive| drive.is_expelled())
    }

    /// A drive that is open.
    pub(crate) fn drive(&self, index: DriveIndex) -> Option<Arc<Drive>> {
        self.columns.drive(index).ok().cloned()
    }

    fn drives(&self) -> impl Iterator<Item = &Arc<Drive>> {
        self.columns.drives()
    }

    /// The drive of this name. One that left may have had it before.
    fn drive_named(&self, name: &str) -> Option<&Arc<Drive>> {
        self.drives().filter(|drive| drive.name() == name).last()
    }
}

/// Slabs that change hands.
impl Store {
    /// Slabs that no slice holds.
    pub(crate) fn nobodys_slabs(&self) -> u64 {
        self.grants.nobodys()
    }

    /// Those on other drives than this.
    pub(crate) fn nobodys_slabs_but(&self, drive: DriveIndex) -> u64 {
        self.grants.nobodys_but(drive)
    }

    /// Slabs that a slice may get: ungranted ones, and those that other slices can spare.
    pub(crate) fn claimable(&self, slice: SliceId) -> u64 {
        self.nobodys_slabs() + self.claims.spare_of_others(slice)
    }

    /// Grants a slice so many ungranted slabs, or as many as there are. Durable on return.
    pub(crate) async fn grant(&self, slice: SliceId, slabs: u64) -> Result<Vec<Column>, PoolError> {
        let (granted, failed) = self.grants.grant(slice, slabs as usize).await;
        self.do_without_all(failed).await?;
        self.claims.got(slice, granted.len() as u64);
        Ok(granted)
    }

    /// Takes slabs back from a slice that has nothing on them, neither in its segment table nor in a checkpoint
    /// that may be opened. Durable on return.
    pub(crate) async fn give_back(&self, slice: SliceId, slabs: &[Column]) -> Result<(), PoolError> {
        let failed = self.grants.give_back(slice, slabs).await;
        self.do_without_all(failed).await?;
        self.claims.came_free();
        Ok(())
    }

    /// Registers what wakes the committer of a slice: others want slabs, or slabs that it wants come free.
    pub(crate) fn wake_for_slabs(&self, slice: SliceId, wake: Box<dyn Fn() + Send + Sync>) {
        self.claims.wake_with(slice, wake);
    }

    /// Notes that a slice wants so many slabs more than it holds.
    pub(crate) fn want(&self, slice: SliceId, slabs: u64) {
        self.claims.want(slice, slabs);
    }

    /// Slabs that a slice wants.
    pub(crate) fn wanted_by(&self, slice: SliceId) -> u64 {
        self.claims.wanted_by(slice)
    }

    /// Notes that a slice wants no slabs any more: there are none for it.
    pub(crate) fn got_none(&self, slice: SliceId) {
        self.claims.got_none(slice);
    }

    /// Notes how many slabs a slice could give back.
    pub(crate) fn can_spare(&self, slice: SliceId, slabs: u64) -> Standing {
        self.claims.can_spare(slice, slabs, self.nobodys_slabs())
    }

    /// A slice could give back no more slabs than these from now on.
    pub(crate) fn can_spare_at_most(&self, slice: SliceId, slabs: u64) {
        self.claims.can_spare_at_most(slice, slabs);
    }

    /// How many slabs a slice is to give back to others.
    pub(crate) fn owed_by(&self, slice: SliceId) -> u64 {
        self.claims.owed_by(slice, self.nobodys_slabs())
    }
}

/// Reading and writing.
impl Store {
    /// Reads `len` bytes from byte `offset` of a slab.
    pub(crate) async fn read_slab(&self, at: Column, offset: u64, len: usize) -> Result<Buf, StripeError> {
        Ok(self.columns.drive(at.drive)?.read_slab(at.slab, offset, len).await?)
    }

    /// Writes from byte `offset` of a slab on, one slice after the other. `durable`: survives a power failure when done.
    pub(crate) async fn write_slab(
        &self,
        at: Column,
        offset: u64,
        data: Vec<Bytes>,
        durable: bool,
    ) -> Result<(), StripeError> {
        let _counted = durable.then(|| self.pace.durable(at.drive));
        Ok(self.columns.drive(at.drive)?.write_slab(at.slab, offset, data, durable).await?)
    }

    /// Reads a range of a segment's data. Both ends are multiples of 4096.
    pub(crate) async fn read_segment(&self, set: &StripeSet, range: ByteRange) -> Result<Buf, StripeError> {
        self.columns.read(set, range).await
    }

    /// The same, and tells which columns could not be read.
    pub(crate) async fn read_telling(&self, set: &StripeSet, range: ByteRange) -> Result<Read, StripeError> {
        self.columns.read_telling(set, range).await
    }

    /// The drives, as the columns of segments: for what reads and writes single columns to repair them.
    pub(crate) fn columns(&self) -> &Columns {
        &self.columns
    }

    /// Writes a row of a segment, or a part of one, to all its columns but those on drives that the pool can go on without, from byte `offset` of the segment's data on. `durable`: hardened on return.
    pub(crate) async fn write_row(
        &self,
        set: &StripeSet,
        offset: u64,
        data: Vec<Bytes>,
        durable: bool,
    ) -> Result<ColumnSet, PoolError> {
        let counted = set.columns.iter().filter(|_| durable).map(|column| self.pace.durable(column.drive));
        let _counted: Vec<_> = counted.collect();
        let Written { failed } = self.columns.write_row(set, offset, data, durable).await?;
        // The row is on enough columns to be read.
        // NOTE: before the row counts. A column that failed must not be taken for one that has it.
        let mut lacking = ColumnSet::default();
        for (place, error) in failed {
            self.do_without(set.columns[place].drive, error.into()).await?;
            lacking = lacking.with(ColumnSet::one(place));
        }
        Ok(lacking)
    }

    /// The pace of background writes.
    pub(crate) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// How fast columns are made again and moved.
    pub(crate) fn rate(&self) -> &Rate {
        &self.rate
    }

    /// Whether columns are moved so that drives are used alike.
    pub(crate) fn balances(&self) -> bool {
        self.balances.load(Ordering::Acquire)
    }

    /// Begins or ceases to move columns so that drives are used alike.
    pub(crate) fn set_balances(&self, balances: bool) {
        self.balances.store(balances, Ordering::Release);
        self.health.notify();
    }

    /// Fault domains that are kept spare.
    pub(crate) fn spare_domains(&self) -> u8 {
        self.spare_domains.load(Ordering::Acquire) as u8
    }

    /// Keeps so many fault domains spare, or no more. Tenants are to lay out anew then.
    pub(crate) fn set_spare_domains(&self, domains: u8) {
        self.spare_domains.store(domains.into(), Ordering::Release);
    }

    /// What is written to these columns begins in memory, and is long, a multiple of so many bytes.
    pub(crate) fn alignment(&self, columns: &[Column]) -> Result<usize, StripeError> {
        Ok(self.columns.block_bytes(columns)? as usize)
    }

    /// Whether the write of a row may fail because a file system below is full.
    pub(crate) fn may_lack_room(&self) -> bool {
        self.may_lack_room.load(Ordering::Acquire)
    }

    /// How messages name a drive.
    pub(crate) fn drive_name(&self, drive: DriveIndex) -> &str {
        self.columns.drive(drive).map_or("that is not there", |drive| drive.name())
    }

    /// Which byte of its drive a byte of a slab is.
    pub(crate) fn byte_of_drive(&self, at: Column, offset: u64) -> u64 {
        let start = self.columns.drive(at.drive).map_or(0, |drive| drive.label().slabs_start_bytes);
        start + u64::from(at.slab) * u64::from(self.slab_bytes()) + offset
    }
}
