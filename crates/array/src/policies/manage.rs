//! Policies are made, changed and deleted, and what follows for the volumes that have them.

use super::{Policies, PolicyRecord};
use crate::{
    Array, ArrayError, PolicyError,
    compression::{of_api, to_api, told as compression_text},
    deduplication::told as deduplication_text,
    events::Told,
    origin::is_snapshot,
    progress::Progress,
    qos_record::Limited,
    record::{POLICY_OBJECT, decode},
};
use quoin_api::{
    self as api, ComplianceState, DEFAULT_POLICY, Deduplication, PolicyCompression, PolicyDeduplication,
    Reservation,
};
use quoin_base::Layout;
use quoin_pool::{Pool, Transaction, VolumeLayout};
use quoin_volume::{Assigned, Volume, check_name};
use std::{collections::BTreeMap, sync::Arc};

/// How many there may be beside the default one.
const POLICIES_MAX: usize = 100;
/// The layout whose width the array chooses, and its columns of parity.
const WIDE: &str = "wide";
const WIDE_PARITY: u8 = 2;
const NOT_WIDE: &str = "a wide layout has two columns of parity and two of data at least, in 4 fault domains: add drives in \
                        others, or choose another layout";

impl Array {
    /// Takes over the policies of a newly opened pool.
    pub(crate) fn restore_policies(&self, pool: &Pool) -> Result<(), ArrayError> {
        let read = pool.list(POLICY_OBJECT).into_iter();
        let by_name: Result<BTreeMap<_, _>, ArrayError> =
            read.map(|(key, value)| Ok((key.clone(), decode(&key, &value)?))).collect();
        *self.policies() = Policies { by_name: by_name?, ..Policies::default() };
        Ok(())
    }

