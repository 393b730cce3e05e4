//! Which host sees which volume as which LUN: plain state, checks, and no I/O.
//!
//! Invariants:
//! 1. An initiator belongs to at most one host.
//! 2. A host sees a volume at most once, and has at most one volume at a LUN.
//! 3. Every mapping's host exists.

use crate::{
    ArrayError, HostError, MappingError,
    chap::{self, ChapRecord},
    initiator::normalise,
    record::{HOST_OBJECT, HostRecord, MAPPING_OBJECT, MappingRecord, decode},
};
use quoin_api::{ChapSet, HostChange};
use quoin_base::VolumeId;
use quoin_pool::Pool;
use quoin_target::Lun;
use quoin_volume::check_name;
use std::collections::{BTreeMap, BTreeSet};

/// How many volumes a host can see: that many mappings fit one transaction.
const MAPPINGS_PER_HOST: usize = 1000;

/// What a LUN leads to.
#[derive(Clone, Copy)]
struct Shown {
    volume: VolumeId,
    read_only: bool,
    writable: bool,
}

/// Hosts and mappings.
#[derive(Default)]
pub(crate) struct Access {
    hosts: BTreeMap<String, HostRecord>,
    mappings: BTreeMap<(String, u16), Shown>,
}

impl Access {
    pub(crate) fn read(pool: &Pool) -> Result<Self, ArrayError> {
        let mut access = Self::default();
        for (key, value) in pool.list(HOST_OBJECT) {
            access.add_host(decode(&key, &value)?);
        }
        for (key, value) in pool.list(MAPPING_OBJECT) {
            access.add_mapping(decode(&key, &value)?);
        }
        Ok(access)
    }

    pub(crate) fn hosts(&self) -> impl Iterator<Item = &HostRecord> {
        self.hosts.values()
    }

    pub(crate) fn host(&self, name: &str) -> Result<&HostRecord, HostError> {
        self.hosts.get(name).ok_or_else(|| HostError::NotFound { name: name.to_owned() })
    }

    pub(crate) fn host_of(&self, initiator: &str) -> Option<&HostRecord> {
        self.hosts().find(|host| host.initiators.iter().any(|own| own == initiator))
    }

    /// The credentials of the hosts that have some.
    fn chaps(&self) -> impl Iterator<Item = (&str, &ChapRecord)> {
        self.hosts().filter_map(|host| Some((host.name.as_str(), host.chap.as_ref()?)))
    }

    /// All mappings, by host and LUN.
    pub(crate) fn mappings(&self) -> impl Iterator<Item = MappingRecord> {
        self.mappings.iter().map(|((host, lun), shown)| MappingRecord {
            host: host.clone(),
            lun: *lun,
            volume: shown.volume,
            read_only: shown.read_only,
            writable: shown.writable,
        })
    }

    /// The mappings of one host, by LUN.
    pub(crate) fn mappings_of_host(&self, host: &str) -> Vec<MappingRecord> {
        self.mappings().filter(|mapping| mapping.host == host).collect()
    }

    /// The mappings of one volume, by host.
    pub(crate) fn mappings_of_volume(&self, volume: VolumeId) -> Vec<MappingRecord> {
        self.mappings().filter(|mapping| mapping.volume == volume).collect()
    }

    /// The host that may be created so, or why not.
    pub(crate) fn plan_host(
        &self,
        name: &str,
        initiators: &[String],
        chap: Option<&ChapSet>,
        now_ms: u64,
    ) -> Result<HostRecord, HostError> {
        check_name(name)?;
        if let Some(existing) = self.hosts.get(name) {
            let initiators = existing.initiators.clone();
            return Err(HostError::Exists { name: name.to_owned(), initiators });
        }
        let initiators = self.plan_initiators(name, initiators)?;
        let chap = chap.map(|chap| chap::plan(name, chap, self.chaps())).transpose()?;
        Ok(HostRecord { name: name.to_owned(), initiators, created_ms: now_ms, chap })
    }

