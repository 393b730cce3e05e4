//! Any commands, data, aborts and delays, against what must hold whatever they are.

use super::*;
use crate::{
    command::perform,
    pdu::{DataIn, DataOut, NopOut, READ, STATUS, ScsiCommand, TaskRequest, WRITE},
    receive::Payload,
    task_attribute::TaskAttribute,
};
use futures_util::FutureExt;
use proptest::prelude::*;
use quoin_qos::{Limits, Rate};
use quoin_ram_device::RamDevice;
use quoin_target::{Access, Clock, Lun, NexusName, SessionMemory, Target};
use quoin_world::{Buf, one_shot};
use std::{
    collections::BTreeMap,
    future::Future,
    num::NonZeroU64,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};
use uuid::Uuid;

/// A clock that goes on whenever it is looked at.
#[derive(Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Nanos {
        Nanos(self.0.fetch_add(1_000_000, Ordering::Relaxed))
    }

    fn sleep(&self, _: Duration) -> quoin_world::Task {
        let mut slept = false;
        Box::pin(std::future::poll_fn(move |_| {
            if std::mem::replace(&mut slept, true) { Poll::Ready(()) } else { Poll::Pending }
        }))
    }
}

/// Data as it may come: among other bytes, or in a buffer of its own.
fn payload(len: u32) -> Payload<'static> {
    let data = &DATA[..len as usize];
    if len.is_multiple_of(1024) { Payload::Own(Buf::copy_of(data)) } else { Payload::Part(data) }
}

const INITIATOR: &str = "iqn.2026-11.test:h";
/// A fault that is none.
const NO_FAULT: u8 = 14;
static DATA: [u8; 64 << 10] = [7; 64 << 10];

/// A device that does at once what it is asked for, and keeps nothing.
fn device(number: u128) -> RamDevice {
    RamDevice::new(512)
        .sized(64 << 20)
        .identified(Uuid::from_u128(number))
        .mapped_in(1 << 20)
        .keeping_nothing()
}

#[derive(Clone, Debug)]
enum Act {
    Command {
        lun: u8,
        attribute: u8,
        op: u8,
        blocks: u16,
        immediate: bool,
        sent: u16,
        announce: bool,
    },
    /// Serves one of the R2Ts there are, wrongly in some way if `fault` is small.
    Data {
        pick: usize,
        fault: u8,
    },
    /// The end of what some command announced, or a part of it.
    Announced {
        pick: usize,
        fault: u8,
    },
    Manage {
        function: u8,
        lun: u8,
        pick: u32,
    },
    /// One of the works that were begun goes as far as it can.
    Work {
        pick: usize,
    },
    /// The peer takes what was sent.
    Take,
    Tick,
}

fn act() -> impl Strategy<Value = Act> {
    let command = (0..3u8, 0..5u8, 0..4u8, 0..4096u16, any::<bool>(), any::<u16>(), any::<bool>()).prop_map(
        |(lun, attribute, op, blocks, immediate, sent, announce)| Act::Command {
            lun,
            attribute,
            op,
            blocks,
            immediate,
            sent,
            announce,
        },
    );
    prop_oneof![
        8 => command,
        6 => (any::<usize>(), 0..16u8).prop_map(|(pick, fault)| Act::Data { pick, fault }),
        4 => (any::<usize>(), 0..16u8).prop_map(|(pick, fault)| Act::Announced { pick, fault }),
        2 => (0..9u8, 0..3u8, any::<u32>()).prop_map(|(function, lun, pick)| Act::Manage { function, lun, pick }),
        6 => any::<usize>().prop_map(|pick| Act::Work { pick }),
        4 => Just(Act::Take),
        1 => Just(Act::Tick),
    ]
}

/// Some data that a command announced.
struct Announced {
    itt: u32,
    offset: u32,
    data_sn: u32,
    left: u32,
}

/// A session, and what its peer knows of it.
struct Rig {
    target: Arc<Target<RamDevice>>,
    session: Session<RamDevice>,
    running: Vec<Pin<Box<dyn Future<Output = Finished>>>>,
    r2ts: Vec<R2t>,
    announced: Vec<Announced>,
    cmd_sn: u32,
    issued: u32,
    stat_sn: u32,
    answered: BTreeMap<u32, u32>,
    managed: u32,
    rejected: u32,
}

fn wire(lun: u8) -> [u8; 8] {
    match lun {
        // The first unit has two names.
        2 => [0x40, 0, 0, 0, 0, 0, 0, 0],
        lun => [0, lun, 0, 0, 0, 0, 0, 0],
    }
}