    /// Creates a policy.
    ///
    /// # Errors
    /// [`PolicyError`] for a name that breaks the rules or is taken, and for a layout that is none or that the pool cannot
    /// place. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn create_policy(&self, request: api::PolicyCreate) -> Result<api::Policy, ArrayError> {
        let turn = self.catalog().turn().await;
        let pool = self.pool()?;
        let api::PolicyCreate { name, layout, failures_to_tolerate, force_provisioning, .. } = request;
        let reservation = request.reservation;
        let (compression, deduplication) = (request.compression.wanted(), request.deduplication.wanted());
        check_name(&name).map_err(PolicyError::Name)?;
        {
            let policies = self.policies();
            if name == DEFAULT_POLICY || policies.by_name.contains_key(&name) {
                return Err(PolicyError::Exists { name }.into());
            }
            if policies.by_name.len() >= POLICIES_MAX {
                return Err(PolicyError::TooMany { most: POLICIES_MAX }.into());
            }
        }
        let asked = asked_for(&pool, &name, layout, failures_to_tolerate)?;
        let layout = match asked {
            Some(layout) => layout,
            None if reservation != Reservation::Any => pool.protection().layout,
            None if compression.is_some() || deduplication.is_some() => pool.protection().layout,
            None => return Err(PolicyError::OneOfTwo { name }.into()),
        };
        require_possible(&pool, &name, layout, force_provisioning)?;
        let created_ms = self.world().wall_clock_ms();
        let (layout_text, thick) = (layout.to_string(), thick(reservation));
        let record = PolicyRecord {
            name,
            layout: layout_text,
            force_provisioning,
            thick,
            compression,
            deduplication,
            created_ms,
        };
        let text = format!("created: {}", described(&record, layout));
        let own = Told::new(format!("policy {}", record.name), text)
            .with("layout", &record.layout)
            .with("force_provisioning", force_provisioning)
            .with("reservation", reservation.to_string())
            .with("compression", record.compression().to_string())
            .with("deduplication", record.deduplication().to_string());
        self.commit_told(&turn, record.put(Transaction::new()), own).await?;
        self.policies().by_name.insert(record.name.clone(), record.clone());
        self.policy_view(&record)
    }

    /// All policies: the default one, then the others by name.
    ///
    /// # Errors
    /// `Offline` while the pool has not been open since the array started.
    pub fn list_policies(&self) -> Result<Vec<api::Policy>, ArrayError> {
        self.require_catalog()?;
        let records: Vec<_> = self.policies().by_name.values().cloned().collect();
        let mut policies = vec![self.default_policy()?];
        for record in &records {
            policies.push(self.policy_view(record)?);
        }
        Ok(policies)
    }

    /// One policy.
    ///
    /// # Errors
    /// [`PolicyError::NotFound`] if no policy has the name. `Offline` while the pool has not been open since the array
    /// started.
    pub fn show_policy(&self, name: &str) -> Result<api::Policy, ArrayError> {
        self.require_catalog()?;
        if name == DEFAULT_POLICY { self.default_policy() } else { self.policy_view(&self.policy(name)?) }
    }

    /// Changes a policy. What its volumes have is converted in the background.
    ///
    /// # Errors
    /// [`PolicyError`] for the default policy, one that does not exist, and a layout that is none or that the pool cannot
    /// place; `CannotReserve` for want of space. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn change_policy(
        &self,
        name: &str,
        request: api::PolicyUpdate,
    ) -> Result<api::Policy, ArrayError> {
        let turn = self.catalog().turn().await;
        let pool = self.pool()?;
        if name == DEFAULT_POLICY {
            return Err(PolicyError::IsDefault.into());
        }
        let before = self.policy(name)?;
        let api::PolicyUpdate { layout, failures_to_tolerate, force_provisioning, reservation, .. } = request;
        let compression = request.compression.unwrap_or(before.compression()).wanted();
        let deduplication = request.deduplication.unwrap_or(before.deduplication()).wanted();
        let asked = asked_for(&pool, name, layout, failures_to_tolerate)?;
        let layout = asked.map_or_else(|| before.layout(), Ok)?;
        let force_provisioning = force_provisioning.unwrap_or(before.force_provisioning);
        require_possible(&pool, name, layout, force_provisioning)?;
        let reservation = reservation.unwrap_or(before.reservation());
        let (layout_text, thick) = (layout.to_string(), thick(reservation));
        let record = PolicyRecord {
            layout: layout_text,
            force_provisioning,
            thick,
            compression,
            deduplication,
            ..before.clone()
        };
        let text = format!("changed: {}; its volumes are converted", described(&record, layout));
        let own = Told::new(format!("policy {name}"), text)
            .change("layout", &before.layout, &record.layout)
            .change("force_provisioning", before.force_provisioning, force_provisioning)
            .change("reservation", before.reservation().to_string(), reservation.to_string())
            .change("compression", before.compression().to_string(), record.compression().to_string())
            .change("deduplication", before.deduplication().to_string(), record.deduplication().to_string());
        if !own.changes.is_empty() {
            let (tx, staged) = self.stage_with(&turn, record.put(Transaction::new()), own);
            let layout = own_layout(&pool, layout);
            // Volumes that were made otherwise by themselves stay so while the policy says what it said.
            let thick = thick.filter(|_| record.thick != before.thick);
            let compression = compression.filter(|_| record.compression != before.compression).map(of_api);
            let deduplication = deduplication.filter(|_| record.deduplication != before.deduplication);
            let deduplication = deduplication.map(Deduplication::is_on);
            let assigned =
                Assigned { name: Some(name.to_owned()), layout, thick, compression, deduplication };
            let changed = self.volumes().lay_out(&assigned, tx).await;
            changed.map_err(ArrayError::not("policy not changed"))?;
            self.log().saved(staged);
            self.policies().by_name.insert(name.to_owned(), record.clone());
        }
        self.policy_view(&record)
    }

    /// Deletes a policy that no volume has.
    ///
    /// # Errors
    /// [`PolicyError`] for the default policy, one that does not exist, and one that volumes have. `Offline` or `Pool` if the
    /// pool cannot commit the change.
    pub async fn delete_policy(&self, name: &str) -> Result<(), ArrayError> {
        let turn = self.catalog().turn().await;
        self.require_catalog()?;
        if name == DEFAULT_POLICY {
            return Err(PolicyError::IsDefault.into());
        }
        let record = self.policy(name)?;
        // Those in the recycle bin too: they come back with it.
        let volumes = self.of_policy(name).len() as u64;
        if volumes > 0 {
            return Err(PolicyError::InUse { name: name.to_owned(), volumes }.into());
        }
        let own = Told::new(format!("policy {name}"), "deleted")
            .without("layout", &record.layout)
            .without("force_provisioning", record.force_provisioning)
            .without("reservation", record.reservation().to_string())
            .without("compression", record.compression().to_string())
            .without("deduplication", record.deduplication().to_string());
        let tx = self.without_limits(Transaction::new(), &Limited::Policy(name.to_owned()));
        self.commit_told(&turn, tx.delete(POLICY_OBJECT, name), own).await?;
        self.policies().by_name.remove(name);
        self.forget_limits();
        Ok(())
    }

    /// A policy as a volume gets it. The pool must be able to place it.
    pub(crate) fn assigned(&self, name: Option<String>) -> Result<Assigned, ArrayError> {
        let Some(name) = name.filter(|name| name != DEFAULT_POLICY) else { return Ok(Assigned::default()) };
        let (record, pool) = (self.policy(&name)?, self.pool()?);
        let layout = record.layout()?;
        require_possible(&pool, &name, layout, record.force_provisioning)?;
        let (layout, thick) = (own_layout(&pool, layout), record.thick);
        let compression = record.compression.map(of_api);
        let deduplication = record.deduplication.map(Deduplication::is_on);
        Ok(Assigned { name: Some(name), layout, thick, compression, deduplication })
    }

    /// The policy that a volume gets in place of another one; `None` if it keeps its own.
    pub(crate) fn assigned_anew(
        &self,
        volume: &Volume,
        policy: Option<String>,
    ) -> Result<Option<Assigned>, ArrayError> {
        let before = volume.policy().unwrap_or_else(|| DEFAULT_POLICY.to_owned());
        let policy = policy.filter(|policy| *policy != before);
        policy.map(|policy| self.assigned(Some(policy))).transpose()
    }

    /// Whether the policy of a volume says that it is thick, or thin.
    pub(crate) fn policy_thick(&self, volume: &Volume) -> Option<bool> {
        self.policies().by_name.get(&volume.policy()?)?.thick
    }

    /// How the policy of a volume says that it is compressed.
    pub(crate) fn policy_compression(&self, volume: &Volume) -> Option<api::Compression> {
        self.policies().by_name.get(&volume.policy()?)?.compression
    }

    /// Whether the policy of a volume says that it is deduplicated, or that it is not.
    pub(crate) fn policy_deduplication(&self, volume: &Volume) -> Option<Deduplication> {
        self.policies().by_name.get(&volume.policy()?)?.deduplication
    }

    /// Whether a volume is as its policy says; `None` while the pool is offline.
    pub(crate) fn compliance(&self, volume: &Volume) -> Option<api::Compliance> {
        let found = self.pool().ok()?.volume_layout(volume.id())?;
        let thick = self.policy_thick(volume).filter(|_| !is_snapshot(volume));
        let compression = self.policy_compression(volume).filter(|_| !is_snapshot(volume));
        let deduplication = self.policy_deduplication(volume).filter(|_| !is_snapshot(volume));
        let differs = thick.is_some_and(|thick| thick != volume.is_thick())
            || is_other(compression, volume.compression().map(to_api))
            || is_other(deduplication, volume.deduplication().map(Deduplication::from));
        let policies = self.policies();
        let compliance = compliance(&found, policies.converting.get(&volume.id()));
        Some(api::Compliance {
            state: match compliance.state {
                ComplianceState::Compliant if differs => ComplianceState::Differs,
                state => state,
            },
            reservation: reservation(thick),
            compression: compression.into(),
            deduplication: deduplication.into(),
            ..compliance
        })
    }

    /// Looks how far conversions are.
    pub(crate) fn tend_policies(&self, pool: &Arc<Pool>) {
        let now = self.world().now();
        let left = |volume: &Arc<Volume>| {
            let found = pool.volume_layout(volume.id()).filter(|found| found.is_converting)?;
            Some((volume.id(), found.left_bytes))
        };
        let left: BTreeMap<_, _> = self.volumes().list().iter().filter_map(left).collect();
        // What has ended is not shown any more.
        let mut policies = self.policies();
        policies.converting.retain(|id, _| left.contains_key(id));
        for (id, left) in left {
            policies.converting.entry(id).or_insert_with(|| Progress::of(left)).look(now, left);
        }
    }

    /// The name of a policy, if it exists.
    pub(crate) fn policy_named(&self, name: &str) -> Option<String> {
        let exists = name == DEFAULT_POLICY || self.policies().by_name.contains_key(name);
        exists.then(|| name.to_owned())
    }

    fn policy(&self, name: &str) -> Result<PolicyRecord, PolicyError> {
        let not_found = || PolicyError::NotFound { name: name.to_owned() };
        self.policies().by_name.get(name).cloned().ok_or_else(not_found)
    }

    /// The volumes with a policy, those in the recycle bin included.
    fn of_policy(&self, name: &str) -> Vec<Arc<Volume>> {
        let mut volumes = self.volumes().list();
        volumes.extend(self.volumes().binned());
        volumes.retain(|volume| volume.policy().as_deref().unwrap_or(DEFAULT_POLICY) == name);
        volumes
    }

    fn default_policy(&self) -> Result<api::Policy, ArrayError> {
        let layout = self.pool()?.protection().layout;
        Ok(self.view(DEFAULT_POLICY, layout))
    }

    fn policy_view(&self, record: &PolicyRecord) -> Result<api::Policy, ArrayError> {
        let layout = record.layout()?;
        Ok(api::Policy {
            force_provisioning: record.force_provisioning,
            reservation: record.reservation(),
            compression: record.compression(),
            deduplication: record.deduplication(),
            created_ms: Some(record.created_ms),
            ..self.view(&record.name, layout)
        })
    }

    fn view(&self, name: &str, layout: Layout) -> api::Policy {
        let volumes = self.of_policy(name);
        let states: Vec<_> =
            volumes.iter().filter_map(|volume| self.compliance(volume)).map(|found| found.state).collect();
        let count = |wanted| states.iter().filter(|state| **state == wanted).count() as u64;
        let domains = self.pool().ok().map(|pool| pool.protection().domains);
        api::Policy {
            name: name.to_owned(),
            layout: layout.to_string(),
            failures_to_tolerate: layout.parity(),
            force_provisioning: false,
            reservation: Reservation::Any,
            compression: PolicyCompression::Any,
            deduplication: PolicyDeduplication::Any,
            layout_now: domains.map(|domains| layout.within(domains).to_string()),
            volumes: volumes.len() as u64,
            converting: count(ComplianceState::Converting),
            reduced: count(ComplianceState::Reduced),
            differing: count(ComplianceState::Differs),
            created_ms: None,
        }
    }
}

