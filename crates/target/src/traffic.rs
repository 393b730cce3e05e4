//! What initiators ask for, by initiator.

use crate::{NexusName, Target, hosts::State};
use quoin_base::metrics::{Counter, Gauge};
use quoin_volume::BlockDevice;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// What the sessions of one initiator did since the process started.
#[derive(Default, Debug)]
pub struct Traffic {
    commands: Counter,
    errors: Counter,
    read_bytes: Counter,
    written_bytes: Counter,
    answered: Counter,
    latency_ns: Counter,
    outstanding: Gauge,
}

/// What a session did since it last told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// Commands received.
    pub commands: u64,
    /// Commands answered with another status than GOOD.
    pub errors: u64,
    /// Bytes sent to the initiator.
    pub read_bytes: u64,
    /// Bytes received from it.
    pub written_bytes: u64,
    /// Commands that were run and answered.
    pub answered: u64,
    /// From their arrival to their answers' being queued, all of them together.
    pub latency_ns: u64,
    /// How many more commands are outstanding than were then.
    pub outstanding: i64,
}

impl Traffic {
    /// Adds what a session did. To be called for many commands at once.
    pub fn add(&self, done: Done) {
        let counted = [
            (&self.commands, done.commands),
            (&self.errors, done.errors),
            (&self.read_bytes, done.read_bytes),
            (&self.written_bytes, done.written_bytes),
            (&self.answered, done.answered),
            (&self.latency_ns, done.latency_ns),
        ];
        for (counter, amount) in counted.into_iter().filter(|(_, amount)| *amount > 0) {
            counter.add(amount);
        }
        if done.outstanding != 0 {
            self.outstanding.add(done.outstanding);
        }
    }
}

/// [`Traffic`] at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrafficView {
    /// The host and the initiator's name, in lower case; `None` for all initiators together that belong to no host.
    pub initiator: Option<(String, String)>,
    /// Sessions logged in now.
    pub sessions: usize,
    /// Commands received.
    pub commands: u64,
    /// Commands answered with another status than GOOD.
    pub errors: u64,
    /// Bytes sent to the initiator.
    pub read_bytes: u64,
    /// Bytes received from it.
    pub written_bytes: u64,
    /// Commands that were run and answered.
    pub answered: u64,
    /// From their arrival to their answers' being queued, all of them together.
    pub latency: Duration,
    /// Commands outstanding now.
    pub outstanding: u64,
}

/// The traffic of initiators that belong to a host, by name, and of the others together: names that anybody may
/// log in with take no memory of their own.
#[derive(Default)]
pub(crate) struct Ledger {
    known: BTreeMap<String, Arc<Traffic>>,
    strangers: Arc<Traffic>,
}

impl<D> State<D> {
    /// Where a session that begins now counts.
    pub(crate) fn traffic_of(&mut self, name: &NexusName) -> Arc<Traffic> {
        match self.host_of(&name.initiator) {
            Some(_) => self.traffic.known.entry(name.initiator.clone()).or_default().clone(),
            None => self.traffic.strangers.clone(),
        }
    }

    /// Forgets initiators that belong to no host any more.
    pub(crate) fn prune_traffic(&mut self) {
        let mut known = std::mem::take(&mut self.traffic.known);
        known.retain(|initiator, _| self.host_of(initiator).is_some());
        self.traffic.known = known;
    }
}

impl<D: BlockDevice> Target<D> {
    /// What initiators did since the process started: those of hosts by name, then the others together.
    pub fn traffic(&self) -> Vec<TrafficView> {
        // Initiators that no host has any more are left out.
        let state = self.state.lock();
        let sessions = |traffic: &Arc<Traffic>| {
            state.sessions.values().filter(|session| Arc::ptr_eq(&session.traffic, traffic)).count()
        };
        let known = state.traffic.known.iter().filter_map(|(initiator, traffic)| {
            let (host, _) = state.host_of(initiator)?;
            Some((Some((host.clone(), initiator.clone())), traffic))
        });
        known
            .chain([(None, &state.traffic.strangers)])
            .map(|(initiator, traffic)| TrafficView {
                initiator,
                sessions: sessions(traffic),
                commands: traffic.commands.value(),
                errors: traffic.errors.value(),
                read_bytes: traffic.read_bytes.value(),
                written_bytes: traffic.written_bytes.value(),
                answered: traffic.answered.value(),
                latency: Duration::from_nanos(traffic.latency_ns.value()),
                outstanding: u64::try_from(traffic.outstanding.value()).unwrap_or(0),
            })
            .collect()
    }
}
