//! The commands.

use crate::{
    Failure, Output,
    client::{Client, segment},
    drive::{self, DriveCommand},
    events::{EXAMPLES as EVENTS_EXAMPLES, EventsArgs, events},
    export::{self, ExportCommand},
    folder::{self, FolderCommand},
    global::Global,
    group::{self, GroupCommand},
    job::{self, JobCommand},
    mapping::{self, MappingCommand},
    policy::{self, PolicyCommand},
    pool::{self, PoolCommand},
    portal::{self, PortalCommand},
    qos::{self, QosArgs},
    rebuild::{self, BalanceCommand, RebuildCommand},
    recycle_bin::{self, RecycleBinCommand},
    report::{create_each, each, list, show},
    reservation::{self, ReservationCommand},
    schedule::{self, ScheduleCommand},
    scrub::{ScrubCommand, scrub},
    secret::ChapOptions,
    snapshot::{self, SnapshotCommand},
    space::{EXAMPLES as SPACE_EXAMPLES, SpaceArgs, space},
    time::utc_text,
    top::{EXAMPLES as TOP_EXAMPLES, TopArgs, top},
    view,
    volume::{VolumeCommand, volume},
};
use clap::Subcommand;
use quoin_api::{Host, HostChange, HostCreate, Mapping, MappingCreate, Status};

/// Commands to a running array.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Create, list, show, change and delete volumes
    #[command(subcommand, visible_alias = "volumes")]
    Volume(VolumeCommand),
    /// Take, list, show, restore, refresh and delete snapshots
    #[command(subcommand, visible_alias = "snapshots")]
    Snapshot(SnapshotCommand),
    /// Manage consistency groups and snapshots of all their volumes
    #[command(subcommand, visible_alias = "groups")]
    Group(GroupCommand),
    /// List, restore and delete for good what was deleted
    #[command(subcommand)]
    RecycleBin(RecycleBinCommand),
    /// Manage schedules that take snapshots
    #[command(subcommand, visible_alias = "schedules")]
    Schedule(ScheduleCommand),
    /// List, show, follow and cancel jobs: work in the background
    #[command(subcommand, visible_alias = "jobs")]
    Job(JobCommand),
    /// List folders
    #[command(subcommand, visible_alias = "folders")]
    Folder(FolderCommand),
    /// Create, list, show, change and delete policies: how volumes are laid out over drives
    #[command(subcommand, visible_alias = "policies")]
    Policy(PolicyCommand),
    /// Limit IOPS and bandwidth of volumes, groups and policies, and show the limits
    #[command(after_help = qos::EXAMPLES)]
    Qos(QosArgs),
    /// Create, list, show and delete hosts
    #[command(subcommand, visible_alias = "hosts")]
    Host(HostCommand),
    /// Map volumes to a host
    #[command(after_help = "Each outcome is reported; a failure does not stop the others.\n\n\
                            Examples:\n  quoin --data /srv/a map v1 --host h1 --lun 1\n  \
                            quoin --data /srv/a map v2 --host h1        # uses the lowest free LUN\n  \
                            quoin --data /srv/a map db1-data db1-log --host h1 --lun 10   # LUNs 10 and 11\n  \
                            quoin --data /srv/a map v1 --host h2 --read-only\n  \
                            quoin --data /srv/a map v1.before-upgrade --host h2 --writable")]
    Map {
        /// The volumes
        #[arg(id = "volume", value_name = "VOLUME", required = true)]
        volumes: Vec<String>,
        /// The host
        #[arg(long)]
        host: String,
        /// The logical unit number of the first volume; the others get those that follow it [default: the lowest free ones]
        #[arg(long)]
        lun: Option<u16>,
        /// Map the volumes read-only
        #[arg(long, conflicts_with = "writable")]
        read_only: bool,
        /// Let the host write, even to a snapshot that is read-only for other hosts
        #[arg(long)]
        writable: bool,
    },
    /// Unmap a volume from a host
    #[command(after_help = "Examples:\n  quoin --data /srv/a unmap v1 --host h1")]
    Unmap {
        /// The volume
        volume: String,
        /// The host
        #[arg(long)]
        host: String,
        /// Unmap although the host is logged in
        #[arg(long)]
        force: bool,
    },
    /// List LUN mappings, and make them read-only or writable
    #[command(subcommand)]
    Mapping(MappingCommand),
    /// List LUN mappings
    #[command(
        after_help = "Examples:\n  quoin --data /srv/a mappings\n  quoin --data /srv/a mappings -o json"
    )]
    Mappings,
    /// Create, list, show and delete NBD exports
    #[command(subcommand, visible_alias = "exports")]
    Export(ExportCommand),
    /// Create, list, disable and delete iSCSI portals
    #[command(subcommand, visible_alias = "portals")]
    Portal(PortalCommand),
    /// List, show and clear what hosts have reserved of volumes, as clusters do to fence nodes
    #[command(subcommand, visible_alias = "reservations")]
    Reservation(ReservationCommand),
    /// List iSCSI sessions
    #[command(subcommand, visible_alias = "sessions")]
    Session(SessionCommand),
    /// Show the state of the array; the exit code is 1 while it does not serve all of its volumes
    #[command(after_help = "Examples:\n  quoin --data /srv/a status\n  \
                            quoin --data /srv/a status -o json | jq .ready")]
    Status,
    /// Show how the pool's space is used, what is saved and what a deletion frees
    #[command(after_help = SPACE_EXAMPLES)]
    Space(SpaceArgs),
    /// Show and change settings of the pool, such as how full it is before it tells
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Start, stop, watch and schedule scrubs, which verify everything on the drives
    #[command(subcommand)]
    Scrub(ScrubCommand),
    /// List, show, add, locate, evacuate, replace and remove drives; make emulated ones fail
    #[command(subcommand)]
    Drive(DriveCommand),
    /// Show how far a rebuild is, and limit how fast data is rebuilt and moved
    #[command(subcommand)]
    Rebuild(RebuildCommand),
    /// Even out how much of each drive is used
    #[command(subcommand)]
    Balance(BalanceCommand),
    /// Show live host I/O rates and latencies
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// Show events, newest first
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
                            name of a Linux host is in /etc/iscsi/initiatorname.iscsi. Windows shows its own with \
                            (Get-InitiatorPort).NodeAddress, and ESXi with esxcli iscsi adapter get."
    )]
    Create {
        /// Its name: 1 to 63 characters of a-z, 0-9, '.', '_' and '-'
        name: String,
        /// iSCSI name of an initiator of this host; repeatable
        #[arg(long = "initiator", required = true, value_name = "IQN")]
        initiators: Vec<String>,
        #[command(flatten)]
        chap: ChapOptions,
    },
    /// Change a host
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
        /// iSCSI name of an initiator; replaces the present ones; repeatable
        #[arg(long = "initiator", value_name = "IQN")]
        initiators: Option<Vec<String>>,
        #[command(flatten)]
        chap: ChapOptions,
        /// Remove CHAP: the initiator name alone is enough to log in
        #[arg(long, conflicts_with = "chap_user")]
        no_chap: bool,
        /// Remove initiators although they are logged in
        #[arg(long, requires = "initiators")]
        force: bool,
    },
    /// Rename a host; its sessions are not interrupted
    #[command(after_help = "Examples:\n  quoin --data /srv/a host rename h1 db-host1")]
    Rename {
        /// The host
        name: String,
        /// Its new name
        new_name: String,
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
    /// Delete hosts
    #[command(after_help = "Examples:\n  quoin --data /srv/a host delete h1 h2\n  \
                            quoin --data /srv/a host delete h1 --unmap   # also removes its mappings")]
    Delete {
        /// The hosts
        #[arg(id = "name", value_name = "NAME", required = true)]
        names: Vec<String>,
        /// Remove the hosts' mappings too
        #[arg(long)]
        unmap: bool,
        /// Delete although the host is logged in
        #[arg(long)]
        force: bool,
    },
}

