//! `quoin volume`: commands for volumes.

use crate::{
    Failure, Output, Size,
    client::{Client, segment},
    compression::parse_compression,
    copy::{self, CANCEL_EXAMPLES, COPIES_EXAMPLES, COPY_EXAMPLES, CopyArgs},
    deduplication::parse_deduplication,
    job,
    listing::ListArgs,
    parse_size,
    recycle_bin::deleted_text,
    report::{create_each, each, list, show},
    size_text,
    tag::parse_tag,
    unreadable::{self, UnreadableArgs},
    view,
};
use clap::{Args, Subcommand};
use quoin_api::{CloneCreate, Compression, Deduplication, Job, Volume, VolumeCreate, VolumeUpdate};
use std::collections::BTreeMap;

/// Commands for volumes.
#[derive(Subcommand, Debug)]
pub enum VolumeCommand {
    /// Create volumes
    #[command(
        after_help = "Sizes are numbers of bytes, or have a unit, as in 512M or 1.5G: K, M, G, T (or KiB …) are \
                            powers of 1024, KB, MB, GB, TB powers of 1000.\n\nA thin volume takes space as it is written. \
                            A thick volume reserves its whole size, so that its writes never fail because other \
                            volumes filled the pool.\n\nWith --compression lz4, what is written takes less space for little work. With zstd it is \
                            compressed by LZ4 when it is written, and better when it is written again in the background. \
                            What does not get shorter is stored as it is.\n\nWith --dedup on, blocks of 8 KiB that have the same content as \
                            others, of this volume or of others with it on, take no space of their own. It works beside compression.\n\nIn a pool of several slices a new volume goes to the slice whose \
                            volumes take the least. Copies between volumes of one slice share blocks; those between \
                            slices move data.\n\nSeveral volumes get the same size and options. Each outcome is \
                            reported; a failure does not stop the others.\n\nExamples:\n  \
                            quoin --data /srv/a volume create v1 --size 4G\n  \
                            quoin --data /srv/a volume create db1-data db1-log --size 100G --tag app=db1\n  \
                            quoin --data /srv/a volume create v2 --size 10GiB --block-size 4096\n  \
                            quoin --data /srv/a volume create v3 --size 4G --thick --tag app=db1\n  \
                            quoin --data /srv/a volume create v4 --size 4G --folder prod/sql\n  \
                            quoin --data /srv/a volume create logs --size 100G --compression zstd\n  \
                            quoin --data /srv/a volume create desktop1 desktop2 --size 40G --dedup on\n  \
                            quoin --data /srv/a volume create v5 --size 4G --near v1\n  \
                            quoin --data /srv/a volume create db1-log --size 20G --policy log"
    )]
    Create(CreateArgs),
    /// List volumes; filters narrow the list
    #[command(after_help = "Examples:\n  quoin --data /srv/a volume list\n  \
                            quoin --data /srv/a volume list --folder prod --tag app=db1\n  \
                            quoin --data /srv/a volume list --name 'pg-*' --sort -allocated --limit 10\n  \
                            quoin --data /srv/a volume list --kind template\n  \
                            quoin --data /srv/a volume list -o json")]
    List(ListArgs),
    /// Show one volume
    #[command(after_help = "Examples:\n  quoin --data /srv/a volume show v1")]
    Show {
        /// The volume
        name: String,
    },
    /// Clone a volume, snapshot or clone
    #[command(
        after_help = "Cloning is immediate and takes almost no space, whatever the size of the source. Source and \
                            clone are independent, and either can be deleted first. To update the clone from its source \
                            later: quoin snapshot refresh.\n\nExamples:\n  \
                            quoin --data /srv/a volume clone v1 v1-test\n  \
                            quoin --data /srv/a volume clone v1.before-upgrade v1-old --tag why=compare\n  \
                            quoin --data /srv/a volume clone golden test7 --folder test"
    )]
    Clone {
        /// A volume, snapshot or clone
        #[arg(id = "volume", value_name = "SOURCE")]
        source: String,
        /// Name of the clone
        new_name: String,
        /// Reserve space for the whole volume in the pool
        #[arg(long)]
        thick: bool,
        /// Add a tag; repeatable
        #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = parse_tag)]
        tags: Vec<(String, String)>,
        /// Folder of the clone instead of its source's folder; / for none
        #[arg(long, value_name = "PATH")]
        folder: Option<String>,
    },
    /// Copy a range of a volume to another volume or within the volume
    #[command(after_help = COPY_EXAMPLES)]
    Copy(CopyArgs),
    /// Show running and recently ended copies, or one copy
    #[command(after_help = COPIES_EXAMPLES)]
    Copies {
        /// The copy
        #[arg(id = "copy", value_name = "ID")]
        id: Option<u32>,
    },
    /// Cancel a running copy
    #[command(after_help = CANCEL_EXAMPLES)]
    CopyCancel {
        /// The copy
        #[arg(id = "copy", value_name = "ID")]
        id: u32,
    },
    /// List the ranges of volumes that cannot be read now
    #[command(after_help = unreadable::EXAMPLES)]
    Unreadable(UnreadableArgs),
    /// Grow a volume; hosts can go on using it
    #[command(
        after_help = "Hosts get the unit attention CAPACITY DATA HAS CHANGED with their next command. On \
                            Linux, rescan with: iscsiadm -m session --rescan\n\nExamples:\n  \
                            quoin --data /srv/a volume grow v1 --size 8G"
    )]
    Grow {
        /// The volume
        name: String,
        /// New size
        #[arg(long, value_parser = parse_size)]
        size: Size,
    },
    /// Grow or shrink a volume; hosts can go on using it
    #[command(
        after_help = "A volume with data beyond its new end, or with hosts logged in, is shrunk only with \
                            --force, which discards that data. Shrink the file system first.\n\nExamples:\n  \
                            quoin --data /srv/a volume resize v1 --size 8G\n  \
                            quoin --data /srv/a volume resize v1 --size 2G --force   # discards data beyond 2 GiB"
    )]
    Resize {
        /// The volume
        name: String,
        /// New size
        #[arg(long, value_parser = parse_size)]
        size: Size,
        /// Discard the data beyond the new end; shrink although hosts with access are logged in
        #[arg(long)]
        force: bool,
    },
    /// Rename a volume; hosts do not notice
    #[command(after_help = "Examples:\n  quoin --data /srv/a volume rename v1 db1")]
    Rename {
        /// The volume
        name: String,
        /// New name
        new_name: String,
    },
    /// Change provisioning, compression, deduplication, tags, folder, policy, template state or write protection of a volume
    #[command(
        group = clap::ArgGroup::new("what").required(true).multiple(true).
            args(["thick", "thin", "compression", "deduplication", "tags", "untag", "folder", "policy", "template", "no_template", "read_only", "writable"]),
        after_help = "A template is a write-protected volume to make clones of; its size and content cannot change. A \
                      volume to which a connected client may write becomes a template or read-only only with --force.\n\nWith another compression, what is written from then on is \
                      compressed so; with --dedup on, it is deduplicated. What the volume has stays as it is until it is reduced: \
                      quoin volume reduce.\n\nExamples:\n  quoin --data /srv/a volume set v1 --thick\n  \
                      quoin --data /srv/a volume set v1 --compression lz4\n  \
                      quoin --data /srv/a volume set v1 --dedup on\n  \
                      quoin --data /srv/a volume set v1 --tag app=db1 --untag old\n  \
                      quoin --data /srv/a volume set v1 --folder prod/sql\n  \
                      quoin --data /srv/a volume set v1 --folder /      # removes it from its folder\n  \
                      quoin --data /srv/a volume set gold --template\n  \
                      quoin --data /srv/a volume set v1 --policy log   # what it has is moved in the background"
    )]
    Set(SetArgs),
    /// Compress and deduplicate what a volume has, as it is set
    #[command(
        after_help = "What was written before the volume was compressed or deduplicated is stored as it was then. So is what was \
                      written faster than it could be compressed. This reduces it in the background, beside hosts, and gives way to \
                      them. Snapshots that share blocks with the volume gain too. Only what was written since the last \
                      snapshot or clone is deduplicated.\n\nIt is a job: quoin job list shows it, quoin job watch follows it, and \
                      quoin job cancel cancels it. A restart of the array ends it. What was done stays, and it can be begun \
                      again.\n\nExamples:\n  \
                      quoin --data /srv/a volume set v1 --compression zstd && quoin --data /srv/a volume reduce v1\n  \
                      quoin --data /srv/a volume reduce v1 --wait\n  \
                      quoin --data /srv/a volume reduce v1 -o json | jq .id"
    )]
    Reduce {
        /// The volume, snapshot or clone
        name: String,
        /// Wait until it is done, and show how far it is
        #[arg(long)]
        wait: bool,
    },
    /// Delete volumes; the recycle bin keeps them for a while
    #[command(
        after_help = "A deleted volume can be restored for a day, or for the time that quoin recycle-bin set \
                            gives: see quoin recycle-bin. Each outcome is reported; a failure does not stop the others.\n\n\
                            Examples:\n  quoin --data /srv/a volume delete v1 v2\n  \
                            quoin --data /srv/a volume delete v1 --unmap   # also removes its mappings\n  \
                            quoin --data /srv/a volume delete v1 --now     # for good, with all data in it"
    )]
    Delete {
        /// The volumes
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

/// Options of `quoin volume create`.
#[derive(Args, Debug)]
pub struct CreateArgs {
    /// Names: 1 to 63 characters of a-z, 0-9, '.', '_' and '-'
    #[arg(id = "name", value_name = "NAME", required = true)]
    names: Vec<String>,
    /// Size of each volume
    #[arg(long, value_parser = parse_size)]
    size: Size,
    /// Logical block size in bytes: 512 or 4096
    #[arg(long, default_value_t = 512, value_name = "BYTES")]
    block_size: u32,
    /// Reserve space for the whole volume in the pool
    #[arg(long)]
    thick: bool,
    /// Add a tag; repeatable
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = parse_tag)]
    tags: Vec<(String, String)>,
    /// Folder of the volume
    #[arg(long, value_name = "PATH", default_value = "")]
    folder: String,
    /// Put it into the slice of this volume
    #[arg(long, value_name = "VOLUME")]
    near: Option<String>,
    /// What the array does for it: see quoin policy [default: the layout of the pool]
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Compress what is written to it: off, lz4 or zstd [default: as its policy says, or off]
    #[arg(long, value_name = "KIND", value_parser = parse_compression)]
    compression: Option<Compression>,
    /// Deduplicate what is written to it: on or off [default: as its policy says, or off]
    #[arg(long = "dedup", value_name = "KIND", value_parser = parse_deduplication)]
    deduplication: Option<Deduplication>,
}

