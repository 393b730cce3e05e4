//! The command line client: each command is one request to the management interface, shown as a table or JSON.
//!
//! Promises to scripts: JSON on standard output is what the interface answered; a failure goes to standard error with
//! what, why and what next, and its exit code is 1, or 2 for a wrong command line. Decides nothing and stores nothing.
//! Assumes that the data directory or the environment says where the array is.

mod choice;
mod client;
mod command;
mod compression;
mod confirm;
mod copy;
mod deduplication;
mod drive;
mod drive_view;
mod events;
mod export;
mod failure;
mod folder;
mod global;
mod group;
mod job;
mod listing;
mod mapping;
mod names;
mod output;
mod policy;
mod pool;
mod portal;
mod qos;
mod rebuild;
mod recycle_bin;
mod report;
mod reservation;
mod reserve;
mod schedule;
mod scrub;
mod secret;
mod size;
mod snapshot;
mod space;
mod stated;
mod tag;
mod time;
mod top;
mod unreadable;
mod view;
mod volume;

pub use client::{API_FILE, Client, TOKEN_FILE};
pub use command::{Command, run};
pub use copy::CopyArgs;
pub use drive::{DriveCommand, EmulateCommand};
pub use export::ExportCommand;
pub use failure::Failure;
pub use folder::FolderCommand;
pub use global::Global;
pub use group::GroupCommand;
pub use job::JobCommand;
pub use listing::ListArgs;
pub use mapping::{AccessArgs, MappingCommand};
pub use names::completing_names;
pub use output::{Format, Output, table};
pub use pool::parse_spare;
pub use qos::QosArgs;
pub use recycle_bin::RecycleBinCommand;
pub use reserve::{Policy, ReserveArgs};
pub use schedule::ScheduleCommand;
pub use scrub::ScrubCommand;
pub use size::{Size, parse_size, size_text};
pub use snapshot::SnapshotCommand;
pub use space::SpaceArgs;
