//! What an array costs that nobody asks for anything, while initiators are logged in.

use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::proc;
use crate::quoin::{Array, SMALL_VOLUMES};
use quoin_initiator::Connection;

/// What was begun before comes to its end: buffered writes are destaged, a checkpoint is made.
const SETTLE: Duration = Duration::from_secs(8);
const WATCH: Duration = Duration::from_secs(20);

/// CPU of an idle array.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Idle {
    pub(crate) seconds: f64,
    pub(crate) sessions: u16,
    pub(crate) cpu_seconds: f64,
    /// Cores kept busy.
    pub(crate) cores: f64,
}

/// Watches an array with an initiator logged in to each of its volumes.
pub(crate) fn run(array: &Array) -> Result<Idle> {
    let serving = array.serve()?;
    let everyone = serving.small().into_iter().chain([serving.at()]);
    let sessions: Vec<_> = everyone.map(|at| Connection::login(&at.endpoint(), 0)).collect::<Result<_>>()?;
    sleep(SETTLE);
    let before = proc::usage(serving.process.pid())?.cpu_seconds;
    sleep(WATCH);
    let cpu_seconds = proc::usage(serving.process.pid())?.cpu_seconds - before;
    for session in sessions {
        session.logout()?;
    }
    let seconds = WATCH.as_secs_f64();
    Ok(Idle { seconds, sessions: SMALL_VOLUMES + 1, cpu_seconds, cores: cpu_seconds / seconds })
}
