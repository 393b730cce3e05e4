//! The types of the management interface, as JSON carries them: what the server sends and clients read.
//!
//! Promises: within `/api/v1` fields are only ever added to answers; a request with a field that is not listed
//! here is refused. Sizes are bytes, times are milliseconds since the Unix epoch, and units end the names.
//! Holds no logic beyond defaults, the arithmetic of what was counted, the calendar, and what people read about a
//! [`ProblemKind`] and a [`NextStep`].

mod chap;
mod compression;
mod copy;
mod deduplication;
mod drive;
mod emulate;
mod event;
mod expand;
mod export;
mod folder;
mod group;
mod history;
mod host;
mod integer;
mod job;
mod next_step;
mod policy;
mod pool;
mod portal;
mod problem;
mod problem_kind;
mod qos;
mod rebuild;
mod recycle_bin;
mod reservation;
mod reserve;
mod retention;
mod schedule;
mod scrub;
mod snapshot;
mod space;
mod stats;
mod status;
mod time;
mod unreadable;
mod volume;

pub use chap::{Chap, ChapLogin, ChapSet, Secret};
pub use compression::{Compression, PolicyCompression};
pub use copy::{CopyCreate, CopyState, VolumeCopy};
pub use deduplication::{Deduplication, PolicyDeduplication};
pub use drive::{
    Drive, DriveAdd, DriveAnswers, DriveEvacuate, DriveLeaving, DriveLocation, DriveReplace, DriveRole,
    DriveState, Protection,
};
pub use emulate::{EmulateAction, EmulateDrive, EmulatedCondition, EmulatedDrive};
pub use event::{Actor, Event, EventKind, FieldChange, Severity};
pub use expand::{DriveExpansion, PoolExpand, PoolExpansion};
pub use export::{Export, ExportClient, ExportCreate};
pub use folder::{Folder, VolumeKind};
pub use group::{
    Group, GroupChange, GroupCreate, GroupMember, GroupRefresh, GroupRestore, GroupSet, GroupSnapshotCreate,
};
pub use history::{SpaceForecast, SpaceSample};
pub use host::{
    Access, AccessUpdate, Host, HostChange, HostCreate, HostMapping, Mapping, MappingCreate, Session,
};
pub use integer::{MAX_INTEGER, int64, optional_int64};
pub use job::{Job, JobKind, JobState};
pub use next_step::NextStep;
pub use policy::{
    Compliance, ComplianceState, DEFAULT_POLICY, Policy, PolicyCreate, PolicyUpdate, Reservation,
};
pub use pool::{PoolSettings, PoolUpdate, Spare};
pub use portal::{Portal, PortalCreate, PortalState, PortalUpdate};
pub use problem::{PROBLEM_MEDIA_TYPE, Problem};
pub use problem_kind::ProblemKind;
pub use qos::{DEFAULT_BURST_MS, Qos, QosScope, QosSet};
pub use rebuild::{BalanceMode, Rebuild, RebuildUpdate, WorkProgress};
pub use recycle_bin::{DeletedVolume, RecycleBin, RecycleBinRestore, RecycleBinSet};
pub use reservation::{Registration, ReservationType, Reservations};
pub use reserve::{Reserve, ReserveDeletion, ReservePolicy, ReservePreview, ReserveScope, ReserveSet};
pub use retention::{Retention, SnapshotRetain};
pub use schedule::{Every, Rule, Schedule, ScheduleCreate, ScheduleUpdate};
pub use scrub::{
    DamagedRange, DriveRepairs, Integrity, ScrubFindings, ScrubOutcome, ScrubProgress, ScrubRepairs,
    ScrubResult, ScrubSchedule, ScrubStatus, ScrubUpdate, TimeOfDay,
};
pub use snapshot::{CloneCreate, Origin, OriginKind, SnapshotCreate, SnapshotRefresh, SnapshotRestore};
pub use space::{PoolSpace, VolumeSpace};
pub use stats::{Latency, LatencyBucket, OperationStats, Stats, VolumeStats};
pub use status::{Capacity, Engine, GivingBack, Objects, Recovery, SliceCapacity, SpaceLevel, State, Status};
pub use time::Utc;
pub use unreadable::{UnreadableCause, UnreadableFrom, UnreadableRange, UnreadableRanges};
pub use volume::{Deletion, Volume, VolumeCreate, VolumeMapping, VolumeUpdate};

/// The path under which every resource of this version lives.
pub const BASE_PATH: &str = "/api/v1";

/// The header in which a client states the command line behind a request, for the event log. No secrets belong there.
pub const COMMAND_HEADER: &str = "quoin-command";

/// The header in which a client states the user and machine behind a request, as `user@machine`, for the event log.
pub const USER_HEADER: &str = "quoin-user";
