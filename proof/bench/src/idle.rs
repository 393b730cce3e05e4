//! What an array costs that nobody asks for anything, while initiators are logged in.

use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::proc;
use crate::quoin::Array;
use quoin_initiator::Connection;

/// What was begun before comes to its end: buffered writes are destaged, a checkpoint is made.
const SETTLE: Duration = Duration::from_secs(8);
const WATCH: Duration = Duration::from_secs(20);
const SESSIONS: u16 = 5;

/// CPU of an idle array.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Idle {
    pub(crate) seconds: f64,
    pub(crate) sessions: u16,
    pub(crate) cpu_seconds: f64,
    /// Cores kept busy.
    pub(crate) cores: f64,
}

/// Watches an array with several sessions logged in.
pub(crate) fn run(array: &Array) -> Result<Idle> {
    let serving = array.serve()?;
    let endpoint = serving.at().endpoint();
    let sessions: Vec<_> =
        (0..SESSIONS).map(|number| Connection::login(&endpoint, number)).collect::<Result<_>>()?;
    sleep(SETTLE);
    let before = proc::usage(serving.process.pid())?.cpu_seconds;
    sleep(WATCH);
    let cpu_seconds = proc::usage(serving.process.pid())?.cpu_seconds - before;
    for session in sessions {
        session.logout()?;
    }
    let seconds = WATCH.as_secs_f64();
    Ok(Idle { seconds, sessions: SESSIONS, cpu_seconds, cores: cpu_seconds / seconds })
}
