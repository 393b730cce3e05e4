//! The data directory: `quoin.toml`, the token, and where everything is.

use crate::nbd::TlsSetting;
use quoin_base::PoolId;
use quoin_cli::{Failure, Global, TOKEN_FILE};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::{self, Write},
    net::SocketAddr,
    num::NonZeroUsize,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

mod check;
mod keys;
mod size;
mod text;

use check::check;
pub(crate) use keys::SECTIONS;
pub(crate) use size::ByteSize;

/// Where notice and warning are in order if the file does not say.
const NOTICE_PERCENT: u8 = 60;
const WARNING_PERCENT: u8 = 80;

pub(crate) const CONFIG_FILE: &str = "quoin.toml";
/// What opens `GET /metrics` and nothing else.
const METRICS_TOKEN_FILE: &str = "metrics_token";

/// `quoin.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// What people call the array.
    pub(crate) name: String,
    /// The target's iSCSI name.
    pub(crate) iqn: String,
    /// The pool the drives belong to.
    pub(crate) pool: PoolId,
    /// Defaults for `quoin serve`.
    #[serde(default)]
    pub(crate) serve: ServeConfig,
    /// When the pool's space is worth a word.
    #[serde(default)]
    pub(crate) space: SpaceConfig,
    /// The drives; their order does not matter.
    #[serde(rename = "drive")]
    pub(crate) drives: Vec<DriveConfig>,
}

/// What `quoin serve` takes where no option says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServeConfig {
    /// Where iSCSI is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) iscsi: Option<SocketAddr>,
    /// Where the management interface is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api: Option<SocketAddr>,
    /// Where NBD is served over TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nbd: Option<SocketAddr>,
    /// Where NBD is served on this machine; relative to the data directory, as all files here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nbd_socket: Option<PathBuf>,
    /// Whether NBD clients over TCP encrypt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nbd_tls: Option<TlsSetting>,
    /// The certificate of the NBD server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nbd_tls_cert: Option<PathBuf>,
    /// Its private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nbd_tls_key: Option<PathBuf>,
    /// Who vouches for NBD clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nbd_tls_client_ca: Option<PathBuf>,
    /// NBD may be served without TLS at an address that others reach.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) nbd_remote: bool,
    /// Data threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// RAM for all that grows with use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_limit: Option<ByteSize>,
}

/// Thresholds of the pool's space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpaceConfig {
    /// From here on a notice is in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) notice_percent: Option<u8>,
    /// From here on a warning is in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warning_percent: Option<u8>,
}

impl SpaceConfig {
    /// Notice and warning.
    pub(crate) fn percents(&self) -> (u8, u8) {
        let warning = self.warning_percent.unwrap_or(WARNING_PERCENT);
        (self.notice_percent.unwrap_or(NOTICE_PERCENT.min(warning)), warning)
    }
}

/// A configuration and where its values are in the file.
pub(crate) struct ReadConfig {
    pub(crate) config: Config,
    /// Section, key and line of each value.
    pub(crate) lines: Vec<(&'static str, &'static str, usize)>,
    /// The file as a table.
    pub(crate) table: toml::Table,
}

/// A drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DriveConfig {
    /// A file or block device; relative to the data directory.
    pub(crate) path: PathBuf,
}

/// A data directory.
#[derive(Clone, Debug)]
pub(crate) struct DataDir(PathBuf);

