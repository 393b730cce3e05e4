//! `quoin portal`: commands for iSCSI portals.

use crate::{
    Failure, Output,
    client::{Client, segment},
    output::{pairs, table},
    report::{each, list},
    time::utc_text,
};
use clap::Subcommand;
use quoin_api::{Portal, PortalCreate, PortalUpdate, Session};

/// Commands about portals.
#[derive(Subcommand, Debug)]
pub enum PortalCommand {
    /// Create a portal; hosts reach the array there at once, also after a restart
    #[command(
        after_help = "Each portal is a target port of its own: a host that logs in through several has as many paths to its \
                      volumes. Give them addresses of separate networks, and the hosts a multipath driver.\n\nExamples:\n  \
                      quoin --data /srv/a portal create 10.0.1.5\n  \
                      quoin --data /srv/a portal create 10.0.1.5:3261\n  \
                      quoin --data /srv/a portal create [fd00::5]:3260"
    )]
    Create {
        /// An IP address of this machine, with a port unless that is 3260
        address: String,
    },
    /// List all portals
    #[command(after_help = "Examples:\n  quoin --data /srv/a portal list\n  \
                            quoin --data /srv/a portal list -o json")]
    List,
    /// Show one portal and the sessions that came through it
    #[command(after_help = "Examples:\n  quoin --data /srv/a portal show 10.0.1.5:3260")]
    Show {
        /// The portal
        #[arg(id = "name", value_name = "ADDRESS")]
        address: String,
    },
    /// Listen again at portals that are disabled
    #[command(after_help = "Examples:\n  quoin --data /srv/a portal enable 10.0.1.5:3260")]
    Enable {
        /// The portals
        #[arg(id = "name", value_name = "ADDRESS", required = true)]
        addresses: Vec<String>,
    },
    /// No longer listen at portals, also after a restart; initiators logged in through them are logged out
    #[command(
        after_help = "The array asks initiators that came through the portal to log out and after three seconds cuts off those \
                      that have not. A host with a multipath driver goes on through another portal; without one it loses \
                      its volumes. Sessions through other portals are not touched.\n\nExamples:\n  \
                      quoin --data /srv/a portal disable 10.0.1.5:3260\n  \
                      quoin --data /srv/a portal disable 10.0.1.5:3260 --force   # although initiators are logged in"
    )]
    Disable {
        /// The portals
        #[arg(id = "name", value_name = "ADDRESS", required = true)]
        addresses: Vec<String>,
        /// Disable although initiators are logged in
        #[arg(long)]
        force: bool,
    },
    /// Delete portals that were created; those of --iscsi and quoin.toml can only be disabled
    #[command(after_help = "Examples:\n  quoin --data /srv/a portal delete 10.0.1.5:3260\n  \
                            quoin --data /srv/a portal delete 10.0.1.5:3260 --force   # although initiators are logged in")]
    Delete {
        /// The portals
        #[arg(id = "name", value_name = "ADDRESS", required = true)]
        addresses: Vec<String>,
        /// Delete although initiators are logged in
        #[arg(long)]
        force: bool,
    },
}

pub(crate) fn run(client: &Client, output: &Output, command: PortalCommand) -> Result<(), Failure> {
    let set = |addresses: &[String], enabled, force, done: &str| {
        each(output, addresses, |address| {
            client.patch::<Portal>(&path(address), &PortalUpdate { enabled, force })?;
            output.say(&format!("portal {address} {done}"));
            Ok(())
        })
    };
    match command {
        PortalCommand::Create { address } => {
            output.show(&client.post::<Portal>("/portals", &PortalCreate { address })?, one);
        }
        PortalCommand::List => list(client, output, "/portals", many)?,
        PortalCommand::Show { address } => output.show(&client.get::<Portal>(&path(&address))?, one),
        PortalCommand::Enable { addresses } => set(&addresses, true, false, "enabled")?,
        PortalCommand::Disable { addresses, force } => set(&addresses, false, force, "disabled")?,
        PortalCommand::Delete { addresses, force } => each(output, &addresses, |address| {
            client.delete(&format!("{}?force={force}", path(address)))?;
            output.say(&format!("portal {address} deleted"));
            Ok(())
        })?,
    }
    Ok(())
}

fn path(address: &str) -> String {
    format!("/portals/{}", segment(address))
}

fn origin(portal: &Portal) -> String {
    if portal.configured { "configuration" } else { "created" }.to_owned()
}

fn many(portals: &[Portal]) -> String {
    let row = |p: &Portal| {
        let (group, sessions) = (p.portal_group.to_string(), p.sessions.len().to_string());
        let problem = p.problem.clone().unwrap_or_else(|| "-".to_owned());
        vec![p.address.clone(), group, p.state.to_string(), origin(p), sessions, problem]
    };
    table(
        &["address", "group", "state", "from", "sessions", "problem"],
        portals.iter().map(row).collect(),
        "no portals; create one: quoin portal create ADDRESS",
    )
}

fn one(portal: &Portal) -> String {
    let mut lines = vec![
        ("portal", portal.address.clone()),
        ("portal group", portal.portal_group.to_string()),
        ("state", portal.state.to_string()),
        ("from", origin(portal)),
        ("since", utc_text(portal.created_ms)),
    ];
    lines.extend(portal.problem.clone().map(|problem| ("problem", problem)));
    let row = |s: &Session| {
        let host = s.host.clone().unwrap_or_else(|| "-".to_owned());
        vec![s.initiator.clone(), host, s.peer.clone(), utc_text(s.since_ms)]
    };
    let rows = portal.sessions.iter().map(row).collect();
    let sessions =
        table(&["initiator", "host", "connects from", "since"], rows, "no initiator is logged in through it");
    format!("{}\n\n{sessions}", pairs(lines))
}
