//! `quoin completions`: completions for shells.
//!
//! The script for the shell calls this program at each completion, with [`VARIABLE`] set. So names of objects are
//! completed too, and completions match the installed version.

use clap_complete::{CompleteEnv, aot::Shell, env::Shells};
use quoin_cli::Failure;
use std::io::{self, Write};

/// Set by the shell when it asks; says which shell that is.
const VARIABLE: &str = "QUOIN_COMPLETE";
const PROGRAM: &str = "quoin";

/// Options of `quoin completions`.
#[derive(clap::Args)]
#[command(
    after_help = "Names of volumes, hosts and exports are completed while the array that --data or QUOIN_DATA \
                        names runs.\n\nExamples:\n  \
                        quoin completions bash > /etc/bash_completion.d/quoin\n  \
                        quoin completions zsh > /usr/local/share/zsh/site-functions/_quoin\n  \
                        quoin completions fish > ~/.config/fish/completions/quoin.fish"
)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Answers a shell that asks for completions, and ends the process then.
pub(crate) fn answer(command: impl Fn() -> clap::Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).bin(PROGRAM).completer(PROGRAM).complete();
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let shell = args.shell.to_string();
    let refused =
        |why: String| Failure::new("no completions", format!("shell {shell}"), why, "choose another shell");
    let shells = Shells::builtins();
    let completer = shells.completer(&shell).ok_or_else(|| refused(format!("{shell} is not known")))?;
    let mut text = Vec::new();
    let written = completer.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut text);
    written.map_err(|error| refused(error.to_string()))?;
    // A reader that went away is no error.
    drop(io::stdout().write_all(&text));
    Ok(())
}
