//! Every key of `quoin.toml`: what it means, what it may be, and what holds without it. The check, the file that
//! `quoin init` writes, and `docs/configuration.md` are made from this one list.

use quoin_array::is_target_name;
use quoin_cli::{parse_size, size_text};
use quoin_emulate::{Emulation, Milliseconds, Technology};
use quoin_pool::PoolOptions;
use std::net::SocketAddr;
use toml::de::DeValue;

/// A table of the file.
pub struct Section {
    /// Its name; empty for the keys at the top.
    pub name: &'static str,
    /// Any number of them: `[[name]]`.
    pub is_array: bool,
    /// What it is about, for people.
    pub about: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// A key.
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it means, for people.
    pub about: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// What holds without it; empty if it must be there.
    pub default: &'static str,
    /// As it may be written.
    pub example: &'static str,
}

/// What a key may be.
#[derive(Clone, Copy)]
pub enum Kind {
    /// Text of 1 to so many bytes.
    Text(usize),
    /// The iSCSI name of a target.
    TargetName,
    /// A UUID.
    Uuid,
    /// An address and a port.
    Address,
    /// The same, or an array of them.
    Addresses,
    /// A path.
    Path,
    /// A whole number within these bounds.
    Number(u64, u64),
    /// A size of at least so many bytes.
    Size(u64),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// True or false.
    Bool,
    /// The figures of a drive.
    Emulation,
}

/// Every table of the file, the keys at the top first.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "",
        is_array: false,
        about: "",
        keys: &[
            Key {
                name: "name",
                about: "What people call the array.",
                kind: Kind::Text(64),
                default: "",
                example: "\"quoin\"",
            },
            Key {
                name: "iqn",
                about: "The target's iSCSI name. Hosts know the array by it.",
                kind: Kind::TargetName,
                default: "",
                example: "\"iqn.2026-11.com.example:array1\"",
            },
            Key {
                name: "pool",
                about: "The identity of the pool, as its drives have it. Made by quoin init; not to be changed.",
                kind: Kind::Uuid,
                default: "",
                example: "\"0f4e7a1c-22b9-4a6e-9d55-7d3f7f1f2a10\"",
            },
        ],
    },
    Section {
        name: "serve",
        is_array: false,
        about: "What quoin serve takes where no option of the command line says otherwise.",
        keys: &[
            Key {
                name: "iscsi",
                about: "Where iSCSI is served: one portal, or several, each of which is a target port.",
                kind: Kind::Addresses,
                default: "\"127.0.0.1:3260\"",
                example: "[\"10.0.0.5:3260\", \"10.0.1.5:3260\"]",
            },
            Key {
                name: "api",
                about: "Where the management interface is served. An address that others reach needs --api-remote.",
                kind: Kind::Address,
                default: "\"127.0.0.1:8470\"",
                example: "\"127.0.0.1:8470\"",
            },
            Key {
                name: "nbd",
                about: "Where NBD is served over TCP, usually port 10809. An address that others reach needs TLS or nbd_remote.",
                kind: Kind::Address,
                default: "nowhere",
                example: "\"127.0.0.1:10809\"",
            },
            Key {
                name: "nbd_socket",
                about: "Where NBD is served on this machine: a Unix socket, relative to the data directory.",
                kind: Kind::Path,
                default: "nowhere",
                example: "\"run/nbd\"",
            },
            Key {
                name: "nbd_tls",
                about: "Whether NBD clients over TCP encrypt.",
                kind: Kind::OneOf(&["off", "optional", "required"]),
                default: "required if there is a certificate, else off",
                example: "\"required\"",
            },
            Key {
                name: "nbd_tls_cert",
                about: "The certificate of the NBD server and those between it and its authority, PEM.",
                kind: Kind::Path,
                default: "none",
                example: "\"nbd.pem\"",
            },
            Key {
                name: "nbd_tls_key",
                about: "Its private key, PEM.",
                kind: Kind::Path,
                default: "none",
                example: "\"nbd.key\"",
            },
            Key {
                name: "nbd_tls_client_ca",
                about: "Authorities, PEM: every TLS client must have a certificate of one of them.",
                kind: Kind::Path,
                default: "none",
                example: "\"clients.pem\"",
            },
            Key {
                name: "nbd_remote",
                about: "NBD may be served without TLS at an address that others reach.",
                kind: Kind::Bool,
                default: "false",
                example: "true",
            },
            Key {
                name: "threads",
                about: "Data threads.",
                kind: Kind::Number(1, 256),
                default: "one a core, at most 4",
                example: "4",
            },
            Key {
                name: "memory_limit",
                about: "RAM for write buffer, read cache, read-ahead, metadata and commands in flight, all together.",
                kind: Kind::Size(PoolOptions::LEAST_MEMORY_BYTES),
                default: "a quarter of the machine's RAM, at most 4 GiB",
                example: "\"2GiB\"",
            },
            Key {
                name: "drive_suspect_s",
                about: "A drive whose oldest operation has been under way for so many seconds is suspect.",
                kind: Kind::Number(1, 3600),
                default: "5, or drive_fail_s if that is less",
                example: "5",
            },
            Key {
                name: "drive_fail_s",
                about: "After so many seconds it has failed: the pool goes on without it if it can, or goes offline until it \
                        answers. Less than the time after which hosts give up a command, usually 30. Not less than drive_suspect_s.",
                kind: Kind::Number(1, 3600),
                default: "20, or drive_suspect_s if that is more",
                example: "20",
            },
        ],
    },
    Section {
        name: "space",
        is_array: false,
        about: "Thresholds of the pool's space, in percent of what host data may take. When one is reached an event \
                tells, and hosts that see thin volumes get a unit attention. At 100 percent writes that need space fail. \
                quoin pool set changes thresholds while the array serves; what it set goes before these keys.",
        keys: &[
            Key {
                name: "notice_percent",
                about: "From here on a notice is in order; 0: off.",
                kind: Kind::Number(0, 100),
                default: "60, or the next threshold if that is less",
                example: "60",
            },
            Key {
                name: "warning_percent",
                about: "From here on a warning is in order; not less than notice_percent; 0: off.",
                kind: Kind::Number(0, 100),
                default: "80, or critical_percent if that is less",
                example: "80",
            },
            Key {
                name: "critical_percent",
                about: "From here on it is critical; not less than warning_percent; 0: off, and nothing tells of a full pool \
                        before a write is refused.",
                kind: Kind::Number(0, 100),
                default: "100",
                example: "95",
            },
            Key {
                name: "spare_domains",
                about: "Keep so much space free that what the so many largest fault domains hold can be made again on the \
                        others when they are lost; 0: off. quoin pool set --spare goes before it.",
                kind: Kind::Number(0, 8),
                default: "0",
                example: "1",
            },
        ],
    },
    crate::events::SECTION,
    Section {
        name: "drive",
        is_array: true,
        about: "A drive of the pool. Their order does not matter.",
        keys: &[
            Key {
                name: "path",
                about: "A file or block device; relative to the data directory.",
                kind: Kind::Path,
                default: "",
                example: "\"/dev/disk/by-id/nvme-example\"",
            },
            Key {
                name: "emulate",
                about: "Gives the drive the speed of another one, for tests; see emulated-drives.md.",
                kind: Kind::Emulation,
                default: "as fast as it is",
                example: "{ technology = \"15k\", iops = 180, latency_ms = 5.5, mbps = 150 }",
            },
        ],
    },
];

