//! `quoin export`: volumes shown to NBD clients.

use crate::{
    Failure, Output,
    client::{Client, segment},
    output::{pairs, table},
    time::utc_text,
};
use clap::Subcommand;
use quoin_api::{Export, ExportClient, ExportCreate};

/// Commands about exports.
#[derive(Subcommand, Debug)]
pub enum ExportCommand {
    /// Show a volume to NBD clients
    #[command(
        after_help = "Without --allow and --tls-client only clients on this machine see it. With --tls-client a \
                      client's certificate must bear the name (a DNS name of it, or its common name); with \
                      --allow it must come from one of the networks; with both, both.\n\nExamples:\n  \
                      quoin --data /srv/a export create v1\n  \
                      quoin --data /srv/a export create v1 --name v1-ro --read-only --allow 10.0.0.0/24\n  \
                      quoin --data /srv/a export create v1 --name db --tls-client db1.example.com"
    )]
    Create {
        /// The volume
        volume: String,
        /// The name clients ask for [default: the volume's]
        #[arg(long)]
        name: Option<String>,
        /// Let clients only read
        #[arg(long)]
        read_only: bool,
        /// A network or address that clients may come from; repeatable
        #[arg(long, value_name = "CIDR")]
        allow: Vec<String>,
        /// A name that a client's certificate may bear; repeatable
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
    /// Take an export away; its clients are disconnected, the volume stays
    #[command(after_help = "Examples:\n  quoin --data /srv/a export delete v1")]
    Delete {
        /// The export
        name: String,
    },
}

pub(crate) fn run(client: &Client, output: &Output, command: ExportCommand) -> Result<(), Failure> {
    match command {
        ExportCommand::Create { volume, name, read_only, allow, tls_clients } => {
            let request = ExportCreate { volume, name, read_only, allow, tls_clients };
            let export: Export = client.post("/exports", &request)?;
            output.show(&export, one);
        }
        ExportCommand::List => output.show(&client.get::<Vec<Export>>("/exports")?, |all| many(all)),
        ExportCommand::Show { name } => {
            output.show(&client.get::<Export>(&format!("/exports/{}", segment(&name)))?, one);
        }
        ExportCommand::Delete { name } => {
            client.delete(&format!("/exports/{}", segment(&name)))?;
            output.say(&format!("export {name} deleted"));
        }
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
    let empty = "no exports; make one: quoin export create VOLUME";
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
        ("created", format!("{} UTC", utc_text(export.created_ms))),
    ]);
    let row = |c: &ExportClient| {
        let name = c.tls_client.clone().unwrap_or_else(|| "-".to_owned());
        let encrypted = if c.encrypted { "TLS" } else { "no" }.to_owned();
        vec![c.peer.clone(), encrypted, name, utc_text(c.since_ms)]
    };
    let rows = export.clients.iter().map(row).collect();
    let clients = table(&["client", "encrypted", "certificate", "since (utc)"], rows, "nobody is connected");
    format!("{about}\n\n{clients}")
}
