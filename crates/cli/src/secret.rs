//! Secrets, read from files so that no list of processes or history of commands shows them.

use crate::Failure;
use clap::Args;
use quoin_api::{ChapLogin, ChapSet, Secret};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// How a host logs in.
#[derive(Args, Clone, Debug)]
pub struct ChapOptions {
    /// CHAP user name of the host
    #[arg(long, value_name = "NAME", requires = "chap_secret_file")]
    chap_user: Option<String>,
    /// File with the CHAP secret of the host, 12 to 255 characters; - for standard input
    #[arg(long, value_name = "FILE", requires = "chap_user")]
    chap_secret_file: Option<PathBuf>,
    /// CHAP user name of the array, for mutual CHAP
    #[arg(long, value_name = "NAME", requires = "mutual_secret_file", requires = "chap_user")]
    mutual_user: Option<String>,
    /// File with the CHAP secret of the array, which must differ from the host's
    #[arg(long, value_name = "FILE", requires = "mutual_user")]
    mutual_secret_file: Option<PathBuf>,
}

impl ChapOptions {
    /// Reads the secrets. None if nothing was asked for.
    pub(crate) fn read(self) -> Result<Option<ChapSet>, Failure> {
        let login = |user: Option<String>, file: Option<PathBuf>| match (user, file) {
            (Some(user), Some(file)) => Ok(Some(ChapLogin { user, secret: read(&file)? })),
            _ => Ok::<_, Failure>(None),
        };
        let Some(host) = login(self.chap_user, self.chap_secret_file)? else { return Ok(None) };
        Ok(Some(ChapSet { host, array: login(self.mutual_user, self.mutual_secret_file)? }))
    }
}

/// The first line of a file.
fn read(path: &Path) -> Result<Secret, Failure> {
    let text = match path.to_str() {
        Some("-") => io::read_to_string(io::stdin()),
        _ => fs::read_to_string(path),
    };
    let text = text.map_err(|error| {
        let shown = path.display();
        Failure::new(
            "secret not read",
            shown.to_string(),
            format!("cannot read {shown}: {error}"),
            "give a text file that holds only the secret and that only you can read",
        )
    })?;
    Ok(Secret::new(text.lines().next().unwrap_or_default()))
}
