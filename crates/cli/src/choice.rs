//! Options whose value is one of a few words.

use std::fmt::Display;

/// The one of `all` that is called so; otherwise `what` it is none of, and which to `write`.
pub(crate) fn choice<T: Display>(
    all: impl IntoIterator<Item = T>,
    text: &str,
    (what, write): (&str, &str),
) -> Result<T, String> {
    let found = all.into_iter().find(|one| one.to_string() == text);
    found.ok_or_else(|| format!("{text:?} is no {what}; write {write}"))
}
