//! Opens the pool, notices when it goes offline, opens it again when its drives are back.

use crate::{
    Array,
    access::Access,
    bin_setting::BinSetting,
    drive_opening::with_faults,
    export_list::read_exports,
    history::History,
    not_opened::{NOT_REOPENED, NotOpened},
    qos_record::Qos,
    reserve_watch::Reserves,
    schedule_list::read_schedules,
    space::{Found, taken_bytes},
};
use futures_util::future::select;
use quoin_api::Severity;
use quoin_pool::{Pool, PoolError, PoolState, PoolStats, Transaction};
use std::{pin::pin, sync::Arc, time::Duration};

/// How often an open pool is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The delay before the first retry to open a pool that is offline: a process that was killed releases its drives a
/// moment after it has ended. Each further delay is twice as long, up to [`RETRY_EVERY`].
const RETRY_FIRST: Duration = Duration::from_millis(50);
/// How often it is tried in the long run.
const RETRY_EVERY: Duration = Duration::from_secs(3);

/// How long a drive in use by another process is not reported: a process that was killed releases its drives a moment
/// after it has ended.
const IN_USE_FOR: Duration = Duration::from_secs(5);

/// How many places that were damaged without loss get an event of their own when a pool is opened.
const MOST_MENDED_EVENTS: usize = 8;

/// How often, and how many times, the array checks whether the drives of a closed pool are released.
const LET_GO_LOOK_EVERY: Duration = Duration::from_millis(20);
const LET_GO_LOOKS: u32 = 250;

impl Array {
    /// Opens the pool and keeps it open until [`Array::stop`] is called; then closes it, so that the next start
    /// has nothing to recover. Runs on a data thread.
    pub async fn run(self: Arc<Self>) {
        let mut retry = RETRY_FIRST;
        let mut in_use_since = None;
        let mut taken_over = false;
        while !self.life().is_stopping() {
            let pause = match self.catalog().open_pool() {
                Ok(pool) => {
                    taken_over = self.look_at(pool).await;
                    (retry, in_use_since) = (RETRY_FIRST, None);
                    LOOK_EVERY
                }
                Err(_) if taken_over => LOOK_EVERY,
                Err(before) => match self.open().await {
                    Ok(()) => LOOK_EVERY,
                    Err(NotOpened { in_use: true, .. })
                        if self.world().now().since(*in_use_since.get_or_insert(self.world().now()))
                            < IN_USE_FOR =>
                    {
                        RETRY_FIRST
                    }
                    Err(NotOpened { reason, in_use, taken_over: is_taken_over }) => {
                        in_use_since = in_use_since.filter(|_| in_use);
                        taken_over = is_taken_over;
                        self.stay_offline(&before, reason, taken_over);
                        let pause = retry;
                        retry = (pause * 2).min(RETRY_EVERY);
                        pause
                    }
                },
            };
            self.tend_portals().await;
            self.log().tend();
            select(self.world().sleep(pause), pin!(self.life().stopped())).await;
        }
        self.close().await;
    }

    /// Makes [`Array::run`] close the pool and return. Drives that do not answer are not waited for.
    pub fn stop(&self) {
        self.hurry_drives();
        if let Ok(pool) = self.catalog().open_pool() {
            // NOTE: before anything waits for a turn, which a change that waits for room may have.
            pool.stop_waiting_for_room();
        }
        self.life().stop();
    }

