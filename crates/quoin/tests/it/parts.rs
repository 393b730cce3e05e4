//! Two hosts write to one block at once: over iSCSI all of it, over NBD a part. Whatever the order, the bytes that only
//! the iSCSI host wrote are its own.

use crate::initiator::{Initiator, LONGEST_BYTES};
use crate::lab::Lab;
use crate::nbd_client::NbdClient;
use std::{sync::mpsc, thread};

const NAME: &str = "iqn.2026-11.test:h1";
const LUN: u8 = 1;
const ROUNDS: u64 = 2000;
/// One block of the pool a round: the first to touch it finds it on the drive, which takes a while.
const STEP: u64 = 8192;

/// A write that covers no edge of a block whole, one that covers some, and one of whole sectors within a block.
const PARTS: [(u64, usize); 4] = [(100, 50), (500, 30), (512, 512), (700, 1500)];
const HOST_WRITES: usize = 4096;
const FILLER: u8 = 0xFF;
const WHOLE: u8 = 1;
const PART: u8 = 2;

fn race(block_bytes: &str) -> Vec<String> {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "1", "--drive-size", "512M"]);
    let serve = || lab.serve(&["--nbd", "127.0.0.1:0"]);
    let mut array = serve();
    lab.ready();
    lab.ok(&["volume", "create", "v1", "--size", "16M", "--block-size", block_bytes]);
    lab.ok(&["host", "create", "h1", "--initiator", NAME]);
    lab.ok(&["map", "v1", "--host", "h1", "--lun", "1"]);
    lab.ok(&["export", "create", "v1"]);
    let host = || {
        let status = lab.ready();
        let (portal, target) = (status["portals"][0].as_str().unwrap(), status["iqn"].as_str().unwrap());
        Initiator::login(portal, target, NAME).with_block_bytes(block_bytes.parse().unwrap())
    };
    let mut filling = host();
    for at in (0..ROUNDS * STEP).step_by(LONGEST_BYTES) {
        filling.write(LUN, at, &[FILLER; LONGEST_BYTES]).unwrap();
    }
    drop(filling);
    array.terminate();
    let mut array = serve();
    let mut host = host();
    let mut parts = NbdClient::connect(lab.ready()["nbd"][0].as_str().unwrap(), "v1");

    let ((order, orders), (done, dones)) = (mpsc::channel::<(u64, Vec<u8>)>(), mpsc::channel());
    let writer = thread::spawn(move || {
        for (offset, data) in orders {
            parts.write(offset, &data);
            done.send(()).unwrap();
        }
    });
    let mut lost = Vec::new();
    for round in 0..ROUNDS {
        let (base, (at, len)) = (round * STEP, PARTS[round as usize % PARTS.len()]);
        order.send((base + at, vec![PART; len])).unwrap();
        host.write(LUN, base, &[WHOLE; HOST_WRITES]).unwrap();
        dones.recv().unwrap();
        let now = host.read(LUN, base, HOST_WRITES).unwrap();
        let inside = at as usize..at as usize + len;
        let others = now.iter().enumerate().filter(|(at, _)| !inside.contains(at));
        let undone = others.filter(|(_, byte)| **byte != WHOLE).count();
        if undone > 0 {
            lost.push(format!("round {round}: {undone} bytes beside {inside:?}"));
        }
        assert!(now[inside].iter().all(|byte| [WHOLE, PART].contains(byte)), "round {round}");
    }
    drop(order);
    writer.join().unwrap();
    array.terminate();
    lab.ok(&["check"]);
    lost
}

#[test]
fn a_part_of_a_block_written_over_nbd_undoes_nothing_that_was_written_over_iscsi() {
    for block_bytes in ["512", "4096"] {
        let lost = race(block_bytes);
        assert!(
            lost.is_empty(),
            "blocks of {block_bytes}: bytes were lost in {} of {ROUNDS} rounds, first in {}",
            lost.len(),
            lost[0]
        );
    }
}
