//! Refused tokens, logins and changes in the event log, limited in rate.

use super::{
    Events, Told, current_actor,
    limiter::{Alike, Summary},
    record::EventRecord,
};
use crate::{Array, ArrayError};
use quoin_api::{Actor, EventKind, Severity};

/// Somebody was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// Over which protocol: `rest`, `iscsi`, `nbd`.
    pub protocol: &'static str,
    /// What it is about: `host h1`, `export v1`.
    pub object: String,
    /// Why.
    pub why: String,
    /// Who tried.
    pub actor: Actor,
}

impl Refusal {
    /// Of a client with a name of its own, as far as it gave one, at an address.
    pub fn of_client(
        protocol: &'static str,
        object: String,
        why: String,
        name: Option<String>,
        address: String,
    ) -> Self {
        Self { protocol, object, why, actor: Actor { name, address: Some(address), ..Actor::default() } }
    }
}

impl Events {
    /// Counts a refusal; tells of it at once, or later together with others like it.
    pub(crate) fn refused(&self, refusal: Refusal) {
        let Refusal { protocol, object, why, actor } = refusal;
        let address = actor.address.as_deref().map(|address| host_of(address).to_owned());
        let alike = Alike { protocol: protocol.to_owned(), address: address.unwrap_or_default(), why };
        *self.log.lock().counts.refused.entry(protocol.to_owned()).or_default() += 1;
        if self.limiter.lock().tells(&alike, self.world.wall_clock_ms()) {
            let text = format!("refused: {}", alike.why);
            self.wait_for_refusal(Told::new(object, text), Some(actor), 0);
        }
    }

    /// Tells of the refusals that were only counted and whose time is over; of all when the array stops.
    pub(crate) fn tell_refusals(&self, all: bool) {
        let over = self.limiter.lock().over(self.world.wall_clock_ms(), all);
        for Summary { alike: Alike { protocol, address, why }, count, since_ms } in over {
            let since = crate::retention::utc_text(since_ms);
            let told = match address.is_empty() {
                false => Told::new(protocol, format!("refused {count} more times since {since}: {why}")),
                true => {
                    Told::new(protocol, format!("refused {count} times since {since}, from many addresses"))
                }
            };
            let actor =
                Actor { address: Some(address).filter(|address| !address.is_empty()), ..Actor::default() };
            self.wait_for_refusal(told, Some(actor), count);
        }
    }

    fn wait_for_refusal(&self, told: Told, actor: Option<Actor>, suppressed: u64) {
        let Told { object, text, changes, .. } = told;
        let at_ms = self.world.wall_clock_ms();
        let number = self.log.lock().take_number();
        let (severity, kind) = (Severity::Warning, EventKind::Refusal);
        let record = EventRecord { number, at_ms, severity, object, text, kind, actor, changes, suppressed };
        self.wait(record.bounded());
    }
}

impl Array {
    /// Records that somebody was refused. A flood of refusals becomes few events that say how many there were.
    pub fn refused(&self, refusal: Refusal) {
        self.events.refused(refusal);
    }

    /// Records that an initiator at `address` did not prove who it is.
    pub fn authentication_failed(&self, initiator: Option<&str>, address: &str, why: &str) {
        let host = initiator.and_then(|name| self.access.lock().host_of(name).map(|host| host.name.clone()));
        let object = match (host, initiator) {
            (Some(host), _) => format!("host {host}"),
            (None, Some(initiator)) => format!("initiator {initiator}"),
            (None, None) => "an initiator".to_owned(),
        };
        let (name, why) = (initiator.map(str::to_owned), format!("login: {why}"));
        self.refused(Refusal::of_client("iscsi", object, why, name, address.to_owned()));
    }

    /// Records that the array does not make a change that a client of the management interface asked for.
    pub fn change_refused(&self, error: &ArrayError) {
        let Some(actor) = current_actor() else { return };
        let problem = error.problem();
        let why = format!("{}: {}", problem.title, problem.why);
        self.refused(Refusal { protocol: "rest", object: problem.which, why, actor: (*actor).clone() });
    }
}

/// An address without its port.
fn host_of(address: &str) -> &str {
    match address.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => address,
    }
}