/// Commands about sessions.
#[derive(Subcommand, Debug)]
pub enum SessionCommand {
    /// List logged-in initiators
    #[command(after_help = "Examples:\n  quoin --data /srv/a session list")]
    List,
}

/// Runs a command against the running array.
///
/// # Errors
/// The failure to report: of finding or reaching the array, what the array refused, or a wrong command line. For a
/// command about several objects the last of their failures; the earlier ones are printed already.
pub fn run(global: &Global, command: Command) -> Result<(), Failure> {
    let client = Client::new(global)?;
    let output = Output { format: global.output, headers: !global.no_headers };
    match command {
        Command::Volume(command) => volume(&client, &output, command),
        Command::Snapshot(command) => snapshot::run(&client, &output, command),
        Command::Group(command) => group::run(&client, &output, command),
        Command::RecycleBin(command) => recycle_bin::run(&client, &output, command),
        Command::Policy(command) => policy::run(&client, &output, command),
        Command::Qos(args) => qos::run(&client, &output, &args),
        Command::Schedule(command) => schedule::run(&client, &output, command),
        Command::Job(command) => job::run(&client, &output, command),
        Command::Folder(command) => folder::run(&client, &output, command),
        Command::Host(command) => host(&client, &output, command),
        Command::Map { volumes, host, lun, read_only, writable } => {
            let one = |mapping: &Mapping| view::mappings(std::slice::from_ref(mapping));
            let mut luns = lun.map(|first| first..=u16::MAX);
            let map = |volume: &str| {
                // A number is used up by its volume even if that is not mapped.
                let lun = match &mut luns {
                    Some(luns) => Some(luns.next().ok_or_else(|| no_lun(volume))?),
                    None => None,
                };
                let (volume, host) = (volume.to_owned(), host.clone());
                client.post("/mappings", &MappingCreate { volume, host, lun, read_only, writable })
            };
            create_each(&output, &volumes, map, one, view::mappings)
        }
        Command::Mapping(command) => mapping::run(&client, &output, command),
        Command::Unmap { volume, host, force } => {
            client.delete(&format!("/mappings/{}/{}?force={force}", segment(&host), segment(&volume)))?;
            output.say(&format!("volume {volume} unmapped from host {host}"));
            Ok(())
        }
        Command::Mappings => list(&client, &output, "/mappings", view::mappings),
        Command::Export(command) => export::run(&client, &output, command),
        Command::Portal(command) => portal::run(&client, &output, command),
        Command::Reservation(command) => reservation::run(&client, &output, command),
        Command::Session(SessionCommand::List) => list(&client, &output, "/sessions", view::sessions),
        Command::Status => status(&client, &output),
        Command::Space(args) => space(&client, &output, args),
        Command::Pool(command) => pool::run(&client, &output, command),
        Command::Scrub(command) => scrub(&client, &output, command),
        Command::Rebuild(command) => rebuild::rebuild(&client, &output, command),
        Command::Balance(command) => rebuild::balance(&client, &output, command),
        Command::Drive(command) => drive::run(&client, &output, command),
        Command::Top(args) => top(&client, &output, &args),
        Command::Events(args) => events(&client, &output, args),
    }
}

