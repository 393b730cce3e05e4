//! Keeps a flood of refusals from being a flood of events.
//!
//! The first refusal of a kind from an address is reported at once. Further ones are counted and reported together
//! after a minute. While they continue, each next report takes twice as long, up to an hour. The number of kinds and
//! addresses remembered is bounded for each protocol, separately for clients with a token and without. Refusals beyond
//! that are counted together, as of many addresses. So a flood over one protocol hides no refusal over another, and a
//! flood of wrong tokens hides no rejected change.

use std::{collections::BTreeMap, time::Duration};

/// How long refusals are counted before they are reported together: the first time, and at most.
const FIRST_WINDOW: Duration = Duration::from_secs(60);
const LONGEST_WINDOW: Duration = Duration::from_secs(3600);
/// Kinds and addresses remembered of each protocol, of clients with a token and of those without.
const KEYS_MAX: usize = 64;

/// A refusal, as far as two of them are alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alike {
    /// The protocol.
    pub(crate) protocol: String,
    /// The client proved that it may manage the array.
    pub(crate) has_token: bool,
    /// Where from, without what changes with each connection.
    pub(crate) address: String,
    /// Why, without anything that a client without a token chose.
    pub(crate) why: String,
}

impl Alike {
    /// The key under which all other refusals of the protocol are counted.
    fn of_many(&self) -> Self {
        Self { address: String::new(), why: String::new(), ..self.clone() }
    }

    fn is_of_many(&self) -> bool {
        self.why.is_empty()
    }
}

#[derive(Clone, Copy, Debug)]
struct Window {
    began_ms: u64,
    length: Duration,
    count: u64,
}

/// Refusals that are reported together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    /// What they have in common; no address when they are of many.
    pub(crate) alike: Alike,
    /// How many there were.
    pub(crate) count: u64,
    /// Since when.
    pub(crate) since_ms: u64,
}

/// Remembers what was reported, and when.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    windows: BTreeMap<Alike, Window>,
}

impl Limiter {
    /// True if a refusal is to be reported at once; otherwise it is counted.
    pub(crate) fn tells(&mut self, alike: &Alike, now_ms: u64) -> bool {
        if let Some(window) = self.windows.get_mut(alike) {
            window.count += 1;
            return false;
        }
        let window = Window { began_ms: now_ms, length: FIRST_WINDOW, count: 0 };
        let share = |known: &Alike| (known.protocol == alike.protocol, known.has_token == alike.has_token);
        let is_of_share = |known: &&Alike| share(known) == (true, true) && !known.is_of_many();
        if self.windows.keys().filter(is_of_share).count() < KEYS_MAX {
            self.windows.insert(alike.clone(), window);
            return true;
        }
        self.windows.entry(alike.of_many()).or_insert(window).count += 1;
        false
    }

    /// The summaries of windows that have ended, or of all windows when the array stops.
    pub(crate) fn over(&mut self, now_ms: u64, all: bool) -> Vec<Summary> {
        let mut summaries = Vec::new();
        self.windows.retain(|alike, window| {
            // A clock that was set back begins anew.
            let elapsed = Duration::from_millis(now_ms.saturating_sub(window.began_ms));
            if now_ms < window.began_ms {
                window.began_ms = now_ms;
            }
            if elapsed < window.length && !all {
                return true;
            }
            if window.count == 0 {
                return false;
            }
            summaries.push(Summary { alike: alike.clone(), count: window.count, since_ms: window.began_ms });
            let length = (window.length * 2).min(LONGEST_WINDOW);
            *window = Window { began_ms: now_ms, length, count: 0 };
            true
        });
        summaries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alike(address: &str) -> Alike {
        let (protocol, why) = ("iscsi".into(), "wrong secret".into());
        Alike { protocol, has_token: false, address: address.into(), why }
    }

    /// A day of ten refused logins a second, from one address.
    #[test]
    fn a_flood_becomes_few_events_that_count_all_of_it() {
        let (mut limiter, mut told, mut counted, mut all) = (Limiter::default(), 0u64, 0, 0);
        for second in 0..86_400u64 {
            for _ in 0..10 {
                all += 1;
                told += u64::from(limiter.tells(&alike("10.0.0.1"), second * 1000));
            }
            for summary in limiter.over(second * 1000, false) {
                assert_eq!(summary.alike, alike("10.0.0.1"));
                (told, counted) = (told + 1, counted + summary.count);
            }
        }
        let last: u64 = limiter.over(0, true).iter().map(|summary| summary.count).sum();
        assert_eq!(counted + last + 1, all);
        assert!((20..40).contains(&told), "{told} events");
    }

    #[test]
    fn a_flood_over_one_protocol_hides_no_refusal_over_another() {
        let mut limiter = Limiter::default();
        for n in 0..1000 {
            limiter.tells(&alike(&format!("10.0.{}.{}", n / 256, n % 256)), 0);
        }
        let token = |why: &str| Alike { protocol: "rest".into(), why: why.into(), ..alike("10.0.0.1") };
        assert!(limiter.tells(&token("no token"), 0));
        assert!(!limiter.tells(&token("no token"), 0) && limiter.tells(&token("another"), 0));
        // Nor do many changes that a client asks for in vain hide wrong tokens.
        let change = |n: usize| Alike { has_token: true, ..token(&format!("no such volume: v{n}")) };
        assert_eq!((0..100).filter(|n| limiter.tells(&change(*n), 0)).count(), KEYS_MAX);
        assert!(limiter.tells(&token("a third"), 0));
    }

    #[test]
    fn many_addresses_take_no_more_memory_than_some() {
        let mut limiter = Limiter::default();
        let told = (0..10_000).filter(|n| limiter.tells(&alike(&format!("10.0.{}.{}", n / 256, n % 256)), 0));
        assert_eq!(told.count(), KEYS_MAX);
        assert_eq!(limiter.windows.len(), KEYS_MAX + 1);
        let summaries = limiter.over(60_000, false);
        assert_eq!(summaries.len(), 1);
        assert_eq!((summaries[0].count, summaries[0].alike.address.as_str()), (10_000 - KEYS_MAX as u64, ""));
        // An address that was quiet for a minute is forgotten.
        assert_eq!(limiter.windows.len(), 1);
    }
}
