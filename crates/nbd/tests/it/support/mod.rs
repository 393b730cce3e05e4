//! A server with volumes in RAM, on a thread of its own, and the programs that test it.

use quoin_nbd::{Accepted, Listener, NbdServer, Options, Tls, TlsMode};
use quoin_ram_device::RamDevice;
use quoin_target::{Access, ExportRules, Exports};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Arc,
    thread::JoinHandle,
};
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, UnixListener},
    sync::oneshot,
    task::LocalSet,
};
use uuid::Uuid;

/// Size of every volume.
pub(crate) const VOLUME_BYTES: u64 = 64 << 20;

/// A volume in RAM.
fn volume(number: u128, block_bytes: u32) -> Arc<RamDevice> {
    let uuid = Uuid::from_u128(0x0193_2c07_0000_7000_8000_0000_0000_0000 + number);
    let device = RamDevice::new(block_bytes).sized(VOLUME_BYTES).identified(uuid);
    Arc::new(device.mapped_in(8 << 10).yielding())
}

/// A running server. Shut down when dropped; panics then if one of its connections panicked.
pub(crate) struct Server {
    pub(crate) exports: Arc<Exports<RamDevice>>,
    pub(crate) nbd: Arc<NbdServer<RamDevice>>,
    pub(crate) address: SocketAddr,
    pub(crate) socket: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _directory: TempDir,
}

impl Server {
    /// With the exports `v1` of 512-byte blocks, `v2` of 4096-byte blocks, and `ro`, `v1` to be read only.
    pub(crate) fn start() -> Server {
        Self::start_with(None, Options::default())
    }

    pub(crate) fn start_with(tls: Option<(Tls, TlsMode)>, options: Options) -> Server {
        let exports = Arc::new(Exports::default());
        let v1 = volume(1, 512);
        exports.set("v1", v1.clone(), ExportRules::default(), Access::Default);
        exports.set("v2", volume(2, 4096), ExportRules::default(), Access::Default);
        exports.set("ro", v1, ExportRules::default(), Access::ReadOnly);
        let nbd = NbdServer::new(exports.clone(), tls, options);
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd.sock");
        let (stop, stopped) = oneshot::channel();
        let (send_address, address) = std::sync::mpsc::channel();
        let (server, path) = (nbd.clone(), socket.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            LocalSet::new().block_on(&runtime, async move {
                let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = tcp.local_addr().unwrap();
                let unix = UnixListener::bind(path).unwrap();
                send_address.send(address).unwrap();
                let connections = std::cell::RefCell::new(Vec::new());
                let spawn = |accepted: Accepted<RamDevice>| {
                    connections.borrow_mut().push(tokio::task::spawn_local(accepted.serve()));
                };
                tokio::select! {
                    () = server.accept(Listener::Tcp(tcp), spawn) => {}
                    () = server.accept(Listener::Unix(unix), spawn) => {}
                    _ = stopped => {}
                }
                server.shutdown().await;
                for connection in connections.into_inner() {
                    connection.await.expect("a connection panicked");
                }
            });
        });
        let address = address.recv().unwrap();
        let (stop, thread) = (Some(stop), Some(thread));
        Server { exports, nbd, address, socket, stop, thread, _directory: directory }
    }

    pub(crate) fn device(&self, export: &str) -> Arc<RamDevice> {
        self.exports.get(export).unwrap().device().clone()
    }

    pub(crate) fn uri(&self, export: &str) -> String {
        format!("nbd://{}/{export}", self.address)
    }

    pub(crate) fn unix_uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket.display())
    }

    /// Makes the server shut down, without waiting for it.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
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

/// Runs a program that must succeed; its standard output.
#[track_caller]
pub(crate) fn ok(package: &str, program: &str, arguments: &[&str]) -> String {
    let output = run(package, program, arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs Python with libnbd: `h` is connected to `uri` after `before` has been run, then `script` is.
#[track_caller]
pub(crate) fn nbdsh(uri: &str, before: &str, script: &str) -> String {
    let whole = format!("import nbd\nh = nbd.NBD()\n{before}\nh.connect_uri('{uri}')\n{script}");
    ok("python3-libnbd", "/usr/bin/python3", &["-c", &whole])
}

/// A file of bytes that no two offsets of a block share.
pub(crate) fn patterned(directory: &Path, len: usize) -> String {
    let bytes: Vec<u8> = (0..len as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let path = directory.join("pattern");
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}
