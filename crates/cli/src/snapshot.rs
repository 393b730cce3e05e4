//! `quoin snapshot`: commands about snapshots, and about clones in so far as they come from other volumes.

use crate::{
    Failure, Output,
    client::{Client, segment},
    output::table,
    reserve::{self, ReserveArgs},
    size_text,
    time::{Age, parse_age, utc_text},
    view,
    volume::parse_tag,
};
use clap::Subcommand;
use quoin_api::{Origin, SnapshotCreate, SnapshotRefresh, SnapshotRestore, SnapshotRetain, Volume};

/// Commands about snapshots.
#[derive(Subcommand, Debug)]
pub enum SnapshotCommand {
    /// Take a snapshot of a volume, as of now
    #[command(
        after_help = "A snapshot takes no time and no space worth mentioning, whatever the volume's size. It is a volume: \
                      it can be mapped, written, and have snapshots itself. To have several volumes of one moment, put \
                      them into a group: quoin group --help.\n\nExamples:\n  \
                      quoin --data /srv/a snapshot create v1\n  \
                      quoin --data /srv/a snapshot create v1 v1.before-upgrade --tag why=upgrade\n  \
                      quoin --data /srv/a snapshot create v1 --retain 7d"
    )]
    Create {
        /// The volume; a snapshot or clone may be one
        volume: String,
        /// The snapshot's name [default: the volume's with date and time in UTC]
        new_name: Option<String>,
        /// Note something about it; repeatable
        #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = parse_tag)]
        tags: Vec<(String, String)>,
        /// Make it immutable for this time: nobody deletes or changes it until then
        #[arg(long, value_name = "TIME", value_parser = parse_age)]
        retain: Option<Age>,
    },
    /// List snapshots, oldest first
    #[command(after_help = "Examples:\n  quoin --data /srv/a snapshot list\n  \
                            quoin --data /srv/a snapshot list --of v1\n  \
                            quoin --data /srv/a snapshot list --group db1 -o json")]
    List {
        /// Only of this volume
        #[arg(long = "of", id = "volume", value_name = "VOLUME")]
        of: Option<String>,
        /// Only of the sets of this group
        #[arg(long)]
        group: Option<String>,
    },
    /// Show one snapshot or clone
    #[command(after_help = "Examples:\n  quoin --data /srv/a snapshot show v1.before-upgrade")]
    Show {
        /// The snapshot or clone
        name: String,
    },
    /// Make a volume what a snapshot is
    #[command(
        after_help = "The volume keeps its name, identity and LUNs, and takes the snapshot's size. What was written to it \
                      since the snapshot is lost unless --keep names a snapshot for it. Unmount it and log its hosts out \
                      first; by force, they are told that the medium may have changed, and NBD clients are cut off.\n\n\
                      Examples:\n  \
                      quoin --data /srv/a snapshot restore v1.before-upgrade --keep v1.failed-upgrade\n  \
                      quoin --data /srv/a snapshot restore v1.before-upgrade --to v1-test"
    )]
    Restore {
        /// The snapshot or clone
        name: String,
        /// The volume [default: the one the snapshot was taken of]
        #[arg(long = "to", id = "volume", value_name = "VOLUME")]
        to: Option<String>,
        /// Take a snapshot of this name of what the volume is now
        #[arg(long, value_name = "NEW_NAME")]
        keep: Option<String>,
        /// Do so though hosts that see the volume are logged in
        #[arg(long)]
        force: bool,
    },
    /// Make a snapshot or clone what its source is now
    #[command(
        after_help = "It keeps its name, identity and LUNs; what was written to it is lost.\n\nExamples:\n  \
                            quoin --data /srv/a snapshot refresh v1-test\n  \
                            quoin --data /srv/a snapshot refresh v1-test --from v1.before-upgrade"
    )]
    Refresh {
        /// The snapshot or clone
        name: String,
        /// Another volume to become what it is, from then on its source
        #[arg(long = "from", id = "volume", value_name = "VOLUME")]
        from: Option<String>,
        /// Do so though hosts that see the snapshot or clone are logged in
        #[arg(long)]
        force: bool,
    },
    /// Make a snapshot immutable, or for longer than it is
    #[command(
        after_help = "Until its time is over nobody deletes, changes or writes to it, nor deletes the volume it was taken \
                      of, and the time only gets longer. It passes only while the array runs, whatever the system's \
                      clock is set to: quoin status tells how that clock is.\n\nExamples:\n  \
                      quoin --data /srv/a snapshot retain v1.before-upgrade --for 30d"
    )]
    Retain {
        /// The snapshot
        name: String,
        /// For this time from now on, such as 12h, 7d or 4w
        #[arg(long = "for", value_name = "TIME", value_parser = parse_age)]
        time: Age,
        /// Do so though clients are connected that may write to it
        #[arg(long)]
        force: bool,
    },
    /// Make a snapshot or clone a volume in its own right
    #[command(after_help = "Examples:\n  quoin --data /srv/a snapshot promote v1-test")]
    Promote {
        /// The snapshot or clone
        name: String,
    },
    /// Set or show how much of the pool snapshots may hold, and what happens beyond
    #[command(after_help = reserve::EXAMPLES)]
    Reserve(ReserveArgs),
    /// Delete a snapshot or clone
    #[command(
        after_help = "Its source, its own snapshots and those taken before and after it stay. Its space comes back \
                            in the background: see quoin status.\n\nExamples:\n  \
                            quoin --data /srv/a snapshot delete v1.before-upgrade\n  \
                            quoin --data /srv/a snapshot delete v1-test --unmap   # though hosts see it"
    )]
    Delete {
        /// The snapshot or clone
        name: String,
        /// Take it away from the hosts that see it
        #[arg(long)]
        unmap: bool,
    },
}

