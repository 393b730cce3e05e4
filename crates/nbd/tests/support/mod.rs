//! A server with volumes in RAM, on a thread of its own, and the programs that test it.

use quoin_base::{ByteRange, Extent};
use quoin_nbd::{Accepted, Listener, NbdServer, Options, Tls, TlsMode};
use quoin_target::{Access, ExportRules, Exports};
use quoin_volume::{BlockDevice, DeviceError, Instruments};
use quoin_world::{Buf, Event, Slice};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
};
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, UnixListener},
    sync::oneshot,
    task::LocalSet,
};
use uuid::Uuid;

const CHUNK_BYTES: u64 = 8 * 1024;
/// Size of every volume.
pub const VOLUME_BYTES: u64 = 64 << 20;

/// A volume in RAM, sparse by chunks, that can be made to fail or to wait.
pub struct RamVolume {
    uuid: Uuid,
    block_bytes: u32,
    chunks: Mutex<BTreeMap<u64, Slice>>,
    fault: Mutex<Option<DeviceError>>,
    held: AtomicBool,
    released: Event,
    contents: AtomicU64,
    instruments: Instruments,
}

impl RamVolume {
    pub fn new(number: u128, block_bytes: u32) -> Arc<Self> {
        Arc::new(Self {
            uuid: Uuid::from_u128(0x0193_2c07_0000_7000_8000_0000_0000_0000 + number),
            block_bytes,
            chunks: Mutex::default(),
            fault: Mutex::default(),
            held: AtomicBool::new(false),
            released: Event::new(),
            contents: AtomicU64::new(0),
            instruments: Instruments::default(),
        })
    }

    /// From now on every request fails so, or none.
    pub fn fail(&self, fault: Option<DeviceError>) {
        *self.fault.lock().unwrap() = fault;
    }

    /// From now on writes wait, or go on.
    pub fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Release);
        self.released.notify();
    }

    /// What it holds at byte `at`.
    pub fn byte(&self, at: u64) -> u8 {
        let chunks = self.chunks.lock().unwrap();
        chunks.get(&(at / CHUNK_BYTES)).map_or(0, |chunk| chunk[(at % CHUNK_BYTES) as usize])
    }

    /// Its content counts as another from now on.
    pub fn replace(&self) {
        self.contents.fetch_add(1, Ordering::AcqRel);
    }

    fn check(&self, range: ByteRange) -> Result<(), DeviceError> {
        assert!(range.is_aligned(self.block_bytes.into()), "unaligned {range:?}");
        assert!(range.end() <= VOLUME_BYTES, "{range:?} is outside");
        self.fault.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    fn change(&self, range: ByteRange, mut change: impl FnMut(&mut [u8], ByteRange)) {
        let mut chunks = self.chunks.lock().unwrap();
        for piece in range.split(CHUNK_BYTES) {
            let index = piece.offset / CHUNK_BYTES;
            let mut chunk = match chunks.get(&index) {
                Some(old) => Buf::copy_of(old),
                None => Buf::zeroed(CHUNK_BYTES as usize),
            };
            let at = (piece.offset % CHUNK_BYTES) as usize;
            change(&mut chunk.as_mut_slice()[at..at + piece.len as usize], piece);
            chunks.insert(index, chunk.into_slice());
        }
    }
}

