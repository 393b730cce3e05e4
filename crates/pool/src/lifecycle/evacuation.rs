//! Drives that leave: what they hold moves to the others while hosts use the pool, and then they are gone.
//!
//! Whether a drive can leave is found out first, and refused with what is lacking. What moves is up to the rebuild of each
//! slice; which drives leave is durable, so an opening goes on with it.

use crate::{
    error::PoolError,
    journal::JournalWithout,
    lifecycle::pool::Pool,
    meta::{Holdings, Layouts, NetUse},
    space::Overhead,
};
use quoin_base::{DriveIndex, Layout};
use quoin_drive::MemberState;
use quoin_world::Compiled;

/// What a drive that leaves holds still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Evacuation {
    /// The drive.
    pub drive: DriveIndex,
    /// Columns of segments on it, and the bytes written to them.
    pub columns: u64,
    /// Bytes in these columns.
    pub bytes: u64,
    /// Whether parts of the journal lie on it that a restart would need.
    pub holds_journal: bool,
    /// Whether a copy of the segment table lies on it.
    pub holds_table: bool,
    /// Whether nothing refers to it any more: it can be removed.
    pub is_done: bool,
}

/// How fast columns are made again and moved, in the whole pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RebuildRate {
    /// Beside hosts no slower than this, as far as drives can; 0: no such floor.
    pub floor_bytes_s: u64,
    /// Never faster than this; 0: no cap.
    pub cap_bytes_s: u64,
}

/// How evenly drives are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Balance {
    /// Columns are moved when drives are used unevenly.
    pub balances: bool,
    /// Columns are moved now.
    pub moves: bool,
    /// How far apart the used shares of the fullest and the emptiest drive are, in percent of a drive.
    pub most_apart_percent: u64,
}

