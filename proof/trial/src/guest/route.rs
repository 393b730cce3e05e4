//! The path from the guest to the array, which can go silent as a dead switch does.

use anyhow::Result;
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Forwards TCP connections. Its threads end with the connections, and the listener's with the process.
pub(crate) struct Route {
    port: u16,
    connections: Arc<Mutex<Vec<Connection>>>,
    is_down: Arc<AtomicBool>,
}

/// A connection that is carried: it delivers nothing any more once this is set.
struct Connection {
    silent: Arc<AtomicBool>,
    near: TcpStream,
}

impl Route {
    /// A path to a portal of this host.
    pub(crate) fn to(portal: &str) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let (portal, shared) = (portal.to_owned(), connections.clone());
        let is_down = Arc::new(AtomicBool::new(false));
        let down = is_down.clone();
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                // While the array or the path is down the connection just closes.
                let Ok(far) = TcpStream::connect(&portal) else { continue };
                let Ok(kept) = near.try_clone() else { continue };
                if down.load(Ordering::Relaxed) {
                    continue;
                }
                let silent = Arc::new(AtomicBool::new(false));
                let connection = Connection { silent: silent.clone(), near: kept };
                shared.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
                join(near, far, &silent).ok();
            }
        });
        Ok(Self { port, connections, is_down })
    }

    /// The port on 127.0.0.1 at which it begins.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Connections that are there deliver nothing any more, not even their end. New ones work.
    pub(crate) fn go_silent(&self) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.drain(..).for_each(|connection| connection.silent.store(true, Ordering::Relaxed));
    }

    /// Cuts the path: its connections end, and there are no new ones. Or mends it.
    pub(crate) fn set_down(&self, down: bool) {
        self.is_down.store(down, Ordering::Relaxed);
        if down {
            let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            for connection in connections.drain(..) {
                connection.near.shutdown(Shutdown::Both).ok();
            }
        }
    }
}

fn join(near: TcpStream, far: TcpStream, silent: &Arc<AtomicBool>) -> Result<()> {
    let ends = [(near.try_clone()?, far.try_clone()?), (far, near)];
    for (from, to) in ends {
        from.set_nodelay(true)?;
        let silent = silent.clone();
        thread::spawn(move || carry(from, to, &silent));
    }
    Ok(())
}

fn carry(mut from: TcpStream, mut to: TcpStream, silent: &AtomicBool) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if !silent.load(Ordering::Relaxed) && to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    if !silent.load(Ordering::Relaxed) {
        from.shutdown(Shutdown::Both).ok();
        to.shutdown(Shutdown::Both).ok();
    }
}
