//! `quoin volume`: commands about volumes.

use crate::{
    Failure, Output, Size,
    client::{Client, segment},
    command::show,
    copy::{self, CANCEL_EXAMPLES, COPIES_EXAMPLES, COPY_EXAMPLES, CopyArgs},
    listing::ListArgs,
    parse_size, size_text, view,
};
use clap::Subcommand;
use quoin_api::{CloneCreate, Volume, VolumeCreate, VolumeUpdate};
use std::collections::BTreeMap;

/// Commands about volumes.
#[derive(Subcommand, Debug)]
pub enum VolumeCommand {
    /// Create a volume
    #[command(
        after_help = "Sizes are whole numbers of bytes or with a unit: K, M, G, T (or KiB …) are powers of \
                            1024, KB, MB, GB, TB powers of 1000.\n\nA thin volume takes space as it is written. \
                            A thick one has the space of all of it kept from the beginning, so that no write to it \
                            fails because others filled the pool.\n\nExamples:\n  \
                            quoin --data /srv/a volume create v1 --size 4G\n  \
                            quoin --data /srv/a volume create v2 --size 10GiB --block-size 4096\n  \
                            quoin --data /srv/a volume create v3 --size 4G --thick --tag app=db1\n  \
                            quoin --data /srv/a volume create v4 --size 4G --folder prod/sql"
    )]
    Create {
        /// Its name: 1 to 63 characters of a-z, 0-9, '.', '_' and '-'
        name: String,
        /// Its size
        #[arg(long, value_parser = parse_size)]
        size: Size,
        /// Its logical block in bytes: 512 or 4096
        #[arg(long, default_value_t = 512, value_name = "BYTES")]
        block_size: u32,
        /// Keep space for all of it in the pool
        #[arg(long)]
        thick: bool,
        /// Note something about it; repeatable
        #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = parse_tag)]
        tags: Vec<(String, String)>,
        /// Put it in a folder
        #[arg(long, value_name = "PATH", default_value = "")]
        folder: String,
    },
    /// List volumes: all, or those that all filters hold of
    #[command(after_help = "Examples:\n  quoin --data /srv/a volume list\n  \
                            quoin --data /srv/a volume list --folder prod --tag app=db1\n  \
                            quoin --data /srv/a volume list --name 'pg-*' --sort -mapped --limit 10\n  \
                            quoin --data /srv/a volume list --kind template\n  \
                            quoin --data /srv/a volume list -o json")]
    List(ListArgs),
    /// Show one volume
    #[command(after_help = "Examples:\n  quoin --data /srv/a volume show v1")]
    Show {
        /// The volume
        name: String,
    },
    /// Make a volume of what another is now, to go on from it
    #[command(
        after_help = "A clone takes no time and no space worth mentioning, whatever the source's size. Both go on \
                            independently: either can be deleted first. To make it what its source is later on: \
                            quoin snapshot refresh.\n\nExamples:\n  \
                            quoin --data /srv/a volume clone v1 v1-test\n  \
                            quoin --data /srv/a volume clone v1.before-upgrade v1-old --tag why=compare\n  \
                            quoin --data /srv/a volume clone golden test7 --folder test"
    )]
    Clone {
        /// A volume, snapshot or clone
        #[arg(id = "volume", value_name = "SOURCE")]
        source: String,
        /// The clone's name
        new_name: String,
        /// Keep space for all of it in the pool
        #[arg(long)]
        thick: bool,
        /// Note something about it; repeatable
        #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = parse_tag)]
        tags: Vec<(String, String)>,
        /// Put it in a folder instead of its source's; / for none
        #[arg(long, value_name = "PATH")]
        folder: Option<String>,
    },
    /// Copy a range of a volume into another, or into itself
    #[command(after_help = COPY_EXAMPLES)]
    Copy(CopyArgs),
    /// Show copies: those that run and the last that ended, or one
    #[command(after_help = COPIES_EXAMPLES)]
    Copies {
        /// The copy
        #[arg(id = "copy", value_name = "ID")]
        id: Option<u32>,
    },
    /// Cancel a copy that runs
    #[command(after_help = CANCEL_EXAMPLES)]
    CopyCancel {
        /// The copy
        #[arg(id = "copy", value_name = "ID")]
        id: u32,
    },
    /// Make a volume larger, while hosts use it
    #[command(
        after_help = "Hosts that see it are told with their next command (CAPACITY DATA HAS CHANGED). On \
                            Linux, rescan: iscsiadm -m session --rescan\n\nExamples:\n  \
                            quoin --data /srv/a volume grow v1 --size 8G"
    )]
    Grow {
        /// The volume
        name: String,
        /// Its new size
        #[arg(long, value_parser = parse_size)]
        size: Size,
    },
    /// Give a volume another size, larger or smaller, while hosts use it
    #[command(
        after_help = "It is made smaller only if nothing lies beyond its new end, or by force: then that is \
                            lost. Shrink the file system in it first.\n\nExamples:\n  \
                            quoin --data /srv/a volume resize v1 --size 8G\n  \
                            quoin --data /srv/a volume resize v1 --size 2G --force   # loses what lies beyond"
    )]
    Resize {
        /// The volume
        name: String,
        /// Its new size
        #[arg(long, value_parser = parse_size)]
        size: Size,
        /// Lose what lies beyond its new end
        #[arg(long)]
        force: bool,
    },
    /// Give a volume another name; hosts do not notice
    #[command(after_help = "Examples:\n  quoin --data /srv/a volume rename v1 db1")]
    Rename {
        /// The volume
        name: String,
        /// Its new name
        new_name: String,
    },
    /// Change whether a volume is thick or a template, its tags and its folder
    #[command(
        group = clap::ArgGroup::new("what").required(true).multiple(true).
            args(["thick", "thin", "tags", "untag", "folder", "template", "no_template"]),
        after_help = "A template is there to be cloned: it is write-protected for all hosts, and so are its size and \
                      content. While somebody is connected who may write to it, it is not made without \
                      --force.\n\nExamples:\n  quoin --data /srv/a volume set v1 --thick\n  \
                      quoin --data /srv/a volume set v1 --tag app=db1 --untag old\n  \
                      quoin --data /srv/a volume set v1 --folder prod/sql\n  \
                      quoin --data /srv/a volume set v1 --folder /      # out of its folder\n  \
                      quoin --data /srv/a volume set gold --template"
    )]
    Set {
        /// The volume
        name: String,
        /// Keep space for all of it in the pool
        #[arg(long, conflicts_with = "thin")]
        thick: bool,
        /// Keep no space for it beyond what it uses
        #[arg(long)]
        thin: bool,
        /// Note something about it; repeatable
        #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = parse_tag)]
        tags: Vec<(String, String)>,
        /// Take a tag away; repeatable
        #[arg(long, value_name = "KEY")]
        untag: Vec<String>,
        /// Put it in a folder; / takes it out of the one it is in
        #[arg(long, value_name = "PATH")]
        folder: Option<String>,
        /// Make it a template: nobody writes to it
        #[arg(long, conflicts_with = "no_template")]
        template: bool,
        /// Make a template a volume again
        #[arg(long)]
        no_template: bool,
        /// Make it a template though clients are connected that may write to it
        #[arg(long, requires = "template")]
        force: bool,
    },
    /// Delete a volume and all data in it
    #[command(after_help = "Examples:\n  quoin --data /srv/a volume delete v1\n  \
                            quoin --data /srv/a volume delete v1 --unmap   # though hosts see it")]
    Delete {
        /// The volume
        name: String,
        /// Take it away from the hosts that see it
        #[arg(long)]
        unmap: bool,
    },
}

