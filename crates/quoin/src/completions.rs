//! `quoin completions`: completions for shells.

use clap::Command;
use clap_complete::{Shell, generate};
use quoin_cli::Failure;
use std::io::{self, Write};

/// Options of `quoin completions`.
#[derive(clap::Args)]
#[command(after_help = "Names of volumes and hosts are not completed.\n\nExamples:\n  \
                        quoin completions bash > /etc/bash_completion.d/quoin\n  \
                        quoin completions zsh > /usr/local/share/zsh/site-functions/_quoin\n  \
                        quoin completions fish > ~/.config/fish/completions/quoin.fish")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(mut command: Command, args: Args) -> Result<(), Failure> {
    let mut text = Vec::new();
    generate(args.shell, &mut command, "quoin", &mut text);
    // A reader that went away is no error.
    drop(io::stdout().write_all(&text));
    Ok(())
}
