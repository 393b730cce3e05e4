//! What the client states about itself, for the array's event log: the command line, the user and the machine. The array
//! cannot verify it; the token is what counts.

use std::{env, ffi::OsString, fs, os::unix::fs::MetadataExt};

/// Longer texts are cut.
const BYTES_MAX: usize = 256;

pub(crate) struct Stated {
    pub(crate) command: String,
    pub(crate) user: String,
}

impl Stated {
    /// Of this process. Secrets are read from files and so are not in its command line.
    pub(crate) fn now() -> Self {
        Self { command: command(env::args_os()), user: user() }
    }
}

/// The command line as a shell would take it, in visible ASCII.
fn command(args: impl Iterator<Item = OsString>) -> String {
    let mut words = Vec::new();
    for (at, arg) in args.enumerate() {
        let text = arg.to_string_lossy();
        let text = match at {
            0 => text.rsplit('/').next().unwrap_or_default().to_owned(),
            _ => text.into_owned(),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:/=@+%*".contains(c);
        words.push(if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{text}'") });
    }
    visible(&words.join(" "))
}

fn user() -> String {
    let named = ["SUDO_USER", "USER", "LOGNAME"].into_iter().find_map(|name| env::var(name).ok());
    let id = || {
        fs::metadata("/proc/self").map_or_else(|_| "unknown".to_owned(), |own| format!("uid {}", own.uid()))
    };
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    visible(&format!("{}@{}", named.filter(|name| !name.is_empty()).unwrap_or_else(id), machine.trim()))
}

/// The text as a header can carry it: replaces all other characters by question marks, and cuts it.
fn visible(text: &str) -> String {
    text.chars().map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '?' }).take(BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> String {
        command(words.iter().map(OsString::from))
    }

    #[test]
    fn the_command_line_is_stated_as_a_shell_takes_it_and_a_header_carries_it() {
        assert_eq!(
            of(&["/usr/bin/quoin", "volume", "grow", "v1", "--size", "8G"]),
            "quoin volume grow v1 --size 8G"
        );
        assert_eq!(of(&["quoin", "--data", "/srv/a b", ""]), "quoin --data '/srv/a b' ''");
        assert_eq!(of(&["quoin", "x\r\ny: z\u{e4}"]), "quoin 'x??y: z?'");
        assert_eq!(of(&["quoin", &"x".repeat(999)]).len(), BYTES_MAX);
        assert!(user().contains('@'));
    }
}
