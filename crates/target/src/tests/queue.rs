//! Queues of units: whose commands find room.

use super::{HOST, READY, connect, lun, one_host, sense};
use crate::{Admission, Nexus, Request};
use quoin_ram_device::RamDevice;
use quoin_scsi::{Sense, Status};

const DEPTH: usize = 2048;

/// Has a session send so many commands at once. Those that found room; all others must be answered TASK SET FULL.
fn flood(nexus: &mut Nexus<RamDevice>, commands: usize) -> Vec<Request<RamDevice>> {
    let mut taken = Vec::new();
    for _ in 0..commands {
        match nexus.admit(lun(0).to_wire(), &READY) {
            Admission::Run(request) => taken.push(request),
            Admission::Done(reply) => assert_eq!(reply.status, Status::TaskSetFull),
        }
    }
    taken
}

#[test]
fn sessions_share_the_queue_of_a_unit_equally() {
    let target = one_host();
    let mut sessions = [1, 2, 3, 4].map(|isid| connect(&target, HOST, isid));
    sessions.iter_mut().for_each(|nexus| assert_eq!(sense(nexus, 0), Some(Sense::POWER_ON_OCCURRED)));
    let [one, two, three, four] = &mut sessions;
    let mut first = flood(one, DEPTH + 9);
    assert_eq!(first.len(), DEPTH);
    // A later session finds its part free, and the first gets no more until it is down to its own part.
    let second = flood(two, DEPTH);
    assert_eq!(second.len(), DEPTH / 2);
    first.truncate(DEPTH / 2 + 1);
    assert_eq!(flood(one, 1).len(), 0);
    first.truncate(DEPTH / 2 - 1);
    assert_eq!(flood(one, 2).len(), 1);
    // Those whose commands have all ended have no part in it.
    drop(second);
    assert_eq!(flood(three, DEPTH).len(), DEPTH / 2);
    drop(first);
    assert_eq!(flood(four, DEPTH + 1).len(), DEPTH);
}

#[test]
fn a_session_has_always_room_for_one_command() {
    let target = one_host();
    let mut taken = Vec::new();
    let mut sessions = Vec::new();
    for number in 0..DEPTH + 100 {
        let (initiator, isid) = (format!("{HOST}{}", number / 200), (number % 200) as u8);
        if isid == 0 {
            let all: Vec<_> = (0..=number / 200).map(|host| format!("{HOST}{host}")).collect();
            target.set_host("h", &all, None).unwrap();
        }
        let mut nexus = connect(&target, &initiator, isid);
        assert_eq!(sense(&mut nexus, 0), Some(Sense::POWER_ON_OCCURRED));
        let own = flood(&mut nexus, 1);
        assert_eq!(own.len(), 1, "session {number}");
        taken.extend(own);
        sessions.push(nexus);
    }
    assert_eq!(flood(&mut sessions[0], 1).len(), 0);
}
