//! How commands report: one object, a list, or each of several objects by itself.

use crate::{Failure, Output, client::Client};

pub(crate) fn show<T: serde::Serialize + serde::de::DeserializeOwned>(
    client: &Client,
    output: &Output,
    path: &str,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    output.show(&client.get::<T>(path)?, text);
    Ok(())
}

/// Shows a list, which `path` names with its filters.
pub(crate) fn list<T: serde::Serialize + serde::de::DeserializeOwned>(
    client: &Client,
    output: &Output,
    path: &str,
    text: impl FnOnce(&[T]) -> String,
) -> Result<(), Failure> {
    let filters = path.split_once('?').map_or("", |(_, filters)| filters);
    output.list(&client.get::<Vec<T>>(path)?, filters, text);
    Ok(())
}

/// Creates something from each of these, and continues when one fails. Shows what was created: one object by itself,
/// several as a list.
pub(crate) fn create_each<T: serde::Serialize>(
    output: &Output,
    names: &[String],
    mut create: impl FnMut(&str) -> Result<T, Failure>,
    one: impl FnOnce(&T) -> String,
    several: impl FnOnce(&[T]) -> String,
) -> Result<(), Failure> {
    let mut made = Vec::new();
    let outcome = each(output, names, |name| {
        made.push(create(name)?);
        Ok(())
    });
    match (names, made.as_slice()) {
        ([_], [made]) => output.show(made, one),
        ([_], _) => {}
        (_, []) if output.is_for_people() => {}
        (_, made) => output.list(made, "", several),
    }
    outcome
}

/// Does something to each of these, and continues when one fails. Reports all failures but the last, and returns the
/// last.
pub(crate) fn each(
    output: &Output,
    names: &[String],
    mut work: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut failures = names.iter().filter_map(|name| work(name).err()).peekable();
    while let Some(failure) = failures.next() {
        if failures.peek().is_none() {
            return Err(failure);
        }
        output.complain(&failure);
    }
    Ok(())
}