impl Rig {
    fn new(immediate_data: bool, initial_r2t: bool, memory_bytes: u64) -> Self {
        Self::limited(immediate_data, initial_r2t, memory_bytes, Limits::default())
    }

    /// With limits of the second unit.
    fn limited(immediate_data: bool, initial_r2t: bool, memory_bytes: u64, limits: Limits) -> Self {
        let target = Target::new("iqn.2026-11.test:t");
        target.set_host("h", &[INITIATOR.to_string()], None).unwrap();
        for lun in 0..2 {
            let device = device(1 + u128::from(lun));
            let device = Arc::new(if lun == 1 { device.limited(limits) } else { device });
            target.map("h", Lun::new(lun).unwrap(), device, Access::ReadWrite).unwrap();
        }
        let name = NexusName { initiator: INITIATOR.into(), isid: [0; 6], group: 1 };
        let nexus = target.connect(name, String::new(), 0).now_or_never().unwrap();
        let params = Params { immediate_data, initial_r2t, max_outstanding_r2t: 2, ..Params::default() };
        let login = Established {
            initiator: INITIATOR.into(),
            isid: [0; 6],
            tsih: 0,
            cid: 0,
            kind: SessionKind::Normal,
            params,
            cmd_sn: 1,
        };
        let share = SessionMemory::new(memory_bytes).share();
        Self {
            target,
            session: Session::new(&login, 1, Some(nexus), Text::default(), share, Nanos::default()),
            running: Vec::new(),
            r2ts: Vec::new(),
            announced: Vec::new(),
            cmd_sn: 1,
            issued: 0,
            stat_sn: 1,
            answered: BTreeMap::new(),
            managed: 0,
            rejected: 0,
        }
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Command { lun, attribute, op, blocks, immediate, sent, announce } => {
                self.command(lun, attribute, op, blocks, immediate, sent, announce);
            }
            Act::Data { pick, fault } if !self.r2ts.is_empty() => {
                let r2t = self.r2ts.remove(pick % self.r2ts.len());
                self.data(&r2t, fault);
            }
            Act::Announced { pick, fault } if !self.announced.is_empty() => {
                let at = pick % self.announced.len();
                self.unasked(at, fault);
            }
            Act::Manage { function, lun, pick } => self.manage(function, lun, pick),
            Act::Work { pick } if !self.running.is_empty() => {
                let at = pick % self.running.len();
                self.work(at);
            }
            Act::Take => self.take(),
            Act::Tick => drop(self.session.tick()),
            Act::Data { .. } | Act::Announced { .. } | Act::Work { .. } => {}
        }
        self.begin();
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of an act")]
    fn command(
        &mut self,
        lun: u8,
        attribute: u8,
        op: u8,
        blocks: u16,
        immediate: bool,
        sent: u16,
        announce: bool,
    ) {
        let (exp_cmd_sn, max_cmd_sn) = self.session.numbers.window();
        if !immediate && max_cmd_sn.wrapping_add(1) == exp_cmd_sn || !self.session.may_receive() {
            return;
        }
        self.issued += 1;
        let [high, low] = blocks.to_be_bytes();
        let (flags, code) = [(0, 0x00), (READ, 0x28), (WRITE, 0x2A), (READ, 0x9E)][usize::from(op)];
        let mut bytes = if code == 0 { 0 } else { u32::from(blocks) * 512 };
        let mut cdb = [0; 16];
        match code {
            0 => {}
            // READ CAPACITY (16) by an initiator that has room for more than there is.
            0x9E => {
                (cdb[0], cdb[1], bytes) = (code, 0x10, u32::MAX);
                cdb[10..14].fill(0xFF);
            }
            _ => (cdb[0], cdb[7], cdb[8]) = (code, high, low),
        }
        // What was not agreed on comes now and then, too.
        let room = if flags == WRITE { bytes.min(DATA.len() as u32) } else { 0 };
        let sent = if sent.is_multiple_of(4) { u32::from(sent).min(room) } else { 0 };
        let announces = announce && room > sent;
        let command = ScsiCommand {
            opcode: opcode::SCSI_COMMAND | if immediate { 0x40 } else { 0 },
            flags: flags | attribute | if announces { 0 } else { FINAL },
            lun: wire(lun),
            itt: self.issued.into(),
            expected_bytes: bytes.into(),
            cmd_sn: self.cmd_sn.into(),
            cdb,
            ..ScsiCommand::default()
        };
        self.cmd_sn = self.cmd_sn.wrapping_add(u32::from(!immediate));
        if announces {
            let left = room - sent;
            self.announced.push(Announced { itt: self.issued, offset: sent, data_sn: 0, left });
        }
        self.session.receive(Pdu { bhs: command.into(), data: payload(sent), is_intact: true });
    }

