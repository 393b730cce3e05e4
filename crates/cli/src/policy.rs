//! `quoin policy`: what the array does for the volumes that have a policy.

use crate::{
    Failure, Output,
    choice::choice,
    client::{Client, segment},
    compression::parse_policy_compression,
    deduplication::parse_policy_deduplication,
    output::{pairs, table},
    report::{each, list, show},
    size_text,
    time::{duration_text, utc_text},
};
use clap::{Args, Subcommand};
use quoin_api::{
    Compliance, ComplianceState, Policy, PolicyCompression, PolicyCreate, PolicyDeduplication, PolicyUpdate,
    Reservation, Volume,
};
use std::fmt::Display;

/// Commands about policies.
#[derive(Subcommand, Debug)]
pub enum PolicyCommand {
    /// Create a policy: how the data of its volumes is laid out, compressed and deduplicated, and whether space is kept for it
    #[command(
        after_help = "A layout tolerates as many failures as that of the pool at least, and no more than the journal. The \
                      array tells what is lacking if it cannot place it.\n\nWith --failures-to-tolerate the array chooses: \
                      the layout of the pool if it tolerates as many, or else copies.\n\nThe stripe width is part of the \
                      layout: 8+2 is ten columns wide. With wide the array chooses it: two columns of parity, and as many of \
                      data as there are fault domains for, one of them left free from five on.\n\nWith \
                      --force-provisioning it places what it can, with fewer columns or tolerating fewer failures, and makes \
                      that good when drives are added.\n\nWith --reservation thick its volumes become thick, with thin thin; \
                      with --compression, what is written to them from then on is compressed so; with --dedup on, \
                      blocks of it with the same content are stored once. A volume that is set \
                      otherwise by itself stays so, and is shown.\n\nExamples:\n  \
                      quoin --data /srv/a policy create log --layout mirror\n  \
                      quoin --data /srv/a policy create gold --failures-to-tolerate 2 --reservation thick\n  \
                      quoin --data /srv/a policy create packed --compression zstd\n  \
                      quoin --data /srv/a policy create desktops --dedup on --compression lz4\n  \
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
        /// Compress what is written to its volumes: off, lz4 or zstd [default: each volume is as it was made]
        #[arg(long, value_name = "KIND", value_parser = parse_policy_compression)]
        compression: Option<PolicyCompression>,
        /// Deduplicate what is written to its volumes: on or off [default: each volume is as it was made]
        #[arg(long = "dedup", value_name = "KIND", value_parser = parse_policy_deduplication)]
        deduplication: Option<PolicyDeduplication>,
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
                      quoin --data /srv/a policy set gold --compression lz4\n  \
                      quoin --data /srv/a policy set gold --dedup on\n  \
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
        /// Compress what is written to its volumes: off, lz4, zstd or any, which leaves volumes as they are
        #[arg(long, value_name = "KIND", value_parser = parse_policy_compression)]
        compression: Option<PolicyCompression>,
        /// Deduplicate what is written to its volumes: on, off or any, which leaves volumes as they are
        #[arg(long = "dedup", value_name = "KIND", value_parser = parse_policy_deduplication)]
        deduplication: Option<PolicyDeduplication>,
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
    #[arg(long, required_unless_present_any = ["failures_to_tolerate", "reservation", "compression", "deduplication"])]
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
    choice(all, text, ("reservation", "thick, thin or any"))
}

/// Runs a command about policies.
pub(crate) fn run(client: &Client, output: &Output, command: PolicyCommand) -> Result<(), Failure> {
    match command {
        PolicyCommand::Create { name, what, force_provisioning, reservation, compression, deduplication } => {
            let Layouts { layout, failures_to_tolerate } = what;
            let request = PolicyCreate {
                name,
                layout,
                failures_to_tolerate,
                force_provisioning,
                reservation: reservation.unwrap_or_default(),
                compression: compression.unwrap_or_default(),
                deduplication: deduplication.unwrap_or_default(),
            };
            output.show(&client.post::<Policy>("/policies", &request)?, one);
        }
        PolicyCommand::List => list(client, output, "/policies", many)?,
        PolicyCommand::Show { name } => show(client, output, &path(&name), one)?,
        PolicyCommand::Status => list(client, output, "/volumes", status)?,
        PolicyCommand::Set {
            name,
            what,
            force_provisioning,
            no_force_provisioning,
            reservation,
            compression,
            deduplication,
        } => {
            let NewLayouts { layout, failures_to_tolerate } = what;
            let force_provisioning =
                (force_provisioning || no_force_provisioning).then_some(force_provisioning);
            let request = PolicyUpdate {
                layout,
                failures_to_tolerate,
                force_provisioning,
                reservation,
                compression,
                deduplication,
            };
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
            p.compression.to_string(),
            p.deduplication.to_string(),
            p.volumes.to_string(),
            p.converting.to_string(),
        ]
    };
    let header = [
        "name",
        "layout",
        "failures tolerated",
        "placed",
        "reservation",
        "compression",
        "deduplication",
        "volumes",
        "converting",
    ];
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
        ("compression", policy.compression.to_string()),
        ("deduplication", policy.deduplication.to_string()),
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
        let state = compliance(volume, found);
        Some(vec![volume.name.clone(), volume.policy.clone(), found.layout.clone(), state])
    };
    table(
        &["volume", "policy", "layout", "state"],
        volumes.iter().filter_map(row).collect(),
        "all volumes are as their policies say",
    )
}

