//! `quoin events`: what happened, and what happens.

use crate::{
    Failure, Format, Output,
    client::Client,
    output::line,
    time::{Age, parse_age},
    view,
};
use clap::Args;
use quoin_api::{Event, Severity};
use std::{
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub(crate) const EXAMPLES: &str = "Severities, the least first: info, notice, warning, error, critical.\n\n\
    Examples:\n  quoin --data /srv/a events\n  \
    quoin --data /srv/a events --severity warning --since 1h\n  \
    quoin --data /srv/a events --follow\n  \
    quoin --data /srv/a events --follow -o json    # one JSON object a line";

/// How often the array is asked for what is new.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// Options of `quoin events`.
#[derive(Args, Debug)]
pub struct EventsArgs {
    /// At most so many
    #[arg(long, default_value_t = 100)]
    limit: u32,
    /// Only of this severity or a higher one
    #[arg(long, default_value = "info", value_parser = parse_severity)]
    severity: Severity,
    /// Only what happened within this time, such as 90s, 15m, 1h or 7d
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    since: Option<Age>,
    /// Oldest first, and then what happens from now on, until interrupted
    #[arg(long, short)]
    follow: bool,
}

fn parse_severity(text: &str) -> Result<Severity, String> {
    let all = Severity::ALL;
    all.into_iter().find(|severity| severity.to_string() == text).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(ToString::to_string).collect();
        format!("{text:?} is not a severity; choose one of {}", names.join(", "))
    })
}

/// Shows events.
pub(crate) fn events(client: &Client, output: &Output, args: EventsArgs) -> Result<(), Failure> {
    let EventsArgs { limit, severity, since, follow } = args;
    let since_ms = since.map_or(0, |age| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(age.0).as_millis() as u64
    });
    let path = format!("/events?limit={limit}&severity={severity}&since_ms={since_ms}");
    let mut newest: Vec<Event> = client.get(&path)?;
    if !follow {
        output.show(&newest, |events| view::events(events));
        return Ok(());
    }
    let mut last = 0;
    loop {
        for event in newest.iter().rev() {
            last = last.max(event.number);
            let text = match output.format {
                Format::Json => serde_json::to_string(event).unwrap_or_default(),
                Format::Table => view::event(event),
            };
            if !line(&text) {
                return Ok(());
            }
        }
        thread::sleep(FOLLOW_EVERY);
        // An array that restarts is waited for: what it recorded meanwhile is still wanted.
        newest = client.get(&format!("{path}&after={last}")).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severities_are_read_by_name() {
        for severity in Severity::ALL {
            assert_eq!(parse_severity(&severity.to_string()), Ok(severity));
        }
        assert!(parse_severity("fatal").unwrap_err().contains("info, notice, warning, error, critical"));
    }
}
