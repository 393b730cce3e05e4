//! The control plane of one array: volumes, hosts, mappings, events and status, over one pool and one target.
//!
//! Promises: what an operation reported as done is hardened in the pool's catalog and comes back with it; the
//! target shows each initiator exactly what the mappings say; when the pool goes offline (a drive failed or is
//! missing) management continues, status and events say why, and the pool is opened again when its drives are
//! back, under the volumes and sessions that stayed. Does no networking and opens no file: drives come from a
//! [`Bay`]. Assumes that it is called on a data thread of its world.

mod absence;
mod absences;
mod access;
mod array;
mod array_options;
mod audit;
mod bay;
mod bin_error;
mod bin_setting;
mod catalog;
mod chap;
mod check;
mod clock;
mod compression;
mod copies;
mod copy;
mod deduplication;
mod drive_change;
mod drive_error;
mod drive_leaving;
mod drive_opening;
mod drive_view;
mod drives;
mod emulate_error;
mod emulated;
mod error;
mod events;
mod expand_error;
mod expansion;
mod export_error;
mod export_list;
mod failing_drives;
mod figures;
mod folders;
mod fork_error;
mod giving_back;
mod groups;
mod guard;
mod history;
mod host_access;
mod host_error;
mod hosts;
mod initiator;
mod job_error;
mod jobs;
mod lifecycle;
mod listen;
mod mapping_error;
mod mappings;
mod monitoring;
mod nbd;
mod not_opened;
mod origin;
mod permit;
mod policies;
mod policy_error;
mod pool_problem;
mod pool_settings;
mod portal_error;
mod portal_list;
mod portals;
mod progress;
mod qos;
mod qos_error;
mod qos_record;
mod rebuild;
mod record;
mod recycle_bin;
mod reduce;
mod reductions;
mod request_key;
mod requests;
mod reservation_error;
mod reservations;
mod reserve_choice;
mod reserve_error;
mod reserve_watch;
mod retention;
mod schedule_error;
mod schedule_list;
mod schedule_record;
mod schedules;
mod scrub;
mod selection;
#[cfg(test)]
mod simulated;
mod slow_drives;
mod snapshot_reserve;
mod snapshots;
mod space;
mod space_history;
mod space_report;
mod spare;
mod spare_watch;
mod status;
mod stopped_volumes;
mod supervise;
mod timetable;
mod told_unreadable;
mod unreadable;
mod users;
mod volume_problem;
mod volumes;
mod words;

pub use array::Array;
pub use array_options::ArrayOptions;
pub use bay::{Bay, DriveFile, Finding, Lengthening, Measuring, Opening};
pub use bin_error::BinError;
pub use check::check_catalog;
pub use copies::CopyFigures;
pub use drive_error::DriveChangeError;
pub use emulate_error::DriveEmulateError;
pub use error::ArrayError;
pub(crate) use events::current_request;
pub use events::{
    Acting, Caller, EventClass, EventCounts, EventSelection, Keep, Notes, Refusal, Retention, acting,
    current_actor, current_caller,
};
pub use expand_error::ExpandError;
pub use export_error::ExportError;
pub use figures::{DriveFigures, DriveLatencies, Figures, ReserveFigures, VolumeFigures};
pub use fork_error::ForkError;
pub use host_error::HostError;
pub use initiator::is_target_name;
pub use job_error::JobError;
pub use listen::{Listen, Portal};
pub use mapping_error::MappingError;
pub use policy_error::PolicyError;
pub use portal_error::PortalError;
pub use qos_error::QosError;
pub use qos_record::QosOf;
pub use quoin_api::DriveLocation;
pub use quoin_volume::immutable_snapshots;
pub use record::{
    EVENT_LOG_OBJECT, EVENT_OBJECT, EXPORT_OBJECT, HISTORY_OBJECT, HOST_OBJECT, LEAVING_OBJECT,
    MAPPING_OBJECT, OWN_RESERVE_OBJECT, POLICY_OBJECT, POOL_OBJECT, QOS_OBJECT, REBUILD_OBJECT,
    RECYCLE_BIN_OBJECT, REQUEST_OBJECT, RESERVE_OBJECT, SCHEDULE_OBJECT, SCRUB_OBJECT,
};
pub use request_key::RequestKey;
pub use requests::CarriedOut;
pub use reservation_error::ReservationError;
pub use reserve_error::ReserveError;
pub use reserve_watch::ReserveOf;
pub use schedule_error::ScheduleError;
pub use selection::{VolumeSelection, matches};
pub use snapshots::SnapshotSelection;
pub use space::SpacePercents;
pub use words::utc_text;
