//! Hosts, as management sees them.

use crate::{
    Array, ArrayError,
    mappings::without,
    record::{HOST_OBJECT, HostRecord, encode},
};
use quoin_api as api;
use quoin_pool::Transaction;

impl Array {
    /// Creates a host.
    pub async fn create_host(&self, request: api::HostCreate) -> Result<api::Host, ArrayError> {
        let _turn = self.changes.lock().await;
        let now_ms = self.world.wall_clock_ms();
        let host = self.access.lock().plan_host(&request.name, &request.initiators, now_ms)?;
        let tx = Transaction::new().put(HOST_OBJECT, &host.name, encode(&host));
        let text = format!("created, with {}", host.initiators.join(", "));
        self.commit(tx, format!("host {}", host.name), text).await?;
        let view = self.host_view(&host);
        self.change_access(|access| access.add_host(host));
        Ok(view)
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
