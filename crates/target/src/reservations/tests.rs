//! Persistent reservations as the standard's rules have them, and that they survive.

use super::{ItNexus, Out, Refusal, Reservations};
use proptest::prelude::*;
use quoin_scsi::{Needs, ReservationType, ReserveAction, ReserveIn, ReserveOut, ReserveParameters, Sense};

fn nexus(number: u8) -> ItNexus {
    ItNexus { initiator: format!("iqn.2026-11.test:h{number}"), isid: [number; 6], port: 1 }
}

/// A request without other ports.
fn request(action: ReserveAction, kind: u8, key: u64, action_key: u64) -> (ReserveOut, ReserveParameters) {
    let parameters = ReserveParameters {
        key,
        action_key,
        survives_power_loss: true,
        all_target_ports: false,
        others: Vec::new(),
        unregisters: false,
        relative_port: 1,
    };
    (ReserveOut { action, scope: 0, kind, parameter_bytes: 24 }, parameters)
}

struct Rig(Reservations);

impl Rig {
    /// With these registered, each with its number as the key.
    fn with(registered: impl IntoIterator<Item = u8>) -> Self {
        let mut rig = Self(Reservations::default());
        for number in registered {
            rig.send(number, ReserveAction::Register, 0, 0, number.into()).unwrap();
        }
        rig
    }

    /// Returns whom it concerns, by number.
    fn send(
        &mut self,
        from: u8,
        action: ReserveAction,
        kind: u8,
        key: u64,
        action_key: u64,
    ) -> Result<Vec<(u8, Sense)>, Refusal> {
        let (request, parameters) = request(action, kind, key, action_key);
        let (from, others) = (nexus(from), [nexus(9)]);
        let others = if action == ReserveAction::RegisterAndMove { &others[..] } else { &[] };
        let out = Out { from: &from, request, parameters: &parameters, ports: &[1, 2], others };
        let effect = self.0.out(&out)?;
        Ok(effect.attentions.into_iter().map(|(nexus, sense)| (nexus.isid[0], sense)).collect())
    }

    fn keys(&self) -> Vec<u64> {
        self.0.registrants.values().copied().collect()
    }

    fn lets(&self, number: u8) -> (bool, bool) {
        (self.0.lets(&nexus(number), Needs::Read), self.0.lets(&nexus(number), Needs::Write))
    }
}

use ReserveAction::{
    Clear, Preempt, PreemptAndAbort, Register, RegisterAndIgnoreExistingKey, RegisterAndMove, Release,
    Reserve,
};
const WE: u8 = 1;
const EA: u8 = 3;
const WERO: u8 = 5;
const EAAR: u8 = 8;
const CONFLICT: Refusal = Refusal::Conflict;

#[test]
fn types_let_in_whom_they_say() {
    // Nexus 1 holds it, 2 is registered, 3 is not: whether each may read and write.
    let cases = [
        (WE, (true, true), (true, false), (true, false)),
        (EA, (true, true), (false, false), (false, false)),
        (WERO, (true, true), (true, true), (true, false)),
        (6, (true, true), (true, true), (false, false)),
        (7, (true, true), (true, true), (true, false)),
        (EAAR, (true, true), (true, true), (false, false)),
    ];
    for (kind, holder, registered, other) in cases {
        let mut rig = Rig::with([1, 2]);
        rig.send(1, Reserve, kind, 1, 0).unwrap();
        assert_eq!((rig.lets(1), rig.lets(2), rig.lets(3)), (holder, registered, other), "type {kind}");
        assert!(rig.0.lets(&nexus(3), Needs::Presence) && rig.0.lets(&nexus(3), Needs::Nothing));
    }
}

#[test]
fn keys_are_asked_for() {
    let mut rig = Rig::with([1]);
    assert_eq!(rig.send(2, Register, 0, 7, 8), Err(CONFLICT));
    assert_eq!(rig.send(1, Register, 0, 7, 8), Err(CONFLICT));
    assert_eq!(rig.send(1, Reserve, WE, 7, 0), Err(CONFLICT));
    assert_eq!(rig.send(2, Reserve, WE, 0, 0), Err(CONFLICT));
    assert_eq!(rig.send(2, Register, 0, 0, 0), Ok(vec![]));
    assert_eq!((rig.keys(), rig.0.generation), (vec![1], 1));
    assert_eq!(rig.send(1, RegisterAndIgnoreExistingKey, 0, 7, 8), Ok(vec![]));
    assert_eq!((rig.keys(), rig.0.generation), (vec![8], 2));
}

