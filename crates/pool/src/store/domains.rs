//! Fault domains: which drives may fail together, and what they may be called.

use crate::meta::Domain;
use quoin_base::DriveIndex;
use quoin_drive::{DOMAIN_MAX_BYTES, Member, Members};
use std::collections::{BTreeMap, BTreeSet};

/// The fault domain of each member: those with the same name share one, and one without a name is a domain of its own.
pub(super) fn domains_of(members: &Members) -> BTreeMap<DriveIndex, Domain> {
    let mut named: BTreeMap<&str, DriveIndex> = BTreeMap::new();
    let domain = |member: &'_ Member| (member.index, Domain(member.index.0));
    let mut domains: BTreeMap<_, _> = members.all.iter().map(domain).collect();
    for member in members.all.iter().filter(|member| !member.domain.is_empty()) {
        let first = *named.entry(&member.domain).or_insert(member.index);
        domains.insert(member.index, Domain(first.0));
    }
    domains
}

/// In how many fault domains drives are.
pub(crate) fn journal_domains(members: &Members, drives: impl Iterator<Item = DriveIndex>) -> usize {
    let domains = domains_of(members);
    drives.filter_map(|drive| domains.get(&drive)).collect::<BTreeSet<_>>().len()
}

/// Why no fault domain can be called so, if so.
pub(crate) fn domain_problem(name: &str) -> Option<String> {
    if name.len() > DOMAIN_MAX_BYTES {
        return Some(format!(
            "the name of fault domain {name} has {} bytes; at most {DOMAIN_MAX_BYTES} are possible",
            name.len()
        ));
    }
    name.contains(char::is_control)
        .then(|| format!("the name of fault domain {name:?} has control characters"))
}