    fn data(&mut self, r2t: &R2t, fault: u8) {
        let segment = DATA.len() as u32;
        let (mut at, mut data_sn) = (0, 0u32);
        while at < r2t.desired_bytes.get() {
            let len = segment.min(r2t.desired_bytes.get() - at);
            let is_final = at + len == r2t.desired_bytes.get();
            let pdu = DataOut {
                opcode: opcode::DATA_OUT,
                flags: if is_final { FINAL } else { 0 },
                itt: r2t.itt,
                ttt: r2t.ttt,
                data_sn: (data_sn + u32::from(fault == 0)).into(),
                offset: (r2t.offset.get() + at + u32::from(fault == 1) * 512).into(),
                ..DataOut::default()
            };
            self.session.receive(Pdu { bhs: pdu.into(), data: payload(len), is_intact: fault != 2 });
            at += len;
            data_sn += 1;
        }
    }

    fn unasked(&mut self, at: usize, fault: u8) {
        let announced = &mut self.announced[at];
        let len = if fault.is_multiple_of(2) { announced.left } else { announced.left.min(4096) };
        announced.left -= len;
        let is_final = announced.left == 0;
        let pdu = DataOut {
            opcode: opcode::DATA_OUT,
            flags: if is_final { FINAL } else { 0 },
            itt: announced.itt.into(),
            ttt: NO_TAG.into(),
            data_sn: (announced.data_sn + u32::from(fault == 10)).into(),
            offset: announced.offset.into(),
            ..DataOut::default()
        };
        announced.data_sn += 1;
        announced.offset += len;
        if is_final {
            self.announced.remove(at);
        }
        self.session.receive(Pdu { bhs: pdu.into(), data: payload(len), is_intact: fault != 12 });
    }

    fn manage(&mut self, function: u8, lun: u8, pick: u32) {
        self.managed += 1;
        let request = TaskRequest {
            opcode: 0x40 | opcode::TASK_REQUEST,
            // All but those that end the session.
            flags: FINAL | if function == 7 { 6 } else { function },
            lun: wire(lun),
            itt: (1_000_000 + self.managed).into(),
            referenced: (pick % (self.issued + 1)).into(),
            cmd_sn: self.cmd_sn.into(),
            ..TaskRequest::default()
        };
        self.session.receive(Pdu { bhs: request.into(), data: Payload::Part(&[]), is_intact: true });
    }

    fn work(&mut self, at: usize) {
        let mut cx = Context::from_waker(Waker::noop());
        if let Poll::Ready(finished) = self.running[at].as_mut().poll(&mut cx) {
            drop(self.running.swap_remove(at));
            self.session.complete(finished);
        }
    }

    /// Takes up what the session started, and checks that it was its turn.
    fn begin(&mut self) {
        let started = std::mem::take(&mut self.session.started);
        for work in started {
            if let Some(task) = match &work {
                Work::Command { itt, .. } => self.session.tasks.get(*itt),
                Work::Abort { .. } | Work::Respond { .. } | Work::Throttle { .. } => None,
            } {
                let head = task.head;
                let is_older = |other: &&Task<RamDevice>| {
                    other.head.unit == head.unit && other.head.number < head.number
                };
                let mut older = self.session.tasks.iter().map(|(_, task)| task).filter(is_older);
                match head.attribute {
                    TaskAttribute::Ordered => assert!(older.next().is_none(), "{head:?}"),
                    TaskAttribute::Simple => {
                        assert!(
                            older.all(|other| other.head.attribute != TaskAttribute::Ordered),
                            "{head:?}"
                        );
                    }
                    TaskAttribute::HeadOfQueue | TaskAttribute::Aca => {}
                }
            }
            self.running.push(Box::pin(async move { perform(work, &Ticking::default()).await }));
        }
        let held = self
            .session
            .tasks
            .iter()
            .map(|(_, task)| task)
            .filter(|task| task.is_admitted)
            .map(|task| task.cost_bytes);
        assert_eq!(held.sum::<u64>(), self.session.tasks.memory_bytes());
        let waiting = self.session.tasks.iter().map(|(_, task)| task).filter(|task| !task.is_admitted);
        assert_eq!(waiting.map(Task::early_bytes).sum::<u64>(), self.session.tasks.early_bytes());
        assert_eq!(self.session.end(), None);
    }