#[test]
fn a_reservation_is_taken_once_and_released_by_its_holder() {
    let mut rig = Rig::with([1, 2]);
    assert_eq!(rig.send(1, Reserve, 2, 1, 0), Err(Refusal::Sense(Sense::INVALID_FIELD_IN_CDB)));
    rig.send(1, Reserve, WERO, 1, 0).unwrap();
    assert_eq!(rig.send(1, Reserve, WERO, 1, 0), Ok(vec![]));
    assert_eq!(rig.send(1, Reserve, WE, 1, 0), Err(CONFLICT));
    assert_eq!(rig.send(2, Reserve, WERO, 2, 0), Err(CONFLICT));
    // Who does not hold it releases nothing.
    assert_eq!(rig.send(2, Release, WERO, 2, 0), Ok(vec![]));
    let wrong = Refusal::Sense(Sense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION);
    assert_eq!(rig.send(1, Release, WE, 1, 0), Err(wrong));
    assert_eq!(rig.send(1, Release, WERO, 1, 0), Ok(vec![(2, Sense::RESERVATIONS_RELEASED)]));
    assert!(rig.0.is_open() && !rig.0.is_empty());
    // Reserving and releasing do not count.
    assert_eq!(rig.0.generation, 2);
}

#[test]
fn all_registrants_hold_it_until_the_last_one_goes() {
    let mut rig = Rig::with([1, 2]);
    rig.send(1, Reserve, EAAR, 1, 0).unwrap();
    assert_eq!(rig.send(1, Register, 0, 1, 0), Ok(vec![]));
    assert_eq!((rig.lets(1), rig.lets(2)), ((false, false), (true, true)));
    assert_eq!(rig.send(2, Register, 0, 2, 0), Ok(vec![]));
    assert!(rig.0.is_empty());
    // One that one holds goes with that one.
    let mut rig = Rig::with([1, 2]);
    rig.send(1, Reserve, WERO, 1, 0).unwrap();
    assert_eq!(rig.send(1, Register, 0, 1, 0), Ok(vec![(2, Sense::RESERVATIONS_RELEASED)]));
    assert!(rig.0.is_open());
}

#[test]
fn a_preempt_takes_over_what_the_key_names() {
    let mut rig = Rig::with([1, 2, 3]);
    rig.send(1, Reserve, WE, 1, 0).unwrap();
    assert_eq!(rig.send(2, Preempt, WE, 2, 77), Err(CONFLICT));
    let zero = Refusal::Sense(Sense::INVALID_FIELD_IN_PARAMETER_LIST);
    assert_eq!(rig.send(2, Preempt, WE, 2, 0), Err(zero));
    // A registrant that does not hold it only loses its registration.
    assert_eq!(rig.send(2, Preempt, EA, 2, 3), Ok(vec![(3, Sense::REGISTRATIONS_PREEMPTED)]));
    assert_eq!((rig.keys(), rig.lets(1)), (vec![1, 2], (true, true)));
    assert_eq!(rig.send(2, PreemptAndAbort, EA, 2, 1), Ok(vec![(1, Sense::REGISTRATIONS_PREEMPTED)]));
    assert_eq!((rig.keys(), rig.lets(1), rig.lets(2)), (vec![2], (false, false), (true, true)));
}

#[test]
fn a_preempt_tells_who_stays_that_the_type_changed() {
    let mut rig = Rig::with([1, 2, 3]);
    rig.send(1, Reserve, WERO, 1, 0).unwrap();
    let told = rig.send(2, Preempt, EA, 2, 1).unwrap();
    assert_eq!(told, [(1, Sense::REGISTRATIONS_PREEMPTED), (3, Sense::RESERVATIONS_RELEASED)]);
    // Key 0 takes over what all hold.
    let mut rig = Rig::with([1, 2]);
    rig.send(1, Reserve, EAAR, 1, 0).unwrap();
    rig.send(2, Preempt, WE, 2, 0).unwrap();
    assert_eq!((rig.keys(), rig.lets(1), rig.lets(2)), (vec![2], (true, false), (true, true)));
}

