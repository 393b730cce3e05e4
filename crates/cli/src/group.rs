//! `quoin group`: commands about consistency groups.

use crate::{
    Failure, Output,
    client::{Client, segment},
    output::{pairs, table},
    recycle_bin::deleted_text,
    report::{each, list},
    time::{Age, parse_age, utc_text},
};
use clap::Subcommand;
use quoin_api::{
    Group, GroupChange, GroupCreate, GroupMember, GroupRefresh, GroupRestore, GroupSet, GroupSnapshotCreate,
    SnapshotRetain,
};

/// Commands for consistency groups.
#[derive(Subcommand, Debug)]
pub enum GroupCommand {
    /// Create a consistency group: snapshots of its volumes are taken at one moment
    #[command(
        after_help = "Put the volumes of one database into one group: data, log, and what else it needs to start. A volume \
                      is in at most one group, a group has at most 64 volumes.\n\nExamples:\n  \
                      quoin --data /srv/a group create db1 --volume db1-data --volume db1-log"
    )]
    Create {
        /// Its name: 1 to 63 characters of a-z, 0-9, '.', '_' and '-'
        name: String,
        /// A volume of the group; repeatable
        #[arg(long = "volume", id = "volume", value_name = "VOLUME")]
        volumes: Vec<String>,
    },
    /// List all groups
    #[command(after_help = "Examples:\n  quoin --data /srv/a group list")]
    List,
    /// Show one group and its sets of snapshots
    #[command(after_help = "Examples:\n  quoin --data /srv/a group show db1")]
    Show {
        /// The group
        name: String,
    },
    /// Rename a group; its sets of snapshots keep their names
    #[command(after_help = "Examples:\n  quoin --data /srv/a group rename db1 orders")]
    Rename {
        /// The group
        name: String,
        /// Its new name
        new_name: String,
    },
    /// Add a volume to a group
    #[command(
        after_help = "Older sets do not contain this volume, so they can no longer be restored as a whole.\n\nExamples:\n  \
                            quoin --data /srv/a group add db1 db1-temp"
    )]
    Add {
        /// The group
        name: String,
        /// The volume
        volume: String,
    },
    /// Remove a volume from a group
    #[command(after_help = "Examples:\n  quoin --data /srv/a group remove db1 db1-temp")]
    Remove {
        /// The group
        name: String,
        /// The volume
        volume: String,
    },
    /// Delete groups; their volumes and their snapshots stay
    #[command(after_help = "Examples:\n  quoin --data /srv/a group delete db1")]
    Delete {
        /// The groups
        #[arg(id = "name", value_name = "NAME", required = true)]
        names: Vec<String>,
    },
    /// Take a set of snapshots of all volumes of a group at one moment
    #[command(
        after_help = "They hold every write that was acknowledged before, and no write without those it could depend on: \
                      what a power failure would have left. Each is called VOLUME.SET.\n\nExamples:\n  \
                      quoin --data /srv/a group snapshot db1\n  \
                      quoin --data /srv/a group snapshot db1 before-upgrade"
    )]
    Snapshot {
        /// The group
        name: String,
        /// Name of the set [default: date and time in UTC]
        new_set: Option<String>,
        /// Let hosts write to the snapshots
        #[arg(long, conflicts_with = "retain")]
        writable: bool,
        /// Make the set immutable: it cannot be deleted or changed for this time
        #[arg(long, value_name = "TIME", value_parser = parse_age)]
        retain: Option<Age>,
    },
    /// Restore all volumes of a group from a set of snapshots
    #[command(
        after_help = "The volumes keep their names, identities and LUNs, and take the sizes they had. What was written to \
                      them since is lost unless --keep names a set for it. Unmount them and log their hosts out \
                      first.\n\nExamples:\n  \
                      quoin --data /srv/a group restore db1 before-upgrade --keep failed-upgrade"
    )]
    Restore {
        /// The group
        name: String,
        /// The set
        set: String,
        /// Save the present content of the volumes in a set of this name first
        #[arg(long, value_name = "NEW_SET")]
        keep: Option<String>,
        /// Restore although hosts with access to the volumes are logged in, or snapshots of the set are modified
        #[arg(long)]
        force: bool,
    },
    /// Refresh a set of snapshots from the volumes of the group
    #[command(after_help = "Examples:\n  quoin --data /srv/a group refresh db1 test")]
    Refresh {
        /// The group
        name: String,
        /// The set
        set: String,
        /// Refresh although hosts with access to the snapshots are logged in
        #[arg(long)]
        force: bool,
    },
    /// Make a set of snapshots immutable, or extend its retention
    #[command(
        after_help = "Applies to all snapshots of the set or to none. quoin snapshot retain --help explains \
                      immutability.\n\nExamples:\n  quoin --data /srv/a group retain-snapshot db1 before-upgrade --for 30d"
    )]
    RetainSnapshot {
        /// The group
        name: String,
        /// The set
        set: String,
        /// Retention from now on, such as 12h, 7d or 4w
        #[arg(long = "for", value_name = "TIME", value_parser = parse_age)]
        time: Age,
        /// Continue although clients with write access are connected
        #[arg(long)]
        force: bool,
    },
    /// Delete a set of snapshots; the recycle bin keeps them for a while
    #[command(after_help = "Examples:\n  quoin --data /srv/a group delete-snapshot db1 before-upgrade\n  \
                            quoin --data /srv/a group delete-snapshot db1 test --unmap   # also removes their mappings")]
    DeleteSnapshot {
        /// The group
        name: String,
        /// The set
        set: String,
        /// Remove the mappings of the snapshots too
        #[arg(long)]
        unmap: bool,
        /// Delete although hosts with access to the snapshots are logged in
        #[arg(long)]
        force: bool,
        /// Delete them for good at once: the recycle bin does not keep them
        #[arg(long)]
        now: bool,
    },
}