impl Pool {
    /// Has a drive leave: nothing new is put on it, and what it holds moves to the others. `narrower`: also if new segments
    /// have fewer columns than now then. False if it leaves already.
    ///
    /// # Errors
    /// [`PoolError::Refused`] if the drive does not serve, or if the other drives lack something for what it holds or for the
    /// layout, with what that is: nothing changed then. [`PoolError::Offline`] if the pool is or goes offline.
    pub fn evacuate_drive(&self, drive: DriveIndex, narrower: bool) -> Compiled<'_, Result<bool, PoolError>> {
        Box::pin(async move {
            let store = self.store();
            let _turn = store.turn_of_drives().await;
            store.health().check()?;
            let name = store.drive_name(drive).to_owned();
            let refuse = |why: String| PoolError::Refused(format!("drive {name} cannot be evacuated: {why}"));
            match store.members().get(drive).map(|member| member.state) {
                Some(MemberState::Active) => {}
                Some(MemberState::Leaving) => return Ok(false),
                Some(MemberState::Absent) => {
                    return Err(refuse("it is absent; bring it back, or remove it".into()));
                }
                Some(MemberState::Failed) => {
                    return Err(refuse("it failed, and the other drives make up for it; remove it".into()));
                }
                Some(MemberState::Gone) | None => return Err(refuse("the pool does not have it".into())),
            }
            if let Some(why) = self.why_not_without(drive, narrower) {
                return Err(refuse(why));
            }
            // Nobody counts on it from here on. What was admitted before must fit all the same.
            let trial = store.try_without(drive);
            self.slices().iter().for_each(|slice| slice.pass_shards());
            if let Some(why) = self.why_no_room_without(drive) {
                return Err(refuse(why));
            }
            store.set_leaving(drive, true).await?;
            drop(trial);
            for (slice, short) in self.slices().iter().zip(self.short_without(drive)) {
                if short > 0 {
                    slice.ask_for(short);
                }
            }
            Ok(true)
        })
    }

    /// Has a drive that leaves stay. False if it does not leave.
    ///
    /// # Errors
    /// [`PoolError::Offline`] if the pool is or goes offline.
    pub fn cancel_evacuation(&self, drive: DriveIndex) -> Compiled<'_, Result<bool, PoolError>> {
        Box::pin(async move {
            let store = self.store();
            let _turn = store.turn_of_drives().await;
            store.health().check()?;
            if !store.leaving().contains(&drive) {
                return Ok(false);
            }
            store.set_leaving(drive, false).await?;
            Ok(true)
        })
    }

    /// What each drive that leaves holds still.
    pub fn evacuations(&self) -> Vec<Evacuation> {
        self.store().leaving().into_iter().map(|drive| self.evacuation(drive)).collect()
    }

    fn evacuation(&self, drive: DriveIndex) -> Evacuation {
        let mut all = Holdings::default();
        self.slices().iter().for_each(|slice| all.add(slice.segments.table.holdings(drive)));
        let holds_journal = self.slices().iter().any(|slice| slice.log.journal.lies_on(drive));
        Evacuation {
            drive,
            columns: all.columns,
            bytes: all.bytes,
            holds_journal,
            holds_table: all.has_table,
            is_done: all.is_empty() && !holds_journal,
        }
    }

    /// Removes a drive that left or failed, once nothing refers to it: it is gone, durably, and blank if it can be written to.
    /// False if something refers to it still. One that is absent is given up first: it comes back no more.
    ///
    /// # Errors
    /// [`PoolError::Refused`] if the drive serves, the pool never had it, or there is no room for a checkpoint. [`PoolError::Offline`] if the pool is or goes
    /// offline.
    pub fn remove_drive(&self, drive: DriveIndex) -> Compiled<'_, Result<bool, PoolError>> {
        Box::pin(async move {
            let store = self.store();
            let _turn = store.turn_of_drives().await;
            store.health().check()?;
            let refuse = |why: &str| {
                let name = store.drive_name(drive);
                PoolError::Refused(format!("drive {name} cannot be removed: {why}"))
            };
            match store.members().get(drive).map(|member| member.state) {
                Some(MemberState::Leaving | MemberState::Failed) => {}
                Some(MemberState::Absent) => {
                    if let Some(why) = self.lost_without(drive) {
                        return Err(refuse(&why));
                    }
                    store.fail_drive(drive).await?;
                }
                Some(MemberState::Active) => return Err(refuse("it serves; evacuate it first")),
                Some(MemberState::Gone) => return Ok(true),
                None => return Err(refuse("the pool does not have it")),
            }
            if !store.is_let_go(drive) {
                return Ok(false);
            }
            // NOTE: what nothing in RAM refers to, the next checkpoint does not refer to either.
            store.unless_held_up(self.checkpoint()).await?;
            if !store.is_let_go(drive) {
                return Ok(false);
            }
            // A drive that is gone is no loss any more that spare domains are for.
            self.relax_spare_without(drive);
            store.set_gone(drive).await?;
            // Nobody is to take it for a member of the pool, which it is not any more in any case.
            if let Some(drive) = store.drive(drive).filter(|drive| !drive.is_failed())
                && let Err(error) = drive.erase().await
            {
                tracing::warn!(drive = drive.name(), %error, "a drive that left the pool could not be erased");
            }
            Ok(true)
        })
    }

    /// What new segments would be without a drive: their layout, and in how many fault domains drives would be left. `None` if
    /// it is the same as now.
    pub fn narrower_without(&self, drive: DriveIndex) -> Option<(Layout, usize)> {
        let (now, then) = (self.store().layouts(), self.store().layouts_but(Some(drive)));
        (then.of_data() != now.of_data()).then(|| (then.of_data(), then.domain_count()))
    }

    /// Why the pool cannot do without a drive that serves, if so.
    fn why_not_without(&self, drive: DriveIndex, narrower: bool) -> Option<String> {
        let members = self.store().members();
        let member = members.get(drive)?;
        let why_no_data = member.roles.data.then(|| self.why_no_layout_without(drive, narrower)).flatten();
        let why_no_journal = member.in_journal.then(|| self.why_no_journal_without(drive)).flatten();
        why_no_data.or(why_no_journal).or_else(|| self.why_no_room_without(drive))
    }

    fn why_no_layout_without(&self, drive: DriveIndex, narrower: bool) -> Option<String> {
        let store = self.store();
        let (now, then) = (store.layouts(), store.layouts_but(Some(drive)));
        let (layout, domains) = (store.layout(), then.domain_count());
        if domains == 0 {
            return Some("no other drive is for data; add one first".into());
        }
        if then.of_data().parity() < now.of_data().parity() {
            return Some(format!(
                "layout {layout} needs drives for data in {} fault domains to tolerate {}, and without it they are in \
                 {domains}; add a drive in another one first",
                now.of_data().parity() + 1,
                if now.of_data().parity() == 1 {
                    "a failure".to_owned()
                } else {
                    format!("{} failures", now.of_data().parity())
                },
            ));
        }
        (then.of_data() != now.of_data() && !narrower).then(|| {
            format!(
                "layout {layout} needs {} fault domains for segments as wide as they are, and without it there are {domains}: \
                 data would move to narrower ones, {}, which take more space; add a drive in another domain first, or confirm \
                 that they may be narrower",
                now.of_data().columns(),
                then.of_data()
            )
        })
    }

    fn why_no_journal_without(&self, drive: DriveIndex) -> Option<String> {
        let columns = self.store().journal_columns();
        for slice in self.slices() {
            let journal = &slice.log.journal;
            let JournalWithout { drives, domains, total } = journal.without(drive);
            if drives == 0 {
                return Some("no other drive holds the journal".into());
            }
            if domains < columns && domains < journal.without(DriveIndex(u16::MAX)).domains {
                return Some(format!(
                    "the journal is written to drives in {columns} fault domains side by side, and without it those that hold \
                     the journal are in {domains}"
                ));
            }
            let least = journal.least_extents();
            if total < least {
                return Some(format!(
                    "the journal needs {least} extents for its lanes, and there are {total} on the other drives that hold it"
                ));
            }
        }
        None
    }

    /// Why what is live and promised has no room without a drive, if so.
    fn why_no_room_without(&self, drive: DriveIndex) -> Option<String> {
        let short: u64 = self.short_without(drive).into_iter().sum();
        let store = self.store();
        let overhead = Overhead::of(&store.layouts_but(Some(drive)));
        let (short, slab_bytes) = (overhead.raw(short), u64::from(store.slab_bytes()));
        let (mut ungranted, mut free) = (store.nobodys_slabs_but(drive), 0);
        for space in self.drive_space().into_iter().filter(|space| space.drive != drive) {
            free += space.data_bytes - space.used_bytes;
        }
        ungranted = ungranted.min(free / slab_bytes);
        (short > ungranted).then(|| {
            let held: u64 = self.slices().iter().map(|slice| slice.segments.table.live_on(drive)).sum();
            format!(
                "the other drives lack {} bytes for the {held} bytes on it: they have {free} bytes free, of which checkpoints, \
                 the cleaner and reservations need a part; delete volumes or snapshots, or add a drive",
                (short - ungranted) * slab_bytes
            )
        })
    }

    /// How many net slabs each slice would lack without a drive.
    fn short_without(&self, drive: DriveIndex) -> Vec<u64> {
        let layouts: Layouts = self.store().layouts_but(Some(drive));
        let overhead = Overhead::of(&layouts);
        let short = self.slices().iter().map(|slice| {
            let NetUse { held, free, live } = slice.segments.table.usage_as(&layouts);
            let for_all = slice.space.short_with(held, live, overhead, slice.buffer.charged_blocks());
            // NOTE: checkpoints and the cleaner need free slabs now. What could be cleaned on the other drives is not free.
            for_all.max((2 * slice.space.clean_below()).saturating_sub(free))
        });
        short.collect()
    }

    /// Sets how fast columns are made again and moved. Not kept when the pool is closed.
    pub fn set_rebuild_rate(&self, rate: RebuildRate) {
        self.store().rate().set(rate.floor_bytes_s, rate.cap_bytes_s);
    }

    /// Begins or ceases to move columns from fuller drives to emptier ones, while nothing has to be rebuilt or leaves. Not kept
    /// when the pool is closed.
    pub fn set_balancing(&self, balances: bool) {
        self.store().set_balances(balances);
    }

    /// How evenly drives are used.
    pub fn balance(&self) -> Balance {
        let mut balance = Balance { balances: self.store().balances(), ..Balance::default() };
        for slice in self.slices() {
            let (percents, moves) = slice.balance();
            balance.moves |= moves;
            if let Some((most, least)) = percents {
                balance.most_apart_percent = balance.most_apart_percent.max(most - least);
            }
        }
        balance
    }
}