#[test]
fn a_preempt_by_the_own_key_ends_the_own_registration() {
    let mut rig = Rig::with([1, 2]);
    assert_eq!(rig.send(2, Preempt, WE, 2, 2), Ok(vec![]));
    assert_eq!(rig.keys(), [1]);
    // The holder takes its own reservation over, with another type, and others learn of that.
    let mut rig = Rig::with([1, 2]);
    rig.send(1, Reserve, WE, 1, 0).unwrap();
    assert_eq!(rig.send(1, Preempt, EA, 1, 1), Ok(vec![(2, Sense::RESERVATIONS_RELEASED)]));
    assert_eq!((rig.keys(), rig.lets(2)), (vec![1, 2], (false, false)));
    // The last registrant takes what all hold along.
    let mut rig = Rig::with([1]);
    rig.send(1, Reserve, EAAR, 1, 0).unwrap();
    rig.send(1, Preempt, WE, 1, 1).unwrap();
    assert!(rig.0.is_empty());
}

#[test]
fn nobody_registers_another_one_anew() {
    let mut rig = Rig::with([1, 2]);
    let (from, others) = (nexus(3), [nexus(1)]);
    let (request, parameters) = request(Register, 0, 0, 7);
    let out = Out { from: &from, request, parameters: &parameters, ports: &[1, 2], others: &others };
    let invalid = Refusal::Sense(Sense::INVALID_FIELD_IN_PARAMETER_LIST);
    assert_eq!(rig.0.out(&out).err(), Some(invalid));
    assert_eq!(rig.keys(), [1, 2]);
    // With all ports, a port that has another key is a conflict.
    let second_port = ItNexus { port: 2, ..nexus(1) };
    let (request, parameters) = request_for_all_ports(1, 9);
    rig.0.registrants.insert(second_port, 5);
    let out = Out { from: &nexus(1), request, parameters: &parameters, ports: &[1, 2], others: &[] };
    assert_eq!(rig.0.out(&out).err(), Some(CONFLICT));
}

fn request_for_all_ports(key: u64, action_key: u64) -> (ReserveOut, ReserveParameters) {
    let (request, parameters) = request(Register, 0, key, action_key);
    (request, ReserveParameters { all_target_ports: true, ..parameters })
}

#[test]
fn there_are_no_more_registrations_than_can_be_kept() {
    let mut rig = Rig::with([]);
    let long = "x".repeat(200);
    let refused = (0..1000).find_map(|number| {
        let from = ItNexus { initiator: format!("iqn.2026-11.{number}{long}"), isid: [0; 6], port: 1 };
        let (request, parameters) = request(Register, 0, 0, 1);
        let out = Out { from: &from, request, parameters: &parameters, ports: &[1], others: &[] };
        rig.0.out(&out).err()
    });
    assert_eq!(refused, Some(super::INSUFFICIENT));
    assert!(rig.0.to_keep().unwrap().len() <= super::KEPT_MAX_BYTES && rig.keys().len() > 100);
}

#[test]
fn what_cannot_be_read_keeps_all_out_until_one_begins_anew() {
    let mut rig = Rig(Reservations::unreadable());
    assert_eq!(rig.lets(1), (false, false));
    assert_eq!((rig.send(1, Register, 0, 0, 1), rig.0.reserve(&nexus(1))), (Err(CONFLICT), Err(CONFLICT)));
    rig.send(1, RegisterAndIgnoreExistingKey, 0, 0, 1).unwrap();
    assert_eq!(rig.lets(2), (true, true));
}

#[test]
fn a_move_hands_it_over() {
    let mut rig = Rig::with([1]);
    let nothing_to_move = Refusal::Sense(Sense::INVALID_FIELD_IN_CDB);
    assert_eq!(rig.send(1, RegisterAndMove, 0, 1, 5), Err(nothing_to_move));
    rig.send(1, Reserve, WE, 1, 0).unwrap();
    rig.send(1, RegisterAndMove, 0, 1, 5).unwrap();
    assert_eq!((rig.keys(), rig.lets(1), rig.lets(9)), (vec![1, 5], (true, false), (true, true)));
}