pub(crate) fn run(client: &Client, output: &Output, command: GroupCommand) -> Result<(), Failure> {
    match command {
        GroupCommand::Create { name, volumes } => {
            output.show(&client.post::<Group>("/groups", &GroupCreate { name, volumes })?, one);
        }
        GroupCommand::List => list(client, output, "/groups", many)?,
        GroupCommand::Show { name } => output.show(&client.get::<Group>(&path(&name))?, one),
        GroupCommand::Rename { name, new_name } => {
            let change = GroupChange { name: Some(new_name) };
            output.show(&client.patch::<Group>(&path(&name), &change)?, one);
        }
        GroupCommand::Add { name, volume } => {
            let path = format!("{}/volumes", path(&name));
            output.show(&client.post::<Group>(&path, &GroupMember { volume })?, one);
        }
        GroupCommand::Remove { name, volume } => {
            client.delete(&format!("{}/volumes/{}", path(&name), segment(&volume)))?;
            output.say(&format!("volume {volume} removed from group {name}"));
        }
        GroupCommand::Delete { names } => each(output, &names, |name| {
            client.delete(&path(name))?;
            output.say(&format!("group {name} deleted; its volumes and their snapshots stay"));
            Ok(())
        })?,
        GroupCommand::Snapshot { name, new_set, writable, retain } => {
            let path = format!("{}/sets", path(&name));
            let retain_s = retain.map(Age::seconds);
            let request = GroupSnapshotCreate { name: new_set, writable, retain_s };
            let set: GroupSet = client.post(&path, &request)?;
            output.show(&set, |set| sets(std::slice::from_ref(set)));
        }
        GroupCommand::Restore { name, set, keep, force } => {
            let path = format!("{}/restore", set_path(&name, &set));
            output.show(&client.post::<Group>(&path, &GroupRestore { keep, force })?, one);
        }
        GroupCommand::Refresh { name, set, force } => {
            let path = format!("{}/refresh", set_path(&name, &set));
            let set: GroupSet = client.post(&path, &GroupRefresh { force })?;
            output.show(&set, |set| sets(std::slice::from_ref(set)));
        }
        GroupCommand::RetainSnapshot { name, set, time, force } => {
            let path = format!("{}/retain", set_path(&name, &set));
            let set: GroupSet = client.post(&path, &SnapshotRetain { retain_s: time.seconds(), force })?;
            output.show(&set, |set| sets(std::slice::from_ref(set)));
        }
        GroupCommand::DeleteSnapshot { name, set, unmap, force, now } => {
            // NOTE: before the deletion: the message names the snapshots that can be restored.
            let found: Vec<GroupSet> = client.get::<Group>(&path(&name))?.sets;
            let snapshots = found.into_iter().find(|found| found.name == set).map(|found| found.snapshots);
            client.delete(&format!("{}?unmap={unmap}&force={force}&now={now}", set_path(&name, &set)))?;
            let restore = snapshots.unwrap_or_default().join(" ");
            output.say(&deleted_text(client, &format!("set {set} of group {name}"), now, &restore));
        }
    }
    Ok(())
}

fn path(name: &str) -> String {
    format!("/groups/{}", segment(name))
}

fn set_path(name: &str, set: &str) -> String {
    format!("{}/sets/{}", path(name), segment(set))
}

fn many(groups: &[Group]) -> String {
    let row = |g: &Group| {
        let newest = g.sets.last().map_or_else(|| "-".to_owned(), |set| utc_text(set.taken_ms));
        vec![g.name.clone(), g.volumes.join(", "), g.sets.len().to_string(), newest]
    };
    let empty = "no groups; create one: quoin group create NAME --volume V --volume W";
    table(&["name", "volumes", "sets", "newest"], groups.iter().map(row).collect(), empty)
}

fn sets(sets: &[GroupSet]) -> String {
    let row = |s: &GroupSet| {
        let whole = s.incomplete.clone().map_or_else(|| "yes".to_owned(), |why| format!("no: {why}"));
        let until = s.retain_until_ms.map_or_else(|| "-".to_owned(), utc_text);
        let modified = crate::view::modified(s.modified_ms);
        vec![s.name.clone(), utc_text(s.taken_ms), modified, s.snapshots.join(", "), until, whole]
    };
    let empty = "no snapshots; take some: quoin group snapshot GROUP";
    table(
        &["set", "taken", "modified", "snapshots", "immutable until", "whole"],
        sets.iter().map(row).collect(),
        empty,
    )
}

fn one(group: &Group) -> String {
    let volumes = if group.volumes.is_empty() { "-".to_owned() } else { group.volumes.join(", ") };
    let about = pairs(vec![
        ("group", group.name.clone()),
        ("volumes", volumes),
        ("created", utc_text(group.created_ms)),
    ]);
    format!("{about}\n\n{}", sets(&group.sets))
}
