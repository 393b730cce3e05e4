//! Rebuild and balancing: how fast columns are made again and moved, whether drives are evened out, and how far that is.
//!
//! The settings are one object of the catalog. The pool does the work and knows what is left of it.

use crate::{
    Array, ArrayError,
    events::Told,
    progress::Progress,
    record::{REBUILD_OBJECT, decode, encode},
};
use quoin_api::{self as api, BalanceMode};
use quoin_pool::{Pool, RebuildRate, Transaction};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// The key of the object in the catalog.
const KEY: &str = "rebuild";
/// What a rebuild gets at least beside hosts, unless something else is set.
const DEFAULT_MIN_RATE_BYTES_S: u64 = 10 << 20;
/// How long a drive that went away is waited for, unless something else is set.
const DEFAULT_REPAIR_DELAY_S: u64 = 60 * 60;
/// Balancing by hand ends when used shares are so close, in percent of a drive.
const EVEN_PERCENT: u64 = 3;
/// It ends too after so many looks in which nothing moved.
const MOST_IDLE_LOOKS: u32 = 30;

/// The settings, as the catalog has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RebuildRecord {
    min_rate_bytes_s: u64,
    max_rate_bytes_s: u64,
    repair_delay_s: u64,
    balance: BalanceMode,
}

impl Default for RebuildRecord {
    fn default() -> Self {
        Self {
            min_rate_bytes_s: DEFAULT_MIN_RATE_BYTES_S,
            max_rate_bytes_s: 0,
            repair_delay_s: DEFAULT_REPAIR_DELAY_S,
            balance: BalanceMode::default(),
        }
    }
}

/// The settings, the progress of a rebuild, and whether balancing was begun by hand.
#[derive(Default)]
pub(crate) struct Rebuilds {
    record: RebuildRecord,
    progress: Option<Progress>,
    /// Looks in which nothing moved, of balancing that was begun by hand.
    by_hand: Option<u32>,
}

/// The problem of the object of rebuild settings, if it has one.
pub(crate) fn rebuild_problem(key: &str, bytes: &[u8]) -> Option<String> {
    match decode::<RebuildRecord>(key, bytes) {
        Ok(_) if key == KEY => None,
        Ok(_) => Some(format!("it should be called {KEY}")),
        Err(error) => Some(error.to_string()),
    }
}

impl Array {
    /// Takes over the settings from a newly opened pool, and applies them.
    pub(crate) fn restore_rebuild(&self, pool: &Pool) -> Result<(), ArrayError> {
        let kept = pool.get(REBUILD_OBJECT, KEY).map(|bytes| decode(KEY, &bytes)).transpose()?;
        let mut rebuilds = self.rebuilds();
        *rebuilds = Rebuilds { record: kept.unwrap_or_default(), ..Rebuilds::default() };
        apply(&rebuilds, pool);
        Ok(())
    }

    /// The settings, and how far rebuild and balancing are.
    ///
    /// # Errors
    /// `Offline` while the pool is not open.
    pub fn show_rebuild(&self) -> Result<api::Rebuild, ArrayError> {
        let pool = self.pool()?;
        let rebuilds = self.rebuilds();
        let RebuildRecord { min_rate_bytes_s, max_rate_bytes_s, repair_delay_s, balance } = rebuilds.record;
        let evenness = pool.balance();
        Ok(api::Rebuild {
            min_rate_bytes_s,
            max_rate_bytes_s,
            repair_delay_s,
            balance,
            balancing: evenness.balances && evenness.moves,
            apart_percent: evenness.most_apart_percent,
            running: rebuilds.progress.as_ref().map(view),
        })
    }

