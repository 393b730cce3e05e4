//! Settings of the pool that are changed while it serves: one object of its catalog.
//!
//! The object holds what was set, and nothing else: the configuration says the rest, so that a key of it that nobody
//! overrode keeps its effect.

use crate::{
    Array, ArrayError, SpacePercents,
    events::Told,
    failing_drives::{DEFAULT_ERRORS, MOST_ERRORS},
    record::{POOL_OBJECT, decode, encode},
};
use quoin_api as api;
use quoin_pool::{Pool, Transaction};
use serde::{Deserialize, Serialize};

/// The key of the object in the catalog.
const KEY: &str = "pool";

/// What was set, as the catalog has it. Percents are 0 for off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PoolRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    notice_percent: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    warning_percent: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    critical_percent: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    evict_errors: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spare_domains: Option<u8>,
}

impl PoolRecord {
    /// The thresholds, with what the configuration says where nothing was set.
    fn percents(&self, configured: SpacePercents) -> [u8; 3] {
        let [notice, warning, critical] = configured.into();
        let critical = self.critical_percent.unwrap_or(critical);
        let warning = self.warning_percent.unwrap_or(warning);
        [self.notice_percent.unwrap_or(notice), warning, critical]
    }
}

/// The first threshold that is above the next one that is on, with that one.
fn crossed(percents: [u8; 3]) -> Option<[(&'static str, u8); 2]> {
    let named: Vec<_> = ["notice", "warning", "critical"].into_iter().zip(percents).collect();
    let on: Vec<_> = named.into_iter().filter(|(_, percent)| *percent > 0).collect();
    on.array_windows().find(|[lower, upper]| lower.1 > upper.1).copied()
}

/// What thresholds come to if the configuration was changed below what was set: none is above the next.
fn ascending(percents: [u8; 3]) -> SpacePercents {
    let [notice, warning, critical] = percents;
    let at_most = |percent: u8, next: u8| if next == 0 { percent } else { percent.min(next) };
    let warning = at_most(warning, critical);
    [at_most(at_most(notice, critical), warning), warning, critical].into()
}

/// The problem of the object of pool settings, if it has one.
pub(crate) fn pool_settings_problem(key: &str, bytes: &[u8]) -> Option<String> {
    match decode::<PoolRecord>(key, bytes) {
        Ok(_) if key == KEY => None,
        Ok(_) => Some(format!("it should be called {KEY}")),
        Err(error) => Some(error.to_string()),
    }
}

fn kept(pool: &Pool) -> Result<PoolRecord, ArrayError> {
    let bytes = pool.get(POOL_OBJECT, KEY);
    Ok(bytes.map(|bytes| decode(KEY, &bytes)).transpose()?.unwrap_or_default())
}

/// Why settings cannot be so, if so.
fn problem(percents: [u8; 3], errors: u32) -> Option<String> {
    if errors > MOST_ERRORS {
        return Some(format!(
            "no drive has {errors} errors that count within an hour: at most {MOST_ERRORS} do"
        ));
    }
    if let Some(percent) = percents.into_iter().find(|percent| *percent > 100) {
        return Some(format!("a threshold of {percent} % is never reached"));
    }
    crossed(percents).map(|[(lower, percent), (upper, above)]| {
        format!("the {lower} threshold would be {percent} %, above the {upper} threshold, {above} %")
    })
}

/// What settings come to, for the event log.
fn described(percents: [u8; 3], errors: u32, spare: u8) -> String {
    let [notice, warning, critical] = percents.map(percent_text);
    let evicted = match errors {
        0 => "drives that err are not evacuated".to_owned(),
        errors => format!("a drive with {errors} errors within an hour is evacuated"),
    };
    let kept_spare = match spare {
        0 => "no space is kept for the loss of drives".to_owned(),
        1 => "space is kept for the loss of a fault domain".to_owned(),
        count => format!("space is kept for the loss of {count} fault domains"),
    };
    format!(
        "settings changed: thresholds: notice {notice}, warning {warning}, critical {critical}; {evicted}; {kept_spare}"
    )
}

fn percent_text(percent: u8) -> String {
    if percent == 0 { "off".to_owned() } else { format!("{percent} %") }
}

impl Array {
    /// Takes over the settings from a newly opened pool, and applies them.
    pub(crate) fn restore_pool_settings(&self, pool: &Pool) -> Result<(), ArrayError> {
        let percents = kept(pool)?.percents(self.options().space);
        self.space().set(ascending(percents), &pool.stats());
        self.failing_drives().set_limit(kept(pool)?.evict_errors.unwrap_or(DEFAULT_ERRORS));
        let spare_domains = kept(pool)?.spare_domains.unwrap_or(self.options().spare_domains);
        pool.restore_spare(spare_domains);
        self.space().spare_mut().want(spare_domains);
        Ok(())
    }

    /// The settings of the pool.
    ///
    /// # Errors
    /// `Offline` while the pool is not open.
    pub fn show_pool(&self) -> Result<api::PoolSettings, ArrayError> {
        let pool = self.pool()?;
        let [notice_percent, warning_percent, critical_percent] = self.space().percents().into();
        let evict_errors = self.failing_drives().limit();
        let spare = self.spare_view(&pool);
        Ok(api::PoolSettings { notice_percent, warning_percent, critical_percent, evict_errors, spare })
    }

    /// Changes settings of the pool.
    ///
    /// # Errors
    /// `Setting` for thresholds that are not ascending or above 100 percent, and for more spare domains than there is room for;
    /// `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn change_pool(&self, update: api::PoolUpdate) -> Result<api::PoolSettings, ArrayError> {
        {
            let turn = self.catalog().turn().await;
            let pool = self.pool()?;
            let before: [u8; 3] = self.space().percents().into();
            let record = kept(&pool)?;
            let record = PoolRecord {
                notice_percent: update.notice_percent.or(record.notice_percent),
                warning_percent: update.warning_percent.or(record.warning_percent),
                critical_percent: update.critical_percent.or(record.critical_percent),
                evict_errors: update.evict_errors.or(record.evict_errors),
                spare_domains: update.spare_domains.or(record.spare_domains),
            };
            let spare_before = self.space().spare().wanted();
            let spare = update.spare_domains.unwrap_or(spare_before);
            let (errors_before, errors) =
                (self.failing_drives().limit(), record.evict_errors.unwrap_or(DEFAULT_ERRORS));
            let percents = record.percents(self.options().space);
            if let Some(why) = problem(percents, errors) {
                return Err(ArrayError::Setting { why });
            }
            let own = Told::new(self.pool_name(), described(percents, errors, spare))
                .change("notice_percent", before[0], percents[0])
                .change("warning_percent", before[1], percents[1])
                .change("critical_percent", before[2], percents[2])
                .change("evict_errors", errors_before, errors)
                .change("spare_domains", spare_before, spare);
            // More is kept first, since it may be refused; less only once it is so for good.
            let kept_before = pool.spare().domains;
            if update.spare_domains.is_some_and(|spare| spare > kept_before) {
                self.keep_spare(&pool, spare).await?;
            }
            if !own.changes.is_empty() {
                let tx = Transaction::new().put(POOL_OBJECT, KEY, encode(&record));
                if let Err(error) = self.commit_told(&turn, tx, own).await {
                    if spare > kept_before {
                        self.keep_spare(&pool, kept_before).await?;
                    }
                    return Err(error);
                }
                if spare < kept_before {
                    self.keep_spare(&pool, spare).await?;
                }
                self.space().spare_mut().want(spare);
                let stats = pool.stats();
                self.space().set(percents.into(), &stats);
                self.failing_drives().set_limit(errors);
                self.watch_space(&stats);
            }
        }
        self.show_pool()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_goes_before_the_configuration_and_the_rest_follows_it() {
        let set = PoolRecord { critical_percent: Some(70), ..PoolRecord::default() };
        let percents = set.percents(SpacePercents::default());
        assert_eq!((percents, crossed(percents)), ([60, 80, 70], Some([("warning", 80), ("critical", 70)])));
        assert_eq!(<[u8; 3]>::from(ascending(percents)), [60, 70, 70]);
        let off = PoolRecord { warning_percent: Some(0), ..set };
        assert_eq!(crossed(off.percents(SpacePercents::default())), None);
        let bytes = encode(&off);
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            r#"{"version":1,"warning_percent":0,"critical_percent":70}"#
        );
        assert!(
            pool_settings_problem(KEY, &bytes).is_none() && pool_settings_problem("other", &bytes).is_some()
        );
    }
}
