//! Refused tokens, logins and changes in the event log, limited in rate.

use super::{
    Events, Told,
    limiter::{Alike, Summary},
    record::EventRecord,
};
use crate::words::utc_text;
use quoin_api::{Actor, EventKind, Severity};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A client was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// Over which protocol: `rest`, `iscsi`, `nbd`.
    pub protocol: &'static str,
    /// What it is about: `host h1`, `export v1`.
    pub object: String,
    /// Why, in words of the array. Refusals of one address for the same reason count as alike, so nothing that a client
    /// without a token chose belongs here.
    pub why: String,
    /// Details; only the event of the first of similar refusals has them.
    pub detail: Option<String>,
    /// Who tried.
    pub actor: Actor,
}

impl Refusal {
    /// Of a client with a name of its own, as far as it gave one, at an address.
    pub fn of_client(
        protocol: &'static str,
        object: String,
        why: impl Into<String>,
        name: Option<String>,
        address: String,
    ) -> Self {
        let actor = Actor { name, address: Some(address), ..Actor::default() };
        Self { protocol, object, why: why.into(), detail: None, actor }
    }
}

impl Events {
    /// Counts a refusal; reports it at once, or later together with others like it.
    pub(crate) fn refused(&self, refusal: Refusal) {
        let Refusal { protocol, object, why, detail, actor } = refusal;
        let address = actor.address.as_deref().map(source_of);
        let has_token = actor.token.is_some();
        let (protocol, address) = (protocol.to_owned(), address.unwrap_or_default());
        let alike = Alike { protocol, has_token, address, why };
        *self.log.lock().counts.refused.entry(alike.protocol.clone()).or_default() += 1;
        if self.limiter.lock().tells(&alike, self.world.wall_clock_ms()) {
            let detail = detail.map(|detail| format!(": {detail}")).unwrap_or_default();
            let text = format!("refused: {}{detail}", alike.why);
            self.wait_for_refusal(Told::new(object, text), Some(actor), 0);
        }
    }

    /// Reports the refusals that were only counted and whose window has ended; all of them when the array stops.
    pub(crate) fn tell_refusals(&self, all: bool) {
        let over = self.limiter.lock().over(self.world.wall_clock_ms(), all);
        for Summary { alike: Alike { protocol, address, why, .. }, count, since_ms } in over {
            let since = utc_text(since_ms);
            let told = if address.is_empty() {
                Told::new(protocol, format!("refused {count} times since {since}, from many addresses"))
            } else {
                Told::new(protocol, format!("refused {count} more times since {since}: {why}"))
            };
            let actor =
                Actor { address: Some(address).filter(|address| !address.is_empty()), ..Actor::default() };
            self.wait_for_refusal(told, Some(actor), count);
        }
    }

    fn wait_for_refusal(&self, told: Told, actor: Option<Actor>, suppressed: u64) {
        let Told { object, text, changes, .. } = told;
        let at_ms = self.world.wall_clock_ms();
        let number = self.take_number();
        let (severity, kind) = (Severity::Warning, EventKind::Refusal);
        let record = EventRecord { number, at_ms, severity, object, text, kind, actor, changes, suppressed };
        self.wait(record.bounded());
    }
}

/// Where clients come from that are one to the limiter: an IPv4 address, an IPv6 network of 64 bits, which is what one
/// machine has, or a user of this machine.
fn source_of(address: &str) -> String {
    let ip = address.parse::<SocketAddr>().map(|address| address.ip()).or_else(|_| address.parse());
    match ip.map(|ip| ip.to_canonical()) {
        Ok(IpAddr::V6(ip)) => {
            let network = Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64);
            format!("{network}/64")
        }
        Ok(ip) => ip.to_string(),
        // Each process that connects to a Unix socket has another identifier.
        Err(_) => address.split(",pid=").next().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_one_source_however_often_it_connects() {
        for (address, source) in [
            ("10.0.0.7:51234", "10.0.0.7"),
            ("10.0.0.7", "10.0.0.7"),
            ("[::ffff:10.0.0.7]:1", "10.0.0.7"),
            ("[2001:db8:1:2:3::4]:51234", "2001:db8:1:2::/64"),
            ("unix:uid=1000,pid=4711", "unix:uid=1000"),
            ("unix", "unix"),
        ] {
            assert_eq!(source_of(address), source);
        }
    }
}