    fn take(&mut self) {
        for bhs in self.session.out.take_headers() {
            let has_status = match bhs.operation() {
                opcode::R2T => {
                    self.r2ts.push(bhs.into());
                    false
                }
                opcode::DATA_IN => bhs.flags & STATUS != 0,
                opcode::REJECT => {
                    // One of a Data-Out, for its digest, is not the end of a command.
                    self.rejected += u32::from(Reject::from(bhs).reason != RejectReason::DataDigest as u8);
                    true
                }
                _ => true,
            };
            if has_status {
                assert_eq!(DataIn::from(bhs).stat_sn.get(), self.stat_sn);
                self.stat_sn += 1;
                if bhs.operation() != opcode::REJECT {
                    *self.answered.entry(bhs.itt.get()).or_default() += 1;
                }
            }
        }
        self.session.pump();
    }

    /// The peer does its part, until there is nothing left to do.
    fn finish(&mut self) {
        for _ in 0..10_000 {
            self.take();
            self.begin();
            if let Some(r2t) = self.r2ts.pop() {
                // In the order in which they came.
                self.r2ts.push(r2t);
                let r2t = self.r2ts.remove(0);
                self.data(&r2t, NO_FAULT);
            } else if !self.announced.is_empty() {
                self.unasked(0, NO_FAULT);
            } else if self.running.is_empty() && self.session.out.queued_bytes() == 0 {
                break;
            }
            (0..self.running.len()).rev().for_each(|at| self.work(at));
            self.begin();
        }
    }
}

/// A peer that pings and takes no answers. However short they are, each takes a page.
#[test]
fn short_answers_that_nobody_takes_count_as_what_they_take() {
    const MEMORY_BYTES: u64 = 4 << 20;
    let mut rig = Rig::new(true, true, MEMORY_BYTES);
    let ping = NopOut {
        opcode: 0x40 | opcode::NOP_OUT,
        flags: FINAL,
        itt: 7.into(),
        ttt: NO_TAG.into(),
        cmd_sn: 1.into(),
        ..NopOut::default()
    };
    let mut answers = 0;
    while rig.session.may_receive() {
        rig.session.receive(Pdu { bhs: ping.into(), data: payload(1), is_intact: true });
        rig.session.pump();
        answers += 1;
    }
    assert!((100..=MEMORY_BYTES / 4096).contains(&answers), "{answers} answers of a page each");
    rig.take();
    assert!(rig.session.may_receive());
}

/// A host that is told that another one reset its unit takes what was under way there for ended.
#[test]
fn a_reset_elsewhere_is_told_when_what_it_ended_has() {
    let mut rig = Rig::new(true, true, 1 << 30);
    // What is new about the unit is told first.
    rig.command(0, 0, 0, 0, false, 0, false);
    rig.command(0, 0, 2, 1, false, 512, false);
    rig.begin();
    rig.take();
    assert_eq!((rig.answered.len(), rig.running.len()), (1, 1));
    let (sender, mut reset) = one_shot();
    rig.session.reset_elsewhere(Uuid::from_u128(1), sender);
    rig.command(0, 0, 0, 0, false, 0, false);
    rig.begin();
    rig.take();
    assert!(!rig.answered.contains_key(&3), "the write still runs");
    assert_eq!((&mut reset).now_or_never(), None);
    // The write ends; then it is told.
    rig.work(0);
    assert_eq!((&mut reset).now_or_never(), Some(None));
    rig.work(0);
    rig.take();
    assert!(rig.answered.contains_key(&3) && !rig.answered.contains_key(&2));
    assert_eq!(rig.session.tasks.len(), 0);
}

