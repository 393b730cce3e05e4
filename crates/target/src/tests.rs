//! Hosts, mappings and the attentions of sessions.

use crate::{
    Access, Admission, Credentials, Done, Login, Lun, Nexus, NexusName, Notice, Request, Secret, Target,
    TargetError,
};
use proptest::prelude::*;
use quoin_ram_device::RamDevice;
use quoin_scsi::{Reply, Sense, Status};
use quoin_volume::{BlockDevice, Thresholds};
use quoin_world::Slice;
use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use uuid::Uuid;

mod copy;
mod log;
mod modes;
mod queue;
mod reserve;
mod sanitize;

const HOST: &str = "iqn.2026-11.test:h";
const READY: [u8; 6] = [0; 6];

fn poll<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn now<F: Future>(future: F) -> F::Output {
    match poll(future) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("not ready"),
    }
}

/// A thin device `v1`, or of another number.
fn device(number: u128) -> Arc<RamDevice> {
    let named = RamDevice::new(512).identified(Uuid::from_u128(number)).named(format!("v{number}"));
    Arc::new(named.with_thresholds(Thresholds::default()))
}

fn connect(target: &Arc<Target<RamDevice>>, initiator: &str, session: u8) -> Nexus<RamDevice> {
    let name = NexusName { initiator: initiator.into(), isid: [0, 0, 0, 0, 0, session], group: 1 };
    now(target.connect(name, "127.0.0.1:9".into(), 5))
}

fn lun(number: u16) -> Lun {
    Lun::new(number).unwrap()
}

fn ask(nexus: &mut Nexus<RamDevice>, number: u16, cdb: &[u8]) -> Reply {
    match nexus.admit(lun(number).to_wire(), cdb) {
        Admission::Done(reply) => reply,
        Admission::Run(request) => now(request.run(Vec::new(), 4096)),
    }
}

fn sense(nexus: &mut Nexus<RamDevice>, number: u16) -> Option<Sense> {
    ask(nexus, number, &READY).sense
}

fn one_host() -> Arc<Target<RamDevice>> {
    let target = Target::new("iqn.2026-11.TEST:target");
    target.set_host("h", &["iqn.2026-11.test:H".into()], None).unwrap();
    target.map("h", lun(0), device(1), Access::ReadWrite).unwrap();
    target
}

#[test]
fn refusals_name_what_is_wrong() {
    let target = one_host();
    let said = |error: Result<(), TargetError>| error.unwrap_err().to_string();
    assert_eq!(
        said(target.map("x", lun(0), device(1), Access::ReadWrite)),
        "host x does not exist; create it first"
    );
    assert!(
        said(target.map("h", lun(0), device(2), Access::ReadWrite))
            .contains("LUN 0 of host h is already volume v1")
    );
    assert!(said(target.unmap("h", lun(7))).contains("has no LUN 7"));
    assert!(said(target.set_host("i", &[HOST.into()], None)).contains("already belongs to host h"));
    assert!(said(target.set_host("i", &["host1".into()], None)).contains("not an iSCSI name"));
    assert!(said(target.remove_host("x")).contains("host x does not exist"));
    assert_eq!(target.hosts().len(), 1);
    target.map("h", lun(0), device(1), Access::ReadWrite).unwrap();
}

