//! Hosts, as management sees them.

use crate::{
    Array, ArrayError, HostError,
    chap::ChapRecord,
    events::Told,
    guard::require_unused,
    record::{HOST_OBJECT, HostRecord, MAPPING_OBJECT, MappingRecord, encode, mapping_key, without_mappings},
    words::shortened,
};
use quoin_api as api;
use quoin_pool::Transaction;

/// How much of its catalog transaction the mappings of a host that is renamed may take.
const RENAMED_BYTES_MAX: usize = 44 << 10;

impl Array {
    /// Who is logged in, by initiator.
    pub fn list_sessions(&self) -> Vec<api::Session> {
        let view = |session: quoin_target::SessionView| api::Session {
            initiator: session.initiator,
            host: session.host,
            peer: session.address,
            portal_group: session.group,
            since_ms: session.since_ms,
        };
        self.target().sessions().into_iter().map(view).collect()
    }

    /// Creates a host.
    ///
    /// # Errors
    /// [`HostError`] for a name, initiator or secret that breaks the rules or is taken. `Offline` or `Pool`
    /// if the pool cannot commit the change.
    pub async fn create_host(&self, request: api::HostCreate) -> Result<api::Host, ArrayError> {
        let turn = self.catalog().turn().await;
        let now_ms = self.world().wall_clock_ms();
        let host = self.hosts().read().plan_host(
            &request.name,
            &request.initiators,
            request.chap.as_ref(),
            now_ms,
        )?;
        let tx = Transaction::new().put(HOST_OBJECT, &host.name, encode(&host));
        let chap = if host.chap.is_some() { ", logging in by CHAP" } else { "" };
        let text = format!("created, with {}{chap}", host.initiators.join(", "));
        let own = Told::new(format!("host {}", host.name), text)
            .with("initiators", &host.initiators)
            .with("chap", host.chap.as_ref().map(ChapRecord::view));
        self.commit_told(&turn, tx, own).await?;
        let view = self.host_view(&host);
        self.hosts().change(&turn, self.volumes(), |access| access.add_host(host));
        Ok(view)
    }

    /// Changes a host. Initiators that are logged in and see volumes are taken away only by force.
    ///
    /// # Errors
    /// [`ArrayError::HostChange`] if the host does not exist, or for a name, initiator or secret that breaks
    /// the rules or is taken; `InUse` while initiators that leave are logged in, without `force`. `Offline`
    /// or `Pool` if the pool cannot commit the change.
    pub async fn change_host(&self, name: &str, change: api::HostChange) -> Result<api::Host, ArrayError> {
        let turn = self.catalog().turn().await;
        self.require_catalog()?;
        let (before, host, mappings) = {
            let access = self.hosts().read();
            let changed = access.plan_change(name, &change);
            let host = changed.map_err(ArrayError::HostChange)?;
            (access.host(name)?.clone(), host, access.mappings_of_host(name))
        };
        let renews_chap = change.chap.is_some();
        if host == before && !renews_chap {
            return Ok(self.host_view(&host));
        }
        let stays = |own: &&String| host.initiators.contains(own);
        let leaving: Vec<_> = before.initiators.iter().filter(|own| !stays(own)).cloned().collect();
        let users = self.users_as(&leaving, &mappings);
        let forced = require_unused("host not changed", format!("host {name}"), users, change.force)?;
        let renamed = host.name != name;
        let mut tx = Transaction::new();
        let mut records = Vec::new();
        if renamed {
            records = renamed_mappings(name, &host.name, &mappings)?;
            tx = without_mappings(&mappings).delete(HOST_OBJECT, name);
            for record in &records {
                tx = tx.put(MAPPING_OBJECT, &mapping_key(&record.host, record.lun), encode(record));
            }
        }
        let tx = tx.put(HOST_OBJECT, &host.name, encode(&host));
        let own = told_of_change(&before, &host, renews_chap, forced);
        self.commit_told(&turn, tx, own).await?;
        if renamed && let Err(error) = self.target().rename_host(name, &host.name) {
            // The host is not shown, as one whose secret cannot be used: the new name is shown as the old one was.
            tracing::warn!(%error, "host renamed that the target does not show");
        }
        self.hosts().change(&turn, self.volumes(), |access| {
            if renamed {
                mappings.iter().for_each(|mapping| access.remove_mapping(mapping));
                access.remove_host(name);
                records.into_iter().for_each(|record| access.add_mapping(record));
            }
            access.add_host(host.clone());
        });
        Ok(self.host_view(&host))
    }

    /// All hosts, by name.
    ///
    /// # Errors
    /// `Offline` while the pool has not been open since the array started.
    pub fn list_hosts(&self) -> Result<Vec<api::Host>, ArrayError> {
        self.require_catalog()?;
        let hosts: Vec<_> = self.hosts().read().hosts().cloned().collect();
        Ok(hosts.iter().map(|host| self.host_view(host)).collect())
    }

