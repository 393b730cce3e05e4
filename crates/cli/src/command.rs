//! The commands.

use crate::{
    Failure, Format, Output,
    client::{Client, segment},
    events::{EXAMPLES as EVENTS_EXAMPLES, EventsArgs, events},
    export::{self, ExportCommand},
    folder::{self, FolderCommand},
    group::{self, GroupCommand},
    schedule::{self, ScheduleCommand},
    scrub::{ScrubCommand, scrub},
    secret::ChapOptions,
    snapshot::{self, SnapshotCommand},
    space::{EXAMPLES as SPACE_EXAMPLES, SpaceArgs, space},
    top::{EXAMPLES as TOP_EXAMPLES, TopArgs, top},
    view,
    volume::{VolumeCommand, volume},
};
use clap::{Args, Subcommand};
use quoin_api::{Host, HostChange, HostCreate, Mapping, MappingCreate, Session, Status};
use std::path::PathBuf;

/// Options of every command.
#[derive(Args, Clone, Debug)]
pub struct Global {
    /// The array's data directory, made by quoin init
    #[arg(long, global = true, value_name = "DIR", env = "QUOIN_DATA")]
    pub data: Option<PathBuf>,
    /// How results are shown
    #[arg(short, long, global = true, value_enum, default_value_t)]
    pub output: Format,
}

/// Commands to a running array.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Create, list, show, change and delete volumes
    #[command(subcommand, visible_alias = "volumes")]
    Volume(VolumeCommand),
    /// Take, list, show, restore, refresh and delete snapshots
    #[command(subcommand, visible_alias = "snapshots")]
    Snapshot(SnapshotCommand),
    /// Create, change and list consistency groups, and take, restore and delete snapshots of all their volumes
    #[command(subcommand, visible_alias = "groups")]
    Group(GroupCommand),
    /// Create, list, show, run, pause and delete schedules: snapshots by the clock
    #[command(subcommand, visible_alias = "schedules")]
    Schedule(ScheduleCommand),
    /// List the folders that volumes are in
    #[command(subcommand, visible_alias = "folders")]
    Folder(FolderCommand),
    /// Create, list, show and delete hosts
    #[command(subcommand, visible_alias = "hosts")]
    Host(HostCommand),
    /// Show a volume to a host
    #[command(after_help = "Examples:\n  quoin --data /srv/a map v1 --host h1 --lun 1\n  \
                            quoin --data /srv/a map v2 --host h1        # the lowest LUN that is free\n  \
                            quoin --data /srv/a map v1 --host h2 --read-only")]
    Map {
        /// The volume
        volume: String,
        /// The host
        #[arg(long)]
        host: String,
        /// The logical unit number [default: the lowest that is free]
        #[arg(long)]
        lun: Option<u16>,
        /// Let the host read, but not write
        #[arg(long)]
        read_only: bool,
    },
    /// Take a volume away from a host
    #[command(after_help = "Examples:\n  quoin --data /srv/a unmap v1 --host h1")]
    Unmap {
        /// The volume
        volume: String,
        /// The host
        #[arg(long)]
        host: String,
    },
    /// List which host sees which volume
    #[command(
        after_help = "Examples:\n  quoin --data /srv/a mappings\n  quoin --data /srv/a mappings -o json"
    )]
    Mappings,
    /// Create, list, show and delete exports: volumes shown to NBD clients
    #[command(subcommand, visible_alias = "exports")]
    Export(ExportCommand),
    /// List sessions
    #[command(subcommand, visible_alias = "sessions")]
    Session(SessionCommand),
    /// Show how the array is
    #[command(after_help = "Examples:\n  quoin --data /srv/a status\n  \
                            quoin --data /srv/a status -o json | jq .ready")]
    Status,
    /// Show what the pool's space is used for, what is saved, and what a deletion frees
    #[command(after_help = SPACE_EXAMPLES)]
    Space(SpaceArgs),
    /// Verify all that lies on the drives: begin, end, follow and schedule scrubs
    #[command(subcommand)]
    Scrub(ScrubCommand),
    /// Show what hosts do to the array, refreshed in place
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// Show what happened, newest first
    #[command(after_help = EVENTS_EXAMPLES)]
    Events(EventsArgs),
}