pub(crate) fn run(client: &Client, output: &Output, command: SnapshotCommand) -> Result<(), Failure> {
    match command {
        SnapshotCommand::Create { volume, new_name, tags, retain } => {
            let (tags, retain_s) = (tags.into_iter().collect(), retain.map(Age::seconds));
            let request = SnapshotCreate { volume, name: new_name, tags, retain_s };
            output.show(&client.post::<Volume>("/snapshots", &request)?, view::volume);
        }
        SnapshotCommand::List { of, group } => {
            let of = of.map(|of| format!("of={}", segment(&of)));
            let group = group.map(|group| format!("group={}", segment(&group)));
            let query: Vec<_> = of.into_iter().chain(group).collect();
            let path = format!("/snapshots?{}", query.join("&"));
            output.show(&client.get::<Vec<Volume>>(&path)?, |all| many(all));
        }
        SnapshotCommand::Show { name } => output.show(&client.get::<Volume>(&path(&name))?, view::volume),
        SnapshotCommand::Restore { name, to, keep, force } => {
            let request = SnapshotRestore { to, keep, force };
            let path = format!("{}/restore", path(&name));
            output.show(&client.post::<Volume>(&path, &request)?, view::volume);
        }
        SnapshotCommand::Refresh { name, from, force } => {
            let path = format!("{}/refresh", path(&name));
            output.show(&client.post::<Volume>(&path, &SnapshotRefresh { from, force })?, view::volume);
        }
        SnapshotCommand::Reserve(args) => reserve::run(client, output, &args)?,
        SnapshotCommand::Retain { name, time, force } => {
            let path = format!("{}/retain", path(&name));
            let request = SnapshotRetain { retain_s: time.seconds(), force };
            output.show(&client.post::<Volume>(&path, &request)?, view::volume);
        }
        SnapshotCommand::Promote { name } => {
            let path = format!("{}/promote", path(&name));
            output.show(&client.post::<Volume>(&path, &())?, view::volume);
        }
        SnapshotCommand::Delete { name, unmap } => {
            client.delete(&format!("{}?unmap={unmap}", path(&name)))?;
            output.say(&format!("snapshot {name} deleted"));
        }
    }
    Ok(())
}

fn path(name: &str) -> String {
    format!("/snapshots/{}", segment(name))
}

/// `volume v1 (deleted)`, and the moment.
pub(crate) fn origin(origin: &Origin) -> String {
    let deleted = if origin.source_deleted { ", which was deleted" } else { "" };
    let set = match (&origin.group, &origin.set) {
        (Some(group), Some(set)) => format!(", set {set} of group {group}"),
        _ => String::new(),
    };
    let (kind, source) = (origin.kind, &origin.source);
    format!("{kind} of {source}{deleted}, as of {} UTC{set}", utc_text(origin.taken_ms))
}

fn many(snapshots: &[Volume]) -> String {
    let row = |v: &Volume| {
        let origin = v.origin.as_ref();
        let source = origin.map_or_else(
            || "-".to_owned(),
            |of| if of.source_deleted { format!("{} (deleted)", of.source) } else { of.source.clone() },
        );
        let set = origin.and_then(|of| Some(format!("{} {}", of.group.as_ref()?, of.set.as_ref()?)));
        vec![
            v.name.clone(),
            source,
            origin.map_or_else(|| "-".to_owned(), |of| utc_text(of.taken_ms)),
            v.retain_until_ms.map_or_else(|| "-".to_owned(), utc_text),
            size_text(v.size_bytes),
            view::optional_size(v.freed_by_delete_bytes),
            set.unwrap_or_else(|| "-".to_owned()),
            view::seen_by(v),
        ]
    };
    table(
        &["name", "of", "taken (utc)", "immutable until", "size", "freed by delete", "group set", "host:lun"],
        snapshots.iter().map(row).collect(),
        "no snapshots; take one: quoin snapshot create VOLUME",
    )
}