impl DataDir {
    /// The one `--data` names.
    pub(crate) fn of(global: &Global) -> Result<Self, Failure> {
        match &global.data {
            Some(path) => Ok(Self(path.clone())),
            None => Err(Failure::usage("no data directory", "--data was not given", "say which: --data DIR")),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn drive_paths(&self, config: &Config) -> Vec<PathBuf> {
        config.drives.iter().map(|drive| self.0.join(&drive.path)).collect()
    }

    pub(crate) fn has_config(&self) -> bool {
        self.file(CONFIG_FILE).exists()
    }

    pub(crate) fn read_config(&self) -> Result<Config, Failure> {
        self.read_config_with_lines().map(|read| read.config)
    }

    /// Reads and checks `quoin.toml`.
    pub(crate) fn read_config_with_lines(&self) -> Result<ReadConfig, Failure> {
        let path = self.file(CONFIG_FILE);
        let shown = path.display().to_string();
        let text = fs::read_to_string(&path).map_err(|error| {
            let next = "make an array there first: quoin init --data DIR; or check the directory";
            Failure::new("no array", &shown, format!("cannot read {shown}: {error}"), next)
        })?;
        let refuse = |why: String, next: String| Failure::new("configuration refused", &shown, why, next);
        let lines = check(&text)
            .map_err(|fault| refuse(format!("{shown}, line {}: {}", fault.line, fault.why), fault.next))?;
        let odd = |error: toml::de::Error| {
            refuse(format!("{shown}: {}", error.to_string().trim_end()), "correct the file".to_owned())
        };
        let config: Config = toml::from_str(&text).map_err(odd)?;
        let (notice, warning) = config.space.percents();
        if notice > warning {
            let why =
                format!("{shown}: space.notice_percent is {notice}, above space.warning_percent, {warning}");
            return Err(refuse(why, "give the notice the lower of the two".to_owned()));
        }
        let table = toml::from_str(&text).map_err(odd)?;
        Ok(ReadConfig { config, lines, table })
    }

    pub(crate) fn write_config(&self, config: &Config) -> Result<(), Failure> {
        let table = toml::Table::try_from(config).map_err(|error| self.unwritable(CONFIG_FILE, &error))?;
        self.write(CONFIG_FILE, text::commented(&table).as_bytes(), 0o644)
    }

    pub(crate) fn read_token(&self) -> Result<String, Failure> {
        let path = self.file(TOKEN_FILE);
        let shown = path.display().to_string();
        let refuse = |why: String| {
            Failure::new(
                "token not readable",
                &shown,
                why,
                "restore the file: any text of your choice, mode 0600",
            )
        };
        let token = fs::read_to_string(&path).map_err(|e| refuse(format!("cannot read {shown}: {e}")))?;
        if token.trim().is_empty() { Err(refuse(format!("{shown} is empty"))) } else { Ok(token) }
    }

    /// What opens `GET /metrics` and nothing else; made when it is not there, or empty.
    pub(crate) fn metrics_token(&self) -> Result<String, Failure> {
        if let Ok(token) = fs::read_to_string(self.file(METRICS_TOKEN_FILE))
            && !token.trim().is_empty()
        {
            return Ok(token);
        }
        let token = self.new_token(METRICS_TOKEN_FILE)?;
        self.write(METRICS_TOKEN_FILE, token.as_bytes(), 0o600)?;
        Ok(token)
    }

    /// A secret nobody can guess, for the file `name`.
    pub(crate) fn new_token(&self, name: &str) -> Result<String, Failure> {
        let mut bytes = [0u8; 32];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| self.unwritable(name, &error))?;
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).chain(["\n".to_owned()]).collect())
    }

    /// Writes a file of the data directory so that it is there after a crash, wholly or not at all.
    pub(crate) fn write(&self, name: &str, content: &[u8], mode: u32) -> Result<(), Failure> {
        let (path, new) = (self.file(name), self.file(&format!("{name}.new")));
        let write = || -> io::Result<()> {
            let mut file =
                fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&new)?;
            file.write_all(content)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            fs::File::open(path.parent().unwrap_or(&self.0))?.sync_all()
        };
        write().map_err(|error| self.unwritable(name, &error))
    }

    pub(crate) fn unwritable(&self, name: &str, error: &dyn std::error::Error) -> Failure {
        let shown = self.file(name).display().to_string();
        let why = format!("cannot write {shown}: {error}");
        Failure::new("data directory not writable", shown, why, "check permissions and free space")
    }
}
