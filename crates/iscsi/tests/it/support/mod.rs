//! A server with volumes in RAM, on a thread of its own, and the programs that test it.

pub(crate) mod client;

use quoin_iscsi::{IscsiServer, Options};
use quoin_ram_device::RamDevice;
use quoin_target::{Access, Lun, Target};
use std::{
    net::SocketAddr,
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};
use tokio::{net::TcpListener, sync::oneshot, task::LocalSet};
use uuid::Uuid;

pub(crate) const TARGET: &str = "iqn.2026-11.test:target";
pub(crate) const INITIATOR: &str = "iqn.2026-11.test:initiator";
pub(crate) const SECOND_INITIATOR: &str = "iqn.2026-11.test:initiator-2";

/// The size of the units: more than one WRITE SAME may cover, which conformance tests try. What is not
/// written takes no memory.
pub(crate) const SIZE_BYTES: u64 = 1 << 30;

/// A write-protected unit of 512-byte blocks.
pub(crate) const READ_ONLY_LUN: u16 = 2;

/// A volume in RAM.
pub(crate) fn volume(number: u128, size_bytes: u64, block_bytes: u32) -> Arc<RamDevice> {
    let uuid = Uuid::from_u128(0x0193_2c07_0000_7000_8000_0000_0000_0000 + number);
    let device = RamDevice::new(block_bytes).sized(size_bytes).identified(uuid);
    Arc::new(device.mapped_in(8 << 10).yielding())
}

/// LUN 0 of 512-byte and LUN 1 of 4096-byte blocks for both initiators, and a write-protected one.
pub(crate) fn target() -> Arc<Target<RamDevice>> {
    let target = Target::new(TARGET);
    target.set_host("h1", &[INITIATOR.to_string(), SECOND_INITIATOR.to_string()], None).unwrap();
    for (lun, block_bytes, access) in
        [(0, 512, Access::ReadWrite), (1, 4096, Access::ReadWrite), (READ_ONLY_LUN, 512, Access::ReadOnly)]
    {
        let volume = volume(lun.into(), SIZE_BYTES, block_bytes);
        target.map("h1", Lun::new(lun).unwrap(), volume, access).unwrap();
    }
    target
}

/// The usual options.
pub(crate) fn options() -> Options {
    let seed = AtomicU64::new(0x9E37_79B9_7F4A_7C15);
    Options::new(move || seed.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed))
}

/// A running server. Shut down when dropped; panics then if one of its connections panicked.
pub(crate) struct Server {
    pub(crate) target: Arc<Target<RamDevice>>,
    pub(crate) iscsi: Arc<IscsiServer<RamDevice>>,
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// The usual target, served with the usual options.
    pub(crate) fn start() -> Server {
        Self::with(target(), options())
    }

    /// Serves a target.
    pub(crate) fn with(target: Arc<Target<RamDevice>>, options: Options) -> Server {
        let iscsi = IscsiServer::new(target.clone(), options);
        let (stop, stopped) = oneshot::channel();
        let (send_address, address) = std::sync::mpsc::channel();
        let server = iscsi.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let local = LocalSet::new();
            local.block_on(&runtime, async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                send_address.send(listener.local_addr().unwrap()).unwrap();
                let mut connections = Vec::new();
                let spawn = |accepted: quoin_iscsi::Accepted<RamDevice>| {
                    connections.push(tokio::task::spawn_local(accepted.serve()));
                };
                tokio::select! {
                    () = server.accept(listener, 1, spawn) => {}
                    _ = stopped => {}
                }
                server.shutdown().await;
                for connection in connections {
                    connection.await.expect("a connection panicked");
                }
            });
        });
        let address = address.recv().unwrap();
        Server { target, iscsi, address, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn url(&self, lun: u16) -> String {
        format!("iscsi://{}/{TARGET}/{lun}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

/// Runs a program under a time limit and returns what it printed.
pub(crate) fn run(package: &str, program: &str, arguments: &[&str]) -> Output {
    let output = Command::new("timeout").args(["-k", "1", "60", program]).args(arguments).output().unwrap();
    let missing = output.status.code() == Some(127);
    assert!(!missing, "{program} is not installed; it is in the Debian package {package}");
    output
}