/// The layout with two columns of parity and as many of data as there are fault domains for. From five domains on one stays
/// free, so that what a lost domain held can be made again without narrower segments. `None`: there are too few.
fn wide(domains: usize) -> Option<Layout> {
    let data = domains.checked_sub(usize::from(WIDE_PARITY)).filter(|data| *data >= 2)?;
    let data = if data > 2 { data - 1 } else { data };
    Layout::of_columns((data.min(Layout::MOST_DATA.into()) as u8, WIDE_PARITY))
}

fn thick(reservation: Reservation) -> Option<bool> {
    (reservation != Reservation::Any).then_some(reservation == Reservation::Thick)
}

/// What that is called.
pub(super) fn reservation(thick: Option<bool>) -> Reservation {
    match thick {
        None => Reservation::Any,
        Some(thick) if thick => Reservation::Thick,
        Some(_) => Reservation::Thin,
    }
}

/// What a policy says, for events.
fn described(record: &PolicyRecord, layout: Layout) -> String {
    let forced = forced_text(record.force_provisioning);
    let reservation = reservation_text(record.reservation());
    let compression = record.compression.map(compression_text);
    let deduplication =
        record.deduplication.map(|deduplication| deduplication_text(deduplication).to_owned());
    let reduction = [compression, deduplication].into_iter().flatten();
    let reduction: String = reduction.map(|text| format!(", volumes are {text}")).collect();
    format!("layout {}{forced}{reservation}{reduction}", layout.described())
}

