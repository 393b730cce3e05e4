//! A target while it serves, whichever it is.

use std::net::SocketAddr;

use anyhow::{Context, Result};

use crate::load::At;
use crate::nbdkit::Nbdkit;
use crate::quoin::{Engine, Serving};
use crate::tgtd::{self, Tgtd};

/// A target that is running; it ends with this value.
pub(crate) enum Served<'a> {
    Quoin { serving: Serving<'a>, nbd: Option<SocketAddr> },
    Tgtd(Tgtd),
    Nbdkit(Nbdkit),
}

impl Served<'_> {
    pub(crate) fn pid(&self) -> u32 {
        match self {
            Served::Quoin { serving, .. } => serving.process.pid(),
            Served::Tgtd(tgtd) => tgtd.process.pid(),
            Served::Nbdkit(nbdkit) => nbdkit.process.pid(),
        }
    }

    /// Where and as whom the generator logs in over iSCSI.
    pub(crate) fn at(&self) -> Result<At> {
        match self {
            Served::Quoin { serving, .. } => Ok(serving.at()),
            Served::Tgtd(tgtd) => Ok(At {
                portal: tgtd.portal,
                target: tgtd::TARGET.to_owned(),
                lun: 1,
                initiator: "iqn.2026-11.io.quoin:bench".to_owned(),
            }),
            Served::Nbdkit(_) => anyhow::bail!("nbdkit does not speak iSCSI"),
        }
    }

    /// Where fio connects over NBD.
    pub(crate) fn nbd(&self) -> Result<SocketAddr> {
        match self {
            Served::Quoin { nbd, .. } => nbd.context("the array does not serve NBD"),
            Served::Nbdkit(nbdkit) => Ok(nbdkit.address),
            Served::Tgtd(_) => anyhow::bail!("tgtd does not speak NBD"),
        }
    }

    /// What Quoin's engine has done since it was started.
    pub(crate) fn engine(&self) -> Result<Option<Engine>> {
        match self {
            Served::Quoin { serving, .. } => serving.engine().map(Some),
            Served::Tgtd(_) | Served::Nbdkit(_) => Ok(None),
        }
    }

    /// What was run to start it.
    pub(crate) fn commands(&self) -> Vec<String> {
        match self {
            Served::Quoin { serving, .. } => vec![serving.command.clone()],
            Served::Tgtd(tgtd) => {
                let opened = format!("# its file was opened {}", tgtd.open_flags);
                tgtd.commands.iter().cloned().chain([opened]).collect()
            }
            Served::Nbdkit(nbdkit) => vec![nbdkit.command.clone()],
        }
    }
}
