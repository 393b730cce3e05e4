//! An I_T nexus: one session of one initiator, its view of the units and their unit attentions.

use crate::{Lun, Target, Traffic};
use parking_lot::Mutex;
use quoin_scsi::{Command, Geometry, Reply, Sense, Status, Transfer, execute, no_unit_inquiry, report_luns};
use quoin_volume::{BlockDevice, Operation};
use quoin_world::{Event, OneShot, OneShotSender, Slice};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use uuid::Uuid;

/// What identifies a session of an initiator: in iSCSI its name and ISID.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NexusName {
    /// Initiator name; compared in lower case.
    pub initiator: String,
    /// The session's part of the name.
    pub isid: [u8; 6],
}

/// Something that happened elsewhere and that a session must act on.
pub enum Notice {
    /// The initiator logged in anew under the same name: end this session.
    Reinstated,
    /// A unit is being reset. Pass it to [`Nexus::unit_reset`]; drop `done` when no command of this session
    /// runs on the unit any more.
    UnitReset {
        /// The volume.
        unit: Uuid,
        /// Dropped when done.
        done: OneShotSender<()>,
    },
}

/// What happens elsewhere and concerns one nexus.
pub struct Notices(Arc<Shared>);

impl Notices {
    /// Resolves to the next one. Cancelling it loses nothing.
    pub async fn next(&self) -> Notice {
        self.0.event.until(|| self.0.take_notice()).await
    }
}

/// The part of a nexus that other threads reach.
pub(crate) struct Shared {
    pub(crate) id: u64,
    pub(crate) name: NexusName,
    pub(crate) address: String,
    pub(crate) since_ms: u64,
    pub(crate) traffic: Arc<Traffic>,
    notices: Mutex<VecDeque<Notice>>,
    has_notices: AtomicBool,
    event: Event,
}

impl Shared {
    pub(crate) fn new(
        id: u64,
        name: NexusName,
        address: String,
        since_ms: u64,
        traffic: Arc<Traffic>,
    ) -> Self {
        let (notices, has_notices, event) = (Mutex::default(), AtomicBool::new(false), Event::new());
        Self { id, name, address, since_ms, traffic, notices, has_notices, event }
    }

    pub(crate) fn notify(&self, notice: Notice) {
        self.notices.lock().push_back(notice);
        self.has_notices.store(true, Ordering::Release);
        self.event.notify();
    }

    fn take_notice(&self) -> Option<Notice> {
        if !self.has_notices.load(Ordering::Acquire) {
            return None;
        }
        let mut notices = self.notices.lock();
        let notice = notices.pop_front();
        self.has_notices.store(!notices.is_empty(), Ordering::Release);
        notice
    }
}

struct Unit<D> {
    device: Arc<D>,
    size_bytes: u64,
    attentions: VecDeque<Sense>,
}

impl<D: BlockDevice> Unit<D> {
    fn new(device: Arc<D>) -> Self {
        let size_bytes = device.size_bytes();
        Self { device, size_bytes, attentions: VecDeque::from([Sense::POWER_ON_OCCURRED]) }
    }

    fn attend(&mut self, sense: Sense) {
        if !self.attentions.contains(&sense) {
            self.attentions.push_back(sense);
        }
    }
}

/// An I_T nexus. Ends when dropped.
pub struct Nexus<D: BlockDevice> {
    target: Arc<Target<D>>,
    shared: Arc<Shared>,
    version: u64,
    units: BTreeMap<Lun, Unit<D>>,
}

/// A command that its unit agreed to run, once its data is there.
pub struct Request<D> {
    target: Arc<Target<D>>,
    device: Arc<D>,
    command: Command,
    transfer: Transfer,
}

/// What became of a command descriptor block.
pub enum Admission<D> {
    /// Answered already.
    Done(Reply),
    /// To be run.
    Run(Request<D>),
}

impl<D: BlockDevice> Request<D> {
    /// What the command moves.
    pub fn transfer(&self) -> Transfer {
        self.transfer
    }

    /// Runs the command with the data the initiator sent; it takes up to `in_limit_bytes`.
    pub async fn run(&self, data: Vec<Slice>, in_limit_bytes: u64) -> Reply {
        execute(self.command, &*self.device, self.target.port(), data, in_limit_bytes).await
    }

    /// Counts the command with its unit. `latency` is the time from its arrival to `reply`.
    pub fn count(&self, reply: &Reply, latency: Duration) {
        let Some(instruments) = self.device.instruments() else { return };
        let (operation, bytes) = match self.command {
            Command::Read(_) => (Operation::Read, reply.data.iter().map(|slice| slice.len() as u64).sum()),
            Command::Write(_) | Command::WriteAndVerify(_) => (Operation::Write, self.transfer.out_bytes),
            Command::WriteSame { extent, .. } => {
                (Operation::Write, u64::from(extent.blocks) * u64::from(self.device.block_bytes()))
            }
            Command::Unmap { .. } => (Operation::Unmap, 0),
            _ => return,
        };
        match reply.status {
            Status::Good => instruments.answered(operation, bytes, latency),
            _ => instruments.failed(operation, latency),
        }
    }
}

impl<D: BlockDevice> Nexus<D> {
    pub(crate) fn new(target: Arc<Target<D>>, shared: Arc<Shared>) -> Self {
        let (version, luns) = target.luns_of(&shared.name.initiator);
        let units = luns.into_iter().map(|(lun, device)| (lun, Unit::new(device))).collect();
        Self { target, shared, version, units }
    }

    /// A number for this session, different from that of any other of this target.
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// The initiator and its session.
    pub fn name(&self) -> &NexusName {
        &self.shared.name
    }

