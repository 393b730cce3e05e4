//! `quoin map`, `unmap`, `mapping` and `mappings`: which host sees which volume, and what it may do.

use crate::{
    Failure, Output,
    client::{Client, segment},
    report::list,
    view,
};
use clap::{Args, Subcommand};
use quoin_api::{Access, AccessUpdate, Mapping};

/// Commands about mappings.
#[derive(Subcommand, Debug)]
pub enum MappingCommand {
    /// List LUN mappings
    #[command(after_help = "Examples:\n  quoin --data /srv/a mapping list")]
    List,
    /// Make a mapping read-only or writable while the host uses it
    #[command(
        after_help = "The host stays logged in and learns of the change with its next command (MODE PARAMETERS CHANGED). \
                      While the host is logged in, its mapping becomes read-only only with --force; its writes fail from \
                      then on.\n\nExamples:\n  \
                      quoin --data /srv/a mapping set v1 --host h1 --read-only\n  \
                      quoin --data /srv/a mapping set v1.before-upgrade --host h2 --writable\n  \
                      quoin --data /srv/a mapping set v1 --host h1 --default     # as the volume allows"
    )]
    Set {
        /// The volume
        volume: String,
        /// The host
        #[arg(long)]
        host: String,
        /// What the host may do
        #[command(flatten)]
        access: AccessArgs,
        /// Make it read-only although the host is logged in and may write
        #[arg(long)]
        force: bool,
    },
}

/// What may be done: one of three.
#[derive(Args, Clone, Copy, Debug)]
#[group(required = true, multiple = false)]
pub struct AccessArgs {
    /// The host may only read
    #[arg(long)]
    read_only: bool,
    /// The host may write, even to a snapshot that is read-only for others
    #[arg(long, visible_alias = "read-write")]
    writable: bool,
    /// The host may write unless the volume is read-only, as snapshots are
    #[arg(long)]
    default: bool,
}

impl AccessArgs {
    pub(crate) fn access(self) -> Access {
        match (self.read_only, self.writable) {
            (true, _) => Access::ReadOnly,
            (_, true) => Access::ReadWrite,
            _ => Access::Default,
        }
    }
}

pub(crate) fn run(client: &Client, output: &Output, command: MappingCommand) -> Result<(), Failure> {
    match command {
        MappingCommand::List => list(client, output, "/mappings", view::mappings)?,
        MappingCommand::Set { volume, host, access, force } => {
            let path = format!("/mappings/{}/{}", segment(&host), segment(&volume));
            let mapping: Mapping = client.patch(&path, &AccessUpdate { access: access.access(), force })?;
            output.show(&mapping, |mapping| view::mappings(std::slice::from_ref(mapping)));
        }
    }
    Ok(())
}
