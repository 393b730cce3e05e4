//! How a unit is set for hosts, as its device keeps it over a restart: saved mode parameters.

use quoin_scsi::Modes;
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;

/// What is kept of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Settings {
    /// The mode parameters that a reset and a restart bring back.
    pub(crate) modes: Modes,
}

/// [`Settings`] in JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptSettings {
    version: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    descriptor_sense: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    write_protect: bool,
}

impl Settings {
    /// Returns what is to be kept; `None` if all is as by default.
    pub(crate) fn to_keep(self) -> Option<Vec<u8>> {
        if self == Self::default() {
            return None;
        }
        let Modes { descriptor_sense, write_protect } = self.modes;
        let kept = KeptSettings { version: VERSION, descriptor_sense, write_protect };
        Some(serde_json::to_vec(&kept).expect("plain fields are always JSON"))
    }

    /// Reads what was kept.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn from_kept(bytes: &[u8]) -> Result<Self, String> {
        let KeptSettings { version, descriptor_sense, write_protect } =
            serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if version != VERSION {
            return Err(format!("version {version} is not {VERSION}"));
        }
        Ok(Self { modes: Modes { descriptor_sense, write_protect } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_from_the_default_is_kept() {
        assert_eq!(Settings::default().to_keep(), None);
        let set = Settings { modes: Modes { descriptor_sense: false, write_protect: true } };
        let bytes = set.to_keep().unwrap();
        assert_eq!(String::from_utf8_lossy(&bytes), r#"{"version":1,"write_protect":true}"#);
        assert_eq!(Settings::from_kept(&bytes), Ok(set));
        for wrong in [&br#"{"version":2}"#[..], br#"{"version":1,"other":true}"#, b"{}", b"", b"\xFF"] {
            assert!(Settings::from_kept(wrong).is_err(), "{}", String::from_utf8_lossy(wrong));
        }
    }
}
