//! Throttles logins: who may try, and how often.
//!
//! Invariants: connections that have not logged in are bounded, altogether and for each address; an address whose
//! logins are refused again and again waits ever longer for the next answer, at most [`LONGEST_WAIT`]; what is
//! remembered of addresses is bounded and forgotten after [`FORGET_AFTER`].

use crate::login::LoginStatus;
use parking_lot::Mutex;
use quoin_target::Clock;
use quoin_world::Nanos;
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

/// Refused logins that cost nothing: a person mistypes.
const FREE_FAILURES: u32 = 3;
/// The wait after the next one; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// The longest wait: an initiator gives a login about 15 s.
const LONGEST_WAIT: Duration = Duration::from_secs(8);
/// After so long without a refused login an address is like any other.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// Addresses remembered. When there are more, the one that failed longest ago is forgotten.
const MAX_ADDRESSES: usize = 4096;

/// A login that was refused or leads to nothing, for those who look after the array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoginFailure {
    /// The name the initiator gave, if it came to that.
    pub initiator: Option<String>,
    /// The target it asked for, if that is not this one.
    pub other_target: Option<String>,
    /// Where it came from.
    pub peer: SocketAddr,
    /// Why. One of a small set of texts, which hold nothing that the initiator chose.
    pub why: &'static str,
    /// What the initiator was answered; `None` if its connection was closed without an answer.
    pub status: Option<LoginStatus>,
    /// Logins refused to this address in a row, this one included; 0 if this one does not count against it.
    pub failures: u32,
}

#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    last: Nanos,
}

#[derive(Default)]
struct State {
    pending: BTreeMap<IpAddr, usize>,
    failed: BTreeMap<IpAddr, Failures>,
}

pub(crate) struct LoginThrottle {
    state: Mutex<State>,
    max_pending: usize,
    max_pending_of_address: usize,
    clock: Arc<dyn Clock>,
}

/// A connection that has not logged in yet.
pub(crate) struct PendingLogin {
    throttle: Arc<LoginThrottle>,
    address: IpAddr,
}

impl LoginThrottle {
    pub(crate) fn new(max_pending: usize, max_pending_of_address: usize, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), max_pending, max_pending_of_address, clock })
    }

    /// Lets a new connection in; `None` if too many have not logged in yet.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<PendingLogin> {
        let mut state = self.state.lock();
        let all: usize = state.pending.values().sum();
        let own = state.pending.get(&address).copied().unwrap_or(0);
        if all >= self.max_pending || own >= self.max_pending_of_address {
            return None;
        }
        // NOTE: entered only once it is let in: nobody takes out an address that was refused.
        state.pending.insert(address, own + 1);
        Some(PendingLogin { throttle: self.clone(), address })
    }
}

impl PendingLogin {
    /// How long its first answer is held back.
    pub(crate) fn wait(&self) -> Duration {
        let now = self.throttle.clock.now();
        let state = self.throttle.state.lock();
        match state.failed.get(&self.address) {
            Some(failures) if now.since(failures.last) < FORGET_AFTER && failures.count > FREE_FAILURES => {
                // Each failure beyond the free ones doubles the wait: 250 ms, 500 ms, 1 s.
                let doublings = (failures.count - FREE_FAILURES - 1).min(16);
                FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT)
            }
            _ => Duration::ZERO,
        }
    }

    /// Its login was refused. Returns how many were in a row.
    pub(crate) fn failed(&self) -> u32 {
        let now = self.throttle.clock.now();
        let mut state = self.throttle.state.lock();
        // NOTE: room is made before the address is entered, so that it is never the one forgotten.
        if state.failed.len() >= MAX_ADDRESSES && !state.failed.contains_key(&self.address) {
            let oldest =
                state.failed.iter().min_by_key(|(_, failures)| failures.last).map(|(address, _)| *address);
            oldest.map(|address| state.failed.remove(&address));
        }
        let failures = state.failed.entry(self.address).or_insert(Failures { count: 0, last: now });
        // After a long time without a failure the count starts over.
        if now.since(failures.last) >= FORGET_AFTER {
            failures.count = 0;
        }
        *failures = Failures { count: failures.count.saturating_add(1), last: now };
        failures.count
    }

    /// It logged in with a secret: what failed before from its address is forgiven.
    pub(crate) fn proven(&self) {
        self.throttle.state.lock().failed.remove(&self.address);
    }
}

impl Drop for PendingLogin {
    fn drop(&mut self) {
        let mut state = self.throttle.state.lock();
        if let Some(own) = state.pending.get_mut(&self.address) {
            assert!(*own > 0, "logins of {}: one ended that was not counted", self.address);
            *own -= 1;
            if *own == 0 {
                state.pending.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoin_target::RuntimeClock;

    fn throttle(max_pending: usize, max_pending_of_address: usize) -> Arc<LoginThrottle> {
        LoginThrottle::new(max_pending, max_pending_of_address, Arc::new(RuntimeClock::default()))
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    #[test]
    fn connections_that_have_not_logged_in_are_bounded() {
        let throttle = throttle(3, 2);
        let first = throttle.admit(address(1)).unwrap();
        let _second = throttle.admit(address(1)).unwrap();
        assert!(throttle.admit(address(1)).is_none());
        let _third = throttle.admit(address(2)).unwrap();
        assert!(throttle.admit(address(3)).is_none());
        // Who was refused is not remembered.
        assert!(!throttle.state.lock().pending.contains_key(&address(3)));
        drop(first);
        assert!(throttle.admit(address(3)).is_some());
        assert!(!throttle.state.lock().pending.contains_key(&address(3)));
    }

    #[test]
    fn who_fails_again_and_again_waits() {
        let throttle = throttle(9, 9);
        let one = throttle.admit(address(1)).unwrap();
        let waits: Vec<_> = (1..=12)
            .map(|count| {
                assert_eq!(one.failed(), count);
                one.wait().as_millis()
            })
            .collect();
        assert_eq!(waits, [0, 0, 0, 250, 500, 1000, 2000, 4000, 8000, 8000, 8000, 8000]);
        assert_eq!(throttle.admit(address(2)).unwrap().wait(), Duration::ZERO);
        assert_eq!(throttle.admit(address(1)).unwrap().wait(), LONGEST_WAIT);
        one.proven();
        assert_eq!(one.wait(), Duration::ZERO);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let throttle = throttle(9, 9);
        for n in 0..MAX_ADDRESSES as u32 + 10 {
            throttle.admit(IpAddr::from(n.to_be_bytes())).unwrap().failed();
        }
        let state = throttle.state.lock();
        assert_eq!(state.failed.len(), MAX_ADDRESSES);
        assert!(!state.failed.contains_key(&IpAddr::from(0u32.to_be_bytes())));
    }
}