    /// True if another owner has taken the pool over.
    async fn look_at(self: &Arc<Self>, pool: Arc<Pool>) -> bool {
        match pool.state() {
            PoolState::Online => {
                let stats = pool.stats();
                self.give_up_silent(&pool).await;
                self.tend_absent(&pool).await;
                self.look_at_members(&pool);
                self.tend_unreadable(&pool);
                self.tend_leaving(&pool).await;
                self.tend_rebuild(&pool);
                self.tend_slow_drives(&pool);
                self.tend_failing_drives(&pool).await;
                self.tend_policies(&pool);
                self.follow_qos();
                self.look_at_room(&pool);
                self.tend_spare(&pool).await;
                self.watch_space(&stats);
                self.giving_back().look(self.world().now(), &stats);
                self.keep_retention().await;
                self.tend_recycle_bin(&pool, &stats).await;
                let due = self.look_at_reserves(&pool, &stats);
                self.recover_reserves(due).await;
                self.serve_schedules().await;
                self.tend_scrubs(&pool).await;
                self.tend_copies().await;
                self.target().tick(self.world().now());
                self.tend_images();
                self.tend_reductions(&pool);
                self.tend_history(&pool).await;
                self.save_events(&pool).await;
                false
            }
            PoolState::Offline { reason } => {
                let taken_over = pool.is_taken_over();
                let next = if taken_over {
                    NOT_REOPENED
                } else {
                    "The array reopens the pool when its drives answer"
                };
                let text = format!("offline: {reason}. Hosts get errors. {next}.");
                self.log().record(Severity::Critical, self.pool_name(), text);
                self.life().state_changed(self.world().wall_clock_ms());
                let reason = if taken_over { format!("{reason}. {NOT_REOPENED}") } else { reason };
                if let Err(error) = self.close_pool(pool, &reason).await {
                    tracing::debug!(%error, "the pool that failed did not close cleanly");
                }
                taken_over
            }
        }
    }

    /// Looks how full the pool is, and notifies administrators and hosts.
    pub(crate) fn watch_space(&self, stats: &PoolStats) {
        let mut watch = self.space();
        let found = watch.look(stats);
        let thresholds = self.catalog().thresholds();
        thresholds.set(watch.thresholds_bytes(stats));
        thresholds.note_used(taken_bytes(stats));
        thresholds.note_available(stats.free_bytes);
        drop(watch);
        if let Some(Found { severity, text, is_rise }) = found {
            self.log().record(severity, self.pool_name(), text);
            if is_rise {
                self.catalog().thresholds().reach();
            }
        }
    }

    fn stay_offline(&self, before: &str, reason: String, taken_over: bool) {
        if before != reason {
            let next = if taken_over { "" } else { " The array tries again every few seconds." };
            let text = format!("cannot be opened: {reason}.{next}");
            self.log().record(Severity::Critical, self.pool_name(), text);
            self.catalog().explain(reason);
        }
        if self.life().note_attempt() {
            self.life().state_changed(self.world().wall_clock_ms());
        }
    }

    async fn open(self: &Arc<Self>) -> Result<(), NotOpened> {
        let opened = self.open_pool().await;
        if let Err(NotOpened { reason, .. }) = &opened {
            // Holding a drive holds its lock, and the next attempt could not open it.
            self.drives().release(reason);
        }
        opened
    }

    async fn open_pool(self: &Arc<Self>) -> Result<(), NotOpened> {
        let (drives, faults) = self.open_drives().await?;
        let opened = Pool::open(self.world().clone(), drives, self.options().pool_options.clone()).await;
        let pool = opened.map_err(|error| {
            let not_opened = NotOpened::from(error);
            NotOpened { reason: with_faults(faults, not_opened.reason.clone()), ..not_opened }
        })?;
        if let Err(error) = self.restore(&pool).await {
            drop(pool.close().await);
            return Err(error.into());
        }
        self.log().record(Severity::Info, self.pool_name(), "online");
        // Whether it has what it lacked before shows when it destages.
        self.drives().note_slabs(false);
        self.life().state_changed(self.world().wall_clock_ms());
        self.tell_mended(pool.mended());
        self.look_at_members(&pool);
        self.note_pause();
        // Before initiators are admitted, so that their view of the space does not change right after.
        let stats = pool.stats();
        self.space().opened(&stats);
        self.watch_space(&stats);
        self.serve_portals(&self.catalog().turn().await).await;
        self.life().note_attempt();
        self.tend_copies().await;
        self.save_events(&pool).await;
        self.trim_volumes();
        Ok(())
    }

