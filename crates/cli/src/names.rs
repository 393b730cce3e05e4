//! Completing names of objects in a shell, by asking the array.
//!
//! A completion never fails and keeps the shell waiting for a moment only: an array that does not answer has no names.

use crate::{Format, client::Client, global::Global};
use clap::Command;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use serde::Deserialize;
use std::{env, ffi::OsString, path::PathBuf, time::Duration};

/// How long an array has to answer with names.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Objects by the word that commands and arguments have for them, and where they are listed.
const KINDS: [(&str, &str); 11] = [
    ("volume", "/volumes"),
    ("folder", "/folders"),
    ("snapshot", "/snapshots"),
    ("deleted", "/recycle-bin/volumes"),
    ("group", "/groups"),
    ("schedule", "/schedules"),
    ("host", "/hosts"),
    ("export", "/exports"),
    ("portal", "/portals"),
    ("copy", "/copies"),
    ("job", "/jobs"),
];

/// The same command line, in which arguments that name objects complete to the names there are: those called after
/// the object (`map VOLUME --host HOST`), and the `name` of commands about one (`volume show NAME`), but for those
/// that make a new one.
pub fn completing_names(command: Command) -> Command {
    completing(command, None)
}

fn completing(command: Command, about: Option<&'static str>) -> Command {
    let kind = |word: &str| KINDS.iter().find(|(kind, _)| *kind == word).map(|(_, path)| *path);
    // `group snapshot` is about a group.
    let opens = |verb: &Command| kind(verb.get_name()).filter(|_| about.is_none());
    let command = command.mut_subcommands(|verb| match opens(&verb) {
        Some(path) => completing(verb, Some(path)),
        None if verb.get_name() == "create" => completing(verb, None),
        None => completing(verb, about),
    });
    command.mut_args(|arg| {
        let path = kind(arg.get_id().as_str()).or(about.filter(|_| arg.get_id() == "name"));
        match path {
            Some(path) => arg.add(ArgValueCandidates::new(move || names(path))),
            None => arg,
        }
    })
}

fn names(path: &str) -> Vec<CompletionCandidate> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(alias = "path", alias = "address")]
        name: Option<String>,
        /// What copies and jobs have in place of a name.
        id: Option<serde_json::Value>,
    }
    let global = Global { data: data(env::args_os()), output: Format::default(), no_headers: false };
    let named = Client::with_timeout(&global, TIMEOUT).and_then(|client| client.get::<Vec<Named>>(path));
    let text =
        |Named { name, id }: Named| name.or_else(|| Some(id?.to_string().trim_matches('"').to_owned()));
    named.unwrap_or_default().into_iter().filter_map(text).map(CompletionCandidate::new).collect()
}

/// The data directory, of the words on the line so far or of the environment.
fn data(words: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let mut found = env::var_os("QUOIN_DATA");
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        if word == "--data" {
            found = words.peek().cloned().or(found);
        } else if let Some(given) = word.to_str().and_then(|word| word.strip_prefix("--data=")) {
            found = Some(given.into());
        }
    }
    found.map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Subcommand;

    fn completed(command: &Command, path: &str, found: &mut Vec<String>) {
        for arg in command.get_arguments().filter(|arg| arg.get::<ArgValueCandidates>().is_some()) {
            found.push(format!("{path} {}", arg.get_id()));
        }
        for verb in command.get_subcommands() {
            completed(verb, &format!("{path} {}", verb.get_name()), found);
        }
    }

    #[test]
    fn what_names_an_object_that_is_there_is_completed_and_nothing_else() {
        let mut found = Vec::new();
        let command = crate::Command::augment_subcommands(Command::new("quoin"));
        completed(&completing_names(command), "", &mut found);
        for wanted in [
            " volume show name",
            " volume rename name",
            " volume delete name",
            " volume clone volume",
            " volume copy volume",
            " volume copy name",
            " volume copies copy",
            " volume copy-cancel copy",
            " snapshot create volume",
            " snapshot restore name",
            " snapshot restore volume",
            " snapshot list group",
            " group create volume",
            " group snapshot name",
            " group add volume",
            " volume create folder",
            " volume list folder",
            " snapshot retain name",
            " schedule create volume",
            " schedule create group",
            " schedule run name",
            " host set name",
            " host delete name",
            " map volume",
            " map host",
            " unmap volume",
            " unmap host",
            " export create volume",
            " export show name",
            " export delete name",
        ] {
            assert!(found.iter().any(|of| of == wanted), "{wanted} is not in {found:?}");
        }
        for unwanted in [
            " volume create name",
            " host create name",
            " export create name",
            " volume rename new_name",
            " group create name",
        ] {
            assert!(!found.iter().any(|of| of == unwanted), "{unwanted}: a new name");
        }
    }

    #[test]
    fn the_line_tells_which_array_is_meant() {
        let of = |line: &str| data(line.split(' ').map(OsString::from));
        assert_eq!(of("quoin -- quoin --data /a volume show v"), Some("/a".into()));
        assert_eq!(of("quoin -- quoin volume show --data=/b v"), Some("/b".into()));
    }
}
