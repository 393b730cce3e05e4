//! A SCSI command on its way: awaiting its data, waiting for its turn, running. One that was given to the
//! device is never cancelled.

use crate::{data_out::DataOutTransfer, task_attribute::TaskAttribute};
use quoin_qos::Line;
use quoin_scsi::Reply;
use quoin_target::{Clock, Lun, Request};
use quoin_volume::BlockDevice;
use quoin_world::{Nanos, OneShot, OneShotSender, Slice};
use std::{rc::Rc, time::Duration};
use uuid::Uuid;

/// Everything the initiator said of a command except its CDB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) itt: u32,
    /// The logical unit as the initiator wrote it, and which one it means.
    pub(crate) lun: [u8; 8],
    pub(crate) unit: Option<Lun>,
    /// Expected Data Transfer Length, towards the initiator.
    pub(crate) in_bytes: u32,
    /// Expected Data Transfer Length, from the initiator.
    pub(crate) out_bytes: u32,
    pub(crate) immediate: bool,
    pub(crate) attribute: TaskAttribute,
    /// Counts up with the commands of the session.
    pub(crate) number: u64,
    /// When it came: one moment for all that came with one read of the socket.
    pub(crate) received: Nanos,
}

impl Head {
    pub(crate) fn expected_bytes(&self) -> u32 {
        self.in_bytes.max(self.out_bytes)
    }
}

pub(crate) struct Task<D: BlockDevice> {
    pub(crate) head: Head,
    /// Bytes it may hold in memory, charged to the session while it does.
    pub(crate) cost_bytes: u64,
    pub(crate) stage: Stage<D>,
    /// It has had its turn for memory, and counts in what the session holds.
    pub(crate) is_admitted: bool,
    /// It waits for the limits of this volume, and has not come to wait for memory yet.
    pub(crate) limited_by: Option<Uuid>,
    /// Not empty when the task was aborted: it is not answered, and those who wait for its end hold the other
    /// sides of these.
    pub(crate) aborted: Vec<Rc<OneShotSender<()>>>,
}

impl<D: BlockDevice> Task<D> {
    /// What it holds in memory while it waits for its turn.
    pub(crate) fn early_bytes(&self) -> u64 {
        match &self.stage {
            Stage::AwaitingData(transfer) => transfer.held_bytes(),
            Stage::Dormant(_) | Stage::Running => 0,
        }
    }
}

pub(crate) enum Stage<D: BlockDevice> {
    /// Data is on its way, or the session is short of memory for it.
    AwaitingData(DataOutTransfer<D>),
    /// All is there, but older tasks go first.
    Dormant(Work<D>),
    Running,
}

/// Something to be awaited.
pub(crate) enum Work<D: BlockDevice> {
    Command {
        itt: u32,
        request: Request<D>,
        data: Vec<Slice>,
        in_bytes: u32,
        received: Nanos,
    },
    /// Answer a command that does not run, once what was aborted on its unit before has ended.
    Respond {
        itt: u32,
        reply: Reply,
        ended: OneShot<()>,
    },
    /// Wait until limits let commands of a volume through.
    Throttle {
        volume: Uuid,
        line: Rc<Line>,
    },
    /// Answer a task management request once everything it aborted has ended.
    Abort {
        itt: u32,
        ended: Vec<OneShot<()>>,
        close: bool,
    },
}

/// What came of [`Work`].
pub(crate) enum Finished {
    Command { itt: u32, reply: Reply, latency: Duration },
    Respond { itt: u32, reply: Reply },
    Abort { itt: u32, close: bool },
    Throttle { volume: Uuid, itts: Vec<u32> },
}

pub(crate) async fn perform<D: BlockDevice>(work: Work<D>, clock: &dyn Clock) -> Finished {
    match work {
        Work::Command { itt, request, data, in_bytes, received } => {
            let reply = request.run(data, in_bytes.into()).await;
            let latency = clock.now().since(received);
            request.count(&reply, latency);
            Finished::Command { itt, reply, latency }
        }
        Work::Respond { itt, reply, ended } => {
            ended.await;
            Finished::Respond { itt, reply }
        }
        Work::Throttle { volume, line } => {
            let passed = line.passed(|| clock.now(), |time| clock.sleep(time)).await;
            Finished::Throttle { volume, itts: passed.into_iter().map(|id| id as u32).collect() }
        }
        Work::Abort { itt, ended, close } => {
            for end in ended {
                end.await;
            }
            Finished::Abort { itt, close }
        }
    }
}
