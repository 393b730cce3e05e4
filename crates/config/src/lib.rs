//! `quoin.toml`: the keys it may have, what they may be, and how it is read and written.
//!
//! Promises: any bytes give a configuration or a [`Fault`] that names the line, says what is wrong there and what
//! would be right; what the list of keys admits is what is read; a configuration that was read is the same after it
//! is written and read again. [`SECTIONS`] is the one list that the check, the file that `quoin init` writes and
//! `docs/configuration.md` are made from.
//!
//! Does not: open files, or look whether what is named exists.

mod check;
mod events;
mod keys;
mod read;
mod size;
mod text;
mod tls;

pub use check::Fault;
pub use events::EventsConfig;
pub use keys::{Key, Kind, SECTIONS, Section};
pub use read::{ReadConfig, read};
pub use size::ByteSize;
pub use text::write;
pub use tls::TlsSetting;

use quoin_base::PoolId;
use quoin_emulate::Emulation;
use serde::{Deserialize, Serialize};
use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf};

/// Where notice and warning are in order if the file does not say.
const NOTICE_PERCENT: u8 = 60;
const WARNING_PERCENT: u8 = 80;
const CRITICAL_PERCENT: u8 = 100;
/// After how many seconds a drive that does not answer is suspect, and has failed, if the file does not say.
const SUSPECT_S: u32 = 5;
const FAIL_S: u32 = 20;

/// `quoin.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What people call the array.
    pub name: String,
    /// The target's iSCSI name.
    pub iqn: String,
    /// The pool the drives belong to.
    pub pool: PoolId,
    /// Defaults for `quoin serve`.
    #[serde(default)]
    pub serve: ServeConfig,
    /// When the pool's space is worth a word.
    #[serde(default)]
    pub space: SpaceConfig,
    /// How many events are kept.
    #[serde(default)]
    pub events: EventsConfig,
    /// The drives; their order does not matter.
    #[serde(rename = "drive")]
    pub drives: Vec<DriveConfig>,
}

/// What `quoin serve` takes where no option says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeConfig {
    /// Where iSCSI is served: the portals.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "one_or_many")]
    pub iscsi: Vec<SocketAddr>,
    /// Where the management interface is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<SocketAddr>,
    /// Where NBD is served over TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nbd: Option<SocketAddr>,
    /// Where NBD is served on this machine; relative to the data directory, as all files here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nbd_socket: Option<PathBuf>,
    /// Whether NBD clients over TCP encrypt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nbd_tls: Option<TlsSetting>,
    /// The certificate of the NBD server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nbd_tls_cert: Option<PathBuf>,
    /// Its private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nbd_tls_key: Option<PathBuf>,
    /// Who vouches for NBD clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nbd_tls_client_ca: Option<PathBuf>,
    /// NBD may be served without TLS at an address that others reach.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nbd_remote: bool,
    /// Data threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<NonZeroUsize>,
    /// RAM for all that grows with use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<ByteSize>,
    /// After how many seconds a drive that does not answer is suspect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drive_suspect_s: Option<u32>,
    /// After how many seconds it has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drive_fail_s: Option<u32>,
}

/// One value, or an array of them.
mod one_or_many {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany<T> {
        One(T),
        Many(Vec<T>),
    }

    pub(super) fn serialize<T: Serialize, S: Serializer>(values: &[T], to: S) -> Result<S::Ok, S::Error> {
        match values {
            [one] => one.serialize(to),
            many => many.serialize(to),
        }
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<T>, D::Error> {
        Ok(match OneOrMany::deserialize(from)? {
            OneOrMany::One(one) => vec![one],
            OneOrMany::Many(many) => many,
        })
    }
}

impl ServeConfig {
    /// After how many seconds a drive that does not answer is suspect, and has failed. `suspect` and `fail` go before
    /// what the file says. `None` if the second is less than the first.
    pub fn drive_seconds(&self, suspect: Option<u32>, fail: Option<u32>) -> Option<(u32, u32)> {
        // One that is not given follows the other, so that it is never on the wrong side of it.
        let (suspect, fail) = match (suspect.or(self.drive_suspect_s), fail.or(self.drive_fail_s)) {
            (Some(suspect), Some(fail)) => (suspect, fail),
            (Some(suspect), None) => (suspect, suspect.max(FAIL_S)),
            (None, Some(fail)) => (fail.min(SUSPECT_S), fail),
            (None, None) => (SUSPECT_S, FAIL_S),
        };
        (suspect <= fail).then_some((suspect, fail))
    }
}

/// Thresholds of the pool's space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpaceConfig {
    /// From here on a notice is in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice_percent: Option<u8>,
    /// From here on a warning is in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning_percent: Option<u8>,
    /// From here on the pool's space is critical.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub critical_percent: Option<u8>,
    /// Fault domains that are kept spare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spare_domains: Option<u8>,
}

impl SpaceConfig {
    /// Notice, warning and critical, in percent; 0 for a threshold that is off. One that is not given is never above the next.
    pub fn percents(&self) -> [u8; 3] {
        let below = |percent: u8, next: u8| if next == 0 { percent } else { percent.min(next) };
        let critical = self.critical_percent.unwrap_or(CRITICAL_PERCENT);
        let warning = self.warning_percent.unwrap_or_else(|| below(WARNING_PERCENT, critical));
        let notice = self.notice_percent.unwrap_or_else(|| below(below(NOTICE_PERCENT, critical), warning));
        [notice, warning, critical]
    }
}

/// A drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveConfig {
    /// A file or block device; relative to the data directory.
    pub path: PathBuf,
    /// What is emulated on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulate: Option<Emulation>,
}
