//! What reservations cost a command: `cargo run --release -p quoin-target --example reservation_cost`.
//!
//! Prints nanoseconds for each READ or WRITE of one block that a session sends to a device in RAM, from its command descriptor
//! block to its answer: of a unit that is not reserved, of one that is, and of one with 100 registrations. The difference to
//! the first is the cost of the reservation.

#![allow(clippy::print_stdout, reason = "it is what the example is for")]

use futures_util::FutureExt;
use quoin_ram_device::RamDevice;
use quoin_scsi::{Reply, Status};
use quoin_target::{Access, Admission, Lun, Nexus, NexusName, Target};
use quoin_world::Slice;
use std::{hint::black_box, sync::Arc, time::Instant};

const COMMANDS: u32 = 1_000_000;
const READ_10: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const WRITE_10: [u8; 10] = [0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const REGISTER: [u8; 2] = [0x5F, 0];
/// RESERVE: write exclusive, registrants only.
const RESERVE: [u8; 3] = [0x5F, 1, 5];

type Session = Nexus<RamDevice>;

fn connect(target: &Arc<Target<RamDevice>>, number: u8) -> Session {
    let name = NexusName { initiator: "iqn.2026-11.test:h".into(), isid: [0, 0, 0, 0, 0, number], group: 1 };
    target.connect(name, "127.0.0.1:9".into(), 0).now_or_never().expect("no other session has the name")
}

fn send(session: &mut Session, cdb: &[u8], data: &Slice) -> Reply {
    match session.admit([0; 8], cdb) {
        Admission::Done(reply) => reply,
        Admission::Run(request) => {
            request.run(vec![data.clone()], 512).now_or_never().expect("a device in RAM waits for nothing")
        }
    }
}

fn reserve(session: &mut Session, action: &[u8], key: u64, service_key: u64) {
    let mut cdb = [0; 10];
    cdb[..action.len()].copy_from_slice(action);
    cdb[8] = 24;
    let list = [&key.to_be_bytes()[..], &service_key.to_be_bytes(), &[0; 8]].concat();
    let reply = send(session, &cdb, &Slice::copy_of(&list));
    assert_eq!(reply.status, Status::Good, "{:?}", reply.sense);
}

fn ns_per_command(session: &mut Session, cdb: &[u8]) -> f64 {
    let data = Slice::copy_of(&[7; 512]);
    let begun = Instant::now();
    for _ in 0..COMMANDS {
        let reply = send(black_box(session), cdb, &data);
        assert_eq!(reply.status, Status::Good, "{:?}", reply.sense);
    }
    begun.elapsed().as_nanos() as f64 / f64::from(COMMANDS)
}

fn main() {
    let target = Target::new("iqn.2026-11.test:target");
    target.set_host("h", &["iqn.2026-11.test:h".into()], None).expect("the first host");
    let device = Arc::new(RamDevice::new(512));
    target.map("h", Lun::new(0).expect("0 is one"), device, Access::ReadWrite).expect("the first mapping");
    let mut sessions: Vec<_> = (0..100).map(|number| connect(&target, number)).collect();
    for session in &mut sessions {
        while send(session, &[0; 6], &Slice::copy_of(&[])).status != Status::Good {}
    }
    let show = |what: &str, session: &mut Session| {
        let [read, write] = [&READ_10, &WRITE_10].map(|cdb| ns_per_command(session, cdb));
        println!("{what:24} read {read:6.1} ns, write {write:6.1} ns");
    };
    show("not reserved", &mut sessions[0]);
    reserve(&mut sessions[0], &REGISTER, 0, 1);
    reserve(&mut sessions[0], &RESERVE, 1, 0);
    show("reserved", &mut sessions[0]);
    for session in &mut sessions[1..] {
        reserve(session, &REGISTER, 0, 1);
    }
    show("with 100 registrations", &mut sessions[99]);
    show("not reserved any more", {
        reserve(&mut sessions[0], &[0x5F, 3], 1, 0);
        &mut sessions[0]
    });
}
