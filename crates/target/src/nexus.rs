//! An I_T nexus: one session of one initiator, its view of the units and their unit attentions.

use crate::{
    Lun, Target, Traffic,
    copies::{Copies, Outcomes},
    queue::{Part, Place},
    reservations::ItNexus,
    unit::Shown,
};
use parking_lot::Mutex;
use quoin_qos::{Cost, Throttle};
use quoin_scsi::{
    Command, Geometry, Needs, Port, Reply, Sense, Status, Transfer, execute, no_unit_inquiry, report_luns,
    target_port_groups,
};
use quoin_volume::{BlockDevice, Provisioning};
use quoin_world::{Event, OneShot, OneShotSender, Slice};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use uuid::Uuid;

/// What identifies a session of an initiator: in iSCSI its name and ISID.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NexusName {
    /// Initiator name; compared in lower case.
    pub initiator: String,
    /// The session's part of the name.
    pub isid: [u8; 6],
    /// The target portal group through which it came, which is a part of the session's identity.
    pub group: u16,
}

impl NexusName {
    /// Of the session of a nexus.
    pub(crate) fn of(nexus: &ItNexus) -> Self {
        Self { initiator: nexus.initiator.clone(), isid: nexus.isid, group: nexus.port }
    }

    pub(crate) fn it_nexus(&self) -> ItNexus {
        ItNexus { initiator: self.initiator.clone(), isid: self.isid, port: self.group }
    }
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
    /// Another initiator preempted this one and aborts its commands: drop `done` when none of them is answered any more.
    TasksAborted {
        /// The volume.
        unit: Uuid,
        /// Dropped when done.
        done: OneShotSender<()>,
    },
    /// Something about a unit has changed. Pass it to [`Nexus::attend`].
    Attention {
        /// The volume.
        unit: Uuid,
        /// What has changed.
        sense: Sense,
    },
}

impl Notice {
    /// True for an attention that says what `other` says.
    fn repeats(&self, other: &Notice) -> bool {
        match (self, other) {
            (Self::Attention { unit, sense }, Self::Attention { unit: u, sense: s }) => {
                (unit, sense) == (u, s)
            }
            _ => false,
        }
    }
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
    /// The same as reservations name it.
    pub(crate) it_nexus: ItNexus,
    pub(crate) port: Port,
    pub(crate) copies: Copies,
    pub(crate) outcomes: Outcomes,
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
        (name, port): (NexusName, Port),
        address: String,
        since_ms: u64,
        traffic: Arc<Traffic>,
    ) -> Self {
        let it_nexus = name.it_nexus();
        let (notices, has_notices, event) = (Mutex::default(), AtomicBool::new(false), Event::new());
        let (copies, outcomes) = (Copies::default(), Outcomes::default());
        Self {
            id,
            name,
            it_nexus,
            port,
            copies,
            outcomes,
            address,
            since_ms,
            traffic,
            notices,
            has_notices,
            event,
        }
    }

    pub(crate) fn notify(&self, notice: Notice) {
        {
            let mut notices = self.notices.lock();
            // However often the same is said before it is heard, it is said once.
            if notices.iter().any(|waiting| waiting.repeats(&notice)) {
                return;
            }
            notices.push_back(notice);
        }
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
    shown: Shown<D>,
    queue: Arc<Part>,
    seen: Seen,
    attentions: VecDeque<Sense>,
}

/// What a host knows of a device, or will once it has heard its unit attentions.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    contents: u64,
    size_bytes: u64,
    provisioning: Provisioning,
    read_only: bool,
    /// Of the thresholds of space: how often they were changed, and how often one was reached.
    thresholds: Option<(u64, u64)>,
}

impl Seen {
    fn of<D: BlockDevice>(shown: &Shown<D>) -> Self {
        let device = &*shown.device;
        Self {
            contents: device.contents(),
            size_bytes: device.size_bytes(),
            provisioning: device.provisioning(),
            read_only: shown.is_read_only(),
            thresholds: device.thresholds().map(|thresholds| (thresholds.changes(), thresholds.reached())),
        }
    }
}

impl<D: BlockDevice> Unit<D> {
    fn new(shown: Shown<D>) -> Self {
        let seen = Seen::of(&shown);
        let queue = Part::new(shown.state.queue.clone());
        Self { shown, queue, seen, attentions: VecDeque::from([Sense::POWER_ON_OCCURRED]) }
    }