#[test]
fn clear_leaves_nothing() {
    let mut rig = Rig::with([1, 2]);
    rig.send(1, Reserve, WE, 1, 0).unwrap();
    assert_eq!(rig.send(2, Clear, 0, 2, 0), Ok(vec![(1, Sense::RESERVATIONS_PREEMPTED)]));
    assert!(rig.0.is_empty());
}

#[test]
fn reserve_and_registrations_keep_one_another_out() {
    let mut rig = Rig::with([]);
    rig.0.reserve(&nexus(1)).unwrap();
    assert_eq!(rig.0.reserve(&nexus(2)), Err(CONFLICT));
    assert_eq!(rig.send(1, Register, 0, 0, 1), Err(CONFLICT));
    assert_eq!(rig.0.read(&nexus(2), ReserveIn::ReadKeys), Err(CONFLICT));
    assert!(!rig.0.lets(&nexus(2), Needs::Presence));
    // Only who has it gives it back, and it ends with its session.
    rig.0.release(&nexus(2)).unwrap();
    assert!(!rig.0.is_open());
    rig.0.end_reserve(Some(&nexus(2)));
    assert!(!rig.0.is_open());
    rig.0.end_reserve(Some(&nexus(1)));
    assert!(rig.0.is_open());
    // Registered ones may say RESERVE, which does nothing, once there is a reservation.
    let mut rig = Rig::with([1, 2]);
    assert_eq!((rig.0.reserve(&nexus(1)), rig.0.reserve(&nexus(2))), (Err(CONFLICT), Err(CONFLICT)));
    rig.send(1, Reserve, WE, 1, 0).unwrap();
    assert_eq!((rig.0.reserve(&nexus(1)), rig.0.reserve(&nexus(2))), (Ok(()), Err(CONFLICT)));
    assert_eq!(rig.0.reserve(&nexus(3)), Err(CONFLICT));
}

#[test]
fn what_was_kept_is_as_it_was() {
    let mut rig = Rig::with([1, 2]);
    rig.send(1, Reserve, WERO, 1, 0).unwrap();
    let kept = rig.0.to_keep().unwrap();
    let restored = Reservations::from_kept(&kept).unwrap();
    // The generation starts anew (SPC-4 §5.13.2).
    assert_eq!(restored, Reservations { generation: 0, ..rig.0.clone() });
    let text = String::from_utf8(kept).unwrap();
    for broken in [
        text.replace("\"version\":1", "\"version\":2"),
        text.replace("\"kind\":5", "\"kind\":2"),
        text.replace(",\"holds\":true", ""),
        text.replace("\"key\":2", "\"key\":0"),
    ] {
        assert!(broken != text && Reservations::from_kept(broken.as_bytes()).is_err(), "{broken}");
    }
    // Nothing is kept of what nobody asked to keep.
    rig.0.is_kept = false;
    assert_eq!(rig.0.to_keep(), None);
}

proptest! {
    #[test]
    fn whatever_is_sent_holders_are_registered(
        sent in proptest::collection::vec((1_u8..5, 0_u8..8, 0_u8..9, 0_u64..5, 0_u64..5), 1..60),
    ) {
        let mut rig = Rig::with([1, 2]);
        for (from, action, kind, key, action_key) in sent {
            let action = [
                Register, Reserve, Release, Clear, Preempt, PreemptAndAbort, RegisterAndIgnoreExistingKey, RegisterAndMove,
            ][usize::from(action)];
            let before = rig.0.clone();
            let done = rig.send(from, action, kind, key, action_key);
            if done.is_err() {
                prop_assert_eq!(&rig.0, &before);
            }
            // Who holds it may do everything.
            if let Some(held) = &rig.0.persistent {
                prop_assert!(rig.0.lets(&held.nexus, Needs::Write));
                prop_assert!(rig.0.registrants.contains_key(&held.nexus));
                prop_assert!(ReservationType::of(held.kind as u8).is_some());
            }
            if let Some(kept) = rig.0.to_keep() {
                let generation = 0;
                prop_assert_eq!(Reservations::from_kept(&kept), Ok(Reservations { generation, ..rig.0.clone() }));
            }
        }
    }
}
