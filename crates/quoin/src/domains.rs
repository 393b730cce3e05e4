//! The fault domains of new drives: as the user says, or one for each disk.

use crate::location::{disk_name, location};
use quoin_array::DriveLocation;
use quoin_cli::Failure;
use quoin_drive::DOMAIN_MAX_BYTES;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    str::FromStr,
};

/// What `--domain` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DomainChoice {
    /// Each file is a domain of its own.
    File,
    /// The drive at this path is in the domain of this name.
    Named(PathBuf, String),
}

impl FromStr for DomainChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.rsplit_once('=') {
            None if text == "file" => Ok(Self::File),
            Some((path, name)) if !path.is_empty() && !name.is_empty() && name.len() <= DOMAIN_MAX_BYTES => {
                Ok(Self::Named(path.into(), name.to_owned()))
            }
            _ => Err(format!(
                "say file, or PATH=NAME with a name of 1 to {DOMAIN_MAX_BYTES} bytes, such as /dev/sdb=shelf-1"
            )),
        }
    }
}

/// The fault domain of a drive.
#[derive(Clone, Debug)]
pub(crate) struct InDomain {
    /// Its name.
    pub(crate) name: String,
    /// Where the drive is.
    pub(crate) location: Option<DriveLocation>,
}

/// The fault domain of each of these drives, which are there.
pub(crate) fn domains(paths: &[&Path], choices: &[DomainChoice]) -> Result<Vec<InDomain>, Failure> {
    let each_file = choices.contains(&DomainChoice::File);
    let mut names: Vec<Option<String>> = vec![None; paths.len()];
    for choice in choices {
        let DomainChoice::Named(given, name) = choice else { continue };
        let found = paths.iter().position(|path| *path == given).or_else(|| {
            let ends: Vec<_> = (0..paths.len()).filter(|at| paths[*at].ends_with(given)).collect();
            if let [at] = ends[..] { Some(at) } else { None }
        });
        let Some(at) = found else {
            return Err(Failure::usage(
                "array not created",
                format!("--domain {}={name} names no drive, or several", given.display()),
                "give the path of the drive as in --drive, such as --drive /dev/sdb --domain /dev/sdb=shelf-1",
            ));
        };
        names[at] = Some(name.clone());
    }
    let mut taken = BTreeSet::new();
    let of = |(path, named): (&&Path, Option<String>)| {
        let location = location(path);
        let is_file = location.as_ref().is_some_and(|location| !location.is_device);
        let name = match (named, &location) {
            (Some(named), _) => named,
            (None, Some(_)) if each_file && is_file => own_name(path, &mut taken),
            (None, Some(location)) => shortened("disk", disk_name(location)),
            (None, None) => own_name(path, &mut taken),
        };
        InDomain { name, location }
    };
    Ok(paths.iter().zip(names).map(of).collect())
}

/// The fault domain of a drive if nobody names one: the disk that it is, or is on.
pub(crate) fn usual_domain(path: &Path) -> Option<String> {
    Some(shortened("disk", disk_name(&location(path)?)))
}

/// A name of the file's own.
fn own_name(path: &Path, taken: &mut BTreeSet<String>) -> String {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let numbered = (2..).map(|number| format!("{file}-{number}"));
    let mut names = [file.clone()].into_iter().chain(numbered).map(|name| shortened("file", &name));
    let name = names.find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(name.clone());
    name
}

/// `disk:` and the name; its end if it is too long, since that tells more disks apart.
fn shortened(kind: &str, name: &str) -> String {
    let name: String =
        name.chars().map(|c| if c.is_whitespace() || c.is_control() { '-' } else { c }).collect();
    let room = DOMAIN_MAX_BYTES - kind.len() - 1;
    let from = (name.len().saturating_sub(room)..=name.len()).find(|at| name.is_char_boundary(*at));
    format!("{kind}:{}", &name[from.unwrap_or(0)..])
}

/// A disk that several fault domains are on, if there is one: they fail together all the same. And whether all are.
pub(crate) fn shared_disk(drives: &[InDomain]) -> Option<(String, bool)> {
    let mut of_disk = BTreeMap::<&str, BTreeSet<&str>>::new();
    for drive in drives {
        if let Some(location) = &drive.location {
            of_disk.entry(disk_name(location)).or_default().insert(&drive.name);
        }
    }
    let is_only = of_disk.len() == 1;
    of_disk.into_iter().find(|(_, domains)| domains.len() > 1).map(|(disk, _)| (disk.to_owned(), is_only))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_of_one_disk_are_one_domain_unless_each_is_to_be_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let paths: Vec<_> = ["a", "b", "x/a"].map(|name| directory.path().join(name)).into();
        for path in &paths {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        }
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let names = |choices: &[&str]| {
            let choices: Vec<_> = choices.iter().map(|text| text.parse().unwrap()).collect();
            let found = domains(&paths, &choices).unwrap();
            (found.iter().map(|one| one.name.clone()).collect::<Vec<_>>(), shared_disk(&found))
        };
        let (one, shared) = names(&[]);
        assert!(one[0].starts_with("disk:") && one.iter().all(|name| *name == one[0]), "{one:?}");
        assert_eq!(shared, None, "one domain is on one disk");
        let (each, shared) = names(&["file"]);
        assert_eq!(each, ["file:a", "file:b", "file:a-2"]);
        assert!(shared.is_some_and(|(_, all)| all));
        let (named, _) = names(&["b=left", "file"]);
        assert_eq!(named, ["file:a", "left", "file:a-2"]);
        // A path that several drives have at their end names none.
        assert!(domains(&paths, &["a=left".parse().unwrap()]).is_err());
        assert!(domains(&paths, &["c=left".parse().unwrap()]).is_err());
    }

    #[test]
    fn names_are_not_too_long_and_what_is_none_is_refused() {
        assert_eq!(shortened("disk", "eui.0025385a91b1c2d3"), "disk:eui.0025385a91b1c2d3");
        assert_eq!(shortened("disk", &"ä".repeat(40)).len(), 31);
        assert_eq!(shortened("disk", "t10.ATA  X"), "disk:t10.ATA--X");
        for bad in ["", "files", "=a", "/dev/sdb=", "/dev/sdb=a-name-that-is-longer-than-32-bytes"] {
            assert!(bad.parse::<DomainChoice>().unwrap_err().contains("PATH=NAME"), "{bad}");
        }
    }
}
