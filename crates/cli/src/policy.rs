//! `quoin policy`: what the array does for the volumes that have a policy.

use crate::{
    Failure, Output,
    client::{Client, segment},
    output::{pairs, table},
    report::{each, list, show},
    size_text,
    time::{duration_text, utc_text},
};
use clap::{Args, Subcommand};
use quoin_api::{Compliance, ComplianceState, Policy, PolicyCreate, PolicyUpdate, Reservation, Volume};

/// Commands about policies.
#[derive(Subcommand, Debug)]
pub enum PolicyCommand {
    /// Create a policy: how the data of its volumes is laid out, and whether space is kept for all of it
    #[command(
        after_help = "A layout tolerates as many failures as that of the pool at least, and no more than the journal. The \
                      array tells what is lacking if it cannot place it.\n\nWith --failures-to-tolerate the array chooses: \
                      the layout of the pool if it tolerates as many, or else copies.\n\nThe stripe width is part of the \
                      layout: 8+2 is ten columns wide. With wide the array chooses it: two columns of parity, and as many of \
                      data as there are fault domains for, one of them left free from five on.\n\nWith \
                      --force-provisioning it places what it can, with fewer columns or tolerating fewer failures, and makes \
                      that good when drives are added.\n\nWith --reservation thick its volumes become thick, with thin thin; \
                      a volume that is set otherwise by itself stays so, and is shown.\n\nExamples:\n  \
                      quoin --data /srv/a policy create log --layout mirror\n  \
                      quoin --data /srv/a policy create gold --failures-to-tolerate 2 --reservation thick\n  \
                      quoin --data /srv/a policy create wide --layout 8+1 --force-provisioning"
    )]
    Create {
        /// Its name: 1 to 63 characters of a-z, 0-9, '.', '_' and '-'
        name: String,
        #[command(flatten)]
        what: Layouts,
        /// Place what can be placed if there are too few fault domains
        #[arg(long)]
        force_provisioning: bool,
        /// Keep space for all of its volumes, or for none: thick or thin [default: each volume is as it was made]
        #[arg(long, value_name = "KIND", value_parser = parse_reservation)]
        reservation: Option<Reservation>,
    },
    /// List all policies
    #[command(after_help = "Examples:\n  quoin --data /srv/a policy list")]
    List,
    /// Show one policy
    #[command(after_help = "Examples:\n  quoin --data /srv/a policy show gold")]
    Show {
        /// The policy
        name: String,
    },
    /// Show the volumes that are not as their policies say, and how far their conversion is
    #[command(after_help = "Examples:\n  quoin --data /srv/a policy status")]
    Status,
    /// Change a policy; its volumes are converted in the background
    #[command(
        after_help = "What is written from then on is laid out in the new way at once. What the volumes have is moved in the \
                      background, while hosts use them: quoin policy status shows how far it is.\n\nExamples:\n  \
                      quoin --data /srv/a policy set gold --layout raid5\n  \
                      quoin --data /srv/a policy set gold --reservation thin\n  \
                      quoin --data /srv/a policy set wide --no-force-provisioning"
    )]
    Set {
        /// The policy
        name: String,
        #[command(flatten)]
        what: NewLayouts,
        /// Place what can be placed if there are too few fault domains
        #[arg(long, conflicts_with = "no_force_provisioning")]
        force_provisioning: bool,
        /// Refuse what cannot be placed as the layout says
        #[arg(long)]
        no_force_provisioning: bool,
        /// Keep space for all of its volumes, or for none: thick, thin or any, which leaves volumes as they are
        #[arg(long, value_name = "KIND", value_parser = parse_reservation)]
        reservation: Option<Reservation>,
    },
    /// Delete policies that no volume has
    #[command(after_help = "Examples:\n  quoin --data /srv/a policy delete gold")]
    Delete {
        /// The policies
        #[arg(id = "name", value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

/// What a new policy asks for.
#[derive(Args, Debug)]
#[group(required = false, multiple = false)]
pub struct Layouts {
    /// mirror, mirror-3, mirror-4, raid5 (3+1), raid6 (4+2), data+parity columns such as 8+2, or wide
    #[arg(long, required_unless_present_any = ["failures_to_tolerate", "reservation"])]
    layout: Option<String>,
    /// Failures of fault domains to tolerate
    #[arg(long, value_name = "N")]
    failures_to_tolerate: Option<u8>,
}

/// What a changed policy asks for.
#[derive(Args, Debug)]
#[group(required = false, multiple = false)]
pub struct NewLayouts {
    /// mirror, mirror-3, mirror-4, raid5 (3+1), raid6 (4+2), data+parity columns such as 8+2, or wide
    #[arg(long)]
    layout: Option<String>,
    /// Failures of fault domains to tolerate
    #[arg(long, value_name = "N")]
    failures_to_tolerate: Option<u8>,
}

fn parse_reservation(text: &str) -> Result<Reservation, String> {
    let all = [Reservation::Any, Reservation::Thin, Reservation::Thick];
    let found = all.into_iter().find(|kind| kind.to_string() == text);
    found.ok_or_else(|| format!("{text:?} is no reservation; write thick, thin or any"))
}

/// Runs a command about policies.
pub(crate) fn run(client: &Client, output: &Output, command: PolicyCommand) -> Result<(), Failure> {
    match command {
        PolicyCommand::Create { name, what, force_provisioning, reservation } => {
            let Layouts { layout, failures_to_tolerate } = what;
            let reservation = reservation.unwrap_or_default();
            let request =
                PolicyCreate { name, layout, failures_to_tolerate, force_provisioning, reservation };
            output.show(&client.post::<Policy>("/policies", &request)?, one);
        }
        PolicyCommand::List => list(client, output, "/policies", many)?,
        PolicyCommand::Show { name } => show(client, output, &path(&name), one)?,
        PolicyCommand::Status => list(client, output, "/volumes", status)?,
        PolicyCommand::Set { name, what, force_provisioning, no_force_provisioning, reservation } => {
            let NewLayouts { layout, failures_to_tolerate } = what;
            let force_provisioning =
                (force_provisioning || no_force_provisioning).then_some(force_provisioning);
            let request = PolicyUpdate { layout, failures_to_tolerate, force_provisioning, reservation };
            output.show(&client.patch::<Policy>(&path(&name), &request)?, one);
        }
        PolicyCommand::Delete { names } => each(output, &names, |name| {
            client.delete(&path(name))?;
            output.say(&format!("policy {name} deleted"));
            Ok(())
        })?,
    }
    Ok(())
}

fn path(name: &str) -> String {
    format!("/policies/{}", segment(name))
}

fn now(policy: &Policy) -> String {
    match &policy.layout_now {
        None => "-".to_owned(),
        Some(now) if *now == policy.layout => "as it is".to_owned(),
        Some(now) => format!("REDUCED to {now}"),
    }
}

fn many(policies: &[Policy]) -> String {
    let row = |p: &Policy| {
        vec![
            p.name.clone(),
            p.layout.clone(),
            p.failures_to_tolerate.to_string(),
            now(p),
            p.reservation.to_string(),
            p.volumes.to_string(),
            p.converting.to_string(),
        ]
    };
    let header = ["name", "layout", "failures tolerated", "placed", "reservation", "volumes", "converting"];
    table(&header, policies.iter().map(row).collect(), "no policies")
}

fn one(policy: &Policy) -> String {
    let forced = if policy.force_provisioning { "yes" } else { "no" };
    let mut rows = vec![
        ("policy", policy.name.clone()),
        ("layout", policy.layout.clone()),
        ("placed", now(policy)),
        ("failures tolerated", policy.failures_to_tolerate.to_string()),
        ("forced provisioning", forced.to_owned()),
        ("reservation", policy.reservation.to_string()),
        ("volumes", policy.volumes.to_string()),
        ("converting", policy.converting.to_string()),
        ("reduced", policy.reduced.to_string()),
        ("differing", policy.differing.to_string()),
    ];
    if let Some(created_ms) = policy.created_ms {
        rows.push(("created", utc_text(created_ms)));
    }
    pairs(rows)
}

/// The volumes that are not as their policies say.
fn status(volumes: &[Volume]) -> String {
    let row = |volume: &Volume| {
        let found = volume.compliance.as_ref().filter(|c| c.state != ComplianceState::Compliant)?;
        Some(vec![volume.name.clone(), volume.policy.clone(), found.layout.clone(), compliance(found)])
    };
    table(
        &["volume", "policy", "layout", "state"],
        volumes.iter().filter_map(row).collect(),
        "all volumes are as their policies say",
    )
}

/// `converting 41.2 %, 12.1 GiB left, 180.2 MiB/s, about 1m 8s`.
pub(crate) fn compliance(found: &Compliance) -> String {
    match found.state {
        ComplianceState::Compliant => "compliant".to_owned(),
        ComplianceState::Differs if found.reservation == Reservation::Thick => {
            "THIN, and its policy says thick: quoin volume set --thick".to_owned()
        }
        ComplianceState::Differs => "thick, and its policy says thin: quoin volume set --thin".to_owned(),
        ComplianceState::Reduced => {
            format!(
                "REDUCED to {}, which tolerates {}: add drives in other fault domains",
                found.layout_now, found.tolerates
            )
        }
        ComplianceState::Converting => {
            let mut text = format!("converting {:.1} %, {} left", found.percent, size_text(found.left_bytes));
            if let Some(rate) = found.bytes_per_s {
                text += &format!(", {}/s", size_text(rate));
            }
            if let Some(seconds) = found.remaining_s {
                text += &format!(", about {}", duration_text(seconds));
            }
            if found.waits_for_space {
                text += "; it waits for free space";
            }
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_how_far_a_conversion_is() {
        let found = Compliance {
            state: ComplianceState::Converting,
            layout: "raid5".into(),
            layout_now: "raid5".into(),
            tolerates: 1,
            reservation: Reservation::Any,
            percent: 41.23,
            left_bytes: 12 << 30,
            bytes_per_s: Some(180 << 20),
            remaining_s: Some(68),
            waits_for_space: false,
        };
        assert_eq!(compliance(&found), "converting 41.2 %, 12.0 GiB left, 180.0 MiB/s, about 1m 8s");
        let reduced = Compliance { state: ComplianceState::Reduced, layout_now: "2+1".into(), ..found };
        assert!(compliance(&reduced).starts_with("REDUCED to 2+1, which tolerates 1"));
    }
}