/// `converting 41.2 %, 12.1 GiB left, 180.2 MiB/s, about 1m 8s`.
pub(crate) fn compliance(volume: &Volume, found: &Compliance) -> String {
    match found.state {
        ComplianceState::Compliant => "compliant".to_owned(),
        ComplianceState::Differs => differences(volume, found).join("; "),
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

/// In what a volume is otherwise than its policy says, and how to change that.
fn differences(volume: &Volume, found: &Compliance) -> Vec<String> {
    let mut differences = Vec::new();
    match found.reservation {
        Reservation::Thick if !volume.thick => {
            differences.push("THIN, and its policy says thick: quoin volume set --thick".to_owned());
        }
        Reservation::Thin if volume.thick => {
            differences.push("thick, and its policy says thin: quoin volume set --thin".to_owned());
        }
        _ => {}
    }
    let compression = volume.compression.zip(found.compression.wanted());
    differences.extend(difference("compression", "--compression", compression));
    let deduplication = volume.deduplication.zip(found.deduplication.wanted());
    differences.extend(difference("deduplication", "--dedup", deduplication));
    differences
}

/// What a volume has otherwise than its policy says, if it is so, and the option that changes it.
fn difference<T: PartialEq + Display>(what: &str, option: &str, found: Option<(T, T)>) -> Option<String> {
    let (now, wanted) = found.filter(|(now, wanted)| now != wanted)?;
    Some(format!("{what} {now}, and its policy says {wanted}: quoin volume set {option} {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoin_api::{Compression, Deduplication};
    use serde_json::json;

    fn volume(thick: bool, compression: Option<Compression>) -> Volume {
        serde_json::from_value(json!({
            "name": "v1", "uuid": "da98f305-398b-4873-983c-da64de7c4480", "size_bytes": 4096, "block_bytes": 512,
            "mapped_bytes": null, "freed_by_delete_bytes": null, "thick": thick, "reserved_bytes": null,
            "trimming": false, "tags": {}, "folder": "", "policy": "gold", "compliance": null,
            "compression": compression, "kind": "volume", "writable": true, "modified_ms": null,
            "retain_until_ms": null, "created_ms": 0, "origin": null, "offline": null, "group": null, "mappings": [],
        }))
        .unwrap()
    }

    #[test]
    fn people_read_how_far_a_conversion_is() {
        let found = Compliance {
            state: ComplianceState::Converting,
            layout: "raid5".into(),
            layout_now: "raid5".into(),
            tolerates: 1,
            reservation: Reservation::Any,
            compression: PolicyCompression::Any,
            deduplication: PolicyDeduplication::Any,
            percent: 41.23,
            left_bytes: 12 << 30,
            bytes_per_s: Some(180 << 20),
            remaining_s: Some(68),
            waits_for_space: false,
        };
        let v1 = volume(true, Some(Compression::Lz4));
        assert_eq!(compliance(&v1, &found), "converting 41.2 %, 12.0 GiB left, 180.0 MiB/s, about 1m 8s");
        let reduced = Compliance { state: ComplianceState::Reduced, layout_now: "2+1".into(), ..found };
        assert!(compliance(&v1, &reduced).starts_with("REDUCED to 2+1, which tolerates 1"));
        let differs = |reservation, compression| Compliance {
            state: ComplianceState::Differs,
            reservation,
            compression,
            ..reduced.clone()
        };
        for (found, text) in [
            (differs(Reservation::Thin, PolicyCompression::Lz4), "thick, and its policy says thin: "),
            (differs(Reservation::Any, PolicyCompression::Off), "compression lz4, and its policy says off: "),
        ] {
            assert!(compliance(&v1, &found).starts_with(text) && !compliance(&v1, &found).contains(';'));
        }
        assert_eq!(
            compliance(
                &volume(false, Some(Compression::Off)),
                &differs(Reservation::Thick, PolicyCompression::Zstd)
            ),
            "THIN, and its policy says thick: quoin volume set --thick; compression off, and its policy says zstd: \
             quoin volume set --compression zstd"
        );
        let mut v1 = volume(true, Some(Compression::Lz4));
        v1.deduplication = Some(Deduplication::Off);
        let mut differs = differs(Reservation::Any, PolicyCompression::Off);
        differs.deduplication = PolicyDeduplication::On;
        assert_eq!(
            compliance(&v1, &differs),
            "compression lz4, and its policy says off: quoin volume set --compression off; deduplication off, and its \
             policy says on: quoin volume set --dedup on"
        );
    }
}
