//! A server with volumes in RAM, on a thread of its own, and the programs that test it.

pub mod client;

use quoin_base::{ByteRange, Extent};
use quoin_iscsi::{IscsiServer, Options};
use quoin_target::{Access, Lun, Target};
use quoin_volume::{BlockDevice, DeviceError};
use quoin_world::{Buf, Slice};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    process::{Command, Output},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};
use tokio::{net::TcpListener, sync::oneshot, task::LocalSet};
use uuid::Uuid;

pub const TARGET: &str = "iqn.2026-11.test:target";
pub const INITIATOR: &str = "iqn.2026-11.test:initiator";
pub const SECOND_INITIATOR: &str = "iqn.2026-11.test:initiator-2";

/// A write-protected unit of 512-byte blocks.
pub const READ_ONLY_LUN: u16 = 2;

const CHUNK_BYTES: u64 = 8 * 1024;

/// A volume in RAM, sparse by chunks.
pub struct RamVolume {
    uuid: Uuid,
    size_bytes: u64,
    block_bytes: u32,
    chunks: Mutex<BTreeMap<u64, Slice>>,
}

impl RamVolume {
    pub fn new(number: u128, size_bytes: u64, block_bytes: u32) -> Arc<Self> {
        let uuid = Uuid::from_u128(0x0193_2c07_0000_7000_8000_0000_0000_0000 + number);
        Arc::new(Self { uuid, size_bytes, block_bytes, chunks: Mutex::default() })
    }

    fn check(&self, range: ByteRange) -> Result<(), DeviceError> {
        assert!(range.is_aligned(self.block_bytes.into()), "unaligned {range:?}");
        if range.end() > self.size_bytes {
            let (volume, size_bytes) = (self.name(), self.size_bytes);
            return Err(DeviceError::OutOfRange { volume, offset: range.offset, len: range.len, size_bytes });
        }
        Ok(())
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
        self.size_bytes
    }
    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    async fn read(&self, range: ByteRange) -> Result<Vec<Slice>, DeviceError> {
        self.check(range)?;
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
        // As a drive would, let others go first now and then.
        tokio::task::yield_now().await;
        self.change(ByteRange::new(offset, bytes.len() as u64), |chunk, piece| {
            let from = (piece.offset - offset) as usize;
            chunk.copy_from_slice(&bytes[from..from + chunk.len()]);
        });
        Ok(())
    }

    async fn write_bytes(&self, offset: u64, data: Buf) -> Result<(), DeviceError> {
        tokio::task::yield_now().await;
        self.change(ByteRange::new(offset, data.len() as u64), |chunk, piece| {
            let from = (piece.offset - offset) as usize;
            chunk.copy_from_slice(&data[from..from + chunk.len()]);
        });
        Ok(())
    }

    async fn unmap(&self, range: ByteRange) -> Result<(), DeviceError> {
        self.check(range)?;
        let whole = |piece: &ByteRange| piece.len == CHUNK_BYTES;
        for piece in range.split(CHUNK_BYTES) {
            match whole(&piece) {
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

/// LUN 0 of 512-byte and LUN 1 of 4096-byte blocks for both initiators, and a write-protected one.
pub fn target() -> Arc<Target<RamVolume>> {
    let target = Target::new(TARGET);
    target.set_host("h1", &[INITIATOR.to_string(), SECOND_INITIATOR.to_string()], None).unwrap();
    for (lun, block_bytes, access) in
        [(0, 512, Access::ReadWrite), (1, 4096, Access::ReadWrite), (READ_ONLY_LUN, 512, Access::ReadOnly)]
    {
        let volume = RamVolume::new(lun.into(), 256 << 20, block_bytes);
        target.map("h1", Lun::new(lun).unwrap(), volume, access).unwrap();
    }
    target
}

/// The usual options.
pub fn options() -> Options {
    let seed = AtomicU64::new(0x9E37_79B9_7F4A_7C15);
    Options::new(move || seed.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed))
}

/// A running server. Shut down when dropped; panics then if one of its connections panicked.
pub struct Server {
    pub target: Arc<Target<RamVolume>>,
    pub iscsi: Arc<IscsiServer<RamVolume>>,
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// The usual target, served with the usual options.
    pub fn start() -> Server {
        Self::with(target(), options())
    }

    /// Serves a target.
    pub fn with(target: Arc<Target<RamVolume>>, options: Options) -> Server {
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
                let spawn = |accepted: quoin_iscsi::Accepted<RamVolume>| {
                    connections.push(tokio::task::spawn_local(accepted.serve()));
                };
                tokio::select! {
                    () = server.accept(listener, spawn) => {}
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

    pub fn url(&self, lun: u16) -> String {
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
pub fn run(package: &str, program: &str, arguments: &[&str]) -> Output {
    let output = Command::new("timeout").args(["-k", "1", "60", program]).args(arguments).output().unwrap();
    let missing = output.status.code() == Some(127);
    assert!(!missing, "{program} is not installed; it is in the Debian package {package}");
    output
}
