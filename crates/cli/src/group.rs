//! `quoin group`: commands about consistency groups.

use crate::{
    Failure, Output,
    client::{Client, segment},
    output::{pairs, table},
    time::{Age, parse_age, utc_text},
};
use clap::Subcommand;
use quoin_api::{
    Group, GroupCreate, GroupMember, GroupRefresh, GroupRestore, GroupSet, GroupSnapshotCreate,
    SnapshotRetain,
};

/// Commands about consistency groups.
#[derive(Subcommand, Debug)]
pub enum GroupCommand {
    /// Create a consistency group: volumes whose snapshots are of one moment
    #[command(
        after_help = "Put the volumes of one database into one group: data, log, and what else it needs to start. A volume \
                      is in at most one group, a group has at most 64 volumes.\n\nExamples:\n  \
                      quoin --data /srv/a group create db1 --volume db1-data --volume db1-log"
    )]
    Create {
        /// Its name: 1 to 63 characters of a-z, 0-9, '.', '_' and '-'
        name: String,
        /// A volume of it; repeatable
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
    /// Put a volume into a group
    #[command(
        after_help = "Sets taken before do not have it: they cannot be restored as a whole any more.\n\nExamples:\n  \
                            quoin --data /srv/a group add db1 db1-temp"
    )]
    Add {
        /// The group
        name: String,
        /// The volume
        volume: String,
    },
    /// Take a volume out of a group
    #[command(after_help = "Examples:\n  quoin --data /srv/a group remove db1 db1-temp")]
    Remove {
        /// The group
        name: String,
        /// The volume
        volume: String,
    },
    /// Delete a group; its volumes and their snapshots stay
    #[command(after_help = "Examples:\n  quoin --data /srv/a group delete db1")]
    Delete {
        /// The group
        name: String,
    },
    /// Take snapshots of all volumes of a group, as of one moment
    #[command(
        after_help = "They hold every write that was acknowledged before, and no write without those it could depend on: \
                      what a power failure would have left. Each is called VOLUME.SET.\n\nExamples:\n  \
                      quoin --data /srv/a group snapshot db1\n  \
                      quoin --data /srv/a group snapshot db1 before-upgrade"
    )]
    Snapshot {
        /// The group
        name: String,
        /// What the set is called [default: date and time in UTC]
        new_set: Option<String>,
        /// Make them immutable for this time: nobody deletes or changes them until then
        #[arg(long, value_name = "TIME", value_parser = parse_age)]
        retain: Option<Age>,
    },
    /// Make all volumes of a group what a set of snapshots is
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
        /// Take a set of snapshots of this name of what the volumes are now
        #[arg(long, value_name = "NEW_SET")]
        keep: Option<String>,
        /// Do so though hosts that see the volumes are logged in
        #[arg(long)]
        force: bool,
    },
    /// Make a set of snapshots what the volumes of the group are now
    #[command(after_help = "Examples:\n  quoin --data /srv/a group refresh db1 test")]
    Refresh {
        /// The group
        name: String,
        /// The set
        set: String,
        /// Do so though hosts that see the snapshots are logged in
        #[arg(long)]
        force: bool,
    },
    /// Make a set of snapshots immutable, or for longer than it is
    #[command(
        after_help = "All of its snapshots or none; what that means for each is told by quoin snapshot retain \
                      --help.\n\nExamples:\n  quoin --data /srv/a group retain-snapshot db1 before-upgrade --for 30d"
    )]
    RetainSnapshot {
        /// The group
        name: String,
        /// The set
        set: String,
        /// For this time from now on, such as 12h, 7d or 4w
        #[arg(long = "for", value_name = "TIME", value_parser = parse_age)]
        time: Age,
        /// Do so though clients are connected that may write to the snapshots
        #[arg(long)]
        force: bool,
    },
    /// Delete a set of snapshots
    #[command(after_help = "Examples:\n  quoin --data /srv/a group delete-snapshot db1 before-upgrade\n  \
                            quoin --data /srv/a group delete-snapshot db1 test --unmap   # though hosts see them")]
    DeleteSnapshot {
        /// The group
        name: String,
        /// The set
        set: String,
        /// Take the snapshots away from the hosts that see them
        #[arg(long)]
        unmap: bool,
    },
}

pub(crate) fn run(client: &Client, output: &Output, command: GroupCommand) -> Result<(), Failure> {
    match command {
        GroupCommand::Create { name, volumes } => {
            output.show(&client.post::<Group>("/groups", &GroupCreate { name, volumes })?, one);
        }
        GroupCommand::List => output.show(&client.get::<Vec<Group>>("/groups")?, |all| many(all)),
        GroupCommand::Show { name } => output.show(&client.get::<Group>(&path(&name))?, one),
        GroupCommand::Add { name, volume } => {
            let path = format!("{}/volumes", path(&name));
            output.show(&client.post::<Group>(&path, &GroupMember { volume })?, one);
        }
        GroupCommand::Remove { name, volume } => {
            client.delete(&format!("{}/volumes/{}", path(&name), segment(&volume)))?;
            output.say(&format!("volume {volume} removed from group {name}"));
        }
        GroupCommand::Delete { name } => {
            client.delete(&path(&name))?;
            output.say(&format!("group {name} deleted; its volumes and their snapshots stay"));
        }
        GroupCommand::Snapshot { name, new_set, retain } => {
            let path = format!("{}/sets", path(&name));
            let request = GroupSnapshotCreate { name: new_set, retain_s: retain.map(Age::seconds) };
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
        GroupCommand::DeleteSnapshot { name, set, unmap } => {
            client.delete(&format!("{}?unmap={unmap}", set_path(&name, &set)))?;
            output.say(&format!("set {set} of group {name} deleted"));
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
    table(&["name", "volumes", "sets", "newest (utc)"], groups.iter().map(row).collect(), empty)
}

fn sets(sets: &[GroupSet]) -> String {
    let row = |s: &GroupSet| {
        let whole = s.incomplete.clone().map_or_else(|| "yes".to_owned(), |why| format!("no: {why}"));
        let until = s.retain_until_ms.map_or_else(|| "-".to_owned(), utc_text);
        vec![s.name.clone(), utc_text(s.taken_ms), s.snapshots.join(", "), until, whole]
    };
    let empty = "no snapshots; take some: quoin group snapshot GROUP";
    table(
        &["set", "taken (utc)", "snapshots", "immutable until (utc)", "whole"],
        sets.iter().map(row).collect(),
        empty,
    )
}

fn one(group: &Group) -> String {
    let volumes = if group.volumes.is_empty() { "-".to_owned() } else { group.volumes.join(", ") };
    let about = pairs(vec![
        ("group", group.name.clone()),
        ("volumes", volumes),
        ("created", format!("{} UTC", utc_text(group.created_ms))),
    ]);
    format!("{about}\n\n{}", sets(&group.sets))
}