/// Whether a volume has something else than its policy wants; not if either does not say.
fn is_other<T: PartialEq>(wanted: Option<T>, now: Option<T>) -> bool {
    wanted.zip(now).is_some_and(|(wanted, now)| wanted != now)
}

fn reservation_text(reservation: Reservation) -> &'static str {
    match reservation {
        Reservation::Any => "",
        Reservation::Thin => ", volumes are thin",
        Reservation::Thick => ", volumes are thick",
    }
}

/// The layout that a request asks for, if it does.
fn asked_for(
    pool: &Pool,
    name: &str,
    layout: Option<String>,
    failures: Option<u8>,
) -> Result<Option<Layout>, PolicyError> {
    let name = || name.to_owned();
    match (layout, failures) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(PolicyError::OneOfTwo { name: name() }),
        (Some(text), None) if text == WIDE => wide(pool.protection().domains)
            .map(Some)
            .ok_or_else(|| PolicyError::Layout { name: name(), why: NOT_WIDE.to_owned() }),
        (Some(text), None) => match text.parse() {
            Ok(layout) => Ok(Some(layout)),
            Err(error) => Err(PolicyError::Layout { name: name(), why: error.to_string() }),
        },
        (None, Some(failures)) => {
            let own = pool.protection().layout;
            let most = Layout::MOST_COPIES;
            match failures {
                as_own if as_own == own.parity() => Ok(Some(own)),
                more if more > most => {
                    let why = format!("no layout tolerates {more} failures; {most} at the most");
                    Err(PolicyError::Layout { name: name(), why })
                }
                other => Ok(Some(Layout::mirror(other))),
            }
        }
    }
}

