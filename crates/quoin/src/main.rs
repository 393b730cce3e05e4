//! The quoin binary: makes an array, serves it, checks it, and talks to it. Wiring only.

mod bay;
mod check;
mod completions;
mod data;
mod domains;
mod drive_file;
mod estimate;
mod files;
mod init;
mod location;
mod memory;
mod nbd;
mod notes;
mod overwrite;
mod portals;
mod protect;
mod serve;
mod show;

use clap::{CommandFactory, Parser, Subcommand};
use quoin_cli::{Failure, Global, Output};
use std::process::ExitCode;

/// The system's allocator takes a page more for each page-aligned buffer, and gives little back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Quoin, a software-defined storage array
#[derive(Parser)]
#[command(
    version,
    about,
    after_help = "Examples:\n  quoin init --data /srv/a --drives 4 --drive-size 8G\n  \
                  quoin serve --data /srv/a --iscsi 127.0.0.1:3260 --api 127.0.0.1:8470\n  \
                  quoin --data /srv/a volume create v1 --size 4G\n  \
                  quoin --data /srv/a host create h1 --initiator iqn.2026-11.test:h1\n  \
                  quoin --data /srv/a map v1 --host h1 --lun 1\n  \
                  quoin --data /srv/a status\n\n\
                  Exit codes: 0 done; 1 refused, failed or not reached; 2 wrong command line. A list that is empty is \
                  no failure.\n\n\
                  Environment:\n  \
                  QUOIN_DATA          the data directory, as --data\n  \
                  QUOIN_API           address of the management interface, instead of the one in DIR/run/api\n  \
                  QUOIN_TOKEN_FILE    file with the token, instead of DIR/token\n  \
                  QUOIN_MEMORY_LIMIT  RAM of quoin serve, as --memory-limit\n  \
                  QUOIN_LOG           what quoin serve logs, such as info or quoin_iscsi=debug"
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create an array: initialise its drives and its data directory
    Init(init::Args),
    /// Serve an array in the foreground
    Serve(serve::Args),
    /// Check a stopped array: verify everything on its drives
    #[command(after_help = check::EXAMPLES)]
    Check,
    /// Estimate what your data would take: block sizes, compression, deduplication, layouts; needs no array
    Estimate(estimate::Args),
    /// Print shell completions
    Completions(completions::Args),
    /// Check quoin.toml and show the settings in effect
    #[command(subcommand)]
    Config(show::Command),
    #[command(flatten)]
    Client(quoin_cli::Command),
}

fn main() -> ExitCode {
    completions::answer(|| quoin_cli::completing_names(Cli::command()));
    let Cli { global, command } = Cli::parse();
    let outcome = match command {
        Command::Init(args) => init::run(&global, args),
        Command::Serve(args) => serve::run(&global, args),
        Command::Check => check::run(&global),
        Command::Estimate(args) => estimate::run(&global, args),
        Command::Completions(args) => completions::run(args),
        Command::Config(command) => show::run(&global, command),
        Command::Client(command) => quoin_cli::run(&global, command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => tell(&global, &failure),
    }
}

fn tell(global: &Global, failure: &Failure) -> ExitCode {
    Output { format: global.output, headers: !global.no_headers }.complain(failure);
    ExitCode::from(failure.exit_code)
}
