//! iSCSI portals: listens where the array says, and gives connections to the data threads.

use crate::serve::listen;
use parking_lot::Mutex;
use quoin_array::{Listen, Portal};
use quoin_cli::Failure;
use quoin_iscsi::{Accepted, IscsiServer};
use quoin_volume::Volume;
use quoin_world::{Task, Thread, World};
use quoin_world_linux::LinuxWorld;
use std::{
    collections::BTreeMap,
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
};
use tokio::{runtime::Handle, task::JoinHandle};

/// The address without `--iscsi` and without `iscsi` in quoin.toml.
pub(crate) const DEFAULT_ISCSI: &str = "127.0.0.1:3260";

/// Listens at the portals of the configuration.
pub(crate) fn listen_all(wanted: Vec<SocketAddr>) -> Result<Vec<TcpListener>, Failure> {
    let wanted = if wanted.is_empty() { vec![None] } else { wanted.into_iter().map(Some).collect() };
    wanted.into_iter().map(|address| listen("iscsi", address, DEFAULT_ISCSI)).collect()
}

/// The portals that the process listens at.
pub(crate) struct Portals {
    front: Arc<IscsiServer<Volume>>,
    world: Arc<LinuxWorld>,
    runtime: Handle,
    configured: Vec<SocketAddr>,
    listening: Mutex<Listening>,
}

#[derive(Default)]
struct Listening {
    /// Nothing is accepted there yet.
    idle: BTreeMap<SocketAddr, TcpListener>,
    /// Connections are accepted by a task.
    accepting: BTreeMap<SocketAddr, JoinHandle<()>>,
}

impl Portals {
    /// Portals of a server, on the runtime that calls this.
    ///
    /// # Errors
    /// A listener whose address the system does not tell.
    pub(crate) fn new(
        front: Arc<IscsiServer<Volume>>,
        world: Arc<LinuxWorld>,
        configured: Vec<TcpListener>,
    ) -> io::Result<Self> {
        let with_address = |listener: TcpListener| Ok((listener.local_addr()?, listener));
        let idle: Vec<_> = configured.into_iter().map(with_address).collect::<io::Result<_>>()?;
        let configured = idle.iter().map(|(address, _)| *address).collect();
        let listening = Mutex::new(Listening { idle: idle.into_iter().collect(), ..Listening::default() });
        Ok(Self { front, world, runtime: Handle::current(), configured, listening })
    }

    fn accept(&self, listener: TcpListener, group: u16) -> JoinHandle<()> {
        let (front, world) = (self.front.clone(), self.world.clone());
        self.runtime.spawn(async move {
            match into_tokio(listener) {
                Ok(listener) => front.accept(listener, group, spread(world)).await,
                Err(error) => tracing::error!(%error, group, "no connections are accepted"),
            }
        })
    }
}

impl Listen for Portals {
    fn configured(&self) -> Vec<SocketAddr> {
        self.configured.clone()
    }

    fn listen(&self, address: SocketAddr) -> Result<(), String> {
        let Listening { idle, accepting } = &mut *self.listening.lock();
        accepting.retain(|_, accepting| !accepting.is_finished());
        if idle.contains_key(&address) || accepting.contains_key(&address) {
            return Ok(());
        }
        // One of the array's own, of which the system would only say that something listens there.
        let overlaps = |other: &&SocketAddr| {
            other.port() == address.port() && (covers(other, &address) || covers(&address, other))
        };
        if let Some(other) = idle.keys().chain(accepting.keys()).find(overlaps) {
            return Err(format!(
                "portal {other} has the same port, and one of the two has it at all addresses"
            ));
        }
        let listener = TcpListener::bind(address).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => format!("something else listens on {address}"),
            io::ErrorKind::AddrNotAvailable => {
                format!("this machine does not have the address {}", address.ip())
            }
            _ => format!("cannot listen on {address}: {error}"),
        })?;
        idle.insert(address, listener);
        Ok(())
    }

    fn serve(&self, portals: Vec<Portal>) -> Task {
        let is_wanted = |address: &SocketAddr| portals.iter().any(|portal| portal.address == *address);
        let to_iscsi = |portal: &Portal| quoin_iscsi::Portal { address: portal.address, group: portal.group };
        self.front.set_portals(portals.iter().map(to_iscsi).collect());
        let Listening { idle, accepting } = &mut *self.listening.lock();
        for portal in &portals {
            if let Some(listener) = idle.remove(&portal.address) {
                accepting.insert(portal.address, self.accept(listener, portal.group));
            }
        }
        idle.retain(|address, _| is_wanted(address));
        let unwanted = accepting.extract_if(.., |address, _| !is_wanted(address));
        let ending: Vec<_> = unwanted.map(|(_, accepting)| accepting).collect();
        // Each ends by itself, since its group is closed.
        Box::pin(async move {
            for accepting in ending {
                drop(accepting.await);
            }
        })
    }
}

/// Whether who listens at `all` listens at `one`, too. An unspecified IPv6 address stands for those of IPv4 as well.
fn covers(all: &SocketAddr, one: &SocketAddr) -> bool {
    all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4())
}

/// Gives each connection to the next data thread, where it stays.
fn spread(world: Arc<LinuxWorld>) -> impl FnMut(Accepted<Volume>) {
    let mut threads = (0..world.data_threads()).cycle();
    move |accepted| {
        let index = threads.next().unwrap_or(0);
        world.spawn_local_on(Thread::Data(index), move || accepted.serve());
    }
}

fn into_tokio(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}
