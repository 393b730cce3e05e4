//! iSCSI portals: at which addresses hosts reach the array.
//!
//! The configuration names some; clients create, disable and delete others while the array runs. Each is a target port of
//! its own. Initiators that came through one portal notice nothing of what happens to another.

use crate::{
    Array, ArrayError, PortalError,
    catalog::Turn,
    events::Told,
    guard::require_unused,
    portal_list::{self, PortalRecord, read_portals},
    words::shortened,
};
use quoin_api::{self as api, PortalState, Severity};
use quoin_pool::{Pool, Transaction};
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

/// The port of iSCSI, where none is given.
const ISCSI_PORT: u16 = 3260;

impl Array {
    /// Takes over the portals of a newly opened pool.
    ///
    /// # Errors
    /// An object of the catalog that cannot be read.
    pub(crate) async fn restore_portals(&self, turn: &Turn<'_>, pool: &Pool) -> Result<(), ArrayError> {
        let (read, now_ms) = (read_portals(pool)?, self.world().wall_clock_ms());
        let change = self.portals().restore(read, &self.listen().configured(), now_ms);
        let Some(tx) = change else { return Ok(()) };
        let (tx, staged) = self.stage_waiting(turn, tx);
        match pool.commit(tx).await {
            Ok(()) => self.log().saved(staged),
            // They are served all the same. Only their numbers may change with the next start.
            Err(error) => tracing::warn!(%error, "the portals of the configuration are not in the catalog"),
        }
        Ok(())
    }

    /// Serves the portals as they are now.
    pub(crate) async fn serve_portals(&self, _: &Turn<'_>) {
        let (mut up, mut problems) = (Vec::new(), BTreeMap::new());
        for portal in self.portals().enabled() {
            match self.listen().listen(portal.address) {
                Ok(()) => up.push(portal),
                Err(why) => drop(problems.insert(portal.address, why)),
            }
        }
        // A port is there for reservations also while it cannot be reached.
        let groups: Vec<_> = self.portals().list().into_iter().map(|(_, record)| record.group).collect();
        if !groups.is_empty() {
            self.target().set_ports(groups);
        }
        self.listen().serve(up).await;
        let before = self.portals().note_problems(problems.clone());
        for (address, why) in problems.iter().filter(|(address, _)| !before.contains_key(address)) {
            let text = format!("down: {why}. The array tries again every few seconds.");
            self.log().record(Severity::Warning, object(*address), text);
        }
        for address in before.keys().filter(|address| !problems.contains_key(address)) {
            if self.portals().get(*address).is_ok_and(|record| !record.disabled) {
                self.log().record(Severity::Info, object(*address), "up");
            }
        }
    }

    /// Listens where the array could not before: an address may come later than the array.
    pub(crate) async fn tend_portals(&self) {
        if self.portals().any_down() {
            let turn = self.catalog().turn().await;
            self.serve_portals(&turn).await;
        }
    }

    /// The portals at which connections are accepted, or will be once the catalog is known.
    pub(crate) fn portals_up(&self) -> Vec<SocketAddr> {
        if !self.is_restored() {
            return self.listen().configured();
        }
        let portals = self.portals();
        let enabled = portals.enabled().into_iter().map(|portal| portal.address);
        enabled.filter(|address| portals.problem(*address).is_none()).collect()
    }

    /// All portals, by address.
    ///
    /// # Errors
    /// `Offline` while the pool has not been open since the array started.
    pub fn list_portals(&self) -> Result<Vec<api::Portal>, ArrayError> {
        self.require_catalog()?;
        let all = self.portals().list();
        Ok(all.into_iter().map(|(address, record)| self.portal_view(address, &record)).collect())
    }

    /// One portal.
    ///
    /// # Errors
    /// [`PortalError`] if there is none at this address. `Offline` while the pool has not been open since the array started.
    pub fn show_portal(&self, address: &str) -> Result<api::Portal, ArrayError> {
        self.require_catalog()?;
        let address = named(address)?;
        let record = self.portals().get(address)?;
        Ok(self.portal_view(address, &record))
    }

    /// Creates a portal: hosts reach the array there, too.
    ///
    /// # Errors
    /// [`PortalError`] for an address that cannot be a portal, that is one, or where the array cannot listen. `Offline` or
    /// `Pool` if the pool cannot commit the change.
    pub async fn create_portal(&self, request: api::PortalCreate) -> Result<api::Portal, ArrayError> {
        let turn = self.catalog().turn().await;
        self.require_catalog()?;
        let address = parse(&request.address)?;
        let record = self.portals().plan(address, self.world().wall_clock_ms())?;
        self.require_listen("portal not created", address)?;
        let text = format!("created, as target portal group {}", record.group);
        let told = Told::new(object(address), text).with("portal_group", record.group);
        self.commit_portal(&turn, address, record, told).await
    }

