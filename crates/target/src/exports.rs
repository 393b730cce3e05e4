//! Exports: volumes shown by name to NBD clients, and which clients each is shown to.
//!
//! Invariants:
//! 1. A client that an export does not admit cannot tell whether the export exists.
//! 2. An export taken out of the registry is revoked for good; who serves it ends, and one set up anew under the same
//!    name is another object.

use crate::Access;
use ipnet::IpNet;
use parking_lot::Mutex;
use quoin_volume::BlockDevice;
use quoin_world::Event;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use thiserror::Error;
use uuid::Uuid;

/// Which clients an export is shown to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExportRules {
    /// Networks it is shown to. None: this machine only, or any network if `tls_clients` names who may come.
    pub networks: Vec<IpNet>,
    /// Names of which a client's certificate must bear one. None: no certificate is asked for.
    pub tls_clients: BTreeSet<String>,
}

/// Where a client comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientAddress {
    /// Through a Unix socket, whose permissions say who may.
    Local,
    /// Over TCP.
    Ip(IpAddr),
}

/// A client, as far as it decides what it may see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Client {
    /// Where it comes from.
    pub address: ClientAddress,
    /// Names in the certificate it proved to have, in lower case.
    pub tls_names: Vec<String>,
}

/// Whether an export is shown to a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// It is.
    Yes,
    /// Not before the client has shown a certificate.
    WithCertificate,
    /// No.
    No,
}

/// A rule about who may see an export that cannot be.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum BadRule {
    /// Neither a network nor an address.
    #[error("{text:?} is neither a network nor an address")]
    Network {
        /// What was given.
        text: String,
    },
    /// A network whose address has bits that its prefix does not cover.
    #[error("{text} is an address within network {network}; give either the address or the network")]
    HostBits {
        /// What was given.
        text: String,
        /// The network it lies in.
        network: IpNet,
    },
    /// Not a name that a certificate could bear.
    #[error("{text:?} cannot be a name in a certificate")]
    TlsClient {
        /// What was given.
        text: String,
    },
}

impl BadRule {
    /// What to do about it.
    pub fn next(&self) -> String {
        match self {
            Self::Network { .. } => "give one like 10.0.0.0/24, 10.0.0.7 or 2001:db8::/64".to_owned(),
            Self::HostBits { text, network } => {
                let address = text.split('/').next().unwrap_or(text);
                format!("give {network} for all of it, or {address} for the one")
            }
            Self::TlsClient { .. } => {
                "give a DNS name of the client's certificate, or its common name".to_owned()
            }
        }
    }
}

fn network(text: &str) -> Result<IpNet, BadRule> {
    let address = || text.parse::<IpAddr>().ok().map(|address| IpNet::from(address.to_canonical()));
    let network = text.parse::<IpNet>().ok().or_else(address);
    let network = network.ok_or_else(|| BadRule::Network { text: text.to_owned() })?;
    match network.trunc() {
        whole if whole == network => Ok(network),
        network => Err(BadRule::HostBits { text: text.to_owned(), network }),
    }
}

fn tls_client(text: &str) -> Result<String, BadRule> {
    let good = (1..=253).contains(&text.len()) && !text.chars().any(|c| c.is_control() || c.is_whitespace());
    if good { Ok(text.to_lowercase()) } else { Err(BadRule::TlsClient { text: text.to_owned() }) }
}

impl ExportRules {
    /// Rules from networks or single addresses, and names of clients, as people write them.
    ///
    /// # Errors
    /// The first that cannot be.
    pub fn new(networks: &[String], tls_clients: &[String]) -> Result<Self, BadRule> {
        let mut networks = networks.iter().map(|text| network(text)).collect::<Result<Vec<_>, _>>()?;
        networks.sort_unstable();
        networks.dedup();
        let tls_clients = tls_clients.iter().map(|text| tls_client(text)).collect::<Result<_, _>>()?;
        Ok(Self { networks, tls_clients })
    }

    /// Whether `client` may see the export.
    pub fn shown_to(&self, client: &Client) -> Shown {
        let address_admitted = match client.address {
            ClientAddress::Local => true,
            ClientAddress::Ip(address) => {
                let address = address.to_canonical();
                if self.networks.is_empty() {
                    address.is_loopback() || !self.tls_clients.is_empty()
                } else {
                    self.networks.iter().any(|network| network.contains(&address))
                }
            }
        };
        if !address_admitted {
            return Shown::No;
        }
        if self.tls_clients.is_empty() || client.tls_names.iter().any(|name| self.tls_clients.contains(name))
        {
            Shown::Yes
        } else if client.tls_names.is_empty() {
            Shown::WithCertificate
        } else {
            Shown::No
        }
    }
}

