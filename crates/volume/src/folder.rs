//! Folders: where people keep a volume, as a path of names such as `prod/sql`. A folder is there as long as a volume is
//! in it or below it.

use crate::{VolumeError, check_name};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest path, in bytes: the records of a whole group of volumes fit one transaction.
pub const FOLDER_LEN_MAX: usize = 127;

/// A folder: the names of its path, joined by '/'; empty for the top, where volumes are that are in no folder.
///
/// Every value keeps the rules that [`Folder::parse`] checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Folder(String);

impl Folder {
    /// The folder of this path: names as volumes have them, together at most [`FOLDER_LEN_MAX`] bytes. A '/' before or behind means
    /// nothing; "" and "/" are the top.
    ///
    /// # Errors
    /// [`VolumeError::Folder`] if the path is too long, or one of its names breaks the rules of
    /// [`check_name`].
    pub fn parse(path: &str) -> Result<Self, VolumeError> {
        let bad = |why: String| VolumeError::Folder { path: path.to_owned(), why };
        let inner = path.strip_prefix('/').unwrap_or(path);
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        if inner.is_empty() {
            return Ok(Self::default());
        }
        if inner.len() > FOLDER_LEN_MAX {
            return Err(bad(format!("has {} bytes, and at most {FOLDER_LEN_MAX} are possible", inner.len())));
        }
        for name in inner.split('/') {
            check_name(name).map_err(|name| bad(format!("holds a name that {}", name.why)))?;
        }
        Ok(Self(inner.to_owned()))
    }

    /// The path, without a '/' before or behind it; empty for the top.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the top.
    pub fn is_top(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `other` is this folder or lies below it.
    pub fn holds(&self, other: &Folder) -> bool {
        self.is_top()
            || other.0.strip_prefix(&self.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// It and those that it lies in, the top first.
    pub fn path(&self) -> impl Iterator<Item = Folder> {
        let ends = self.0.match_indices('/').map(|(at, _)| at).chain([self.0.len()]);
        let below = ends.filter(|end| *end > 0).map(|end| Folder(self.0[..end].to_owned()));
        std::iter::once(Folder::default()).chain(below)
    }
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Folder {
    type Error = VolumeError;

    fn try_from(path: String) -> Result<Self, VolumeError> {
        Self::parse(&path)
    }
}

impl From<Folder> for String {
    fn from(folder: Folder) -> Self {
        folder.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(path: &str) -> Folder {
        Folder::parse(path).unwrap()
    }

    #[test]
    fn paths_are_read_and_what_is_wrong_is_said() {
        for (path, read) in [("", ""), ("/", ""), ("prod", "prod"), ("/prod/sql/", "prod/sql")] {
            assert_eq!(folder(path).as_str(), read, "{path}");
        }
        for (bad, why) in [
            ("prod//sql", "is empty"),
            ("Prod", "has the character 'P'"),
            ("prod/..", "begins with \".\""),
            (&["x"; 65].join("/"), "has 129 bytes"),
        ] {
            let error = Folder::parse(bad).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(bad), "{error}");
        }
        assert!(serde_json::from_str::<Folder>("\"a b\"").is_err());
        assert_eq!(serde_json::to_string(&folder("a/b")).unwrap(), "\"a/b\"");
    }

    #[test]
    fn a_folder_holds_itself_and_what_lies_below() {
        let (top, prod, sql) = (folder(""), folder("prod"), folder("prod/sql"));
        assert!(top.holds(&top) && top.holds(&sql) && prod.holds(&prod) && prod.holds(&sql));
        assert!(!sql.holds(&prod) && !prod.holds(&top) && !prod.holds(&folder("production")));
        assert_eq!(sql.path().collect::<Vec<_>>(), [top.clone(), prod.clone(), sql.clone()]);
        assert_eq!(top.path().collect::<Vec<_>>(), std::slice::from_ref(&top));
    }
}
