//! What all hosts of one boot share, and how they get a connection.

use super::{local::LocalTask, stream::Wire, totals::WireTotals};
use crate::{
    model::{History, OpId},
    scenario::log_uniform,
};
use parking_lot::Mutex;
use quoin_iscsi::IscsiServer;
use quoin_nbd::NbdServer;
use quoin_target::ClientAddress;
use quoin_volume::Volume;
use quoin_world::{Thread, World};
use quoin_world_sim::{Cut, LinkPlan, LinkSwitch, SimStream, SimWorld};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

/// A volume as hosts see it. All of it that is used is one window at its beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    pub(super) volume: u32,
    pub(super) block_sectors: u32,
    pub(super) sectors: u32,
}

/// What goes wrong for a host.
pub(super) enum Trouble {
    /// Its connection is lost.
    Lost,
    /// It was told what cannot be.
    Violation(String),
}

/// What a request is about.
pub(super) enum What {
    Write(OpId),
    Read { begun: u32, first: u32, data: Vec<u8>, received: usize },
    Other,
}

impl What {
    /// It was refused, or ended without an answer: it took effect before now, or never.
    pub(super) fn give_up(self, shared: &Shared) {
        match self {
            What::Write(op) => shared.settle([op]),
            What::Read { begun, .. } => shared.history.lock().read_failed(begun),
            What::Other => {}
        }
    }

    /// Its connection was lost first. A write stays in doubt.
    pub(super) fn unanswered(self, shared: &Shared) -> Option<OpId> {
        match self {
            What::Write(op) => {
                shared.totals.lock().unanswered += 1;
                Some(op)
            }
            What::Read { begun, .. } => {
                shared.history.lock().read_failed(begun);
                None
            }
            What::Other => None,
        }
    }

    /// It was answered: all is well with it.
    pub(super) fn succeeded(self, array: &Array, unit: usize) -> Result<(), Trouble> {
        let (mut history, mut totals) = (array.shared.history.lock(), array.shared.totals.lock());
        match self {
            What::Write(op) => {
                history.end(op, true);
                totals.writes += 1;
            }
            What::Read { begun, data, received, .. } if received != data.len() => {
                history.read_failed(begun);
                let what = format!("a read of {} bytes was answered with {received}", data.len());
                return Err(Trouble::Violation(what));
            }
            What::Read { begun, first, data, .. } => {
                let volume = array.units[unit].volume;
                history
                    .read_returned(begun, volume, 0, first, std::iter::once(&data[..]))
                    .map_err(Trouble::Violation)?;
                totals.reads += 1;
            }
            What::Other => {}
        }
        Ok(())
    }
}

pub(super) struct Shared {
    pub(super) world: Arc<SimWorld>,
    pub(super) history: Mutex<History>,
    pub(super) totals: Mutex<WireTotals>,
    pub(super) violation: Mutex<Option<String>>,
    pub(super) stop: AtomicBool,
    pub(super) links: AtomicU64,
}

/// One boot of the array.
pub(super) struct Array {
    pub(super) shared: Arc<Shared>,
    pub(super) units: Vec<Unit>,
    pub(super) iscsi: Arc<IscsiServer<Volume>>,
    pub(super) nbd: Arc<NbdServer<Volume>>,
    /// Connections that the array serves.
    pub(super) open: AtomicU64,
    pub(super) switches: Mutex<Vec<LinkSwitch>>,
    /// How often somebody asked for the reset of each unit, and was told that it is done.
    pub(super) resets: Vec<(AtomicU64, AtomicU64)>,
}

/// The front ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Front {
    Iscsi,
    Nbd,
}

