//! What the array records about clients and answers from its records: events, refusals, and requests carried out.

use crate::{Array, ArrayError, CarriedOut, EventSelection, Refusal, RequestKey, Retention, current_actor};
use quoin_api::Event;
use quoin_pool::PoolState;
use quoin_volume::VolumeError;

impl Array {
    /// The newest events of those that `selection` asks for, newest first.
    pub fn events(&self, selection: EventSelection) -> Vec<Event> {
        self.log().newest(&selection)
    }

    /// Sets how many events are kept. Must be called before the array runs.
    pub fn set_event_retention(&self, retention: Retention) {
        self.log().set_retention(retention);
    }

    /// Records that a client was refused. A flood of refusals becomes a few events that say how many there were.
    pub fn refused(&self, refusal: Refusal) {
        self.log().refused(refusal);
    }

    /// Records that a login from `address` was refused, or that its initiator sees nothing since no host has it.
    /// `why` has nothing in it that the initiator chose; `other_target` is what it asked for instead of this target.
    pub fn login_refused(
        &self,
        initiator: Option<&str>,
        other_target: Option<&str>,
        address: &str,
        why: &str,
    ) {
        let host = initiator.and_then(|name| self.hosts().read().host_of(name).map(|host| host.name.clone()));
        let object = match (host, initiator) {
            (Some(host), _) => format!("host {host}"),
            (None, Some(initiator)) => format!("initiator {initiator}"),
            (None, None) => "an initiator".to_owned(),
        };
        let (name, why) = (initiator.map(str::to_owned), format!("login: {why}"));
        let refusal = Refusal::of_client("iscsi", object, why, name, address.to_owned());
        let detail = other_target.map(|target| format!("it asked for {target}"));
        self.refused(Refusal { detail, ..refusal });
    }

    /// Records that the array does not make a change that a client of the management interface asked for.
    pub fn change_refused(&self, error: &ArrayError) {
        let Some(actor) = current_actor() else { return };
        let problem = error.problem();
        // For clients with a token each object counts as an attempt of its own.
        let (object, why) = (problem.which, format!("{}: {}", problem.title, problem.why));
        let actor = (*actor).clone();
        self.refused(Refusal { protocol: "rest", object, why, detail: None, actor });
    }

    /// The outcome of the request with this key; `None` if it was not carried out within the last day.
    ///
    /// The answer is final: if the outcome of an earlier attempt was unknown,
    /// the pool has been opened since, and its catalog contains the outcome.
    ///
    /// # Errors
    /// `Offline` unless the pool is open and works.
    pub fn carried_out(&self, request: &RequestKey) -> Result<Option<CarriedOut>, ArrayError> {
        if let PoolState::Offline { reason } = self.pool()?.state() {
            return Err(VolumeError::Offline { reason }.into());
        }
        Ok(self.log().requests.find(&request.key, self.world().wall_clock_ms()))
    }
}
