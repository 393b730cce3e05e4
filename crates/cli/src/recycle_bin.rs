//! `quoin recycle-bin`: deleted volumes and snapshots that can be restored.

use crate::{
    Failure, Output,
    client::{Client, segment},
    confirm::is_answered_yes,
    output::{pairs, table},
    report::{each, show},
    size_text,
    time::{duration_text, parse_age, utc_text},
    view,
};
use clap::Subcommand;
use quoin_api::{DeletedVolume, RecycleBin, RecycleBinRestore, RecycleBinSet, Volume};

const PATH: &str = "/recycle-bin";

/// Commands for the recycle bin.
#[derive(Subcommand, Debug)]
pub enum RecycleBinCommand {
    /// List deleted volumes and snapshots that can be restored, oldest deletion first
    #[command(after_help = "Examples:\n  quoin --data /srv/a recycle-bin list\n  \
                            quoin --data /srv/a recycle-bin list -o json")]
    List,
    /// Show how long deleted volumes are kept and what the recycle bin holds, or one deleted volume
    #[command(after_help = "Examples:\n  quoin --data /srv/a recycle-bin show\n  \
                            quoin --data /srv/a recycle-bin show v1")]
    Show {
        /// The deleted volume, by name or UUID
        #[arg(id = "deleted", value_name = "NAME")]
        volume: Option<String>,
    },
    /// Restore deleted volumes and snapshots
    #[command(
        after_help = "A restored volume has its data, UUID, tags, folder and origin. It is mapped to no host, has no \
                            export and is in no consistency group.\n\nExamples:\n  \
                            quoin --data /srv/a recycle-bin restore v1\n  \
                            quoin --data /srv/a recycle-bin restore v1 --name v1-old   # v1 is taken\n  \
                            quoin --data /srv/a recycle-bin restore v2 --thin"
    )]
    Restore {
        /// The deleted volumes, by name or UUID
        #[arg(id = "deleted", value_name = "NAME", required = true)]
        volumes: Vec<String>,
        /// Another name for the restored volume; for one volume only
        #[arg(long = "name", id = "new_name", value_name = "NAME")]
        new_name: Option<String>,
        /// Restore thick volumes as thin ones
        #[arg(long)]
        thin: bool,
    },
    /// Delete volumes in the recycle bin for good
    #[command(
        after_help = "Their data is lost; their space is freed in the background. Without --yes the command only \
                            shows what it would delete.\n\nExamples:\n  \
                            quoin --data /srv/a recycle-bin empty --yes      # everything\n  \
                            quoin --data /srv/a recycle-bin empty v1 v2 --yes"
    )]
    Empty {
        /// The deleted volumes, by name or UUID; all if none is given
        #[arg(id = "deleted", value_name = "NAME")]
        volumes: Vec<String>,
        /// Delete for good without asking
        #[arg(long)]
        yes: bool,
    },
    /// Set how long deleted volumes are kept
    #[command(
        after_help = "The setting applies to volumes that are deleted from now on. The time passes only while the array \
                            runs.\n\nExamples:\n  quoin --data /srv/a recycle-bin set --keep 7d\n  \
                            quoin --data /srv/a recycle-bin set --keep off   # deletes volumes for good at once"
    )]
    Set {
        /// Time for which deleted volumes are kept, such as 12h, 1d or 4w; or off
        #[arg(long, value_name = "TIME", value_parser = parse_keep)]
        keep: u64,
    },
}

/// Reads a time, or `off`; in seconds.
fn parse_keep(text: &str) -> Result<u64, String> {
    match text {
        "off" => Ok(0),
        text => parse_age(text).map(|age| age.seconds()).map_err(|why| format!("{why}; or off")),
    }
}

pub(crate) fn run(client: &Client, output: &Output, command: RecycleBinCommand) -> Result<(), Failure> {
    match command {
        RecycleBinCommand::List => {
            let volumes: Vec<DeletedVolume> = client.get(&format!("{PATH}/volumes"))?;
            output.list(&volumes, "", many);
            Ok(())
        }
        RecycleBinCommand::Show { volume: None } => show(client, output, PATH, bin),
        RecycleBinCommand::Show { volume: Some(volume) } => show(client, output, &path(&volume), one),
        RecycleBinCommand::Restore { volumes, new_name, thin } => {
            if new_name.is_some() && volumes.len() > 1 {
                return Err(Failure::usage(
                    "nothing restored",
                    "--name is for one volume, and several are given",
                    "restore them one by one",
                ));
            }
            each(output, &volumes, |volume| {
                let request = RecycleBinRestore { name: new_name.clone(), thin };
                let restored: Volume = client.post(&format!("{}/restore", path(volume)), &request)?;
                output.show(&restored, view::volume);
                Ok(())
            })
        }
        RecycleBinCommand::Empty { volumes, yes } => empty(client, output, &volumes, yes),
        RecycleBinCommand::Set { keep } => {
            output.show(&client.put::<RecycleBin>(PATH, &RecycleBinSet { keep_s: keep })?, bin);
            Ok(())
        }
    }
}

