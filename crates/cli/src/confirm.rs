//! Asking a person to confirm.

use std::io::{self, BufRead, IsTerminal, Write};

/// Asks a question at the terminal. False if there is none.
pub(crate) fn is_answered_yes(question: &str) -> bool {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return false;
    }
    let mut line = String::new();
    let asked = write!(io::stderr(), "{question} [y/N] ");
    let read = asked.and_then(|()| io::stdin().lock().read_line(&mut line));
    read.is_ok() && ["y", "yes"].contains(&line.trim().to_lowercase().as_str())
}