    /// Where the session counts what it does.
    pub fn traffic(&self) -> &Traffic {
        &self.shared.traffic
    }

    /// Where to wait for what happens elsewhere.
    pub fn notices(&self) -> Notices {
        Notices(self.shared.clone())
    }

    /// Brings the view of the units up to date.
    fn refresh(&mut self) {
        if self.version == self.target.version() {
            return;
        }
        let (version, luns) = self.target.luns_of(&self.shared.name.initiator);
        self.version = version;
        let same = |a: &Arc<D>, b: &Arc<D>| a.uuid() == b.uuid();
        let unchanged = luns.len() == self.units.len()
            && luns.iter().all(|(lun, device)| self.units.get(lun).is_some_and(|u| same(&u.device, device)));
        let mut old = std::mem::take(&mut self.units);
        for (lun, device) in luns {
            let mut unit = match old.remove(&lun).filter(|unit| same(&unit.device, &device)) {
                Some(unit) => Unit { device, ..unit },
                None => Unit::new(device),
            };
            if !unchanged {
                unit.attend(Sense::REPORTED_LUNS_CHANGED);
            }
            self.units.insert(lun, unit);
        }
    }

    /// Takes a command for the unit at `lun`, a number in wire form.
    pub fn admit(&mut self, lun: [u8; 8], cdb: &[u8]) -> Admission<D> {
        self.try_admit(lun, cdb).unwrap_or_else(|sense| Admission::Done(Reply::check(sense)))
    }

    fn try_admit(&mut self, lun: [u8; 8], cdb: &[u8]) -> Result<Admission<D>, Sense> {
        self.refresh();
        let command = Command::parse(cdb);
        if let Ok(Command::ReportLuns { select, allocation }) = command {
            return self.report_luns(select, allocation);
        }
        let Some(unit) = Lun::from_wire(lun).and_then(|lun| self.units.get_mut(&lun)) else {
            return without_unit(command?).map(Admission::Done);
        };
        let geometry = Geometry::of(&*unit.device);
        if geometry.size_bytes != unit.size_bytes {
            unit.size_bytes = geometry.size_bytes;
            unit.attend(Sense::CAPACITY_CHANGED);
        }
        match command {
            Ok(Command::Inquiry { .. }) => {}
            Ok(Command::RequestSense { descriptor, allocation }) => {
                let sense = unit.attentions.pop_front().unwrap_or(Sense::NO_SENSE);
                return Ok(Admission::Done(Reply::request_sense(sense, descriptor, allocation)));
            }
            _ => {
                if let Some(attention) = unit.attentions.pop_front() {
                    return Err(attention);
                }
            }
        }
        let command = command?;
        let transfer = command.transfer(geometry)?;
        let (target, device) = (self.target.clone(), unit.device.clone());
        Ok(Admission::Run(Request { target, device, command, transfer }))
    }

    fn report_luns(&mut self, select: u8, allocation: u32) -> Result<Admission<D>, Sense> {
        // SPC-4 §6.33: shorter than one entry is an error.
        if allocation < 16 {
            return Err(Sense::INVALID_FIELD_IN_CDB);
        }
        for unit in self.units.values_mut() {
            unit.attentions.retain(|sense| *sense != Sense::REPORTED_LUNS_CHANGED);
        }
        // 1 selects well known logical units, of which there are none.
        let luns = self.units.keys().filter(|_| select != 1).map(|lun| lun.to_wire());
        Ok(Admission::Done(Reply::parameters(report_luns(luns), allocation)))
    }

    /// The volume at `lun`, a number in wire form.
    pub fn unit(&mut self, lun: [u8; 8]) -> Option<Uuid> {
        self.refresh();
        Some(self.units.get(&Lun::from_wire(lun)?)?.device.uuid())
    }

    /// All volumes this initiator sees.
    pub fn units(&mut self) -> Vec<Uuid> {
        self.refresh();
        self.units.values().map(|unit| unit.device.uuid()).collect()
    }

    /// The numbers, in wire form, under which this initiator sees a volume.
    pub fn luns_of(&self, unit: Uuid) -> Vec<[u8; 8]> {
        let of_unit = self.units.iter().filter(|(_, u)| u.device.uuid() == unit);
        of_unit.map(|(lun, _)| lun.to_wire()).collect()
    }

    /// Establishes the unit attention of a reset, here and, if `announce`, in all other sessions, of which each
    /// resolves one of the returned futures when nothing of it runs on the unit any more.
    pub fn unit_reset(&mut self, unit: Uuid, announce: bool) -> Vec<OneShot<()>> {
        for entry in self.units.values_mut().filter(|entry| entry.device.uuid() == unit) {
            entry.attentions.retain(|sense| *sense != Sense::DEVICE_RESET_OCCURRED);
            entry.attentions.push_front(Sense::DEVICE_RESET_OCCURRED);
        }
        if announce { self.target.announce_reset(unit, &self.shared) } else { Vec::new() }
    }
}

impl<D: BlockDevice> Drop for Nexus<D> {
    fn drop(&mut self) {
        self.target.disconnect(&self.shared);
    }
}

/// What a number without a unit answers (SPC-4 §6.4.1, SAM-5 §4.7).
fn without_unit(command: Command) -> Result<Reply, Sense> {
    match command {
        Command::Inquiry { page: None, allocation } => Ok(Reply::parameters(no_unit_inquiry(), allocation)),
        Command::RequestSense { descriptor, allocation } => {
            Ok(Reply::request_sense(Sense::LUN_NOT_SUPPORTED, descriptor, allocation))
        }
        _ => Err(Sense::LUN_NOT_SUPPORTED),
    }
}
