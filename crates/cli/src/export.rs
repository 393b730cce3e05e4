//! `quoin export`: commands for NBD exports.

use crate::{
    Failure, Output,
    client::{Client, segment},
    mapping::AccessArgs,
    output::{pairs, table},
    report::{each, list},
    time::utc_text,
};
use clap::Subcommand;
use quoin_api::{AccessUpdate, Export, ExportClient, ExportCreate};

/// Commands about exports.
#[derive(Subcommand, Debug)]
pub enum ExportCommand {
    /// Export a volume to NBD clients
    #[command(
        after_help = "Without --allow and --tls-client only clients on this machine have access. --allow admits clients \
                      from the given networks. --tls-client admits clients whose certificate has the given DNS name or \
                      common name. If both are given, a client must satisfy both.\n\nExamples:\n  \
                      quoin --data /srv/a export create v1\n  \
                      quoin --data /srv/a export create v1 --name v1-ro --read-only --allow 10.0.0.0/24\n  \
                      quoin --data /srv/a export create v1 --name db --tls-client db1.example.com"
    )]
    Create {
        /// The volume
        volume: String,
        /// Export name [default: the name of the volume]
        #[arg(long)]
        name: Option<String>,
        /// Export the volume read-only
        #[arg(long, conflicts_with = "writable")]
        read_only: bool,
        /// Let clients write, even to a snapshot that is read-only for others
        #[arg(long)]
        writable: bool,
        /// Allowed client network or address; repeatable
        #[arg(long, value_name = "CIDR")]
        allow: Vec<String>,
        /// Allowed name in a client certificate; repeatable
        #[arg(long = "tls-client", value_name = "NAME")]
        tls_clients: Vec<String>,
    },
    /// List all exports
    #[command(after_help = "Examples:\n  quoin --data /srv/a export list\n  \
                            quoin --data /srv/a export list -o json")]
    List,
    /// Show one export and the clients connected to it
    #[command(after_help = "Examples:\n  quoin --data /srv/a export show v1")]
    Show {
        /// The export
        name: String,
    },
    /// Make an export read-only or writable; its clients stay connected
    #[command(
        after_help = "NBD cannot notify clients: a client of an export that was read-only writes only after it has reconnected. \
                      While clients are connected, an export becomes read-only only with --force; their writes fail \
                      from then on.\n\nExamples:\n  \
                      quoin --data /srv/a export set v1 --read-only\n  \
                      quoin --data /srv/a export set v1.before-upgrade --writable"
    )]
    Set {
        /// The export
        name: String,
        /// What clients may do
        #[command(flatten)]
        access: AccessArgs,
        /// Make it read-only although clients that may write are connected
        #[arg(long)]
        force: bool,
    },
    /// Delete exports; their clients are disconnected, the volumes stay
    #[command(after_help = "Examples:\n  quoin --data /srv/a export delete v1 v2\n  \
                            quoin --data /srv/a export delete v1 --force   # although clients are connected")]
    Delete {
        /// The exports
        #[arg(id = "name", value_name = "NAME", required = true)]
        names: Vec<String>,
        /// Delete although clients are connected
        #[arg(long)]
        force: bool,
    },
}

pub(crate) fn run(client: &Client, output: &Output, command: ExportCommand) -> Result<(), Failure> {
    match command {
        ExportCommand::Create { volume, name, read_only, writable, allow, tls_clients } => {
            let request = ExportCreate { volume, name, read_only, writable, allow, tls_clients };
            let export: Export = client.post("/exports", &request)?;
            output.show(&export, one);
        }
        ExportCommand::List => list(client, output, "/exports", many)?,
        ExportCommand::Show { name } => {
            output.show(&client.get::<Export>(&format!("/exports/{}", segment(&name)))?, one);
        }
        ExportCommand::Set { name, access, force } => {
            let update = AccessUpdate { access: access.access(), force };
            output.show(&client.patch::<Export>(&format!("/exports/{}", segment(&name)), &update)?, one);
        }
        ExportCommand::Delete { names, force } => each(output, &names, |name| {
            client.delete(&format!("/exports/{}?force={force}", segment(name)))?;
            output.say(&format!("export {name} deleted"));
            Ok(())
        })?,
    }
    Ok(())
}

fn access(export: &Export) -> String {
    if export.read_only { "read-only" } else { "read-write" }.to_owned()
}

fn seen_from(export: &Export) -> String {
    match (export.allow.as_slice(), export.tls_clients.as_slice()) {
        ([], []) => "this machine".to_owned(),
        ([], _) => "anywhere".to_owned(),
        (networks, _) => networks.join(", "),
    }
}

fn certificates(export: &Export) -> String {
    if export.tls_clients.is_empty() { "-".to_owned() } else { export.tls_clients.join(", ") }
}

fn many(exports: &[Export]) -> String {
    let row = |e: &Export| {
        let clients = e.clients.len().to_string();
        vec![e.name.clone(), e.volume.clone(), access(e), seen_from(e), certificates(e), clients]
    };
    let empty = "no exports; create one: quoin export create VOLUME";
    table(
        &["name", "volume", "access", "from", "tls clients", "connected"],
        exports.iter().map(row).collect(),
        empty,
    )
}

fn one(export: &Export) -> String {
    let about = pairs(vec![
        ("export", export.name.clone()),
        ("volume", export.volume.clone()),
        ("access", access(export)),
        ("from", seen_from(export)),
        ("tls clients", certificates(export)),
        ("created", utc_text(export.created_ms)),
    ]);
    let row = |c: &ExportClient| {
        let name = c.tls_client.clone().unwrap_or_else(|| "-".to_owned());
        let encrypted = if c.encrypted { "TLS" } else { "no" }.to_owned();
        vec![c.peer.clone(), encrypted, name, utc_text(c.since_ms)]
    };
    let rows = export.clients.iter().map(row).collect();
    let clients = table(&["client", "encrypted", "certificate", "since"], rows, "no client is connected");
    format!("{about}\n\n{clients}")
}