/// A client that is connected to an export, as listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportClient {
    /// Where it comes from.
    pub address: String,
    /// The name it proved by certificate.
    pub tls_name: Option<String>,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
    /// Since when, in milliseconds since the Unix epoch.
    pub since_ms: u64,
}

/// A volume under an export name.
pub struct Export<D> {
    name: String,
    device: Arc<D>,
    /// The content of the volume that clients are shown; see [`BlockDevice::contents`].
    contents: u64,
    rules: ExportRules,
    access: Mutex<Access>,
    revoked: AtomicBool,
    changed: Event,
    next_client: AtomicU64,
    clients: Mutex<BTreeMap<u64, ExportClient>>,
}

/// A client's connection to an export; listed while this lives.
pub struct Connected<D> {
    export: Arc<Export<D>>,
    number: u64,
}

impl<D: BlockDevice> Export<D> {
    fn new(name: String, device: Arc<D>, rules: ExportRules, access: Access) -> Self {
        Self {
            name,
            contents: device.contents(),
            device,
            rules,
            access: Mutex::new(access),
            revoked: AtomicBool::new(false),
            changed: Event::new(),
            next_client: AtomicU64::new(0),
            clients: Mutex::default(),
        }
    }

    /// Whether its clients may only read, as things are now.
    pub fn is_read_only(&self) -> bool {
        self.access().is_read_only(&*self.device)
    }
}

impl<D> Export<D> {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The volume.
    pub fn device(&self) -> &Arc<D> {
        &self.device
    }

    /// Which content of the volume it shows; see [`BlockDevice::contents`].
    pub fn contents(&self) -> u64 {
        self.contents
    }

    /// What its clients may do.
    pub fn access(&self) -> Access {
        *self.access.lock()
    }

    /// Which clients it is shown to.
    pub fn rules(&self) -> &ExportRules {
        &self.rules
    }

    /// Resolves once the export is taken away. Cancelling it loses nothing.
    pub async fn revoked(&self) {
        self.changed.until(|| self.revoked.load(Ordering::Acquire).then_some(())).await;
    }

    /// The clients connected to it, oldest first.
    pub fn clients(&self) -> Vec<ExportClient> {
        self.clients.lock().values().cloned().collect()
    }

    /// Lists a client as connected until what is returned is dropped.
    pub fn connect(self: &Arc<Self>, client: ExportClient) -> Connected<D> {
        let number = self.next_client.fetch_add(1, Ordering::Relaxed);
        self.clients.lock().insert(number, client);
        Connected { export: self.clone(), number }
    }

    fn revoke(&self) {
        self.revoked.store(true, Ordering::Release);
        self.changed.notify();
    }
}

impl<D> Drop for Connected<D> {
    fn drop(&mut self) {
        let removed = self.export.clients.lock().remove(&self.number);
        assert!(removed.is_some(), "export {}: a client left that was not listed", self.export.name);
    }
}

/// All exports of an array, by name. Shared by all threads.
pub struct Exports<D>(Mutex<BTreeMap<String, Arc<Export<D>>>>);

impl<D> Default for Exports<D> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<D: BlockDevice> Exports<D> {
    /// Shows `device` as `name`. One that is shown so already, under the same rules, keeps its clients, who may do what
    /// `access` says from now on; any other export of that name is revoked.
    pub fn set(&self, name: &str, device: Arc<D>, rules: ExportRules, access: Access) {
        let mut exports = self.0.lock();
        if let Some(before) = exports.get(name) {
            // NOTE: the volume as well as the rules: a client must never go on with another volume's blocks.
            if before.rules == rules && before.device.uuid() == device.uuid() {
                *before.access.lock() = access;
                return;
            }
            before.revoke();
        }
        exports.insert(name.to_owned(), Arc::new(Export::new(name.to_owned(), device, rules, access)));
    }

