//! The names people give to volumes and hosts.

use thiserror::Error;

/// The longest name, in characters.
pub const NAME_LEN_MAX: usize = 63;

/// A name that cannot be used.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error(
    "{name:?} is not a name: it {why}; a name has 1 to 63 characters of a-z, 0-9, '.', '_' and '-', and begins \
     with a letter or digit"
)]
pub struct BadName {
    /// What was given.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

/// Checks that `name` is `[a-z0-9][a-z0-9._-]*` and 1 to 63 characters long, so that it is safe in URLs, file
/// names and iSCSI text.
///
/// # Errors
/// [`BadName`] with the first rule that the name breaks.
pub fn check_name(name: &str) -> Result<(), BadName> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let count = name.chars().count();
    let why = if name.is_empty() {
        "is empty".to_owned()
    } else if count > NAME_LEN_MAX {
        format!("has {count} characters")
    } else if let Some(c) = name.chars().find(|c| !(plain(*c) || "._-".contains(*c))) {
        format!("has the character {c:?}")
    } else if !name.starts_with(plain) {
        format!("begins with {:?}", &name[..1])
    } else {
        return Ok(());
    };
    Err(BadName { name: name.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_the_fault_is_said() {
        for good in ["a", "0", "pg-data_1.x", &"x".repeat(63)] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("", "is empty"),
            ("-a", "begins with \"-\""),
            ("Ab", "has the character 'A'"),
            ("a b", "has the character ' '"),
            ("ä", "has the character 'ä'"),
            (&"x".repeat(64), "has 64 characters"),
        ] {
            assert_eq!(check_name(bad).unwrap_err().why, why, "{bad}");
        }
    }
}