fn empty(client: &Client, output: &Output, volumes: &[String], yes: bool) -> Result<(), Failure> {
    // What would be deleted is looked up first, so that the question can name it.
    let found: Vec<DeletedVolume> = match volumes {
        [] => client.get(&format!("{PATH}/volumes"))?,
        volumes => volumes.iter().map(|volume| client.get(&path(volume))).collect::<Result<_, _>>()?,
    };
    if found.is_empty() {
        output.say("the recycle bin is empty");
        return Ok(());
    }
    let names: Vec<_> = found.iter().map(|volume| volume.name.as_str()).collect();
    let names = names.join(", ");
    if !yes && !is_answered_yes(&format!("Delete for good, with all data: {names}?")) {
        return Err(Failure::new(
            "nothing deleted",
            "the recycle bin",
            format!("this would delete for good, with all data: {names}; it was not confirmed"),
            "add --yes to do so; or look first: quoin recycle-bin list",
        ));
    }
    // By UUID: several deleted volumes may have had the same name.
    let uuids: Vec<_> = found.iter().map(|volume| volume.uuid.to_string()).collect();
    let mut names = found.iter().map(|volume| &volume.name);
    each(output, &uuids, |uuid| {
        let name = names.next().map_or("", String::as_str);
        client.delete(&path(uuid))?;
        output.say(&format!("volume {name} ({uuid}) deleted for good"));
        Ok(())
    })
}

fn path(volume: &str) -> String {
    format!("{PATH}/volumes/{}", segment(volume))
}

/// `volume v1 deleted`, and how to undo that, if it can be.
pub(crate) fn deleted_text(client: &Client, what: &str, now: bool, restore: &str) -> String {
    let keep_s = if now { 0 } else { client.get::<RecycleBin>(PATH).map_or(0, |bin| bin.keep_s) };
    match keep_s {
        0 => format!("{what} deleted"),
        keep_s => {
            let time = duration_text(keep_s);
            format!("{what} deleted; to undo this within {time}: quoin recycle-bin restore {restore}")
        }
    }
}

fn bin(bin: &RecycleBin) -> String {
    let keep = match bin.keep_s {
        0 => "off: deleted volumes are not kept".to_owned(),
        keep_s => duration_text(keep_s),
    };
    pairs(vec![
        ("keep", keep),
        ("volumes", bin.volumes.to_string()),
        ("holds", view::optional_size(bin.held_bytes)),
    ])
}

fn many(volumes: &[DeletedVolume]) -> String {
    let row = |v: &DeletedVolume| {
        vec![
            v.name.clone(),
            v.uuid.to_string(),
            v.kind.name().to_owned(),
            size_text(v.size_bytes),
            view::optional_size(v.mapped_bytes),
            view::optional_size(v.freed_by_delete_bytes),
            utc_text(v.deleted_ms),
            utc_text(v.expires_ms),
            v.deleted_by.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    table(
        &["name", "uuid", "kind", "size", "allocated", "holds", "deleted", "expires", "by"],
        volumes.iter().map(row).collect(),
        "the recycle bin is empty",
    )
}

fn one(v: &DeletedVolume) -> String {
    let tags: Vec<_> = v.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    pairs(vec![
        ("name", v.name.clone()),
        ("uuid", v.uuid.to_string()),
        ("kind", v.kind.name().to_owned()),
        ("size", size_text(v.size_bytes)),
        ("block", format!("{} B", v.block_bytes)),
        ("provisioning", if v.thick { "thick" } else { "thin" }.to_owned()),
        ("allocated", view::optional_size(v.mapped_bytes)),
        ("holds", view::optional_size(v.freed_by_delete_bytes)),
        ("of", v.origin.as_ref().map_or_else(|| "-".to_owned(), |origin| origin.source.clone())),
        ("folder", or_none(v.folder.clone())),
        ("tags", or_none(tags.join(", "))),
        ("created", utc_text(v.created_ms)),
        ("deleted", utc_text(v.deleted_ms)),
        ("by", v.deleted_by.clone().unwrap_or_else(|| "-".to_owned())),
        ("expires", utc_text(v.expires_ms)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_keep_are_read() {
        assert_eq!((parse_keep("off"), parse_keep("1d")), (Ok(0), Ok(86_400)));
        assert!(parse_keep("never").unwrap_err().ends_with("; or off"));
    }
}
