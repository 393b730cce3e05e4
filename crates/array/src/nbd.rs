//! Exports: which volumes NBD clients see, under which names, and which clients may see them.

use crate::{
    Array, ArrayError, ExportError,
    events::Told,
    guard::require_unused,
    permit::{self, chosen_access},
    record::{EXPORT_OBJECT, ExportRecord, encode, without_exports},
    words::shortened,
};
use quoin_api as api;
use quoin_pool::Transaction;
use quoin_target::ExportClient;
use quoin_volume::check_name;

/// How many exports there may be.
const EXPORTS_MAX: usize = 1000;

impl Array {
    /// Shows a volume to NBD clients.
    ///
    /// # Errors
    /// `NotFound` if the volume does not exist; [`ExportError`] for a name or rule that is wrong, a name that
    /// is taken, or too many exports; `ReadOnlyAndWritable` for both flags. `Offline` or `Pool` if the pool
    /// cannot commit the change.
    pub async fn create_export(&self, request: api::ExportCreate) -> Result<api::Export, ArrayError> {
        let turn = self.catalog().turn().await;
        let volume = self.volume(&request.volume)?;
        let name = request.name.unwrap_or_else(|| request.volume.clone());
        check_name(&name).map_err(ExportError::Name)?;
        {
            let exported = self.export_list().read();
            if let Some(existing) = exported.get(&name) {
                let volume = self.volume_name(existing.volume);
                return Err(ExportError::Exists { name, volume }.into());
            }
            if exported.len() >= EXPORTS_MAX {
                return Err(ExportError::TooMany { name, limit: EXPORTS_MAX }.into());
            }
        }
        let which = format!("export {name}");
        let access = chosen_access("export not created", which, request.read_only, request.writable)?;
        let record = ExportRecord {
            name: name.clone(),
            volume: volume.id(),
            read_only: false,
            writable: false,
            networks: request.allow,
            tls_clients: request.tls_clients,
            created_ms: self.world().wall_clock_ms(),
        };
        let mut record = record.with_access(access);
        let rules = record.rules()?;
        record.networks = rules.networks.iter().map(ToString::to_string).collect();
        record.tls_clients = rules.tls_clients.iter().cloned().collect();
        let tx = Transaction::new().put(EXPORT_OBJECT, &name, encode(&record));
        let text = format!("created: volume {}, {}", request.volume, told(&record));
        let own = Told::new(format!("export {name}"), text)
            .with("volume", &request.volume)
            .with("access", record.access())
            .with("allow", &record.networks)
            .with("tls_clients", &record.tls_clients);
        self.commit_told(&turn, tx, own).await?;
        let view = self.export_view(&record);
        self.export_list().change(&turn, self.volumes(), |exported| drop(exported.insert(name, record)));
        Ok(view)
    }

    /// All exports, by name.
    ///
    /// # Errors
    /// `Offline` while the pool has not been open since the array started.
    pub fn list_exports(&self) -> Result<Vec<api::Export>, ArrayError> {
        self.require_catalog()?;
        let records: Vec<_> = self.export_list().read().values().cloned().collect();
        Ok(records.iter().map(|record| self.export_view(record)).collect())
    }

    /// One export.
    ///
    /// # Errors
    /// [`ExportError::NotFound`] if no export has the name. `Offline` while the pool has not been open since
    /// the array started.
    pub fn show_export(&self, name: &str) -> Result<api::Export, ArrayError> {
        self.require_catalog()?;
        let record = self.export_list().read().get(name).cloned();
        let record = record.ok_or_else(|| ExportError::NotFound { name: name.to_owned() })?;
        Ok(self.export_view(&record))
    }

    /// Changes what clients of an export may do. Connected clients stay connected. They are not notified, since NBD has
    /// no way to do that.
    ///
    /// # Errors
    /// [`ExportError::NotFound`] if no export has the name; `InUse` while clients may write that could not
    /// any more, without `force`. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn set_export(&self, name: &str, update: api::AccessUpdate) -> Result<api::Export, ArrayError> {
        let turn = self.catalog().turn().await;
        self.show_export(name)?;
        let Some(before) = self.export_list().read().get(name).cloned() else {
            return Err(ExportError::NotFound { name: name.to_owned() }.into());
        };
        let record = before.clone().with_access(update.access);
        if record == before {
            return Ok(self.export_view(&record));
        }
        let volume = self.volumes().by_id(record.volume);
        let is_read_only =
            |access| volume.as_ref().is_none_or(|volume| self.is_read_only_with(volume, access));
        let writers = if is_read_only(record.access()) && !is_read_only(before.access()) {
            self.clients_of(name)
        } else {
            Vec::new()
        };
        let forced =
            require_unused("export not made read-only", format!("export {name}"), writers, update.force)?;
        let tx = Transaction::new().put(EXPORT_OBJECT, name, encode(&record));
        let text = format!(
            "access changed from {} to {}{forced}",
            permit::told(before.access()),
            permit::told(record.access())
        );
        let own = Told::new(format!("export {name}"), shortened(&text)).change(
            "access",
            before.access(),
            record.access(),
        );
        self.commit_told(&turn, tx, own).await?;
        let view = self.export_view(&record);
        self.export_list()
            .change(&turn, self.volumes(), |exported| drop(exported.insert(name.to_owned(), record)));
        Ok(view)
    }

    /// Takes an export away; if clients are connected, only by force, and they are disconnected.
    ///
    /// # Errors
    /// [`ExportError::NotFound`] if no export has the name, `InUse` while clients are connected, without
    /// `force`. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn delete_export(&self, name: &str, force: bool) -> Result<(), ArrayError> {
        let turn = self.catalog().turn().await;
        let view = self.show_export(name)?;
        let clients = self.clients_of(name);
        let forced = require_unused("export not deleted", format!("export {name}"), clients, force)?;
        let tx = without_exports(Transaction::new(), &[name.to_owned()]);
        let text = shortened(&format!("deleted; it exported volume {}{forced}", view.volume));
        let own = Told::new(format!("export {name}"), text)
            .without("volume", &view.volume)
            .without("access", view.access)
            .without("allow", &view.allow)
            .without("tls_clients", &view.tls_clients);
        self.commit_told(&turn, tx, own).await?;
        self.export_list().change(&turn, self.volumes(), |exported| drop(exported.remove(name)));
        Ok(())
    }

    fn export_view(&self, record: &ExportRecord) -> api::Export {
        let clients = self.export_list().clients_of(&record.name);
        let client = |client: ExportClient| api::ExportClient {
            peer: client.address,
            tls_client: client.tls_name,
            encrypted: client.encrypted,
            since_ms: client.since_ms,
        };
        api::Export {
            name: record.name.clone(),
            volume: self.volume_name(record.volume),
            read_only: self
                .volumes()
                .by_id(record.volume)
                .is_some_and(|volume| self.is_read_only_with(&volume, record.access())),
            access: record.access(),
            allow: record.networks.clone(),
            tls_clients: record.tls_clients.clone(),
            created_ms: record.created_ms,
            clients: clients.into_iter().map(client).collect(),
        }
    }
}

fn told(record: &ExportRecord) -> String {
    let access = permit::told(record.access());
    let from = match (record.networks.as_slice(), record.tls_clients.as_slice()) {
        ([], []) => "this machine".to_owned(),
        (networks, []) => networks.join(", "),
        ([], clients) => format!("TLS clients {}", clients.join(", ")),
        (networks, clients) => format!("TLS clients {} from {}", clients.join(", "), networks.join(", ")),
    };
    format!("{access}, for {from}")
}