#[test]
fn a_session_starts_with_power_on_and_sees_changes() {
    let target = one_host();
    let mut nexus = connect(&target, "IQN.2026-11.test:h", 1);
    assert_eq!(sense(&mut nexus, 0), Some(Sense::POWER_ON_OCCURRED));
    assert_eq!(sense(&mut nexus, 0), None);
    assert_eq!(sense(&mut nexus, 300), Some(Sense::LUN_NOT_SUPPORTED));
    target.map("h", lun(300), device(2), Access::ReadWrite).unwrap();
    // INQUIRY passes by the attention, REQUEST SENSE takes it.
    assert_eq!(ask(&mut nexus, 0, &[0x12, 0, 0, 0, 36, 0]).status, Status::Good);
    assert_eq!(ask(&mut nexus, 0, &[0x03, 0, 0, 0, 18, 0]).data[0][12..14], [0x3F, 0x0E]);
    assert_eq!(sense(&mut nexus, 0), None);
    assert_eq!(sense(&mut nexus, 300), Some(Sense::POWER_ON_OCCURRED));
    assert_eq!(sense(&mut nexus, 300), Some(Sense::REPORTED_LUNS_CHANGED));
    assert_eq!(sense(&mut nexus, 300), None);
    let luns = ask(&mut nexus, 0, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(
        luns.data[0][..],
        [0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0x2C, 0, 0, 0, 0, 0, 0]
    );
    target.unmap("h", lun(300)).unwrap();
    // REPORT LUNS tells of the change itself.
    ask(&mut nexus, 0, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(sense(&mut nexus, 0), None);
    target.remove_host("h").unwrap();
    assert_eq!(sense(&mut nexus, 0), Some(Sense::LUN_NOT_SUPPORTED));
    assert_eq!(ask(&mut nexus, 0, &[0x12, 0, 0, 0, 36, 0]).data[0][0], 0x7F);
}

#[test]
fn a_new_size_is_an_attention() {
    let target = one_host();
    let volume = device(9);
    target.map("h", lun(9), volume.clone(), Access::ReadWrite).unwrap();
    let mut nexus = connect(&target, HOST, 1);
    assert_eq!(sense(&mut nexus, 9), Some(Sense::POWER_ON_OCCURRED));
    volume.resize(2 << 20);
    assert_eq!(sense(&mut nexus, 9), Some(Sense::CAPACITY_CHANGED));
    assert_eq!(sense(&mut nexus, 9), None);
}

#[test]
fn another_content_is_an_attention_and_what_was_meant_for_the_one_before_is_refused() {
    let target = one_host();
    let volume = device(9);
    target.map("h", lun(9), volume.clone(), Access::ReadWrite).unwrap();
    let mut nexus = connect(&target, HOST, 1);
    assert_eq!(sense(&mut nexus, 9), Some(Sense::POWER_ON_OCCURRED));
    let write = [0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let Admission::Run(early) = nexus.admit(lun(9).to_wire(), &write) else { panic!("not admitted") };
    volume.replace();
    volume.resize(2 << 20);
    let reply = now(early.run(vec![Slice::copy_of(&[1; 512])], 0));
    assert_eq!(reply.sense, Some(Sense::MEDIUM_MAY_HAVE_CHANGED));
    assert_eq!(sense(&mut nexus, 9), Some(Sense::MEDIUM_MAY_HAVE_CHANGED));
    assert_eq!(sense(&mut nexus, 9), Some(Sense::CAPACITY_CHANGED));
    assert_eq!(sense(&mut nexus, 9), None);
}

#[test]
fn thresholds_of_space_and_another_kind_are_attentions_for_every_session() {
    let target = one_host();
    let volume = device(9);
    volume.thresholds().unwrap().set(vec![600, 800, 1000]);
    target.map("h", lun(9), volume.clone(), Access::ReadWrite).unwrap();
    let mut sessions = [connect(&target, HOST, 1), connect(&target, HOST, 2)];
    let said = |nexus: &mut Nexus<RamDevice>| [(); 3].map(|()| sense(nexus, 9));
    for nexus in &mut sessions {
        assert_eq!(said(nexus), [Some(Sense::POWER_ON_OCCURRED), None, None]);
    }
    volume.thresholds().unwrap().reach();
    volume.thresholds().unwrap().set(vec![601, 801, 1001]);
    for nexus in &mut sessions {
        assert_eq!(said(nexus), [Some(Sense::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED), None, None]);
    }
    volume.thresholds().unwrap().reach();
    volume.thresholds().unwrap().set(vec![500, 801, 1001]);
    for nexus in &mut sessions {
        let expected = [Sense::MODE_PARAMETERS_CHANGED, Sense::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED];
        assert_eq!(said(nexus), [Some(expected[0]), Some(expected[1]), None]);
    }
    volume.thresholds().unwrap().reach();
    volume.set_thick(true);
    for nexus in &mut sessions {
        let expected = [Sense::INQUIRY_DATA_CHANGED, Sense::MODE_PARAMETERS_CHANGED];
        assert_eq!(said(nexus), [Some(expected[0]), Some(expected[1]), None]);
    }
    volume.set_thick(false);
    let expected = [Some(Sense::INQUIRY_DATA_CHANGED), Some(Sense::MODE_PARAMETERS_CHANGED), None];
    assert_eq!(said(&mut sessions[0]), expected);
}

#[test]
fn a_second_login_waits_for_the_first_session_to_end() {
    let target = one_host();
    let old = connect(&target, HOST, 1);
    let name = NexusName { initiator: HOST.to_uppercase(), isid: [0, 0, 0, 0, 0, 1], group: 1 };
    let mut second = Box::pin(target.connect(name.clone(), "127.0.0.1:10".into(), 6));
    assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(target.has_session(&name));
    assert!(matches!(now(old.notices().next()), Notice::Reinstated));
    drop(old);
    let new = now(second);
    assert_eq!((target.sessions().len(), target.sessions()[0].since_ms), (1, 6));
    assert_eq!(target.sessions()[0].host.as_deref(), Some("h"));
    drop(new);
    assert!(target.sessions().is_empty());
}

#[test]
fn a_reset_waits_for_the_other_sessions() {
    let target = one_host();
    let (mut one, mut two) = (connect(&target, HOST, 1), connect(&target, HOST, 2));
    for nexus in [&mut one, &mut two] {
        assert_eq!(sense(nexus, 0), Some(Sense::POWER_ON_OCCURRED));
    }
    let unit = one.unit(lun(0).to_wire()).unwrap();
    let mut ended = one.unit_reset(unit, true);
    assert_eq!(ended.len(), 1);
    assert!(poll(&mut ended[0]).is_pending());
    let Notice::UnitReset { unit, done } = now(two.notices().next()) else { panic!("no reset") };
    assert!(two.unit_reset(unit, false).is_empty());
    drop(done);
    assert!(poll(&mut ended[0]).is_ready());
    for nexus in [&mut one, &mut two] {
        assert_eq!(sense(nexus, 0), Some(Sense::DEVICE_RESET_OCCURRED));
        assert_eq!(sense(nexus, 0), None);
    }
}

#[test]
fn a_reset_does_not_wait_for_a_session_that_ends_unheard() {
    let target = one_host();
    let (mut one, two) = (connect(&target, HOST, 1), connect(&target, HOST, 2));
    let unit = one.unit(lun(0).to_wire()).unwrap();
    let mut ended = one.unit_reset(unit, true);
    drop(two);
    assert!(poll(&mut ended[0]).is_ready());
}

#[test]
fn a_read_only_unit_is_write_protected_for_its_host_alone() {
    let target = one_host();
    target.set_host("r", &["iqn.2026-11.test:r".into()], None).unwrap();
    target.map("r", lun(5), device(1), Access::ReadOnly).unwrap();
    let (mut writer, mut reader) = (connect(&target, HOST, 1), connect(&target, "iqn.2026-11.test:r", 1));
    assert_eq!(sense(&mut writer, 0), Some(Sense::POWER_ON_OCCURRED));
    assert_eq!(sense(&mut reader, 5), Some(Sense::POWER_ON_OCCURRED));
    let write = [0x2A, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(ask(&mut writer, 0, &write).sense, None);
    assert_eq!(ask(&mut reader, 5, &write).sense, Some(Sense::WRITE_PROTECTED));
    target.map("r", lun(5), device(1), Access::ReadWrite).unwrap();
    assert_eq!(ask(&mut reader, 5, &write).sense, Some(Sense::MODE_PARAMETERS_CHANGED));
    assert_eq!(ask(&mut reader, 5, &write).sense, None);
}

/// A command may wait for limits or for its data while its host's mappings change.
#[test]
fn a_command_runs_only_if_its_host_may_still_do_so() {
    const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    const WRITE: [u8; 10] = [0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let target = one_host();
    let mut nexus = connect(&target, HOST, 1);
    assert_eq!(sense(&mut nexus, 0), Some(Sense::POWER_ON_OCCURRED));
    let mut admit = |cdb: &[u8]| match nexus.admit(lun(0).to_wire(), cdb) {
        Admission::Run(request) => request,
        Admission::Done(reply) => panic!("{reply:?}"),
    };
    let run = |request: &Request<RamDevice>| {
        let data = vec![Slice::copy_of(&[7; 512])];
        now(request.run(data, 512)).sense
    };
    let (read, write) = (admit(&READ), admit(&WRITE));
    // What happens to other hosts is nothing to it.
    target.set_host("i", &["iqn.2026-11.test:i".into()], None).unwrap();
    assert_eq!((run(&read), run(&write)), (None, None));
    target.map("h", lun(0), device(1), Access::ReadOnly).unwrap();
    assert_eq!((run(&read), run(&write)), (None, Some(Sense::WRITE_PROTECTED)));
    target.unmap("h", lun(0)).unwrap();
    assert_eq!([run(&read), run(&write)], [Some(Sense::LUN_NOT_SUPPORTED); 2]);
    // Another volume under the same number, or the same one under another.
    target.map("h", lun(0), device(2), Access::ReadWrite).unwrap();
    target.map("h", lun(1), device(1), Access::ReadWrite).unwrap();
    assert_eq!([run(&read), run(&write)], [Some(Sense::LUN_NOT_SUPPORTED); 2]);
}

#[test]
fn a_device_that_nobody_may_write_to_is_write_protected_for_all() {
    let target = one_host();
    let device = device(7);
    target.map("h", lun(7), device.clone(), Access::ReadWrite).unwrap();
    let mut nexus = connect(&target, HOST, 1);
    assert_eq!(sense(&mut nexus, 7), Some(Sense::POWER_ON_OCCURRED));
    let (write, unmap) = ([0x2A, 0, 0, 0, 0, 0, 0, 0, 0, 0], [0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let wp = |nexus: &mut Nexus<RamDevice>| {
        let reply = ask(nexus, 7, &[0x1A, 0x08, 0x0A, 0, 64, 0]);
        reply.data[0][2] & 0x80 != 0
    };
    assert!(!wp(&mut nexus));
    assert_eq!(ask(&mut nexus, 7, &write).sense, None);
    device.set_read_only(true);
    assert_eq!(sense(&mut nexus, 7), Some(Sense::MODE_PARAMETERS_CHANGED));
    for cdb in [&write, &unmap] {
        assert_eq!(ask(&mut nexus, 7, cdb).sense, Some(Sense::WRITE_PROTECTED));
    }
    assert!(wp(&mut nexus));
    assert_eq!(ask(&mut nexus, 7, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]).sense, None);
    device.set_read_only(false);
    assert_eq!(ask(&mut nexus, 7, &write).sense, Some(Sense::MODE_PARAMETERS_CHANGED));
    assert_eq!(ask(&mut nexus, 7, &write).sense, None);
}

#[test]
fn modes_are_one_for_all_who_see_a_unit_until_it_is_reset() {
    let target = one_host();
    let (mut one, mut two) = (connect(&target, HOST, 1), connect(&target, HOST, 2));
    for nexus in [&mut one, &mut two] {
        assert_eq!(sense(nexus, 0), Some(Sense::POWER_ON_OCCURRED));
    }
    let select = |nexus: &mut Nexus<RamDevice>, list: &[u8]| {
        let cdb = [0x15, 0x10, 0, 0, list.len() as u8, 0];
        let Admission::Run(request) = nexus.admit(lun(0).to_wire(), &cdb) else { panic!("not admitted") };
        now(request.run(vec![Slice::copy_of(list)], 0))
    };
    let protect = [0, 0, 0, 0, 0x0A, 10, 0x26, 0x10, 8, 0, 0, 0, 0xFF, 0xFF, 0, 0];
    for _ in 0..3 {
        assert_eq!(select(&mut one, &protect).sense, None);
    }
    let Notice::Attention { unit, sense: attention } = now(two.notices().next()) else {
        panic!("no attention")
    };
    assert!(poll(two.notices().next()).is_pending(), "what did not change is not told again");
    two.attend(unit, attention);
    assert_eq!(sense(&mut two, 0), Some(Sense::MODE_PARAMETERS_CHANGED));
    let refused = ask(&mut two, 0, &[0x2A, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(refused.sense, Some(Sense::SOFTWARE_WRITE_PROTECTED));
    assert_eq!(refused.sense_data().unwrap()[0], 0x72, "descriptor format, as was selected");
    assert_eq!(select(&mut one, &protect[..10]).sense, Some(Sense::PARAMETER_LIST_LENGTH_ERROR));
    one.unit_reset(unit, true);
    assert_eq!(sense(&mut one, 0), Some(Sense::DEVICE_RESET_OCCURRED));
    assert_eq!(ask(&mut two, 0, &[0x2A, 0, 0, 0, 0, 0, 0, 0, 0, 0]).sense, None);
}

#[test]
fn credentials_are_found_by_initiator_and_never_shown() {
    let target = one_host();
    assert_eq!(target.credentials(HOST), None);
    let secret = Secret::new(b"a secret of 96 bits").unwrap();
    let credentials = Credentials { host: Login { user: "h".into(), secret }, array: None };
    target.set_host("h", &[HOST.into()], Some(credentials.clone())).unwrap();
    assert_eq!(target.credentials(&HOST.to_uppercase()), Some(credentials));
    assert_eq!(target.credentials("iqn.2026-11.test:other"), None);
    assert!(!format!("{:?}", target.hosts()).contains("96"));
    assert!(Secret::new(b"too short").is_none() && Secret::new(&[1; 256]).is_none());
}

proptest! {
    #[test]
    fn numbers_survive_the_wire(number in 0..=Lun::MAX) {
        prop_assert_eq!(Lun::from_wire(lun(number).to_wire()), Some(lun(number)));
    }

    #[test]
    fn any_command_to_any_number_is_answered(number: [u8; 8], cdb: Vec<u8>) {
        let mut nexus = connect(&one_host(), HOST, 1);
        let _ = nexus.admit(number, &cdb);
    }
}

#[test]
fn a_command_counts_with_its_unit_and_its_initiator() {
    let target = Target::new("iqn.2026-11.test:t");
    target.set_host("h", &[HOST.to_string()], None).unwrap();
    let volume = device(1);
    target.map("h", lun(0), volume.clone(), Access::ReadWrite).unwrap();
    let mut known = connect(&target, HOST, 1);
    let stranger = connect(&target, "iqn.2026-11.test:other", 2);
    assert_eq!(sense(&mut known, 0), Some(Sense::POWER_ON_OCCURRED));

    let mut count = |cdb: &[u8]| {
        let Admission::Run(request) = known.admit(lun(0).to_wire(), cdb) else {
            panic!("{cdb:?} is answered at once")
        };
        let reply = now(request.run(Vec::new(), 4096));
        request.count(&reply, Duration::from_micros(70));
        reply.status
    };
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0];
    assert_eq!(count(&read), Status::Good);
    let unmap_without_list = [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    assert_eq!(count(&unmap_without_list), Status::CheckCondition);
    assert_eq!(count(&READY), Status::Good);
    let measured = volume.instruments().unwrap().snapshot();
    assert_eq!((measured.read.bytes, measured.read.errors, measured.read.latency.count()), (4096, 0, 1));
    assert_eq!(measured.read.latency.sum(), Duration::from_micros(70));
    assert_eq!((measured.unmap.errors, measured.unmap.latency.count()), (1, 1));
    assert_eq!(measured.write.latency.count(), 0);

    let (answered, latency_ns) = (2, 5000);
    let done = Done {
        commands: 3,
        errors: 1,
        read_bytes: 4096,
        written_bytes: 0,
        answered,
        latency_ns,
        outstanding: 2,
    };
    known.traffic().add(done);
    stranger.traffic().add(Done { commands: 1, ..Done::default() });
    let traffic = target.traffic();
    let of =
        |index: usize| (traffic[index].initiator.clone(), traffic[index].commands, traffic[index].sessions);
    assert_eq!(of(0), (Some(("h".to_owned(), HOST.to_owned())), 3, 1));
    assert_eq!((traffic[0].errors, traffic[0].read_bytes, traffic[0].outstanding), (1, 4096, 2));
    assert_eq!((traffic[0].answered, traffic[0].latency), (2, Duration::from_micros(5)));
    assert_eq!(of(1), (None, 1, 1));
    target.remove_host("h").unwrap();
    assert_eq!(target.traffic().len(), 1, "nobody is known any more");
}