impl Shared {
    pub(super) fn violated(&self, what: String) {
        self.violation.lock().get_or_insert(what);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Notes how a host's connection ended. One that lost it waits for a moment.
    pub(super) async fn pause_after(&self, outcome: Result<(), Trouble>, rng: &mut ChaCha8Rng, who: &str) {
        match outcome {
            Ok(()) => {}
            Err(Trouble::Lost) => {
                self.world.sleep(Duration::from_micros(log_uniform(rng, 1, 5_000))).await;
            }
            Err(Trouble::Violation(what)) => self.violated(format!("{who}: {what}")),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Operations that took effect before now, if ever they do.
    pub(super) fn settle(&self, ops: impl IntoIterator<Item = OpId>) {
        let mut history = self.history.lock();
        ops.into_iter().for_each(|op| history.end(op, false));
    }
}

impl Array {
    /// A connection of host `number` to a front end, and what cuts it. Half of them are cut sooner or later.
    pub(super) fn connect(self: &Arc<Self>, rng: &mut ChaCha8Rng, front: Front, number: u64) -> SimStream {
        let world = &self.shared.world;
        let link = self.shared.links.fetch_add(1, Ordering::Relaxed);
        let plan = LinkPlan {
            latency: Duration::from_micros(1)..=Duration::from_micros(log_uniform(rng, 2, 2000)),
            window_bytes: log_uniform(rng, 512, 256 << 10) as usize,
            longest_run_bytes: log_uniform(rng, 1, 64 << 10) as usize,
        };
        let (host, array, switch) = world.link(link, plan);
        self.shared.totals.lock().connections += 1;
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, number as u8));
        let peer = SocketAddr::new(address, link as u16);
        let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1)), 3260);
        self.switches.lock().push(switch.clone());
        self.open.fetch_add(1, Ordering::Relaxed);
        let served = self.clone();
        let task = async move {
            match front {
                Front::Iscsi => served.iscsi.serve_over(Wire(array), peer, local).await,
                Front::Nbd => {
                    let address = ClientAddress::Ip(address);
                    served.nbd.serve_over(Wire(array), address, &peer.to_string()).await;
                }
            }
            served.open.fetch_sub(1, Ordering::Relaxed);
        };
        let thread = Thread::Data(rng.random_range(0..world.data_threads()));
        world.spawn(thread, Box::pin(LocalTask::new(task)));
        if rng.random() {
            self.cut_later(rng, switch);
        }
        host
    }

    /// Resets all connections but one, and waits for their end. In which order the stop of a front end reaches several is
    /// the runtime's choice, which no seed decides.
    pub(super) async fn reset_all_but_one(&self) {
        let mut switches = std::mem::take(&mut *self.switches.lock());
        switches.pop();
        switches.into_iter().for_each(|switch| switch.cut(Cut::Reset));
        while self.open.load(Ordering::Relaxed) > 1 {
            self.shared.world.sleep(Duration::from_millis(10)).await;
        }
    }

    fn cut_later(&self, rng: &mut ChaCha8Rng, switch: LinkSwitch) {
        let after = Duration::from_micros(log_uniform(rng, 50, 60_000));
        let how = if rng.random_bool(0.3) { Cut::Silent } else { Cut::Reset };
        let (world, shared) = (self.shared.world.clone(), self.shared.clone());
        self.shared.world.spawn(
            Thread::Background,
            Box::pin(async move {
                world.sleep(after).await;
                switch.cut(how);
                shared.totals.lock().cuts += 1;
            }),
        );
    }

    /// A range of a unit, of whole logical blocks: few, so that hosts often want the same.
    pub(super) fn range(&self, rng: &mut ChaCha8Rng) -> (usize, u32, u32) {
        let at = rng.random_range(0..self.units.len());
        let unit = self.units[at];
        let blocks = unit.sectors / unit.block_sectors;
        let within = if rng.random_bool(0.7) { blocks.min(12) } else { blocks };
        let first = rng.random_range(0..within);
        let most = if rng.random_bool(0.9) { 64 } else { 512 } / u64::from(unit.block_sectors);
        let count = (log_uniform(rng, 1, most) as u32).min(blocks - first);
        (at, first * unit.block_sectors, count * unit.block_sectors)
    }
}