    /// Changes how fast columns are rebuilt and moved, how long absent drives are waited for, and when drives are balanced.
    ///
    /// # Errors
    /// `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn change_rebuild(&self, update: api::RebuildUpdate) -> Result<api::Rebuild, ArrayError> {
        {
            let turn = self.catalog().turn().await;
            let pool = self.pool()?;
            let before = self.rebuilds().record;
            let record = RebuildRecord {
                min_rate_bytes_s: update.min_rate_bytes_s.unwrap_or(before.min_rate_bytes_s),
                max_rate_bytes_s: update.max_rate_bytes_s.unwrap_or(before.max_rate_bytes_s),
                repair_delay_s: update.repair_delay_s.unwrap_or(before.repair_delay_s),
                balance: update.balance.unwrap_or(before.balance),
            };
            // A cap below the floor goes before it: nothing is ever moved faster than the cap.
            let rate = |rate: u64| match rate {
                0 => "no limit".to_owned(),
                rate => format!("{rate} bytes per second"),
            };
            let text = format!(
                "rebuild settings changed: at least {}, at most {}, repair delay {} s, balancing {}",
                rate(record.min_rate_bytes_s),
                rate(record.max_rate_bytes_s),
                record.repair_delay_s,
                record.balance
            );
            let own = Told::new(self.pool_name(), text)
                .change("min_rate_bytes_s", before.min_rate_bytes_s, record.min_rate_bytes_s)
                .change("max_rate_bytes_s", before.max_rate_bytes_s, record.max_rate_bytes_s)
                .change("repair_delay_s", before.repair_delay_s, record.repair_delay_s)
                .change("balance", before.balance, record.balance);
            if !own.changes.is_empty() {
                let tx = Transaction::new().put(REBUILD_OBJECT, KEY, encode(&record));
                self.commit_told(&turn, tx, own).await?;
                let mut rebuilds = self.rebuilds();
                rebuilds.record = record;
                apply(&rebuilds, &pool);
            }
        }
        self.show_rebuild()
    }

    /// Begins to even out drives by hand, or ceases to.
    ///
    /// # Errors
    /// `Offline` while the pool is not open.
    pub async fn balance(&self, begins: bool) -> Result<api::Rebuild, ArrayError> {
        let pool = self.pool()?;
        let before = {
            let mut rebuilds = self.rebuilds();
            let before = std::mem::replace(&mut rebuilds.by_hand, begins.then_some(0)).is_some();
            if begins || rebuilds.record.balance == BalanceMode::Manual {
                pool.set_balancing(begins);
            } else {
                // It is begun again by itself when drives are uneven, or when it is asked for.
                pool.set_balancing(false);
            }
            before
        };
        let text = if begins { "balancing of drives started" } else { "balancing of drives stopped" };
        let told = Told::new(self.pool_name(), text).change("balancing", before, begins);
        if !told.changes.is_empty() {
            self.log().record_told(api::Severity::Info, told);
        }
        self.show_rebuild()
    }

    /// Looks how far a rebuild is, and ends balancing that was begun by hand when drives are even.
    pub(crate) fn tend_rebuild(&self, pool: &Arc<Pool>) {
        let left = pool.protection().lacking_bytes;
        let mut rebuilds = self.rebuilds();
        if left > 0 {
            let now = self.world().now();
            rebuilds.progress.get_or_insert_with(|| Progress::of(left)).look(now, left);
        } else {
            rebuilds.progress = None;
        }
        let balance = pool.balance();
        let record = rebuilds.record;
        if let Some(idle) = &mut rebuilds.by_hand {
            *idle = if balance.moves { 0 } else { *idle + 1 };
            if balance.most_apart_percent < EVEN_PERCENT || *idle > MOST_IDLE_LOOKS {
                rebuilds.by_hand = None;
                pool.set_balancing(record.balance == BalanceMode::Auto);
            }
        }
    }

    /// How far a rebuild is; `None` if there is none.
    pub(crate) fn rebuild_progress(&self) -> Option<api::WorkProgress> {
        self.rebuilds().progress.as_ref().map(view)
    }
}

fn apply(rebuilds: &Rebuilds, pool: &Pool) {
    let RebuildRecord { min_rate_bytes_s, max_rate_bytes_s, repair_delay_s, balance } = rebuilds.record;
    let rate = RebuildRate { floor_bytes_s: min_rate_bytes_s, cap_bytes_s: max_rate_bytes_s };
    pool.set_rebuild_rate(rate);
    pool.set_repair_delay(Duration::from_secs(repair_delay_s));
    pool.set_balancing(balance == BalanceMode::Auto || rebuilds.by_hand.is_some());
}

fn view(progress: &Progress) -> api::WorkProgress {
    api::WorkProgress {
        left_bytes: progress.left_bytes(),
        total_bytes: progress.total_bytes(),
        percent: progress.percent(),
        bytes_per_s: progress.bytes_per_s(),
        remaining_s: progress.remaining_s(),
    }
}