/// What waits for a limit asks for nothing, and leaves the session to others.
#[test]
fn a_limited_unit_leaves_window_and_memory_to_others() {
    let rate = NonZeroU64::new(1000).map(|per_s| Rate { per_s, burst: Duration::ZERO });
    let mut rig = Rig::limited(true, true, 1 << 30, Limits { ios: rate, bytes: None });
    // What is new about the units is told first.
    rig.command(0, 0, 0, 0, false, 0, false);
    rig.command(1, 0, 0, 0, false, 0, false);
    rig.begin();
    for _ in 0..250 {
        rig.command(1, 0, 2, 64, false, 32 << 10, false);
    }
    rig.begin();
    rig.take();
    let (limited, bytes) = rig.session.tasks.limited();
    assert!((100..=128).contains(&limited) && bytes <= 4 << 20, "{limited}, {bytes}");
    // One was let in at once; those that did not fit were answered; one future waits for all.
    assert_eq!((rig.r2ts.len(), rig.running.len()), (0, 2));
    assert_eq!(rig.answered.len(), 2 + 250 - 1 - limited);
    // The other unit writes as ever, while these wait.
    rig.command(0, 0, 2, 64, false, 32 << 10, false);
    rig.begin();
    assert_eq!(rig.running.len(), 3);
    // A reset takes those back that wait.
    rig.manage(5, 1, 0);
    assert_eq!(rig.session.tasks.limited(), (0, 0));
    rig.finish();
    assert_eq!((rig.session.tasks.len(), rig.session.tasks.figures()), (0, (0, 0, 0, 0, 0)));
}

/// A session may see many volumes in its time: it keeps nothing of those that are gone.
#[test]
fn a_line_for_limits_goes_with_its_volume() {
    let rate = NonZeroU64::new(1000).map(|per_s| Rate { per_s, burst: Duration::ZERO });
    let mut rig = Rig::limited(true, true, 1 << 30, Limits { ios: rate, bytes: None });
    rig.command(1, 0, 0, 0, false, 0, false);
    (0..2).for_each(|_| rig.command(1, 0, 1, 1, false, 0, false));
    rig.begin();
    assert_eq!(rig.session.tasks.limited().0, 1);
    rig.target.unmap("h", Lun::new(1).unwrap()).unwrap();
    // A command still waits; it is answered when its turn comes.
    rig.session.tick();
    assert_eq!(rig.session.lines().len(), 1);
    rig.finish();
    assert_eq!((rig.answered.len(), rig.session.counted.failures), (3, 3));
    rig.session.tick();
    assert_eq!(rig.session.lines().len(), 0);
}

/// A command that holds its memory waits for an older one, which waited for a limit and finds no memory left.
#[test]
fn a_command_that_waited_for_a_limit_finds_memory() {
    let rate = NonZeroU64::new(1000).map(|per_s| Rate { per_s, burst: Duration::ZERO });
    let mut rig = Rig::limited(true, true, 1 << 20, Limits { ios: rate, bytes: None });
    rig.command(1, 0, 0, 0, false, 0, false);
    // An ORDERED read that has to wait for the one before it, and a SIMPLE READ CAPACITY (16), which limits let be.
    rig.command(1, 0, 1, 1, false, 0, false);
    rig.command(1, 2, 1, 4095, false, 0, false);
    rig.command(1, 0, 3, 0, false, 0, false);
    rig.begin();
    assert_eq!(rig.session.tasks.limited().0, 1);
    rig.finish();
    assert_eq!(rig.answered.len(), 4);
    assert_eq!((rig.session.tasks.len(), rig.session.tasks.figures()), (0, (0, 0, 0, 0, 0)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn every_task_ends_once_and_leaves_nothing(
        acts in proptest::collection::vec(act(), 1..60),
        immediate_data: bool,
        initial_r2t: bool,
        is_scarce: bool,
        limit in prop::option::of(100..100_000_u64),
    ) {
        let rate = limit.and_then(NonZeroU64::new).map(|per_s| Rate { per_s, burst: Duration::from_millis(1) });
        let limits = Limits { ios: rate, bytes: None };
        let memory_bytes = if is_scarce { 2 << 20 } else { 1 << 30 };
        let mut rig = Rig::limited(immediate_data, initial_r2t, memory_bytes, limits);
        acts.iter().for_each(|act| rig.act(act));
        rig.finish();
        let session = &rig.session;
        let tasks: Vec<_> = session.tasks.iter().map(|(_, task)| task).map(|task| task.head).collect();
        prop_assert!(tasks.is_empty(), "{tasks:?}");
        prop_assert_eq!(session.tasks.figures(), (0, 0, 0, 0, 0));
        prop_assert_eq!(session.tasks.limited(), (0, 0));
        prop_assert_eq!((session.numbers.in_window(), session.aborts), (0, 0));
        prop_assert!(rig.answered.values().all(|times| *times == 1));
        let managed = acts.iter().any(|act| matches!(act, Act::Manage { .. }));
        let commands = rig.answered.keys().filter(|itt| **itt <= 1_000_000).count() as u32;
        let answered = commands + rig.rejected;
        prop_assert!(answered == rig.issued || managed && answered <= rig.issued, "{} of {}", answered, rig.issued);
    }
}