/// Commands about hosts.
#[derive(Subcommand, Debug)]
pub enum HostCommand {
    /// Create a host
    #[command(
        after_help = "Examples:\n  quoin --data /srv/a host create h1 --initiator iqn.2026-11.test:h1\n  \
                            quoin --data /srv/a host create h2 --initiator iqn.2026-11.test:h2 \\\n      \
                            --chap-user h2 --chap-secret-file h2.secret\n\nThe \
                            name of a Linux host is in /etc/iscsi/initiatorname.iscsi."
    )]
    Create {
        /// Its name: 1 to 63 characters of a-z, 0-9, '.', '_' and '-'
        name: String,
        /// An iSCSI name it logs in with; repeatable
        #[arg(long = "initiator", required = true, value_name = "IQN")]
        initiators: Vec<String>,
        #[command(flatten)]
        chap: ChapOptions,
    },
    /// Change a host; sessions that are logged in stay
    #[command(
        after_help = "Examples:\n  quoin --data /srv/a host set h1 --chap-user h1 --chap-secret-file h1.secret\n  \
                            quoin --data /srv/a host set h1 --chap-user h1 --chap-secret-file h1.secret \\\n      \
                            --mutual-user array --mutual-secret-file array.secret\n  \
                            quoin --data /srv/a host set h1 --no-chap\n  \
                            quoin --data /srv/a host set h1 --initiator iqn.2026-11.test:new"
    )]
    Set {
        /// The host
        name: String,
        /// An iSCSI name it logs in with, instead of those it has; repeatable
        #[arg(long = "initiator", value_name = "IQN")]
        initiators: Option<Vec<String>>,
        #[command(flatten)]
        chap: ChapOptions,
        /// Let it log in by its name alone
        #[arg(long, conflicts_with = "chap_user")]
        no_chap: bool,
    },
    /// List all hosts
    #[command(after_help = "Examples:\n  quoin --data /srv/a host list")]
    List,
    /// Show one host
    #[command(after_help = "Examples:\n  quoin --data /srv/a host show h1")]
    Show {
        /// The host
        name: String,
    },
    /// Delete a host
    #[command(after_help = "Examples:\n  quoin --data /srv/a host delete h1\n  \
                            quoin --data /srv/a host delete h1 --unmap   # though it sees volumes")]
    Delete {
        /// The host
        name: String,
        /// Take away the volumes it sees
        #[arg(long)]
        unmap: bool,
    },
}

/// Commands about sessions.
#[derive(Subcommand, Debug)]
pub enum SessionCommand {
    /// List who is logged in
    #[command(after_help = "Examples:\n  quoin --data /srv/a session list")]
    List,
}

/// Runs a command against the running array.
pub fn run(global: &Global, command: Command) -> Result<(), Failure> {
    let client = Client::new(global)?;
    let output = Output { format: global.output };
    match command {
        Command::Volume(command) => volume(&client, &output, command),
        Command::Snapshot(command) => snapshot::run(&client, &output, command),
        Command::Group(command) => group::run(&client, &output, command),
        Command::Schedule(command) => schedule::run(&client, &output, command),
        Command::Folder(command) => folder::run(&client, &output, command),
        Command::Host(command) => host(&client, &output, command),
        Command::Map { volume, host, lun, read_only } => {
            let request = MappingCreate { volume, host, lun, read_only };
            let mapping: Mapping = client.post("/mappings", &request)?;
            output.show(&mapping, |mapping| view::mappings(std::slice::from_ref(mapping)));
            Ok(())
        }
        Command::Unmap { volume, host } => {
            client.delete(&format!("/mappings/{}/{}", segment(&host), segment(&volume)))?;
            output.say(&format!("volume {volume} unmapped from host {host}"));
            Ok(())
        }
        Command::Mappings => show(&client, &output, "/mappings", |all: &Vec<Mapping>| view::mappings(all)),
        Command::Export(command) => export::run(&client, &output, command),
        Command::Session(SessionCommand::List) => {
            show(&client, &output, "/sessions", |all: &Vec<Session>| view::sessions(all))
        }
        Command::Status => show(&client, &output, "/status", |status: &Status| view::status(status)),
        Command::Space(args) => space(&client, &output, args),
        Command::Scrub(command) => scrub(&client, &output, command),
        Command::Top(args) => top(&client, &output, &args),
        Command::Events(args) => events(&client, &output, args),
    }
}

fn host(client: &Client, output: &Output, command: HostCommand) -> Result<(), Failure> {
    match command {
        HostCommand::Create { name, initiators, chap } => {
            let chap = chap.read()?;
            let host: Host = client.post("/hosts", &HostCreate { name, initiators, chap })?;
            output.show(&host, view::host);
            Ok(())
        }
        HostCommand::Set { name, initiators, chap, no_chap } => {
            let change = HostChange { initiators, chap: chap.read()?, remove_chap: no_chap };
            if change == HostChange::default() {
                return Err(Failure::usage(
                    "host not changed",
                    "nothing was said of what shall change",
                    "name it: --initiator, --chap-user with --chap-secret-file, or --no-chap",
                ));
            }
            let host: Host = client.patch(&format!("/hosts/{}", segment(&name)), &change)?;
            output.show(&host, view::host);
            Ok(())
        }
        HostCommand::List => show(client, output, "/hosts", |all: &Vec<Host>| view::hosts(all)),
        HostCommand::Show { name } => show(client, output, &format!("/hosts/{}", segment(&name)), view::host),
        HostCommand::Delete { name, unmap } => {
            client.delete(&format!("/hosts/{}?unmap={unmap}", segment(&name)))?;
            output.say(&format!("host {name} deleted"));
            Ok(())
        }
    }
}

pub(crate) fn show<T: serde::Serialize + serde::de::DeserializeOwned>(
    client: &Client,
    output: &Output,
    path: &str,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    output.show(&client.get::<T>(path)?, text);
    Ok(())
}
