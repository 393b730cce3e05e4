//! What users read: the help of every command, and what commands that are refused say. `UPDATE=1 cargo test -p quoin
//! --test it words::` writes both down anew; read the difference before you commit it.

use crate::lab::{Lab, Outcome};
use std::{env, fmt::Write, fs, path::Path};

/// Stands for the data directory, which is another one in each run.
const DATA: &str = "DIR";

/// Fails unless `text` is what the file holds.
#[track_caller]
fn assert_written(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, text).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let first = text.lines().zip(written.lines()).find(|(is, was)| is != was);
    assert!(
        text == written,
        "{} differs, first at {first:?}; if that is meant: UPDATE=1 cargo test -p quoin --test it words::",
        path.display()
    );
}

/// Appends the help of a command and of all below it.
fn help(lab: &Lab, command: &[&str], all: &mut String) {
    let text = lab.ok(&[command, &["--help"]].concat()).replace(&lab.data().display().to_string(), DATA);
    writeln!(all, "==== {}\n{text}", [&["quoin"], command].concat().join(" ")).unwrap();
    let listed = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed.take_while(|line| !line.is_empty()).filter_map(|line| {
        // A description that goes on in the next line is moved in further than a name.
        let name = line.strip_prefix("  ").filter(|line| !line.starts_with(' '))?;
        name.split_whitespace().next()
    });
    for name in names.filter(|name| *name != "help") {
        help(lab, &[command, &[name]].concat(), all);
    }
}

#[test]
fn help_is_as_written() {
    let mut all = String::new();
    help(&Lab::new(), &[], &mut all);
    assert_written(
        "words/help.txt",
        &all.lines().map(|line| line.trim_end().to_owned() + "\n").collect::<String>(),
    );
}

/// Runs the commands of `words/messages.txt`, one after the other, and compares what each says on standard error.
#[test]
fn messages_are_as_written() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/words/messages.txt");
    let script = fs::read_to_string(path).unwrap();
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "2", "--drive-size", "1G"]);
    let _array = lab.serve(&[]);
    lab.ready();
    let data = lab.data().display().to_string();
    let mut said = String::new();
    for line in script.lines().filter(|line| line.starts_with("$ ") || line.starts_with('#')) {
        writeln!(said, "{line}").unwrap();
        let Some(command) = line.strip_prefix("$ quoin ") else { continue };
        let Outcome { code, stderr, .. } = lab.run(&command.split(' ').collect::<Vec<_>>());
        let stderr = stderr.replace(&data, DATA);
        match code {
            Some(0) => {}
            code => writeln!(said, "{stderr}exit code {}\n", code.unwrap_or(-1)).unwrap(),
        }
    }
    assert_written("words/messages.txt", &said);
}