pub(crate) fn parse_tag(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not a tag; write KEY=VALUE, such as app=db1")),
    }
}

/// Runs a command about volumes.
pub(crate) fn volume(client: &Client, output: &Output, command: VolumeCommand) -> Result<(), Failure> {
    match command {
        VolumeCommand::Create { name, size, block_size, thick, tags, folder } => {
            let tags = tags.into_iter().collect();
            let (size_bytes, block_bytes) = (size.0, block_size);
            let request = VolumeCreate { name, size_bytes, block_bytes, thick, tags, folder };
            let volume: Volume = client.post("/volumes", &request)?;
            output.show(&volume, view::volume);
            Ok(())
        }
        VolumeCommand::List(filters) => {
            show(client, output, &filters.path(), |all: &Vec<Volume>| view::volumes(all))
        }
        VolumeCommand::Show { name } => show(client, output, &path(&name), view::volume),
        VolumeCommand::Clone { source, new_name, thick, tags, folder } => {
            let request = CloneCreate { name: new_name, thick, tags: tags.into_iter().collect(), folder };
            let clone: Volume = client.post(&format!("{}/clone", path(&source)), &request)?;
            output.show(&clone, view::volume);
            Ok(())
        }
        VolumeCommand::Copy(args) => copy::copy(client, output, args),
        VolumeCommand::Copies { id } => copy::copies(client, output, id),
        VolumeCommand::CopyCancel { id } => copy::cancel(client, output, id),
        VolumeCommand::Grow { name, size } => {
            let before: Volume = client.get(&path(&name))?;
            if size.0 < before.size_bytes {
                let why = format!(
                    "volume {name} has {} already, more than asked for",
                    size_text(before.size_bytes)
                );
                let next = format!("to make it smaller: quoin volume resize {name} --size SIZE");
                return Err(Failure::usage("volume not grown", why, next));
            }
            change(
                client,
                output,
                &name,
                VolumeUpdate { size_bytes: Some(size.0), ..VolumeUpdate::default() },
            )
        }
        VolumeCommand::Resize { name, size, force } => {
            let update = VolumeUpdate { size_bytes: Some(size.0), force, ..VolumeUpdate::default() };
            change(client, output, &name, update)
        }
        VolumeCommand::Rename { name, new_name } => {
            change(client, output, &name, VolumeUpdate { name: Some(new_name), ..VolumeUpdate::default() })
        }
        VolumeCommand::Set { name, thick, thin, tags, untag, folder, template, no_template, force } => {
            let set = tags.into_iter().map(|(key, value)| (key, Some(value)));
            let tags: BTreeMap<_, _> = untag.into_iter().map(|key| (key, None)).chain(set).collect();
            let update = VolumeUpdate {
                thick: (thick || thin).then_some(thick),
                tags: (!tags.is_empty()).then_some(tags),
                folder,
                template: (template || no_template).then_some(template),
                force,
                ..VolumeUpdate::default()
            };
            change(client, output, &name, update)
        }
        VolumeCommand::Delete { name, unmap } => {
            client.delete(&format!("{}?unmap={unmap}", path(&name)))?;
            output.say(&format!("volume {name} deleted"));
            Ok(())
        }
    }
}

fn path(name: &str) -> String {
    format!("/volumes/{}", segment(name))
}

fn change(client: &Client, output: &Output, name: &str, update: VolumeUpdate) -> Result<(), Failure> {
    let volume: Volume = client.patch(&path(name), &update)?;
    output.show(&volume, view::volume);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read() {
        assert_eq!(parse_tag("app=db=1"), Ok(("app".into(), "db=1".into())));
        assert_eq!(parse_tag("app="), Ok(("app".into(), String::new())));
        for bad in ["app", "=db", ""] {
            assert!(parse_tag(bad).unwrap_err().contains("KEY=VALUE"), "{bad}");
        }
    }
}