/// Options of `quoin volume set`.
#[derive(Args, Debug)]
pub struct SetArgs {
    /// The volume
    name: String,
    /// Reserve space for the whole volume in the pool
    #[arg(long, conflicts_with = "thin")]
    thick: bool,
    /// Release the reservation: the volume takes only the space that it uses
    #[arg(long)]
    thin: bool,
    /// Compress what is written from now on: off, lz4 or zstd
    #[arg(long, value_name = "KIND", value_parser = parse_compression)]
    compression: Option<Compression>,
    /// Deduplicate what is written from now on: on or off
    #[arg(long = "dedup", value_name = "KIND", value_parser = parse_deduplication)]
    deduplication: Option<Deduplication>,
    /// Add a tag; repeatable
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = parse_tag)]
    tags: Vec<(String, String)>,
    /// Remove a tag; repeatable
    #[arg(long, value_name = "KEY")]
    untag: Vec<String>,
    /// Move the volume to this folder; / removes it from its folder
    #[arg(long, value_name = "PATH")]
    folder: Option<String>,
    /// Give the volume and its snapshots this policy; default for the layout of the pool
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Make the volume a template, which is write-protected
    #[arg(long, conflicts_with = "no_template")]
    template: bool,
    /// Make a template an ordinary volume again
    #[arg(long)]
    no_template: bool,
    /// Hosts may only read it, except through a mapping or export that is writable
    #[arg(long, conflicts_with = "writable")]
    read_only: bool,
    /// Hosts may write to it, even if it is a snapshot
    #[arg(long)]
    writable: bool,
    /// Make it a template or read-only although connected clients may write to it
    #[arg(long)]
    force: bool,
}