    /// Reports damage that caused no loss.
    fn tell_mended(&self, mended: &[String]) {
        for text in mended.iter().take(MOST_MENDED_EVENTS) {
            self.log().record(Severity::Warning, self.pool_name(), text.as_str());
        }
        if mended.len() > MOST_MENDED_EVENTS {
            let more = mended.len() - MOST_MENDED_EVENTS;
            let text = format!("{more} more places were damaged without loss: the log names them");
            self.log().record(Severity::Warning, self.pool_name(), text);
        }
    }

    /// Reads the state of the array from the catalog, and serves it.
    async fn restore(&self, pool: &Arc<Pool>) -> Result<(), String> {
        let turn = self.catalog().turn().await;
        self.log().restore(pool);
        let access = Access::read(pool).map_err(|e| e.to_string())?;
        let exported = read_exports(pool).map_err(|e| e.to_string())?;
        let schedules = read_schedules(pool).map_err(|e| e.to_string())?;
        let reserves = Reserves::read(pool).map_err(|e| e.to_string())?;
        let qos = Qos::read(pool).map_err(|e| e.to_string())?;
        let bin = BinSetting::read(pool).map_err(|e| e.to_string())?;
        self.volumes().restore(pool).map_err(|e| e.to_string())?;
        self.restore_scrubs(pool).map_err(|e| e.to_string())?;
        self.restore_rebuild(pool).map_err(|e| e.to_string())?;
        self.restore_policies(pool).map_err(|e| e.to_string())?;
        self.restore_pool_settings(pool).map_err(|e| e.to_string())?;
        self.catalog().put(&turn, pool.clone());
        self.hosts().change(&turn, self.volumes(), |current| *current = access);
        self.export_list().change(&turn, self.volumes(), |current| *current = exported);
        self.schedules().restore(schedules);
        *self.bin() = bin;
        self.reserves().restore(reserves);
        *self.history() = History::read(pool);
        self.restore_qos(qos);
        self.look_at_all_reserves(pool);
        self.restore_portals(&turn, pool).await.map_err(|e| e.to_string())?;
        self.catalog().note_read(&turn);
        Ok(())
    }

    async fn save_events(&self, pool: &Pool) {
        if !self.log().any_waiting() {
            return;
        }
        let turn = self.catalog().turn().await;
        let (tx, staged) = self.stage_waiting(&turn, Transaction::new());
        match pool.commit(tx).await {
            Ok(()) => self.log().saved(staged),
            Err(error) => tracing::debug!(%error, "events wait to be saved"),
        }
    }

    async fn close(&self) {
        self.log().tell_refusals(true);
        self.log().record(Severity::Info, "array", "stopped by request");
        let Ok(pool) = self.catalog().open_pool() else {
            self.log().close();
            return;
        };
        self.stop_retention().await;
        self.save_events(&pool).await;
        self.log().close();
        if let Err(error) = self.close_pool(pool, "the array stops").await {
            tracing::error!(%error, "the pool was not closed cleanly; the next start recovers it");
        }
    }

    /// Empties the slot, closes the pool, and waits until no owner holds its drives, so that they can be opened again.
    async fn close_pool(&self, pool: Arc<Pool>, reason: &str) -> Result<(), PoolError> {
        self.suspend_scrub(&pool).await;
        let turn = self.catalog().turn().await;
        self.catalog().take_out(&turn, reason);
        let closed = pool.close().await;
        drop(pool);
        for _ in 0..LET_GO_LOOKS {
            if self.drives().all_let_go() {
                break;
            }
            self.world().sleep(LET_GO_LOOK_EVERY).await;
        }
        self.drives().release(reason);
        closed
    }
}

#[cfg(test)]
mod tests;