    /// Enables or disables a portal. The array stops listening at one that is disabled, also after a restart, and asks the
    /// initiators that came through it to log out.
    ///
    /// # Errors
    /// [`PortalError`] if there is no such portal, or the array cannot listen at it; `InUse` while initiators are logged in
    /// through it, without `force`. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn set_portal(
        &self,
        address: &str,
        update: api::PortalUpdate,
    ) -> Result<api::Portal, ArrayError> {
        let turn = self.catalog().turn().await;
        self.require_catalog()?;
        let address = named(address)?;
        let before = self.portals().get(address)?;
        let record = PortalRecord { disabled: !update.enabled, ..before.clone() };
        if record == before {
            return Ok(self.portal_view(address, &record));
        }
        let text = if update.enabled {
            self.require_listen("portal not enabled", address)?;
            "enabled".to_owned()
        } else {
            let users = self.users_of_portal(&before);
            let forced = require_unused("portal not disabled", object(address), users, update.force)?;
            shortened(&format!("disabled{forced}"))
        };
        let told = Told::new(object(address), text).change("enabled", !before.disabled, update.enabled);
        self.commit_portal(&turn, address, record, told).await
    }

    /// Deletes a portal that a client created. The array stops listening there and asks the initiators that came through it
    /// to log out.
    ///
    /// # Errors
    /// [`PortalError`] if there is no such portal, or the configuration names it; `InUse` while initiators are logged in through
    /// it, without `force`. `Offline` or `Pool` if the pool cannot commit the change.
    pub async fn delete_portal(&self, address: &str, force: bool) -> Result<(), ArrayError> {
        let turn = self.catalog().turn().await;
        self.require_catalog()?;
        let address = named(address)?;
        let record = self.portals().get(address)?;
        if self.listen().configured().contains(&address) {
            return Err(PortalError::Configured { address }.into());
        }
        let users = self.users_of_portal(&record);
        let forced = require_unused("portal not deleted", object(address), users, force)?;
        let told = Told::new(object(address), shortened(&format!("deleted{forced}")))
            .without("portal_group", record.group);
        self.commit_told(&turn, portal_list::delete(Transaction::new(), address), told).await?;
        self.portals().remove(address);
        self.serve_portals(&turn).await;
        Ok(())
    }

    async fn commit_portal(
        &self,
        turn: &Turn<'_>,
        address: SocketAddr,
        record: PortalRecord,
        told: Told,
    ) -> Result<api::Portal, ArrayError> {
        let committed =
            self.commit_told(turn, portal_list::put(Transaction::new(), address, &record), told).await;
        if committed.is_ok() {
            self.portals().put(address, record.clone());
        }
        // Also after a failure: the array may listen at an address that is not to be a portal after all.
        self.serve_portals(turn).await;
        committed.map(|()| self.portal_view(address, &record))
    }

    fn require_listen(&self, title: &'static str, address: SocketAddr) -> Result<(), PortalError> {
        self.listen().listen(address).map_err(|why| PortalError::Unavailable { title, address, why })
    }

    fn users_of_portal(&self, record: &PortalRecord) -> Vec<String> {
        let sessions = self.target().sessions();
        let through = sessions.iter().filter(|session| session.group == record.group);
        through
            .map(|session| format!("{} is logged in from {}", session.initiator, session.address))
            .collect()
    }

    fn portal_view(&self, address: SocketAddr, record: &PortalRecord) -> api::Portal {
        let problem = self.portals().problem(address).filter(|_| !record.disabled);
        let state = match (&problem, record.disabled) {
            (_, true) => PortalState::Disabled,
            (Some(_), false) => PortalState::Down,
            (None, false) => PortalState::Up,
        };
        api::Portal {
            address: address.to_string(),
            portal_group: record.group,
            state,
            problem,
            configured: self.listen().configured().contains(&address),
            created_ms: record.created_ms,
            sessions: self.list_sessions().into_iter().filter(|s| s.portal_group == record.group).collect(),
        }
    }
}

fn object(address: SocketAddr) -> String {
    format!("portal {address}")
}

/// The address of a portal that is asked for: what is no address is none.
fn named(given: &str) -> Result<SocketAddr, PortalError> {
    parse(given).map_err(|_| PortalError::NotFound { given: given.to_owned() })
}

/// The address of a portal; the port may be left out.
fn parse(given: &str) -> Result<SocketAddr, PortalError> {
    let bad = |why| PortalError::Address { given: given.to_owned(), why };
    let with_usual_port = |ip: IpAddr| SocketAddr::new(ip, ISCSI_PORT);
    let address = given.parse::<SocketAddr>().or_else(|_| given.parse().map(with_usual_port));
    let address = address.map_err(|_| bad("it is not an IP address with a port"))?;
    let is_broadcast = matches!(address.ip(), IpAddr::V4(ip) if ip.is_broadcast());
    if address.ip().is_multicast() || is_broadcast {
        return Err(bad("it is not the address of one machine"));
    }
    if address.port() == 0 {
        return Err(bad("hosts must know the port"));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_and_are_of_one_machine() {
        let parsed = |given| parse(given).map(|address| address.to_string());
        assert_eq!(parsed("10.0.0.5:3261").as_deref(), Ok("10.0.0.5:3261"));
        assert_eq!(parsed("10.0.0.5").as_deref(), Ok("10.0.0.5:3260"));
        assert_eq!(parsed("[fd00::5]:860").as_deref(), Ok("[fd00::5]:860"));
        assert_eq!(parsed("fd00::5").as_deref(), Ok("[fd00::5]:3260"));
        assert_eq!(parsed("0.0.0.0:3260").as_deref(), Ok("0.0.0.0:3260"));
        for wrong in
            ["", "storage1:3260", "10.0.0.5:0", "10.0.0.5:70000", "224.0.0.1:3260", "255.255.255.255:1"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