fn no_lun(volume: &str) -> Failure {
    let why = format!("volume {volume} would need a logical unit number above 65535");
    Failure::new("volume not mapped", format!("volume {volume}"), why, "begin with a lower --lun")
}

/// Shows how the array is; fails if it does not serve its volumes.
fn status(client: &Client, output: &Output) -> Result<(), Failure> {
    let status: Status = client.get("/status")?;
    output.show(&status, view::status);
    // The exit code says whether all volumes are served.
    if status.ready && status.offline_volumes.is_empty() {
        return Ok(());
    }
    if status.ready {
        return Err(Failure::new(
            "not all volumes are served",
            format!("array {}", status.name),
            format!(
                "snapshots hold more than a snapshot reserve, which keeps these volumes offline: {}",
                status.offline_volumes.join(", ")
            ),
            "delete snapshots, or raise the reserve: quoin snapshot reserve shows which",
        ));
    }
    let since = utc_text(status.since_ms);
    let reason = status.reason.as_deref().unwrap_or("it is being opened or closed");
    Err(Failure::new(
        format!("volumes are not served: the pool is {}", status.state),
        format!("array {}", status.name),
        format!("{reason} (since {since})"),
        "the array opens the pool as soon as it can; quoin events tells what happened",
    ))
}

fn host(client: &Client, output: &Output, command: HostCommand) -> Result<(), Failure> {
    match command {
        HostCommand::Create { name, initiators, chap } => {
            let chap = chap.read()?;
            let host: Host = client.post("/hosts", &HostCreate { name, initiators, chap })?;
            output.show(&host, view::host);
            Ok(())
        }
        HostCommand::Set { name, initiators, chap, no_chap, force } => {
            let chap = chap.read()?;
            let change = HostChange { name: None, initiators, chap, remove_chap: no_chap, force };
            if change == HostChange::default() {
                return Err(Failure::usage(
                    "host not changed",
                    "no change was given",
                    "give at least one of --initiator, --chap-user with --chap-secret-file, or --no-chap",
                ));
            }
            let host: Host = client.patch(&format!("/hosts/{}", segment(&name)), &change)?;
            output.show(&host, view::host);
            Ok(())
        }
        HostCommand::Rename { name, new_name } => {
            let change = HostChange { name: Some(new_name), ..HostChange::default() };
            let host: Host = client.patch(&format!("/hosts/{}", segment(&name)), &change)?;
            output.show(&host, view::host);
            Ok(())
        }
        HostCommand::List => list(client, output, "/hosts", view::hosts),
        HostCommand::Show { name } => show(client, output, &format!("/hosts/{}", segment(&name)), view::host),
        HostCommand::Delete { names, unmap, force } => each(output, &names, |name| {
            client.delete(&format!("/hosts/{}?unmap={unmap}&force={force}", segment(name)))?;
            output.say(&format!("host {name} deleted"));
            Ok(())
        }),
    }
}
