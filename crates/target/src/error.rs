//! Why changes of hosts and mappings are refused.

use crate::Lun;
use thiserror::Error;

/// Why a change of hosts or mappings was refused. Nothing was changed.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum TargetError {
    /// No such host.
    #[error("host {host} does not exist; create it first")]
    NoSuchHost {
        /// The name asked for.
        host: String,
    },
    /// The name is taken.
    #[error("a host {host} exists already; choose another name")]
    HostExists {
        /// The name asked for.
        host: String,
    },
    /// An initiator name may belong to one host only.
    #[error("initiator {initiator} already belongs to host {host}; remove it there first")]
    InitiatorTaken {
        /// The initiator name.
        initiator: String,
        /// The host that has it.
        host: String,
    },
    /// Not an iSCSI name.
    #[error("{initiator:?} is not an iSCSI name: {reason}; give one like iqn.2026-11.com.example:host1")]
    BadInitiator {
        /// What was given.
        initiator: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The number is in use.
    #[error("LUN {lun} of host {host} is already volume {volume}; unmap it first or choose another number")]
    LunTaken {
        /// The host.
        host: String,
        /// The number.
        lun: Lun,
        /// The volume it names now.
        volume: String,
    },
    /// The number is not in use.
    #[error("host {host} has no LUN {lun}")]
    NoSuchLun {
        /// The host.
        host: String,
        /// The number.
        lun: Lun,
    },
}