impl Kind {
    /// What it may be, for people.
    pub fn text(self) -> String {
        match self {
            Self::Text(longest) => format!("text of 1 to {longest} bytes"),
            Self::TargetName => {
                "an iSCSI name in lower case, such as \"iqn.2026-11.com.example:array1\"".to_owned()
            }
            Self::Uuid => "a UUID".to_owned(),
            Self::Address => "an address and a port, such as \"127.0.0.1:3260\"".to_owned(),
            Self::Addresses => {
                "an address and a port, such as \"127.0.0.1:3260\", or an array of them".to_owned()
            }
            Self::Path => "a path".to_owned(),
            Self::Number(least, most) => format!("a whole number from {least} to {most}"),
            Self::Size(least) => {
                format!("a size of at least {}, such as \"2GiB\", or a number of bytes", size_text(least))
            }
            Self::OneOf(words) => {
                words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" or ")
            }
            Self::Bool => "true or false".to_owned(),
            Self::Emulation => format!(
                "a table with technology, one of {}, and if they are to differ from it iops, latency_ms and mbps",
                Technology::ALL.map(|technology| format!("\"{technology}\"")).join(", ")
            ),
        }
    }

    /// Whether a value may be this.
    pub fn admits(self, value: &DeValue<'_>) -> bool {
        let text = value.as_str();
        match self {
            Self::Text(longest) => text.is_some_and(|text| (1..=longest).contains(&text.len())),
            Self::TargetName => text.is_some_and(is_target_name),
            Self::Uuid => text.is_some_and(|text| uuid::Uuid::try_parse(text).is_ok()),
            Self::Address => text.is_some_and(|text| text.parse::<SocketAddr>().is_ok()),
            Self::Addresses => match value.as_array() {
                Some(items) => {
                    !items.is_empty() && items.iter().all(|item| Self::Address.admits(item.get_ref()))
                }
                None => Self::Address.admits(value),
            },
            Self::Path => text.is_some_and(|text| !text.is_empty()),
            Self::Number(least, most) => number(value).is_some_and(|number| (least..=most).contains(&number)),
            Self::OneOf(words) => text.is_some_and(|text| words.contains(&text)),
            Self::Bool => value.is_bool(),
            Self::Emulation => emulation(value).is_ok(),
            Self::Size(least) => {
                let size = match text {
                    Some(text) => parse_size(text).ok().map(|size| size.0),
                    None => number(value),
                };
                // TOML has no larger numbers.
                size.is_some_and(|size| (least..=i64::MAX as u64).contains(&size))
            }
        }
    }
}

fn number(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// The figures of a drive, or what is wrong with them.
pub(crate) fn emulation(value: &DeValue<'_>) -> Result<Emulation, String> {
    let table = value.as_table().ok_or_else(|| format!("it is a TOML {}", value.type_str()))?;
    let technology = table.iter().find(|(name, _)| name.get_ref() == "technology");
    let technology =
        technology.and_then(|(_, value)| value.get_ref().as_str()).ok_or("it has no technology")?;
    let mut emulation = Emulation::of(technology.parse()?);
    for (name, value) in table {
        let (name, value) = (name.get_ref().as_ref(), value.get_ref());
        let whole = || number(value).and_then(|number| u32::try_from(number).ok());
        match name {
            "technology" => {}
            "iops" => emulation.iops = Some(whole().ok_or("iops is not a whole number")?),
            "mbps" => emulation.mbps = Some(whole().ok_or("mbps is not a whole number")?),
            "latency_ms" => {
                let text = value.as_float().map(|float| float.as_str());
                let ms = text.and_then(|text| text.parse().ok()).or_else(|| Some(number(value)? as f64));
                let ms = ms.and_then(Milliseconds::new);
                emulation.latency_ms = Some(ms.ok_or("latency_ms is not a number from 0.001 to 10000")?);
            }
            _ => return Err(format!("there is no {name} in it")),
        }
    }
    emulation.problem().map_or(Ok(emulation), Err)
}