    fn uuid(&self) -> Uuid {
        self.shown.device.uuid()
    }

    /// CHECK CONDITION in the format this unit is set to.
    fn refuse(&self, sense: Sense) -> Admission<D> {
        let descriptor_sense = self.shown.state.modes.get().descriptor_sense;
        Admission::Done(Reply { descriptor_sense, ..Reply::check(sense) })
    }

    /// Establishes unit attentions for what has changed of the device.
    fn look(&mut self) {
        let now = Seen::of(&self.shown);
        if now == self.seen {
            return;
        }
        let before = std::mem::replace(&mut self.seen, now);
        // Each difference has a unit attention of its own; the host asks anew for what the attention names.
        if before.contents != now.contents {
            self.attend(Sense::MEDIUM_MAY_HAVE_CHANGED);
        }
        if before.size_bytes != now.size_bytes {
            self.attend(Sense::CAPACITY_CHANGED);
        }
        if before.provisioning != now.provisioning {
            self.attend(Sense::INQUIRY_DATA_CHANGED);
        }
        // Write protection shows in what MODE SENSE returns.
        if before.read_only != now.read_only {
            self.attend(Sense::MODE_PARAMETERS_CHANGED);
        }
        match (before.thresholds, now.thresholds) {
            (Some((changes, reached)), Some(now)) => {
                if changes != now.0 {
                    self.attend(Sense::MODE_PARAMETERS_CHANGED);
                }
                if reached != now.1 {
                    self.attend(Sense::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED);
                }
            }
            (None, None) => {}
            // The page that names them came or went.
            _ => self.attend(Sense::MODE_PARAMETERS_CHANGED),
        }
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
pub struct Request<D: BlockDevice> {
    pub(crate) target: Arc<Target<D>>,
    pub(crate) nexus: Arc<Shared>,
    pub(crate) unit: Shown<D>,
    /// What the host knew of the unit when it was admitted.
    pub(crate) contents: u64,
    pub(crate) command: Command,
    transfer: Transfer,
    /// The number by which the host named the unit, and the version of the mappings that the command was admitted by.
    pub(crate) seen_as: (Lun, u64),
    _place: Place,
}

/// What became of a command descriptor block.
pub enum Admission<D: BlockDevice> {
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

    /// The limits of the unit that the command has to keep to, and what it takes of them; `None` if it takes nothing. What it
    /// moves between host and unit counts, so a command that has the array write or copy by itself counts as one request.
    pub fn limits(&self) -> Option<(&Arc<Throttle>, Cost)> {
        if !self.command.counts_towards_limits() {
            return None;
        }
        let bytes = self.transfer.in_bytes.max(self.transfer.out_bytes);
        Some((self.unit.device.throttle()?, Cost::of_bytes(bytes)))
    }

    /// The volume.
    pub fn volume(&self) -> Uuid {
        self.unit.device.uuid()
    }

    /// Runs the command with the data the initiator sent; it takes up to `in_limit_bytes`.
    pub async fn run(&self, data: Vec<Slice>, in_limit_bytes: u64) -> Reply {
        let reply = match self.command {
            // NOTE: looked at again: since it was admitted it may have waited for limits, or for its data.
            _ if let Err(sense) = self.check_mapping() => Reply::check(sense),
            // NOTE: these take turns with changes that wait until no request is inside.
            Command::Sanitize(request) => self.sanitize(request, &data).await,
            Command::ModeSelect(request) => self.select(&request, &data).await,
            _ => self.run_inside(data, in_limit_bytes).await,
        };
        Reply { descriptor_sense: self.unit.state.modes.get().descriptor_sense, ..reply }
    }

    async fn run_inside(&self, data: Vec<Slice>, in_limit_bytes: u64) -> Reply {
        let state = &self.unit.state;
        // NOTE: looked at again: since it was admitted its data was on the way. What writes counts as inside until it has ended.
        let (nexus, needs) = (&self.nexus.it_nexus, self.command.needs());
        let writing = if needs == Needs::Write { state.enter(nexus) } else { None };
        let is_let = if needs == Needs::Write { writing.is_some() } else { state.lets(nexus, needs) };
        // NOTE: after the command was counted as inside: a SANITIZE waits for those that are.
        if let Some(sense) = state.sanitizing.refusal(Some(&self.command)) {
            return Reply::check(sense);
        }
        match self.command {
            _ if !is_let => Reply::conflict(),
            Command::LogSense(request) => self.log_sense(&request),
            Command::LogSelect(request) => self.log_select(&request, &data),
            Command::Reserve => self.reserve().await,
            Command::Release => self.release().await,
            Command::PersistentReserveIn { action, allocation } => self.reserve_in(action, allocation),
            Command::PersistentReserveOut(request) => self.reserve_out(request, &data).await,
            Command::ReceiveCopyResults { what, allocation } => self.copy_results(what, allocation),
            Command::ReceiveRodTokenInformation { list_id, allocation } => {
                self.token_information(list_id, allocation)
            }
            Command::ReportTargetPortGroups { extended, allocation } => {
                let groups = target_port_groups(extended, self.target.ports().into_iter());
                Reply::parameters(groups, allocation)
            }
            // It was meant for another medium.
            _ if self.unit.device.contents() != self.contents => Reply::check(Sense::MEDIUM_MAY_HAVE_CHANGED),
            Command::ExtendedCopy { parameter_bytes } => self.extended_copy(parameter_bytes, &data).await,
            Command::PopulateToken { list_id, parameter_bytes } => {
                self.populate_token(list_id, parameter_bytes, &data).await
            }
            Command::WriteUsingToken { list_id, parameter_bytes } => {
                self.write_using_token(list_id, parameter_bytes, &data).await
            }
            command => {
                let unit = self.unit.unit(&self.nexus.port);
                execute(command, &*self.unit.device, unit, data, in_limit_bytes).await
            }
        }
    }
}

impl<D: BlockDevice> Nexus<D> {
    pub(crate) fn new(target: Arc<Target<D>>, shared: Arc<Shared>) -> Self {
        let (version, luns) = target.luns_of(&shared.name.initiator);
        let units = luns.into_iter().map(|(lun, shown)| (lun, Unit::new(shown))).collect();
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
        let same = |unit: &Unit<D>, shown: &Shown<D>| unit.uuid() == shown.device.uuid();
        // The mappings changed. A unit that stays keeps its attentions, a new one starts with those of power
        // on.
        let unchanged = luns.len() == self.units.len()
            && luns.iter().all(|(lun, shown)| self.units.get(lun).is_some_and(|unit| same(unit, shown)));
        // Units are matched by number and volume; those that are left in `old` are no longer seen.
        let mut old = std::mem::take(&mut self.units);
        for (lun, shown) in luns {
            let mut unit = match old.remove(&lun).filter(|unit| same(unit, &shown)) {
                Some(unit) => Unit { shown, ..unit },
                None => Unit::new(shown),
            };
            if !unchanged {
                unit.attend(Sense::REPORTED_LUNS_CHANGED);
            }
            self.units.insert(lun, unit);
        }
        // What is not seen any more is not reserved by this session either.
        for unit in old.into_values() {
            unit.shown.state.end_reserve(Some(&self.shared.it_nexus));
        }
    }

    /// Takes a command for the unit at `lun`, a number in wire form.
    pub fn admit(&mut self, lun: [u8; 8], cdb: &[u8]) -> Admission<D> {
        self.try_admit(lun, cdb).unwrap_or_else(|sense| Admission::Done(Reply::check(sense)))
    }

    fn try_admit(&mut self, lun: [u8; 8], cdb: &[u8]) -> Result<Admission<D>, Sense> {
        self.refresh();
        let command = Command::parse(cdb);
        // REPORT LUNS is the target's to answer, whatever the LUN names, and reports no unit attention.
        if let Ok(Command::ReportLuns { select, allocation }) = command {
            return self.report_luns(select, allocation);
        }
        let number = Lun::from_wire(lun);
        let Some((number, unit)) = number.and_then(|lun| Some((lun, self.units.get_mut(&lun)?))) else {
            return without_unit(command?).map(Admission::Done);
        };
        let geometry = Geometry::of(&*unit.shown.device);
        // What changed of the device since the last command becomes unit attentions first.
        unit.look();
        // Unit attentions: INQUIRY leaves them, REQUEST SENSE takes one as its data, any other command fails
        // with one, even if it would fail anyway.
        match command {
            Ok(Command::Inquiry { .. }) => {}
            Ok(Command::RequestSense { descriptor, allocation }) => {
                let attention = unit.attentions.pop_front();
                let sense =
                    attention.or_else(|| unit.shown.state.sanitizing.sense()).unwrap_or(Sense::NO_SENSE);
                return Ok(Admission::Done(Reply::request_sense(sense, descriptor, allocation)));
            }
            _ => {
                if let Some(attention) = unit.attentions.pop_front() {
                    return Ok(unit.refuse(attention));
                }
            }
        }
        // A unit that is being sanitized does little else.
        if let Some(sense) = unit.shown.state.sanitizing.refusal(command.as_ref().ok()) {
            return Ok(unit.refuse(sense));
        }
        // Range and length are checked before protection, so that a command that can never work is not told
        // of the latter.
        let checked = command.and_then(|command| {
            let transfer = command.transfer(geometry)?;
            unit.shown.unit(&self.shared.port).check_protection(&command)?;
            Ok((command, transfer))
        });
        // Who is kept out by a reservation is not told more, and sends no data.
        if let Ok(command) = command
            && !unit.shown.state.lets(&self.shared.it_nexus, command.needs())
        {
            return Ok(Admission::Done(Reply::conflict()));
        }
        let (command, transfer) = match checked {
            Ok(checked) => checked,
            Err(sense) => return Ok(unit.refuse(sense)),
        };
        let Some(_place) = unit.queue.enter() else {
            return Ok(Admission::Done(Reply { status: Status::TaskSetFull, ..Reply::good() }));
        };
        // The contents that the host meant: if others take their place before the request runs, it is
        // refused.
        let (contents, seen_as) = (unit.seen.contents, (number, self.version));
        let (target, nexus, unit) = (self.target.clone(), self.shared.clone(), unit.shown.clone());
        Ok(Admission::Run(Request { target, nexus, unit, contents, command, transfer, seen_as, _place }))
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
        Some(self.units.get(&Lun::from_wire(lun)?)?.uuid())
    }

    /// All volumes this initiator sees.
    pub fn units(&mut self) -> Vec<Uuid> {
        self.refresh();
        self.units.values().map(Unit::uuid).collect()
    }

    /// The numbers under which this initiator sees a volume.
    pub fn luns_of(&self, unit: Uuid) -> Vec<Lun> {
        self.units.iter().filter(|(_, u)| u.uuid() == unit).map(|(lun, _)| *lun).collect()
    }

    /// Establishes the unit attention of a reset, here and, if `announce`, in all other sessions, of which each
    /// resolves one of the returned futures when nothing of it runs on the unit any more.
    pub fn unit_reset(&mut self, unit: Uuid, announce: bool) -> Vec<OneShot<()>> {
        for entry in self.units.values_mut().filter(|entry| entry.uuid() == unit) {
            entry.shown.state.modes.reset();
            entry.shown.state.sanitizing.let_go(self.shared.id);
            if announce {
                entry.shown.state.end_reserve(None);
            }
            entry.attentions.retain(|sense| *sense != Sense::DEVICE_RESET_OCCURRED);
            entry.attentions.push_front(Sense::DEVICE_RESET_OCCURRED);
        }
        if announce { self.target.announce_reset(unit, &self.shared) } else { Vec::new() }
    }
}

impl<D: BlockDevice> Nexus<D> {
    /// No command of this session is answered any more: none waits for a SANITIZE, which goes on
    /// without it.
    pub fn let_go(&self) {
        self.units.values().for_each(|unit| unit.shown.state.sanitizing.let_go(self.shared.id));
    }

    /// Establishes a unit attention in this session.
    pub fn attend(&mut self, unit: Uuid, sense: Sense) {
        self.units.values_mut().filter(|entry| entry.uuid() == unit).for_each(|entry| entry.attend(sense));
    }
}

impl<D: BlockDevice> Drop for Nexus<D> {
    fn drop(&mut self) {
        for unit in self.units.values() {
            unit.shown.state.end_reserve(Some(&self.shared.it_nexus));
        }
        self.target.disconnect(&self.shared);
    }
}

/// The parameter list of a command. The initiator may have sent less than the command says.
pub(crate) fn parameter_list(parameter_bytes: u32, data: &[Slice]) -> Result<Vec<u8>, Sense> {
    let mut list: Vec<u8> = data.iter().flat_map(|slice| slice.iter().copied()).collect();
    if list.len() < parameter_bytes as usize {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR);
    }
    list.truncate(parameter_bytes as usize);
    Ok(list)
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