    /// A host after a change, or why the change is not allowed.
    pub(crate) fn plan_change(&self, name: &str, change: &HostChange) -> Result<HostRecord, HostError> {
        let mut host = self.host(name)?.clone();
        if let Some(new_name) = change.name.as_ref().filter(|new_name| *new_name != name) {
            check_name(new_name)?;
            if let Some(existing) = self.hosts.get(new_name) {
                let initiators = existing.initiators.clone();
                return Err(HostError::Exists { name: new_name.clone(), initiators });
            }
            host.name.clone_from(new_name);
        }
        if let Some(initiators) = &change.initiators {
            host.initiators = self.plan_initiators(name, initiators)?;
        }
        match &change.chap {
            Some(_) if change.remove_chap => {
                return Err(HostError::ChapSetAndRemoved { host: name.to_owned() });
            }
            Some(chap) => host.chap = Some(chap::plan(name, chap, self.chaps())?),
            None if change.remove_chap => host.chap = None,
            None => {}
        }
        Ok(host)
    }

    /// The initiator names that host `name` may have, in order.
    fn plan_initiators(&self, name: &str, initiators: &[String]) -> Result<Vec<String>, HostError> {
        let names = initiators.iter().map(|given| normalise(given)).collect::<Result<BTreeSet<_>, _>>()?;
        if names.is_empty() {
            return Err(HostError::NoInitiator { host: name.to_owned() });
        }
        for initiator in &names {
            if let Some(other) = self.host_of(initiator).filter(|other| other.name != name) {
                return Err(HostError::InitiatorTaken {
                    initiator: initiator.clone(),
                    host: other.name.clone(),
                });
            }
        }
        Ok(names.into_iter().collect())
    }

    /// The mapping to be made, or why it is not allowed. `volume_named` returns the names of volumes, for messages.
    pub(crate) fn plan_mapping(
        &self,
        volume: VolumeId,
        host: &str,
        lun: Option<u16>,
        volume_named: impl Fn(VolumeId) -> String,
    ) -> Result<MappingRecord, ArrayError> {
        let host = self.host(host)?.name.clone();
        let theirs = self.mappings_of_host(&host);
        if let Some(existing) = theirs.iter().find(|mapping| mapping.volume == volume) {
            return Err(MappingError::Exists { volume: volume_named(volume), host, lun: existing.lun }.into());
        }
        if theirs.len() >= MAPPINGS_PER_HOST {
            return Err(MappingError::LunsUsedUp { host }.into());
        }
        let is_free = |lun: &u16| !self.mappings.contains_key(&(host.clone(), *lun));
        let lun = match lun {
            Some(lun) if lun > Lun::MAX => return Err(MappingError::LunOutOfRange { lun }.into()),
            Some(lun) if !is_free(&lun) => {
                let volume = volume_named(self.mappings[&(host.clone(), lun)].volume);
                return Err(MappingError::LunTaken { host, lun, volume }.into());
            }
            Some(lun) => lun,
            None => match (0..=Lun::MAX).find(is_free) {
                Some(lun) => lun,
                None => return Err(MappingError::LunsUsedUp { host }.into()),
            },
        };
        Ok(MappingRecord { host, lun, volume, read_only: false, writable: false })
    }

    pub(crate) fn add_host(&mut self, host: HostRecord) {
        self.hosts.insert(host.name.clone(), host);
    }

    pub(crate) fn remove_host(&mut self, name: &str) {
        self.hosts.remove(name);
    }

    pub(crate) fn add_mapping(&mut self, mapping: MappingRecord) {
        let MappingRecord { host, lun, volume, read_only, writable } = mapping;
        self.mappings.insert((host, lun), Shown { volume, read_only, writable });
    }

