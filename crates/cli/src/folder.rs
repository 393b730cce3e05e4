//! `quoin folder`: the folders that volumes are in.

use crate::{Failure, Output, client::Client, output::table, report::list, size_text, view::optional_size};
use clap::Subcommand;
use quoin_api::Folder;

/// Commands for folders.
#[derive(Subcommand, Debug)]
pub enum FolderCommand {
    /// List folders with the volumes in and below them
    #[command(
        after_help = "A folder is there as long as a volume is in it or below it: volumes are put in one with \
                            quoin volume create … --folder PATH and quoin volume set … --folder PATH.\n\nExamples:\n  \
                            quoin --data /srv/a folder list\n  \
                            quoin --data /srv/a volume list --folder prod/sql"
    )]
    List,
}

/// Runs a command about folders.
pub(crate) fn run(client: &Client, output: &Output, command: FolderCommand) -> Result<(), Failure> {
    match command {
        FolderCommand::List => list(client, output, "/folders", tree),
    }
}

/// One folder per line, indented by its depth.
fn tree(folders: &[Folder]) -> String {
    let row = |folder: &Folder| {
        let name = match folder.path.rsplit_once('/') {
            Some(("", "")) => "/".to_owned(),
            Some((above, name)) => format!("{}{name}", "  ".repeat(above.split('/').count() + 1)),
            None => format!("  {}", folder.path),
        };
        vec![
            name,
            folder.volumes.to_string(),
            folder.volumes_below.to_string(),
            size_text(folder.size_bytes),
            optional_size(folder.mapped_bytes),
        ]
    };
    let header = ["folder", "volumes", "with below", "size", "allocated"];
    table(&header, folders.iter().map(row).collect(), "no folders")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_a_tree() {
        let folder = |path: &str, volumes| Folder {
            path: path.into(),
            volumes,
            volumes_below: 3,
            size_bytes: 1 << 30,
            mapped_bytes: None,
        };
        assert_eq!(
            tree(&[folder("/", 0), folder("prod", 1), folder("prod/sql", 2), folder("test", 0)]),
            "FOLDER   VOLUMES  WITH BELOW  SIZE     ALLOCATED\n\
             /        0        3           1.0 GiB  -\n  \
             prod   1        3           1.0 GiB  -\n    \
             sql  2        3           1.0 GiB  -\n  \
             test   0        3           1.0 GiB  -"
        );
    }
}
