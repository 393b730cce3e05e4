//! The options that every command takes.

use crate::Format;
use clap::Args;
use std::path::PathBuf;

/// Options of every command.
#[derive(Args, Clone, Debug)]
pub struct Global {
    /// The data directory of the array, as given to quoin init
    #[arg(long, global = true, value_name = "DIR", env = "QUOIN_DATA")]
    pub data: Option<PathBuf>,
    /// Output format
    #[arg(short, long, global = true, value_enum, default_value_t)]
    pub output: Format,
    /// Leave out the names of columns in tables and CSV
    #[arg(long, global = true)]
    pub no_headers: bool,
}
