//! Volumes: identity, size and the block device that front ends serve.
//!
//! Promises: a [`Volume`] keeps its identity for life, also when the pool under it goes offline and another
//! [`quoin_pool::Pool`] instance takes its place in the [`PoolSlot`]; what [`Volumes`] reports as created or
//! deleted is hardened. Knows nothing of hosts, LUNs or protocols. Assumes of the pool that a transaction is
//! atomic and that what it committed comes back when it is opened again.

mod change;
mod check;
mod copy;
mod copy_record;
mod deleted;
mod device;
mod error;
mod fence;
mod folder;
mod fork;
mod group;
mod groups;
mod image;
mod images;
mod instruments;
mod kept;
mod known;
mod limits;
mod marking;
mod modified;
mod name;
mod origin;
mod part;
mod record;
mod recycle_bin;
mod reduction;
mod retention;
mod retention_clock;
mod slot;
mod spec;
mod tags;
mod thresholds;
mod volume;
mod volumes;

pub use change::VolumeChange;
pub use check::check_volumes;
pub use copy::{CopySpec, RangeCopy, Settled};
pub use copy_record::{COPY_OBJECT, CopyRecord, hidden_volumes};
pub use deleted::Deleted;
pub use device::{BlockDevice, DeviceError, Kept, Provisioning};
pub use error::VolumeError;
pub use folder::{FOLDER_LEN_MAX, Folder};
pub use fork::{ForkSpec, Held, Replacement};
pub use group::{GROUP_OBJECT, Group};
pub use image::{IMAGE_OBJECT, Image};
pub use instruments::{Instruments, InstrumentsSnapshot, Operation, OperationSnapshot};
pub use limits::{COPIES_MAX, MAX_SIZE_BYTES, MEMBERS_MAX};
pub use name::{BadName, NAME_LEN_MAX, check_name};
pub use origin::{Origin, OriginKind, SetOf};
pub use record::{RESERVATIONS_OBJECT, SETTINGS_OBJECT, TAGS_OBJECT, VOLUME_OBJECT};
pub use recycle_bin::Recovery;
pub use retention::{RetentionState, immutable_snapshots};
pub use retention_clock::{CLOCK_OBJECT, ClockMark, RETAIN_MAX, RetentionClock};
pub use slot::PoolSlot;
pub use spec::{Assigned, VolumeSpec};
pub use tags::{TAGS_MAX, Tags, check_tags};
pub use thresholds::Thresholds;
pub use volume::Volume;
pub use volumes::{Restored, Volumes};
