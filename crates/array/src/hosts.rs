//! Hosts, as management sees them.

use crate::{
    Array, ArrayError,
    chap::ChapRecord,
    mappings::without,
    record::{HOST_OBJECT, HostRecord, encode},
};
use quoin_api::{self as api, Severity};
use quoin_pool::Transaction;

impl Array {
    /// Creates a host.
    pub async fn create_host(&self, request: api::HostCreate) -> Result<api::Host, ArrayError> {
        let _turn = self.changes.lock().await;
        let now_ms = self.world.wall_clock_ms();
        let host = self.access.lock().plan_host(
            &request.name,
            &request.initiators,
            request.chap.as_ref(),
            now_ms,
        )?;
        let tx = Transaction::new().put(HOST_OBJECT, &host.name, encode(&host));
        let chap = if host.chap.is_some() { ", logging in by CHAP" } else { "" };
        let text = format!("created, with {}{chap}", host.initiators.join(", "));
        self.commit(tx, format!("host {}", host.name), text).await?;
        let view = self.host_view(&host);
        self.change_access(|access| access.add_host(host));
        Ok(view)
    }

    /// Changes a host. Sessions that are logged in stay.
    pub async fn change_host(&self, name: &str, change: api::HostChange) -> Result<api::Host, ArrayError> {
        let _turn = self.changes.lock().await;
        self.require_catalog()?;
        let host = self.access.lock().plan_change(name, &change)?;
        let tx = Transaction::new().put(HOST_OBJECT, &host.name, encode(&host));
        let mut said = Vec::new();
        said.extend(change.initiators.map(|_| format!("initiators are {}", host.initiators.join(", "))));
        said.extend(change.chap.map(|_| "CHAP set".to_owned()));
        said.extend(change.remove_chap.then(|| "CHAP removed".to_owned()));
        let text = if said.is_empty() { "changed in nothing".to_owned() } else { said.join(", ") };
        self.commit(tx, format!("host {name}"), text).await?;
        let view = self.host_view(&host);
        self.change_access(|access| access.add_host(host));
        Ok(view)
    }

    /// Records that an initiator at `address` did not prove who it is, `failures` times in a row.
    pub fn authentication_failed(&self, initiator: Option<&str>, address: &str, why: &str, failures: u32) {
        let host = initiator.and_then(|name| self.access.lock().host_of(name).map(|host| host.name.clone()));
        let object = match (host, initiator) {
            (Some(host), _) => format!("host {host}"),
            (None, Some(initiator)) => format!("initiator {initiator}"),
            (None, None) => "an initiator".to_owned(),
        };
        let text = format!("login from {address} refused: {why}; refused in a row: {failures}");
        self.events.record(Severity::Warning, object, text);
    }

    /// All hosts, by name.
    pub fn list_hosts(&self) -> Result<Vec<api::Host>, ArrayError> {
        self.require_catalog()?;
        let hosts: Vec<_> = self.access.lock().hosts().cloned().collect();
        Ok(hosts.iter().map(|host| self.host_view(host)).collect())
    }

    /// One host.
    pub fn show_host(&self, name: &str) -> Result<api::Host, ArrayError> {
        self.require_catalog()?;
        let host = self.access.lock().host(name)?.clone();
        Ok(self.host_view(&host))
    }

    /// Deletes a host; if it sees volumes, only when `unmap` says that it shall lose them.
    pub async fn delete_host(&self, name: &str, unmap: bool) -> Result<(), ArrayError> {
        let _turn = self.changes.lock().await;
        self.require_catalog()?;
        let mappings = {
            let access = self.access.lock();
            access.host(name)?;
            access.mappings_of_host(name)
        };
        if !mappings.is_empty() && !unmap {
            let volumes = mappings.iter().map(|mapping| self.volume_name(mapping.volume)).collect();
            return Err(ArrayError::HostMapped { host: name.to_owned(), volumes });
        }
        let tx = without(&mappings).delete(HOST_OBJECT, name);
        self.commit(tx, format!("host {name}"), "deleted").await?;
        self.change_access(|access| {
            mappings.iter().for_each(|mapping| access.remove_mapping(mapping));
            access.remove_host(name);
        });
        Ok(())
    }

    fn host_view(&self, host: &HostRecord) -> api::Host {
        let mappings = self.access.lock().mappings_of_host(&host.name);
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