    /// One host.
    ///
    /// # Errors
    /// [`HostError::NotFound`] if no host has the name. `Offline` while the pool has not been open since the
    /// array started.
    pub fn show_host(&self, name: &str) -> Result<api::Host, ArrayError> {
        self.require_catalog()?;
        let host = self.hosts().read().host(name)?.clone();
        Ok(self.host_view(&host))
    }

    /// Deletes a host; if it sees volumes, only when `unmap` says that it shall lose them, and if it is logged in too, only
    /// by force.
    ///
    /// # Errors
    /// [`HostError::NotFound`] if no host has the name, [`HostError::Mapped`] while it sees volumes, without
    /// `unmap`; `InUse` while it is logged in, without `force`. `Offline` or `Pool` if the pool cannot commit
    /// the change.
    pub async fn delete_host(&self, name: &str, unmap: bool, force: bool) -> Result<(), ArrayError> {
        let turn = self.catalog().turn().await;
        self.require_catalog()?;
        let (host, mappings) = {
            let access = self.hosts().read();
            (access.host(name)?.clone(), access.mappings_of_host(name))
        };
        let users = mappings.iter().flat_map(|mapping| self.users_through(mapping)).collect();
        let forced = require_unused("host not deleted", format!("host {name}"), users, force)?;
        if !mappings.is_empty() && !unmap && !force {
            let volumes = mappings.iter().map(|mapping| self.volume_name(mapping.volume)).collect();
            return Err(HostError::Mapped { host: name.to_owned(), volumes }.into());
        }
        let tx = without_mappings(&mappings).delete(HOST_OBJECT, name);
        let volumes: Vec<_> = mappings
            .iter()
            .map(|mapping| format!("{} as LUN {}", self.volume_name(mapping.volume), mapping.lun))
            .collect();
        let own = Told::new(format!("host {name}"), shortened(&format!("deleted{forced}")))
            .without("initiators", &host.initiators)
            .without("chap", host.chap.as_ref().map(ChapRecord::view))
            .without("volumes", volumes);
        self.commit_told(&turn, tx, own).await?;
        self.hosts().change(&turn, self.volumes(), |access| {
            mappings.iter().for_each(|mapping| access.remove_mapping(mapping));
            access.remove_host(name);
        });
        Ok(())
    }

    fn host_view(&self, host: &HostRecord) -> api::Host {
        let mappings = self.hosts().read().mappings_of_host(&host.name);
        let sessions = self.list_sessions().iter().filter(|s| s.host.as_ref() == Some(&host.name)).count();
        api::Host {
            name: host.name.clone(),
            initiators: host.initiators.clone(),
            chap: host.chap.as_ref().map(ChapRecord::view),
            created_ms: host.created_ms,
            sessions,
            mappings: mappings
                .into_iter()
                .map(|mapping| api::HostMapping {
                    lun: mapping.lun,
                    volume: self.volume_name(mapping.volume),
                })
                .collect(),
        }
    }
}

/// Returns the mappings of a host under its new name.
///
/// # Errors
/// [`HostError::TooManyToRename`] if they do not fit the transaction that renames the host.
fn renamed_mappings(
    name: &str,
    new_name: &str,
    mappings: &[MappingRecord],
) -> Result<Vec<MappingRecord>, HostError> {
    let renamed = |mapping: &MappingRecord| MappingRecord { host: new_name.to_owned(), ..mapping.clone() };
    let records: Vec<_> = mappings.iter().map(renamed).collect();
    let bytes: usize = records.iter().map(|record| 4 * name.len() + encode(record).len()).sum();
    if bytes > RENAMED_BYTES_MAX {
        let (host, mappings) = (name.to_owned(), mappings.len());
        return Err(HostError::TooManyToRename { host, mappings });
    }
    Ok(records)
}

/// Returns the event about the change of a host; `forced` says whom it was made against.
fn told_of_change(before: &HostRecord, host: &HostRecord, renews_chap: bool, forced: String) -> Told {
    let mut said = Vec::new();
    said.extend((host.name != before.name).then(|| format!("renamed to {}", host.name)));
    let listed = || format!("initiators changed to {}", host.initiators.join(", "));
    said.extend((host.initiators != before.initiators).then(listed));
    said.extend(renews_chap.then(|| "CHAP credentials set".to_owned()));
    said.extend((host.chap.is_none() && before.chap.is_some()).then(|| "CHAP removed".to_owned()));
    let text = said.join(", ");
    let chap = |host: &HostRecord| host.chap.as_ref().map(ChapRecord::view);
    Told::new(format!("host {}", before.name), shortened(&format!("{text}{forced}")))
        .change("name", before.name.clone(), host.name.clone())
        .change("initiators", before.initiators.clone(), host.initiators.clone())
        .change("chap", chap(before), chap(host))
}
