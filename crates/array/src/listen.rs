//! Where iSCSI connections are accepted.

use quoin_world::Task;
use std::{future::ready, net::SocketAddr};

/// An iSCSI portal: an address at which connections are accepted, and the target port that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portal {
    /// The address; an unspecified one stands for all addresses of this machine.
    pub address: SocketAddr,
    /// The tag of its target portal group, which is its relative target port identifier, too.
    pub group: u16,
}

/// Accepts connections for the array, which decides where.
pub trait Listen: Send + Sync {
    /// The portals of the configuration. The process listens at them already, and accepts nothing yet.
    fn configured(&self) -> Vec<SocketAddr>;

    /// Listens at an address, if it does not yet. Connections are accepted once [`Listen::serve`] says so.
    ///
    /// # Errors
    /// Why it cannot listen there, in words.
    fn listen(&self, address: SocketAddr) -> Result<(), String>;

    /// Accepts connections at exactly these portals, at all of which it listens. It stops listening anywhere else, and asks
    /// initiators that came through another portal to log out. Resolves once other addresses are free for others.
    fn serve(&self, portals: Vec<Portal>) -> Task;
}

/// Portals of a simulation, which has no iSCSI connections.
impl Listen for Vec<SocketAddr> {
    fn configured(&self) -> Vec<SocketAddr> {
        self.clone()
    }

    fn listen(&self, _: SocketAddr) -> Result<(), String> {
        Ok(())
    }

    fn serve(&self, _: Vec<Portal>) -> Task {
        Box::pin(ready(()))
    }
}