/// Runs a command about volumes.
pub(crate) fn volume(client: &Client, output: &Output, command: VolumeCommand) -> Result<(), Failure> {
    match command {
        VolumeCommand::Create(args) => create(client, output, args),
        VolumeCommand::List(filters) => list(client, output, &filters.path(), view::volumes),
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
        VolumeCommand::Unreadable(args) => unreadable::unreadable(client, output, args),
        VolumeCommand::Grow { name, size } => grow(client, output, &name, size),
        VolumeCommand::Resize { name, size, force } => {
            let update = VolumeUpdate { size_bytes: Some(size.0), force, ..VolumeUpdate::default() };
            change(client, output, &name, update)
        }
        VolumeCommand::Rename { name, new_name } => {
            change(client, output, &name, VolumeUpdate { name: Some(new_name), ..VolumeUpdate::default() })
        }
        VolumeCommand::Set(args) => set(client, output, args),
        VolumeCommand::Reduce { name, wait } => reduce(client, output, &name, wait),
        VolumeCommand::Delete { names, unmap, force, now } => each(output, &names, |name| {
            client.delete(&format!("{}?unmap={unmap}&force={force}&now={now}", path(name)))?;
            output.say(&deleted_text(client, &format!("volume {name}"), now, name));
            Ok(())
        }),
    }
}

