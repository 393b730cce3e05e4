//! `quoin rebuild` and `quoin balance`: how fast data is rebuilt and moved, how far that is, and how evenly drives are used.

use crate::{
    Failure, Output, Size,
    client::Client,
    output::pairs,
    report::show,
    size::parse_rate,
    size_text,
    time::{Age, duration_text, parse_age},
    view,
};
use clap::Subcommand;
use quoin_api::{BalanceMode, Rebuild, RebuildUpdate};

/// Commands about rebuilds.
#[derive(Subcommand, Debug)]
pub enum RebuildCommand {
    /// Show the limits, and how far a rebuild is
    #[command(after_help = "Examples:\n  quoin --data /srv/a rebuild status\n  \
                            quoin --data /srv/a rebuild status -o json | jq .running")]
    Status,
    /// Set how fast the pool rebuilds, evacuates and balances, at least and at most
    #[command(
        group = clap::ArgGroup::new("what").required(true).multiple(true)
            .args(["min_rate", "max_rate", "repair_delay"]),
        after_help = "Between the two, the pace follows what hosts need of the drives. The limits hold for the whole pool, at \
                      once, and stay.\n\nExamples:\n  quoin --data /srv/a rebuild set --min-rate 50M --max-rate 400M\n  \
                      quoin --data /srv/a rebuild set --max-rate 0\n  \
                      quoin --data /srv/a rebuild set --repair-delay 4h"
    )]
    Set {
        /// Rebuild at least this much per second beside hosts, as far as the drives can; 0 for nothing while hosts need all
        #[arg(long, value_name = "SIZE", value_parser = parse_rate)]
        min_rate: Option<Size>,
        /// Rebuild at most this much per second, at least 64K; 0 for no limit
        #[arg(long, value_name = "SIZE", value_parser = parse_rate)]
        max_rate: Option<Size>,
        /// Wait this long for a drive that went away before what it holds is rebuilt, as 90s, 60m, 4h; 0s for not at all
        #[arg(long, value_name = "TIME", value_parser = parse_age)]
        repair_delay: Option<Age>,
    },
}

/// Commands about balancing.
#[derive(Subcommand, Debug)]
pub enum BalanceCommand {
    /// Show how evenly drives are used, and whether data moves because of that
    #[command(after_help = "Examples:\n  quoin --data /srv/a balance status")]
    Status,
    /// Move data from fuller drives to emptier ones
    #[command(
        after_help = "It ends when the used shares of the drives are within a few percent, as far as fault domains allow. \
                      Rebuilds and evacuations go first.\n\nExamples:\n  quoin --data /srv/a balance start"
    )]
    Start,
    /// Stop moving data for that
    #[command(after_help = "Examples:\n  quoin --data /srv/a balance stop")]
    Stop,
    /// Set whether drives are balanced by themselves
    #[command(after_help = "Examples:\n  quoin --data /srv/a balance set --mode manual\n  \
                            quoin --data /srv/a balance set --mode auto")]
    Set {
        /// auto: whenever drives are used unevenly, after one was added for instance; manual: when started by hand
        #[arg(long, value_name = "MODE")]
        mode: BalanceMode,
    },
}

pub(crate) fn rebuild(client: &Client, output: &Output, command: RebuildCommand) -> Result<(), Failure> {
    match command {
        RebuildCommand::Status => show(client, output, "/rebuild", status),
        RebuildCommand::Set { min_rate, max_rate, repair_delay } => {
            let bytes = |size: Option<Size>| size.map(|size| size.0);
            let update = RebuildUpdate {
                min_rate_bytes_s: bytes(min_rate),
                max_rate_bytes_s: bytes(max_rate),
                repair_delay_s: repair_delay.map(Age::seconds),
                balance: None,
            };
            let rebuild: Rebuild = client.patch("/rebuild", &update)?;
            output.show(&rebuild, status);
            Ok(())
        }
    }
}

pub(crate) fn balance(client: &Client, output: &Output, command: BalanceCommand) -> Result<(), Failure> {
    let nothing = serde_json::json!({});
    let rebuild: Rebuild = match command {
        BalanceCommand::Status => return show(client, output, "/rebuild", status),
        BalanceCommand::Start => client.post("/rebuild/balance/start", &nothing)?,
        BalanceCommand::Stop => client.post("/rebuild/balance/stop", &nothing)?,
        BalanceCommand::Set { mode } => {
            client.patch("/rebuild", &RebuildUpdate { balance: Some(mode), ..RebuildUpdate::default() })?
        }
    };
    output.show(&rebuild, status);
    Ok(())
}

fn status(rebuild: &Rebuild) -> String {
    let rate = |bytes: u64| match bytes {
        0 => "no limit".to_owned(),
        bytes => format!("{}/s", size_text(bytes)),
    };
    let least = match rebuild.min_rate_bytes_s {
        0 => "nothing while hosts need all".to_owned(),
        bytes => format!("{}/s", size_text(bytes)),
    };
    let running = rebuild.running.as_ref().map_or_else(|| "nothing to rebuild".to_owned(), view::work);
    let moves = if rebuild.balancing { "; data is being moved" } else { "" };
    pairs(vec![
        ("rebuild", running),
        ("min rate", least),
        ("max rate", rate(rebuild.max_rate_bytes_s)),
        ("repair delay", duration_text(rebuild.repair_delay_s)),
        ("balance", format!("{}{moves}", rebuild.balance)),
        ("drives", format!("the fullest and the emptiest are {} % apart", rebuild.apart_percent)),
    ])
}
