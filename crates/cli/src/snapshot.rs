//! `quoin snapshot`: commands for snapshots, and for clones as copies of other volumes.

use crate::{
    Failure, Output,
    client::{Client, segment},
    output::table,
    recycle_bin::deleted_text,
    report::each,
    reserve::{self, ReserveArgs},
    size_text,
    tag::parse_tag,
    time::{Age, parse_age, utc_text},
    view,
};
use clap::Subcommand;
use quoin_api::{SnapshotCreate, SnapshotRefresh, SnapshotRestore, SnapshotRetain, Volume};

/// Commands about snapshots.
#[derive(Subcommand, Debug)]
pub enum SnapshotCommand {
    /// Take a snapshot of a volume
    #[command(
        after_help = "A snapshot takes no time and no space worth mentioning, whatever the volume's size. It is a volume: \
                      it can be mapped, and have snapshots itself. Hosts may only read it, unless it is created or \
                      mapped with --writable. To have several volumes of one moment, put \
                      them into a group: quoin group --help.\n\nExamples:\n  \
                      quoin --data /srv/a snapshot create v1\n  \
                      quoin --data /srv/a snapshot create v1 v1.before-upgrade --tag why=upgrade\n  \
                      quoin --data /srv/a snapshot create v1 --retain 7d"
    )]
    Create {
        /// The volume, snapshot or clone
        volume: String,
        /// Name of the snapshot [default: name of the volume with date and time in UTC]
        new_name: Option<String>,
        /// Add a tag; repeatable
        #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = parse_tag)]
        tags: Vec<(String, String)>,
        /// Let hosts write to the snapshot
        #[arg(long, conflicts_with = "retain")]
        writable: bool,
        /// Make it immutable: it cannot be deleted or changed for this time
        #[arg(long, value_name = "TIME", value_parser = parse_age)]
        retain: Option<Age>,
    },
    /// List snapshots, oldest first
    #[command(after_help = "Examples:\n  quoin --data /srv/a snapshot list\n  \
                            quoin --data /srv/a snapshot list --of v1\n  \
                            quoin --data /srv/a snapshot list --group db1 -o json")]
    List {
        /// Only snapshots of this volume
        #[arg(long = "of", id = "volume", value_name = "VOLUME")]
        of: Option<String>,
        /// Only snapshots in sets of this group
        #[arg(long)]
        group: Option<String>,
    },
    /// Show one snapshot or clone
    #[command(after_help = "Examples:\n  quoin --data /srv/a snapshot show v1.before-upgrade")]
    Show {
        /// The snapshot or clone
        name: String,
    },
    /// Restore a volume from a snapshot
    #[command(
        after_help = "The volume keeps its name, identity and LUNs, and takes the size of the snapshot. Data written since the \
                      snapshot is lost unless --keep saves it in a new snapshot. Unmount the volume and log its hosts out \
                      first. With --force, logged-in hosts are told that the medium may have changed, and NBD clients \
                      are disconnected.\n\n\
                      Examples:\n  \
                      quoin --data /srv/a snapshot restore v1.before-upgrade --keep v1.failed-upgrade\n  \
                      quoin --data /srv/a snapshot restore v1.before-upgrade --to v1-test"
    )]
    Restore {
        /// The snapshot or clone
        name: String,
        /// The volume to restore [default: the source of the snapshot]
        #[arg(long = "to", id = "volume", value_name = "VOLUME")]
        to: Option<String>,
        /// Save the present content of the volume in a snapshot of this name first
        #[arg(long, value_name = "NEW_NAME")]
        keep: Option<String>,
        /// Restore although hosts with access to the volume are logged in, or the snapshot is modified
        #[arg(long)]
        force: bool,
    },
    /// Refresh a snapshot or clone from its source
    #[command(
        after_help = "The snapshot or clone keeps its name, identity and LUNs. Data written to it is lost.\n\nExamples:\n  \
                            quoin --data /srv/a snapshot refresh v1-test\n  \
                            quoin --data /srv/a snapshot refresh v1-test --from v1.before-upgrade"
    )]
    Refresh {
        /// The snapshot or clone
        name: String,
        /// Refresh from this volume, which becomes the new source
        #[arg(long = "from", id = "volume", value_name = "VOLUME")]
        from: Option<String>,
        /// Refresh although hosts with access to it are logged in, or the source is a modified snapshot
        #[arg(long)]
        force: bool,
    },
    /// Make a snapshot immutable, or extend its retention
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
    /// Set or show snapshot reserves: how much space the snapshots of the pool, of a volume or of a group may hold, and what
    /// happens beyond that
    #[command(after_help = reserve::EXAMPLES)]
    Reserve(ReserveArgs),
    /// Delete snapshots or clones; the recycle bin keeps them for a while
    #[command(
        after_help = "Its source, its own snapshots, and older and newer snapshots stay. It can be restored \
                            for a day, or for the time that quoin recycle-bin set gives: see quoin recycle-bin. Then its \
                            space is freed in the background: see quoin status.\n\nExamples:\n  \
                            quoin --data /srv/a snapshot delete v1.before-upgrade\n  \
                            quoin --data /srv/a snapshot delete v1-test --unmap   # also removes its mappings\n  \
                            quoin --data /srv/a snapshot delete v1-test --now     # for good"
    )]
    Delete {
        /// The snapshots or clones
        #[arg(id = "name", value_name = "NAME", required = true)]
        names: Vec<String>,
        /// Remove their mappings too
        #[arg(long)]
        unmap: bool,
        /// Delete although hosts with access to it are logged in, or it is in a consistency group
        #[arg(long)]
        force: bool,
        /// Delete it for good at once: the recycle bin does not keep it
        #[arg(long)]
        now: bool,
    },
}