/// Creates volumes that have all but their names in common.
fn create(client: &Client, output: &Output, args: CreateArgs) -> Result<(), Failure> {
    let like = VolumeCreate {
        name: String::new(),
        size_bytes: args.size.0,
        block_bytes: args.block_size,
        thick: args.thick,
        tags: args.tags.into_iter().collect(),
        folder: args.folder,
        near: args.near,
        policy: args.policy,
        compression: args.compression,
        deduplication: args.deduplication,
    };
    let create =
        |name: &str| client.post("/volumes", &VolumeCreate { name: name.to_owned(), ..like.clone() });
    create_each(output, &args.names, create, view::volume, view::volumes)
}

/// Grows a volume, and refuses to shrink it: a user of "grow" does not expect to lose data.
fn grow(client: &Client, output: &Output, name: &str, size: Size) -> Result<(), Failure> {
    let before: Volume = client.get(&path(name))?;
    if size.0 < before.size_bytes {
        let why = format!(
            "volume {name} is {} already, which is more than the new size",
            size_text(before.size_bytes)
        );
        let next = format!("to shrink it: quoin volume resize {name} --size SIZE");
        return Err(Failure::usage("volume not grown", why, next));
    }
    change(client, output, name, VolumeUpdate { size_bytes: Some(size.0), ..VolumeUpdate::default() })
}

/// Changes the settings that are given; an option and its opposite are one setting.
fn set(client: &Client, output: &Output, args: SetArgs) -> Result<(), Failure> {
    let added = args.tags.into_iter().map(|(key, value)| (key, Some(value)));
    let tags: BTreeMap<_, _> = args.untag.into_iter().map(|key| (key, None)).chain(added).collect();
    let update = VolumeUpdate {
        thick: (args.thick || args.thin).then_some(args.thick),
        compression: args.compression,
        deduplication: args.deduplication,
        tags: (!tags.is_empty()).then_some(tags),
        folder: args.folder,
        policy: args.policy,
        template: (args.template || args.no_template).then_some(args.template),
        writable: (args.read_only || args.writable).then_some(args.writable),
        force: args.force,
        ..VolumeUpdate::default()
    };
    change(client, output, &args.name, update)
}

/// Reduces what a volume has. It goes on without this process.
fn reduce(client: &Client, output: &Output, name: &str, wait: bool) -> Result<(), Failure> {
    let begun: Job = client.post(&format!("{}/reduce", path(name)), &serde_json::json!({}))?;
    if !wait {
        output.show(&begun, job::one);
        return Ok(());
    }
    let Some(ended) = job::follow(client, output, begun)? else { return Ok(()) };
    output.show(&ended, job::one);
    job::completed(ended)
}

fn path(name: &str) -> String {
    format!("/volumes/{}", segment(name))
}

fn change(client: &Client, output: &Output, name: &str, update: VolumeUpdate) -> Result<(), Failure> {
    let volume: Volume = client.patch(&path(name), &update)?;
    output.show(&volume, view::volume);
    Ok(())
}