impl BlockDevice for RamVolume {
    fn uuid(&self) -> Uuid {
        self.uuid
    }
    fn name(&self) -> String {
        "ram".into()
    }
    fn size_bytes(&self) -> u64 {
        VOLUME_BYTES
    }
    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }
    fn contents(&self) -> u64 {
        self.contents.load(Ordering::Acquire)
    }

    fn instruments(&self) -> Option<&Instruments> {
        Some(&self.instruments)
    }

    async fn read(&self, range: ByteRange) -> Result<Vec<Slice>, DeviceError> {
        self.check(range)?;
        // As a drive would, let others go first now and then.
        tokio::task::yield_now().await;
        let chunks = self.chunks.lock().unwrap();
        let pieces = range.split(CHUNK_BYTES).map(|piece| match chunks.get(&(piece.offset / CHUNK_BYTES)) {
            Some(chunk) => chunk.slice((piece.offset % CHUNK_BYTES) as usize, piece.len as usize),
            None => Buf::zeroed(piece.len as usize).into_slice(),
        });
        Ok(pieces.collect())
    }

    async fn write(&self, offset: u64, data: Vec<Slice>) -> Result<(), DeviceError> {
        for slice in &data {
            assert_eq!(slice.as_ptr() as usize % 512, 0, "slice not aligned in memory");
            assert_eq!(slice.len() % 512, 0, "slice not a multiple of a sector long");
        }
        let bytes = data.iter().map(|slice| &slice[..]).collect::<Vec<_>>().concat();
        self.check(ByteRange::new(offset, bytes.len() as u64))?;
        tokio::task::yield_now().await;
        self.released.until(|| (!self.held.load(Ordering::Acquire)).then_some(())).await;
        self.change(ByteRange::new(offset, bytes.len() as u64), |chunk, piece| {
            let from = (piece.offset - offset) as usize;
            chunk.copy_from_slice(&bytes[from..from + chunk.len()]);
        });
        Ok(())
    }

    async fn write_bytes(&self, offset: u64, data: Buf) -> Result<(), DeviceError> {
        tokio::task::yield_now().await;
        self.released.until(|| (!self.held.load(Ordering::Acquire)).then_some(())).await;
        self.change(ByteRange::new(offset, data.len() as u64), |chunk, piece| {
            let from = (piece.offset - offset) as usize;
            chunk.copy_from_slice(&data[from..from + chunk.len()]);
        });
        Ok(())
    }

    async fn unmap(&self, range: ByteRange) -> Result<(), DeviceError> {
        self.check(range)?;
        for piece in range.split(CHUNK_BYTES) {
            match piece.len == CHUNK_BYTES {
                true => drop(self.chunks.lock().unwrap().remove(&(piece.offset / CHUNK_BYTES))),
                false => self.change(piece, |bytes, _| bytes.fill(0)),
            }
        }
        Ok(())
    }

    async fn allocation(&self, range: ByteRange, limit: usize) -> Result<Vec<Extent>, DeviceError> {
        self.check(range)?;
        let chunks = self.chunks.lock().unwrap();
        let mut extents = Vec::new();
        for range in range.split(CHUNK_BYTES) {
            let mapped = chunks.contains_key(&(range.offset / CHUNK_BYTES));
            Extent { range, mapped }.push(&mut extents);
        }
        extents.truncate(limit);
        Ok(extents)
    }
}

/// A running server. Shut down when dropped; panics then if one of its connections panicked.
pub struct Server {
    pub exports: Arc<Exports<RamVolume>>,
    pub nbd: Arc<NbdServer<RamVolume>>,
    pub address: SocketAddr,
    pub socket: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _directory: TempDir,
}

impl Server {
    /// With the exports `v1` of 512-byte blocks, `v2` of 4096-byte blocks, and `ro`, `v1` to be read only.
    pub fn start() -> Server {
        Self::start_with(None, Options::default())
    }

    pub fn start_with(tls: Option<(Tls, TlsMode)>, options: Options) -> Server {
        let exports = Arc::new(Exports::default());
        let v1 = RamVolume::new(1, 512);
        exports.set("v1", v1.clone(), ExportRules::default(), Access::Default);
        exports.set("v2", RamVolume::new(2, 4096), ExportRules::default(), Access::Default);
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
                let spawn = |accepted: Accepted<RamVolume>| {
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

    pub fn device(&self, export: &str) -> Arc<RamVolume> {
        self.exports.get(export).unwrap().device().clone()
    }

    pub fn uri(&self, export: &str) -> String {
        format!("nbd://{}/{export}", self.address)
    }

    pub fn unix_uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket.display())
    }

    /// Makes the server shut down, without waiting for it.
    pub fn stop(&mut self) {
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
pub fn run(package: &str, program: &str, arguments: &[&str]) -> Output {
    let output = Command::new("timeout").args(["-k", "1", "60", program]).args(arguments).output().unwrap();
    let missing = output.status.code() == Some(127);
    assert!(!missing, "{program} is not installed; it is in the Debian package {package}");
    output
}

/// Runs a program that must succeed; its standard output.
#[track_caller]
pub fn ok(package: &str, program: &str, arguments: &[&str]) -> String {
    let output = run(package, program, arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs Python with libnbd: `h` is connected to `uri` after `before` has been run, then `script` is.
#[track_caller]
pub fn nbdsh(uri: &str, before: &str, script: &str) -> String {
    let whole = format!("import nbd\nh = nbd.NBD()\n{before}\nh.connect_uri('{uri}')\n{script}");
    ok("python3-libnbd", "/usr/bin/python3", &["-c", &whole])
}

/// A file of bytes that no two offsets of a block share.
pub fn patterned(directory: &Path, len: usize) -> String {
    let bytes: Vec<u8> = (0..len as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let path = directory.join("pattern");
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}