    /// Ends the connections of all clients of a device, for which there is no other way to learn that it changed. Its
    /// exports stay, and the clients may connect anew.
    pub fn disconnect(&self, device: Uuid) {
        let mut exports = self.0.lock();
        for export in exports.values_mut().filter(|export| export.device.uuid() == device) {
            export.revoke();
            // The export goes on as a new one, which shows the content that the volume has now.
            let (name, rules, access) = (export.name.clone(), export.rules.clone(), export.access());
            *export = Arc::new(Export::new(name, export.device.clone(), rules, access));
        }
    }

    /// Takes away every export whose name is not kept; their connections end.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.0.lock().retain(|name, export| {
            let keep = keep(name);
            if !keep {
                export.revoke();
            }
            keep
        });
    }

    /// The export of this name.
    pub fn get(&self, name: &str) -> Option<Arc<Export<D>>> {
        self.0.lock().get(name).cloned()
    }

    /// All exports, by name.
    pub fn list(&self) -> Vec<Arc<Export<D>>> {
        self.0.lock().values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(networks: &[&str], tls_clients: &[&str]) -> ExportRules {
        ExportRules {
            networks: networks.iter().map(|network| network.parse().unwrap()).collect(),
            tls_clients: tls_clients.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    fn from(address: &str, names: &[&str]) -> Client {
        let address = match address {
            "unix" => ClientAddress::Local,
            address => ClientAddress::Ip(address.parse().unwrap()),
        };
        Client { address, tls_names: names.iter().map(|&name| name.to_owned()).collect() }
    }

    #[test]
    fn without_rules_only_this_machine_sees_an_export() {
        let rules = rules(&[], &[]);
        for (address, shown) in [
            ("unix", Shown::Yes),
            ("127.0.0.1", Shown::Yes),
            ("127.8.8.8", Shown::Yes),
            ("::1", Shown::Yes),
            ("::ffff:127.0.0.1", Shown::Yes),
            ("10.0.0.1", Shown::No),
            ("::ffff:10.0.0.1", Shown::No),
            ("fe80::1", Shown::No),
        ] {
            assert_eq!(rules.shown_to(&from(address, &[])), shown, "{address}");
        }
    }

    #[test]
    fn rules_are_read_as_people_write_them() {
        let rules = |networks: &[&str], clients: &[&str]| {
            let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
            ExportRules::new(&owned(networks), &owned(clients))
        };
        let good = rules(&["10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "192.0.2.7/32"], &["DB1"]).unwrap();
        let shown: Vec<_> = good.networks.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32"]);
        assert_eq!(good.tls_clients.first().map(String::as_str), Some("db1"));
        let error = rules(&["10.0.0.5/8"], &[]).unwrap_err();
        assert_eq!(error.next(), "give 10.0.0.0/8 for all of it, or 10.0.0.5 for the one");
        for bad in ["", "10.0.0.0/33", "localhost", "10.0.0"] {
            assert!(matches!(rules(&[bad], &[]), Err(BadRule::Network { .. })), "{bad}");
        }
        assert!(matches!(rules(&[], &["a b"]), Err(BadRule::TlsClient { .. })));
        assert!(matches!(rules(&[], &[""]), Err(BadRule::TlsClient { .. })));
    }

    #[test]
    fn networks_and_certificates_must_both_fit() {
        let networks = rules(&["10.0.0.0/8", "2001:db8::/32"], &[]);
        for (address, shown) in [
            ("10.255.0.1", Shown::Yes),
            ("::ffff:10.0.0.1", Shown::Yes),
            ("2001:db8::7", Shown::Yes),
            ("11.0.0.1", Shown::No),
            ("127.0.0.1", Shown::No),
        ] {
            assert_eq!(networks.shown_to(&from(address, &[])), shown, "{address}");
        }
        let names = rules(&[], &["db1"]);
        assert_eq!(names.shown_to(&from("10.0.0.1", &[])), Shown::WithCertificate);
        assert_eq!(names.shown_to(&from("unix", &[])), Shown::WithCertificate);
        assert_eq!(names.shown_to(&from("10.0.0.1", &["db2", "db1"])), Shown::Yes);
        assert_eq!(names.shown_to(&from("10.0.0.1", &["db2"])), Shown::No);
        let both = rules(&["10.0.0.0/8"], &["db1"]);
        assert_eq!(both.shown_to(&from("11.0.0.1", &["db1"])), Shown::No);
        assert_eq!(both.shown_to(&from("10.0.0.1", &["db1"])), Shown::Yes);
    }
}