pub(crate) fn run(client: &Client, output: &Output, command: SnapshotCommand) -> Result<(), Failure> {
    match command {
        SnapshotCommand::Create { volume, new_name, tags, writable, retain } => {
            let (tags, retain_s) = (tags.into_iter().collect(), retain.map(Age::seconds));
            let request = SnapshotCreate { volume, name: new_name, tags, writable, retain_s };
            output.show(&client.post::<Volume>("/snapshots", &request)?, view::volume);
        }
        SnapshotCommand::List { of, group } => {
            let of = of.map(|of| format!("of={}", segment(&of)));
            let group = group.map(|group| format!("group={}", segment(&group)));
            let query: Vec<_> = of.into_iter().chain(group).collect();
            let query = query.join("&");
            output.list(&client.get::<Vec<Volume>>(&format!("/snapshots?{query}"))?, &query, many);
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
            output.show(&client.post::<Volume>(&path, &serde_json::json!({}))?, view::volume);
        }
        SnapshotCommand::Delete { names, unmap, force, now } => each(output, &names, |name| {
            client.delete(&format!("{}?unmap={unmap}&force={force}&now={now}", path(name)))?;
            output.say(&deleted_text(client, &format!("snapshot {name}"), now, name));
            Ok(())
        })?,
    }
    Ok(())
}

fn path(name: &str) -> String {
    format!("/snapshots/{}", segment(name))
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
            view::modified(v.modified_ms),
            v.retain_until_ms.map_or_else(|| "-".to_owned(), utc_text),
            size_text(v.size_bytes),
            view::optional_size(v.freed_by_delete_bytes),
            set.unwrap_or_else(|| "-".to_owned()),
            view::seen_by(v),
        ]
    };
    table(
        &[
            "name",
            "of",
            "taken",
            "modified",
            "immutable until",
            "size",
            "freed by delete",
            "group set",
            "host:lun",
        ],
        snapshots.iter().map(row).collect(),
        "no snapshots; take one: quoin snapshot create VOLUME",
    )
}