    pub(crate) fn remove_mapping(&mut self, mapping: &MappingRecord) {
        self.mappings.remove(&(mapping.host.clone(), mapping.lun));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: VolumeId = VolumeId(1);
    const V2: VolumeId = VolumeId(2);

    fn with_host() -> Access {
        let mut access = Access::default();
        let host = access.plan_host("h1", &["iqn.2026-11.test:H1".into()], None, 5).unwrap();
        assert_eq!(host.initiators, ["iqn.2026-11.test:h1"]);
        access.add_host(host);
        access
    }

    fn named(id: VolumeId) -> String {
        format!("v{id}")
    }

    #[test]
    fn hosts_are_refused_with_what_is_in_the_way() {
        let access = with_host();
        let plan = |name: &str, initiators: &[&str]| {
            let initiators: Vec<String> = initiators.iter().map(|i| (*i).to_owned()).collect();
            access.plan_host(name, &initiators, None, 0)
        };
        assert!(matches!(plan("h1", &["iqn.2026-11.test:h2"]), Err(HostError::Exists { .. })));
        assert!(matches!(plan("h2", &[]), Err(HostError::NoInitiator { .. })));
        assert!(matches!(plan("H2", &["iqn.2026-11.test:h2"]), Err(HostError::Name(_))));
        let taken = plan("h2", &["IQN.2026-11.TEST:h1"]).unwrap_err();
        assert!(matches!(taken, HostError::InitiatorTaken { host, .. } if host == "h1"));
    }

    #[test]
    fn a_change_touches_what_it_names() {
        let mut access = with_host();
        let other = access.plan_host("h2", &["iqn.2026-11.test:h2".into()], None, 5).unwrap();
        access.add_host(other);
        let login =
            |secret: &str| quoin_api::ChapLogin { user: "h".into(), secret: quoin_api::Secret::new(secret) };
        let set = ChapSet { host: login("secret of the host"), array: None };
        let change = HostChange { chap: Some(set.clone()), ..HostChange::default() };
        let host = access.plan_change("h1", &change).unwrap();
        assert_eq!(
            (&host.initiators[..], host.chap.is_some()),
            (&["iqn.2026-11.test:h1".to_owned()][..], true)
        );
        access.add_host(host);
        let names = |names: &[&str]| HostChange {
            initiators: Some(names.iter().map(|name| (*name).to_owned()).collect()),
            ..HostChange::default()
        };
        let host = access.plan_change("h1", &names(&["iqn.2026-11.test:h1", "iqn.2026-11.test:h3"])).unwrap();
        assert_eq!((host.initiators.len(), host.chap.is_some()), (2, true));
        let taken = access.plan_change("h1", &names(&["iqn.2026-11.test:h2"]));
        assert!(matches!(taken, Err(HostError::InitiatorTaken { .. })));
        assert!(matches!(access.plan_change("h1", &names(&[])), Err(HostError::NoInitiator { .. })));
        assert!(matches!(access.plan_change("h9", &names(&[])), Err(HostError::NotFound { .. })));
        let remove = HostChange { remove_chap: true, ..HostChange::default() };
        assert_eq!(access.plan_change("h1", &remove).unwrap().chap, None);
        let both = HostChange { chap: Some(set), ..remove };
        assert!(matches!(access.plan_change("h1", &both), Err(HostError::ChapSetAndRemoved { .. })));
    }

    #[test]
    fn luns_are_given_lowest_first_and_only_once() {
        let mut access = with_host();
        let first = access.plan_mapping(V1, "h1", None, named).unwrap();
        assert_eq!(first.lun, 0);
        access.add_mapping(first.clone());
        let error = access.plan_mapping(V1, "h1", Some(3), named).unwrap_err();
        assert!(matches!(error, ArrayError::Mapping(MappingError::Exists { lun: 0, .. })));
        let error = access.plan_mapping(V2, "h1", Some(0), named).unwrap_err();
        assert!(
            matches!(error, ArrayError::Mapping(MappingError::LunTaken { volume, .. }) if volume == "v1")
        );
        let error = access.plan_mapping(V2, "h1", Some(16384), named).unwrap_err();
        assert!(matches!(error, ArrayError::Mapping(MappingError::LunOutOfRange { lun: 16384 })));
        assert!(matches!(
            access.plan_mapping(V2, "h9", None, named),
            Err(ArrayError::Host(HostError::NotFound { .. }))
        ));
        assert_eq!(access.plan_mapping(V2, "h1", None, named).unwrap().lun, 1);
        access.remove_mapping(&first);
        assert_eq!(access.plan_mapping(V2, "h1", None, named).unwrap().lun, 0);
        for n in 0..1000 {
            access.add_mapping(MappingRecord {
                host: "h1".into(),
                lun: n,
                volume: VolumeId(100 + u32::from(n)),
                read_only: false,
                writable: false,
            });
        }
        assert!(matches!(
            access.plan_mapping(V2, "h1", None, named),
            Err(ArrayError::Mapping(MappingError::LunsUsedUp { .. }))
        ));
    }
}
