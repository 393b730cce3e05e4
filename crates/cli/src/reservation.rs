//! `quoin reservation`: what hosts have reserved of volumes.

use crate::{
    Failure, Output,
    client::{Client, segment},
    output::{pairs, table},
    report::{each, list},
};
use clap::Subcommand;
use quoin_api::{Registration, Reservations};

/// Commands about SCSI reservations.
#[derive(Subcommand, Debug)]
pub enum ReservationCommand {
    /// List the volumes that hosts have reserved, or are registered with
    #[command(after_help = "Examples:\n  quoin --data /srv/a reservation list\n  \
                            quoin --data /srv/a reservation list -o json")]
    List,
    /// Show the reservation of a volume, and which initiators are registered with which keys
    #[command(after_help = "Examples:\n  quoin --data /srv/a reservation show v1")]
    Show {
        /// The volume
        volume: String,
    },
    /// Remove all registrations and reservations of volumes
    #[command(
        after_help = "Use it when the hosts that reserved a volume no longer exist. Nothing keeps other hosts from the volume \
                      afterwards: a node that its cluster has fenced can write again. Stop the cluster first, or \
                      have it register anew. Hosts that are logged in learn of it with their next command \
                      (RESERVATIONS PREEMPTED).\n\nExamples:\n  \
                      quoin --data /srv/a reservation clear v1 --force"
    )]
    Clear {
        /// The volumes
        #[arg(id = "volume", value_name = "VOLUME", required = true)]
        volumes: Vec<String>,
        /// Clear although hosts are registered
        #[arg(long)]
        force: bool,
    },
}

pub(crate) fn run(client: &Client, output: &Output, command: ReservationCommand) -> Result<(), Failure> {
    match command {
        ReservationCommand::List => list(client, output, "/reservations", many)?,
        ReservationCommand::Show { volume } => output.show(&client.get::<Reservations>(&path(&volume))?, one),
        ReservationCommand::Clear { volumes, force } => each(output, &volumes, |volume| {
            client.delete(&format!("{}?force={force}", path(volume)))?;
            output.say(&format!("reservations of volume {volume} cleared"));
            Ok(())
        })?,
    }
    Ok(())
}

fn path(volume: &str) -> String {
    format!("/volumes/{}/reservations", segment(volume))
}

fn yes_or_no(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_owned()
}

fn kind(of: &Reservations) -> String {
    match (of.unreadable, of.reservation, &of.reserved_by) {
        (true, ..) => "unreadable".to_owned(),
        (_, Some(kind), _) => kind.to_string(),
        (_, None, Some(_)) => "RESERVE".to_owned(),
        (_, None, None) => "none".to_owned(),
    }
}

fn holder(of: &Reservations) -> String {
    let mut holders = of.registrations.iter().filter(|one| one.holder);
    match (holders.next(), holders.next()) {
        (Some(_), Some(_)) => "all registrants".to_owned(),
        (Some(one), None) => one.initiator.clone(),
        (None, _) => of.reserved_by.clone().unwrap_or_else(|| "-".to_owned()),
    }
}

fn many(all: &[Reservations]) -> String {
    let row = |of: &Reservations| {
        let registrations = of.registrations.len().to_string();
        vec![of.volume.clone(), kind(of), holder(of), registrations, yes_or_no(of.persists)]
    };
    table(
        &["volume", "reservation", "holder", "registrations", "survives a restart"],
        all.iter().map(row).collect(),
        "no volume is reserved",
    )
}

fn one(of: &Reservations) -> String {
    let mut lines = vec![
        ("volume", of.volume.clone()),
        ("reservation", kind(of)),
        ("holder", holder(of)),
        ("survives a restart", yes_or_no(of.persists)),
        ("generation", of.generation.to_string()),
    ];
    if of.unreadable {
        lines.push((
            "problem",
            "no host may read or write until one registers anew, or it is cleared".to_owned(),
        ));
    }
    let row = |one: &Registration| {
        let host = one.host.clone().unwrap_or_else(|| "-".to_owned());
        let (group, holds) = (one.portal_group.to_string(), yes_or_no(one.holder));
        let connected = yes_or_no(one.connected);
        vec![one.initiator.clone(), host, one.isid.clone(), group, one.key.clone(), holds, connected]
    };
    let registrations = table(
        &["initiator", "host", "isid", "portal group", "key", "holder", "connected"],
        of.registrations.iter().map(row).collect(),
        "no initiator is registered",
    );
    format!("{}\n\n{registrations}", pairs(lines))
}