/// Refuses a layout that the pool cannot place, with what it lacks.
fn require_possible(pool: &Pool, name: &str, layout: Layout, is_forced: bool) -> Result<(), PolicyError> {
    let Some(why) = pool.layout_lacks(layout, is_forced) else { return Ok(()) };
    let may_force = !is_forced && pool.layout_lacks(layout, true).is_none();
    Err(PolicyError::Lacks { name: name.to_owned(), why, may_force })
}

/// A layout as the pool is told of it: its own is none of a volume's.
fn own_layout(pool: &Pool, layout: Layout) -> Option<Layout> {
    Some(layout).filter(|layout| *layout != pool.protection().layout)
}

fn forced_text(is_forced: bool) -> &'static str {
    if is_forced { ", placed as far as there are fault domains" } else { "" }
}

fn compliance(found: &VolumeLayout, progress: Option<&Progress>) -> api::Compliance {
    let state = match () {
        () if found.is_converting => ComplianceState::Converting,
        () if found.layout_now != found.layout => ComplianceState::Reduced,
        () => ComplianceState::Compliant,
    };
    let percent = match (found.is_converting, found.all_bytes) {
        (true, all) if all > 0 => (all.saturating_sub(found.left_bytes)) as f64 * 100.0 / all as f64,
        _ => 100.0,
    };
    let progress = progress.filter(|_| found.is_converting);
    api::Compliance {
        state,
        layout: found.layout.to_string(),
        layout_now: found.layout_now.to_string(),
        tolerates: found.layout_now.parity(),
        reservation: Reservation::Any,
        compression: PolicyCompression::Any,
        deduplication: PolicyDeduplication::Any,
        percent,
        left_bytes: found.left_bytes,
        bytes_per_s: progress.and_then(Progress::bytes_per_s),
        remaining_s: progress.and_then(Progress::remaining_s),
        waits_for_space: found.waits_for_space,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_layout_takes_the_domains_that_there_are_and_leaves_one_to_make_up_for_a_loss() {
        let wide = |domains| wide(domains).map(|layout| (layout.data(), layout.parity()));
        assert_eq!(
            [0, 3, 4, 5, 6, 12].map(wide),
            [None, None, Some((2, 2)), Some((2, 2)), Some((3, 2)), Some((9, 2))]
        );
        assert_eq!(wide(100), Some((Layout::MOST_DATA, 2)));
    }
}
