//! Quality of service: which limits apply to which volume.
//!
//! A volume keeps to its own limits and, each by itself, to those of its policy. The volumes of a consistency group keep
//! together to those of the group. Limits are catalog objects of their own, one for each volume, group or policy that has any.
//!
//! 1. The limits of a volume or group are deleted in the transaction that deletes it; so are those of a policy.
//! 2. A change of limits holds for requests that wait already.

use crate::{
    Array, ArrayError, QosError, QosOf,
    events::Told,
    qos_record::{Limited, Qos, QosRecord},
    record::{QOS_OBJECT, encode},
};
use parking_lot::MutexGuard;
use quoin_api::{self as api, DEFAULT_POLICY, QosScope};
use quoin_base::VolumeId;
use quoin_pool::Transaction;
use quoin_qos::{Share, ThrottleView};
use quoin_volume::{BlockDevice, Volume};
use std::{collections::BTreeMap, sync::Arc};
use uuid::Uuid;

/// Volumes, groups and policies that may have limits.
const MOST: usize = 10_000;

impl Array {
    fn qos(&self) -> MutexGuard<'_, Qos> {
        self.limits().lock()
    }

    /// Takes over the limits of a newly opened pool.
    pub(crate) fn restore_qos(&self, read: Qos) {
        // NOTE: the shares stay: volumes that are served already wait in them.
        self.qos().records = read.records;
        self.follow_qos();
    }

    /// The limits of all volumes, groups and policies that have any.
    ///
    /// # Errors
    /// `Offline` while the pool has not been open since the array started.
    pub fn list_qos(&self) -> Result<Vec<api::Qos>, ArrayError> {
        self.require_catalog()?;
        let all: Vec<_> = self.qos().records.keys().cloned().collect();
        let mut views: Vec<_> = all.iter().filter_map(|of| self.qos_view(of)).collect();
        views.sort_by(|a, b| (a.scope, &a.name).cmp(&(b.scope, &b.name)));
        Ok(views)
    }

    /// The limits of a volume, group or policy, whether it has any or not.
    ///
    /// # Errors
    /// `NotFound`, `NoGroup` or [`PolicyError::NotFound`](crate::PolicyError::NotFound) if it does not exist. `Offline` while
    /// the pool has not been open since the array started.
    pub fn show_qos(&self, of: &QosOf) -> Result<api::Qos, ArrayError> {
        let limited = self.limited(of)?;
        self.qos_view(&limited).ok_or_else(|| QosError::Nothing.into())
    }

    /// Sets limits, or with `None` removes them. They hold at once.
    ///
    /// # Errors
    /// As [`Array::show_qos`] if there is no such object; [`QosError`] for limits that cannot be. `Offline` or `Pool` if the
    /// pool cannot commit the change.
    pub async fn set_qos(&self, of: &QosOf, request: Option<api::QosSet>) -> Result<api::Qos, ArrayError> {
        let turn = self.catalog().turn().await;
        let limited = self.limited(of)?;
        let record = request.as_ref().map(QosRecord::of).transpose()?;
        let (before, len) = {
            let qos = self.qos();
            (qos.records.get(&limited).copied(), qos.records.len())
        };
        if before.is_none() && len >= MOST && record.is_some() {
            return Err(QosError::TooMany { most: MOST }.into());
        }
        if record != before {
            let key = limited.key();
            let (tx, text) = match &record {
                Some(record) => (Transaction::new().put(QOS_OBJECT, &key, encode(record)), record.told()),
                None => (Transaction::new().delete(QOS_OBJECT, &key), "no longer limited".to_owned()),
            };
            let (was, is) = (before.as_ref(), record.as_ref());
            let own = Told::new(self.qos_object(&limited).unwrap_or_default(), text)
                .change("iops", was.and_then(|r| r.iops), is.and_then(|r| r.iops))
                .change("bytes_per_s", was.and_then(|r| r.bytes_per_s), is.and_then(|r| r.bytes_per_s))
                .change("burst_ms", was.map(|r| r.burst_ms), is.map(|r| r.burst_ms));
            self.commit_told(&turn, tx, own).await?;
            match record {
                Some(record) => drop(self.qos().records.insert(limited.clone(), record)),
                None => drop(self.qos().records.remove(&limited)),
            }
            self.follow_qos();
        }
        self.show_qos(of)
    }

    /// Gives each volume the limits that apply to it as things are now.
    pub(crate) fn follow_qos(&self) {
        let (mut qos, now) = (self.qos(), self.world().now());
        // Most arrays have no limits, and nothing to do.
        if qos.records.is_empty() && !qos.any {
            return;
        }
        let groups = qos.records.keys().filter_map(|of| match of {
            Limited::Group(id) => Some(*id),
            Limited::Volume(_) | Limited::Policy(_) => None,
        });
        let groups: Vec<Uuid> = groups.collect();
        let mut share_of: BTreeMap<VolumeId, Arc<Share>> = BTreeMap::new();
        for id in &groups {
            let limits = qos.limits(&Limited::Group(*id));
            let share = qos.shares.entry(*id).or_default();
            share.retune(limits, now);
            let members = self.volumes().group_by_id(*id).map(|group| group.members).unwrap_or_default();
            share_of.extend(members.into_iter().map(|member| (member, share.clone())));
        }
        for volume in self.volumes().list() {
            let own = qos.limits(&Limited::Volume(volume.id()));
            let policy = volume.policy().unwrap_or_else(|| DEFAULT_POLICY.to_owned());
            let limits = [own, qos.limits(&Limited::Policy(policy))];
            if let Some(throttle) = volume.throttle() {
                throttle.configure(&limits, share_of.get(&volume.id()), now);
            }
        }
        qos.shares.retain(|id, _| groups.contains(id));
        qos.any = !qos.records.is_empty();
    }

    /// Adds to a transaction that the limits of volumes that it deletes are deleted too.
    pub(crate) fn without_limits_of(&self, tx: Transaction, volumes: &[Arc<Volume>]) -> Transaction {
        volumes.iter().fold(tx, |tx, volume| self.without_limits(tx, &Limited::Volume(volume.id())))
    }

    /// Adds to a transaction that limits are deleted.
    pub(crate) fn without_limits(&self, tx: Transaction, of: &Limited) -> Transaction {
        if self.qos().records.contains_key(of) { tx.delete(QOS_OBJECT, &of.key()) } else { tx }
    }

    /// Forgets the limits of what is deleted, and has the others follow what has changed.
    pub(crate) fn forget_limits(&self) {
        let all: Vec<_> = self.qos().records.keys().cloned().collect();
        for gone in all.iter().filter(|of| self.qos_object(of).is_none()) {
            self.qos().records.remove(gone);
        }
        self.follow_qos();
    }

    fn limited(&self, of: &QosOf) -> Result<Limited, ArrayError> {
        self.require_catalog()?;
        Ok(match of {
            QosOf::Volume(name) => Limited::Volume(self.volume(name)?.id()),
            QosOf::Group(name) => Limited::Group(self.group(name)?.id),
            QosOf::Policy(name) => Limited::Policy(self.show_policy(name)?.name),
        })
    }

    fn qos_name(&self, of: &Limited) -> Option<(QosScope, String)> {
        Some(match of {
            Limited::Volume(id) => (QosScope::Volume, self.volumes().by_id(*id)?.name()),
            Limited::Group(id) => (QosScope::Group, self.volumes().group_by_id(*id)?.name),
            Limited::Policy(name) => (QosScope::Policy, self.policy_named(name)?),
        })
    }

    /// What events call it; `None` if it was deleted.
    fn qos_object(&self, of: &Limited) -> Option<String> {
        self.qos_name(of).map(|(scope, name)| format!("{scope} {name}"))
    }

    /// The volumes that limits apply to.
    fn volumes_limited_by(&self, of: &Limited) -> Vec<Arc<Volume>> {
        match of {
            Limited::Volume(id) => self.volumes().by_id(*id).into_iter().collect(),
            Limited::Group(id) => {
                let group = self.volumes().group_by_id(*id);
                group.map(|group| self.volumes().members(&group)).unwrap_or_default()
            }
            Limited::Policy(name) => {
                let mut volumes = self.volumes().list();
                volumes.retain(|volume| volume.policy().as_deref().unwrap_or(DEFAULT_POLICY) == name);
                volumes
            }
        }
    }

    /// The other limits that a volume keeps to.
    fn other_limits(&self, of: &Limited) -> Vec<String> {
        let Limited::Volume(id) = of else { return Vec::new() };
        let group = self.volumes().group_of(*id).map(|group| Limited::Group(group.id));
        let volume = self.volumes().by_id(*id);
        let policy = volume.map(|volume| volume.policy().unwrap_or_else(|| DEFAULT_POLICY.to_owned()));
        let others = [group, policy.map(Limited::Policy)].into_iter().flatten();
        let others: Vec<_> = others.filter(|other| self.qos().records.contains_key(other)).collect();
        others.iter().filter_map(|other| self.qos_object(other)).collect()
    }

    fn qos_view(&self, of: &Limited) -> Option<api::Qos> {
        let (scope, name) = self.qos_name(of)?;
        let record = self.qos().records.get(of).copied();
        let mut sum = ThrottleView::default();
        for volume in self.volumes_limited_by(of) {
            let ThrottleView { requests, waited, waiting } = volume.throttle()?.view();
            sum.requests += requests;
            sum.waited += waited;
            sum.waiting += waiting;
        }
        Some(api::Qos {
            scope,
            name,
            iops: record.and_then(|record| record.iops),
            bytes_per_s: record.and_then(|record| record.bytes_per_s),
            burst_ms: record.map(|record| record.burst_ms),
            others: self.other_limits(of),
            waiting: sum.waiting,
            delayed: sum.requests,
            delay_us: (sum.waited.as_micros() as u64).checked_div(sum.requests),
        })
    }
}
