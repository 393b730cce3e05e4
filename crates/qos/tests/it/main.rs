//! Limits on a simulated clock: sessions that always have requests waiting, and what they get.

#![allow(missing_docs, reason = "a test")]

use parking_lot::Mutex;
use proptest::prelude::*;
use quoin_qos::{Cost, Crowd, Limits, Line, Rate, Share, Throttle};
use quoin_world::{Nanos, Thread, World};
use quoin_world_sim::{SimOptions, SimWorld};
use std::{
    collections::VecDeque,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn rate(per_s: u64, burst: Duration) -> Option<Rate> {
    NonZeroU64::new(per_s).map(|per_s| Rate { per_s, burst })
}

fn ios(per_s: u64) -> Limits {
    Limits { ios: rate(per_s, 10 * MS), bytes: None }
}

/// What one session did: when each of its requests passed.
#[derive(Clone, Default)]
struct Passed(Arc<Mutex<Vec<Nanos>>>);

impl Passed {
    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// A session that has `depth` requests of `bytes` waiting, until `over`. Its timers are `late`.
fn flood(
    world: &Arc<SimWorld>,
    line: Line,
    (depth, bytes): (usize, u64),
    over: &Arc<AtomicBool>,
    late: Duration,
) -> Passed {
    let (passed, world, over) = (Passed::default(), world.clone(), over.clone());
    let (told, own) = (passed.clone(), world.clone());
    let task = async move {
        let (mut id, mut waiting) = (0, VecDeque::new());
        while !over.load(SeqCst) {
            while waiting.len() < depth {
                id += 1;
                if line.admit(id, Cost::of_bytes(bytes), own.now()) {
                    assert!(waiting.is_empty(), "{id} passed those before it");
                    told.0.lock().push(own.now());
                    own.yield_now().await;
                } else {
                    waiting.push_back(id);
                }
            }
            for id in line.passed(|| own.now(), |time| own.sleep(time + late)).await {
                assert_eq!(waiting.pop_front(), Some(id), "in their order");
                told.0.lock().push(own.now());
            }
        }
    };
    world.spawn(Thread::Data(0), Box::pin(task));
    passed
}

fn throttle(limits: &[Limits], share: Option<&Arc<Share>>) -> Arc<Throttle> {
    let throttle = Arc::new(Throttle::default());
    throttle.configure(limits, share, Nanos(0));
    throttle
}

/// A world, what ends its floods, and a way to let time go by.
struct Rig {
    world: Arc<SimWorld>,
    over: Arc<AtomicBool>,
}

impl Rig {
    fn new(seed: u64) -> Self {
        Self { world: SimWorld::new(seed, SimOptions::default()), over: Arc::default() }
    }

    fn flood(&self, throttle: &Arc<Throttle>, depth: usize, bytes: u64) -> Passed {
        flood(&self.world, throttle.line(), (depth, bytes), &self.over, Duration::ZERO)
    }

    /// A session that sends a request each so often, if the one before has passed.
    fn pace(&self, throttle: &Arc<Throttle>, every: Duration) -> Passed {
        let (passed, line) = (Passed::default(), throttle.line());
        let (told, own, over) = (passed.clone(), self.world.clone(), self.over.clone());
        let task = async move {
            while !over.load(SeqCst) {
                own.sleep(every).await;
                if !line.admit(0, Cost::of_bytes(4096), own.now()) {
                    assert_eq!(line.passed(|| own.now(), |time| own.sleep(time)).await, [0]);
                }
                told.0.lock().push(own.now());
            }
        };
        self.world.spawn(Thread::Data(0), Box::pin(task));
        passed
    }

    /// How many pass meanwhile.
    fn during(&self, time: Duration, passed: &Passed) -> usize {
        let before = passed.len();
        self.wait(time);
        passed.len() - before
    }

    fn wait(&self, time: Duration) {
        let world = self.world.clone();
        self.world.run(async move { world.sleep(time).await }).unwrap();
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.world.end();
    }
}

fn near(value: usize, wanted: usize) -> bool {
    value * 100 >= wanted * 98 && value * 100 <= wanted * 102
}

#[test]
fn all_of_a_limit_is_used_and_no_more() {
    let rig = Rig::new(1);
    let volume = throttle(&[ios(1000)], None);
    let passed = rig.flood(&volume, 32, 4096);
    rig.wait(10 * S);
    assert!(near(passed.len(), 10_000), "{}", passed.len());
    let view = volume.view();
    // Of the first ones ten were saved up, and the rest found others before them.
    assert!(near(view.requests as usize, 10_000) && view.waiting == 32, "{view:?}");
    let each = view.waited / view.requests as u32;
    assert!(each > 28 * MS && each < 33 * MS, "32 wait for 1 ms each: {each:?}");
}

#[test]
fn bandwidth_counts_bytes_and_a_request_larger_than_the_burst_passes_whole() {
    let rig = Rig::new(2);
    let limits = Limits { ios: None, bytes: rate(10 << 20, MS) };
    let passed = rig.flood(&throttle(&[limits], None), 4, 8 << 20);
    rig.wait(80 * S);
    assert!((100..=101).contains(&passed.len()), "{}", passed.len());
}

#[test]
fn the_tightest_of_several_limits_holds() {
    let rig = Rig::new(3);
    let group = Share::new(ios(5000));
    let policy = Limits { ios: rate(700, 10 * MS), bytes: None };
    let passed = rig.flood(&throttle(&[ios(1000), policy], Some(&group)), 16, 0);
    rig.wait(10 * S);
    assert!(near(passed.len(), 7000), "{}", passed.len());
}

#[test]
fn volumes_of_a_group_and_sessions_of_a_volume_have_equal_parts() {
    let rig = Rig::new(4);
    let group = Share::new(ios(4000));
    let (quiet, loud) = (throttle(&[], Some(&group)), throttle(&[], Some(&group)));
    // One asks for little, and has it all; what it leaves is for others.
    let little = throttle(&[ios(400)], Some(&group));
    let (little, quiet) = (rig.flood(&little, 8, 4096), rig.flood(&quiet, 2, 4096));
    let (deep, shallow) = (rig.flood(&loud, 128, 4096), rig.flood(&loud, 1, 4096));
    rig.wait(10 * S);
    assert!(near(little.len(), 4000), "{}", little.len());
    assert!(near(quiet.len(), 18_000), "{}", quiet.len());
    // NOTE: the one with a single request waiting comes back a moment after its turn.
    assert!(near(deep.len() + shallow.len(), 18_000), "{} {}", deep.len(), shallow.len());
    assert!(shallow.len() > 6000, "{} {}", deep.len(), shallow.len());
}

#[test]
fn a_quiet_volume_of_a_flooded_group_waits_for_no_more_than_its_turn() {
    let rig = Rig::new(5);
    let group = Share::new(ios(1000));
    let (quiet, loud) = (throttle(&[], Some(&group)), throttle(&[], Some(&group)));
    rig.flood(&loud, 200, 4096);
    rig.wait(S);
    let (line, world) = (quiet.line(), rig.world.clone());
    let longest = rig.world.run(async move {
        let mut longest = Duration::ZERO;
        for id in 0..50 {
            let since = world.now();
            if !line.admit(id, Cost::of_bytes(4096), since) {
                assert_eq!(line.passed(|| world.now(), |time| world.sleep(time)).await, [id]);
            }
            longest = longest.max(world.now().since(since));
            world.sleep(20 * MS).await;
        }
        longest
    });
    assert!(longest.unwrap() <= 3 * MS);
}

/// A volume that had all that it asked for, for a minute, keeps its part when another one begins to flood.
#[test]
fn a_volume_that_never_had_to_wait_keeps_its_part_when_a_flood_begins() {
    let rig = Rig::new(8);
    let group = Share::new(ios(1000));
    let (steady, loud) = (throttle(&[], Some(&group)), throttle(&[], Some(&group)));
    let steady = rig.pace(&steady, S / 900);
    assert!(near(rig.during(60 * S, &steady), 54_000));
    rig.flood(&loud, 1, 4096);
    let kept = rig.during(2 * S, &steady);
    assert!(kept >= 700, "of 1000 in 2 s, as one request waits at a time: {kept}");
}

/// A volume that its own limit holds up saves nothing up: neither for itself, nor for a third volume that comes back after a rest.
#[test]
fn a_volume_that_its_own_limit_held_up_does_not_make_up_for_it() {
    let rig = Rig::new(9);
    let group = Share::new(ios(1000));
    let [held_up, loud, returning] = [&[ios(100)][..], &[], &[]].map(|own| throttle(own, Some(&group)));
    rig.flood(&held_up, 16, 4096);
    let floods = rig.flood(&loud, 16, 4096);
    rig.wait(60 * S);
    let back = rig.pace(&returning, 50 * MS);
    let shared = rig.during(10 * S, &floods);
    assert!(shared >= 8_500, "{shared}, beside 1000 and 200");
    assert!(back.len() >= 190, "{}", back.len());
    held_up.configure(&[], Some(&group), rig.world.now());
    let shared = rig.during(S, &floods);
    assert!((450..=550).contains(&shared), "{shared}");
}

#[test]
fn a_volume_whose_group_holds_it_up_passes_at_once_when_it_leaves() {
    let rig = Rig::new(10);
    let group = Share::new(Limits { ios: None, bytes: rate(4 << 20, 10 * MS) });
    let volume = throttle(&[], Some(&group));
    // One request of a minute, and those behind it.
    let passed = rig.flood(&volume, 4, 240 << 20);
    assert!(rig.during(S, &passed) <= 1);
    volume.configure(&[], None, rig.world.now());
    assert!(rig.during(MS, &passed) >= 4);
}

#[test]
fn timers_that_are_late_take_nothing_off_a_limit() {
    let rig = Rig::new(11);
    let volume = throttle(&[Limits { ios: rate(10_000, Duration::ZERO), bytes: None }], None);
    let late = Duration::from_micros(1500);
    let passed = flood(&rig.world, volume.line(), (64, 4096), &rig.over, late);
    let during = rig.during(10 * S, &passed);
    assert!(near(during, 100_000), "{during}");
}

#[test]
fn limits_change_while_requests_wait() {
    let rig = Rig::new(6);
    let volume = throttle(&[ios(10)], None);
    let passed = rig.flood(&volume, 64, 4096);
    let during = |time| {
        let before = passed.len();
        rig.wait(time);
        passed.len() - before
    };
    assert!((9..=12).contains(&during(S)));
    // Those that wait do so no longer than the new limit says.
    volume.configure(&[ios(1000)], None, rig.world.now());
    assert!(near(during(S), 1000));
    // Into a group, and out of it.
    let group = Share::new(ios(100));
    volume.configure(&[ios(1000)], Some(&group), rig.world.now());
    assert!((90..=112).contains(&during(S)));
    group.retune(ios(500), rig.world.now());
    assert!((490..=515).contains(&during(S)));
    volume.configure(&[], None, rig.world.now());
    assert!(!volume.is_limited());
    assert!(during(10 * MS) >= 64);
}

#[test]
fn a_session_that_goes_leaves_the_others_to_go_on() {
    let rig = Rig::new(7);
    let volume = throttle(&[ios(100)], None);
    // Whoever comes first holds the timer.
    let (first, others) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    flood(&rig.world, volume.line(), (8, 0), &first, Duration::ZERO);
    let second = flood(&rig.world, volume.line(), (8, 0), &others, Duration::ZERO);
    rig.wait(S);
    first.store(true, SeqCst);
    rig.wait(S);
    let before = second.len();
    rig.wait(S);
    assert!((95..=105).contains(&(second.len() - before)), "{}", second.len() - before);
    assert_eq!(volume.view().waiting, 8);
}

#[test]
fn a_crowd_is_told_before_hosts_lose_patience() {
    let volume = throttle(&[ios(10)], None);
    let (own, other) = (volume.line(), volume.line());
    let now = Nanos(1);
    let mut taken = 0;
    while own.crowd(now).is_none() {
        own.admit(taken, Cost::of_bytes(4096), now);
        taken += 1;
    }
    assert!((50..55).contains(&taken), "5 s of 10 a second: {taken}");
    assert_eq!(own.crowd(now), Some(Crowd::Own));
    // Another session may always have one.
    assert_eq!(other.crowd(now), None);
    drop(own);
    assert_eq!((volume.view().waiting, other.crowd(now)), (0, None));
}

/// However much others have waiting, a session that has nothing waiting is next.
#[test]
fn a_session_is_not_sent_away_for_what_waits_in_other_lines() {
    let group = Share::new(Limits { ios: None, bytes: rate(4 << 20, 10 * MS) });
    let (loud, quiet) = (throttle(&[], Some(&group)), throttle(&[], Some(&group)));
    let (lines, now) = ([(); 8].map(|()| loud.line()), Nanos(1));
    for id in 0..200 {
        lines[id as usize % 8].admit(id, Cost::of_bytes(1 << 20), now);
    }
    assert_eq!(loud.line().crowd(now), None, "8 lines have a request of 250 ms before it");
    let line = quiet.line();
    assert_eq!(line.crowd(now), None);
    assert!(!line.admit(0, Cost::of_bytes(4096), now));
    assert_eq!(line.crowd(now), None);
    assert_eq!(lines[0].crowd(now), Some(Crowd::Own));
}

/// What a test does to a line, or to the limits.
#[derive(Clone, Debug)]
enum Act {
    Admit(usize, u64),
    Withdraw(usize, usize),
    Wait(u64),
    Reopen(usize),
    /// Of a volume: its own limit, and whether it is in the group.
    Configure(usize, u64, bool),
    Retune(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let line = 0..4_usize;
    prop_oneof![
        8 => (line.clone(), 0..65_536_u64).prop_map(|(line, bytes)| Act::Admit(line, bytes)),
        2 => (line.clone(), 0..8_usize).prop_map(|(line, at)| Act::Withdraw(line, at)),
        3 => (0..50_000_u64).prop_map(Act::Wait),
        1 => line.prop_map(Act::Reopen),
        1 => (0..2_usize, 0..500_u64, any::<bool>()).prop_map(|(v, rate, group)| Act::Configure(v, rate, group)),
        1 => (1..500_u64).prop_map(Act::Retune),
    ]
}

/// A session as the test knows it: the requests that it waits for.
struct Model {
    line: Option<Arc<Line>>,
    waiting: Arc<Mutex<VecDeque<u64>>>,
    is_listening: Arc<AtomicBool>,
}

impl Model {
    fn new(volume: &Arc<Throttle>) -> Self {
        Self { line: Some(Arc::new(volume.line())), waiting: Arc::default(), is_listening: Arc::default() }
    }

    /// As a session does it: one listens as long as requests wait.
    fn listen(&self, world: &Arc<SimWorld>) {
        let Some(line) = self.line.clone().filter(|_| !self.is_listening.swap(true, SeqCst)) else { return };
        let (waiting, listening, own) = (self.waiting.clone(), self.is_listening.clone(), world.clone());
        world.spawn(
            Thread::Data(0),
            Box::pin(async move {
                while !waiting.lock().is_empty() {
                    for id in line.passed(|| own.now(), |time| own.sleep(time)).await {
                        assert_eq!(waiting.lock().pop_front(), Some(id), "in their order, each once");
                    }
                }
                listening.store(false, SeqCst);
            }),
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_happens_each_request_passes_once_and_in_order(acts in prop::collection::vec(act(), 1..80)) {
        let rig = Rig::new(8);
        let group = Share::new(ios(50));
        let volumes = [throttle(&[ios(100)], Some(&group)), throttle(&[ios(30)], None)];
        let mut sessions: Vec<_> = (0..4).map(|at| Model::new(&volumes[at % 2])).collect();
        let mut id = 0;
        for act in acts {
            match act {
                Act::Admit(at, bytes) => {
                    id += 1;
                    let session = &sessions[at];
                    let Some(line) = &session.line else { continue };
                    if line.admit(id, Cost::of_bytes(bytes), rig.world.now()) {
                        prop_assert!(session.waiting.lock().is_empty(), "{} passed those before it", id);
                    } else {
                        session.waiting.lock().push_back(id);
                        session.listen(&rig.world);
                    }
                }
                Act::Withdraw(at, place) => {
                    let session = &sessions[at];
                    let waiting = session.waiting.lock().get(place).copied();
                    if let (Some(id), Some(line)) = (waiting, &session.line) {
                        prop_assert!(line.withdraw(id), "{} waits, and was not known", id);
                        session.waiting.lock().retain(|other| *other != id);
                    }
                }
                Act::Wait(us) => rig.wait(Duration::from_micros(us)),
                Act::Reopen(at) => {
                    // The session ends: nothing waits, and whoever listens hears so.
                    let session = &sessions[at];
                    let waiting: Vec<_> = session.waiting.lock().drain(..).collect();
                    if let Some(line) = &session.line {
                        for id in waiting {
                            line.withdraw(id);
                        }
                    }
                    rig.wait(Duration::ZERO);
                    sessions[at] = Model::new(&volumes[at % 2]);
                }
                Act::Configure(at, rate, grouped) => {
                    let limits = if rate == 0 { Limits::default() } else { ios(rate) };
                    volumes[at].configure(&[limits], grouped.then_some(&group), rig.world.now());
                }
                Act::Retune(rate) => group.retune(ios(rate), rig.world.now()),
            }
        }
        // With room for all of them, nothing is left behind.
        volumes.iter().for_each(|volume| volume.configure(&[], None, rig.world.now()));
        rig.wait(S);
        for session in &sessions {
            prop_assert!(session.waiting.lock().is_empty(), "left behind: {:?}", session.waiting.lock());
        }
        prop_assert_eq!([volumes[0].view().waiting, volumes[1].view().waiting], [0, 0]);
    }
}
