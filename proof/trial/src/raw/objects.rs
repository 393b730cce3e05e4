//! What the trial knows of volumes, snapshots and clones: where each came from, and what it has to hold.

use super::{chains::Content, stamp::Write};
use quoin_initiator::Disk;
use std::{collections::BTreeMap, fmt};

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Volume,
    Snapshot,
    Clone,
}

/// A volume, or what came of one.
pub(super) struct Object {
    pub(super) kind: Kind,
    /// What it came of, while that is there.
    pub(super) source: Option<String>,
    /// The set it belongs to.
    pub(super) set: Option<String>,
    pub(super) content: Content,
    /// Where the trial's host sees it, once it does.
    pub(super) lun: Option<u32>,
    /// A session to it, while there is one.
    pub(super) disk: Option<Disk>,
}

impl Object {
    pub(super) fn new(kind: Kind, source: Option<&str>, content: Content) -> Self {
        Self { kind, source: source.map(str::to_owned), set: None, content, lun: None, disk: None }
    }
}

/// All there are, by name.
#[derive(Default)]
pub(super) struct Objects(pub(super) BTreeMap<String, Object>);

impl Objects {
    pub(super) fn get(&self, name: &str) -> &Object {
        self.0.get(name).unwrap_or_else(|| panic!("the trial knows no {name}"))
    }

    pub(super) fn get_mut(&mut self, name: &str) -> &mut Object {
        self.0.get_mut(name).unwrap_or_else(|| panic!("the trial knows no {name}"))
    }

    /// Names of those that are so.
    pub(super) fn names(&self, are: impl Fn(&Object) -> bool) -> Vec<String> {
        self.0.iter().filter(|(_, object)| are(object)).map(|(name, _)| name.clone()).collect()
    }

    /// Members of a set.
    pub(super) fn set(&self, set: &str) -> Vec<String> {
        self.names(|object| object.set.as_deref() == Some(set))
    }

    /// Forgets what was deleted, also as the source of others.
    pub(super) fn remove(&mut self, name: &str) {
        self.0.remove(name);
        for object in self.0.values_mut() {
            object.source.take_if(|source| source == name);
        }
    }

    /// Sessions end with the array.
    pub(super) fn disconnect(&mut self) {
        self.0.values_mut().for_each(|object| object.disk = None);
    }
}

/// The first of the blocks that are not what they have to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) block: usize,
    expected: Write,
    found: Write,
    blocks: usize,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { block, expected, found, blocks } = self;
        write!(f, "{blocks} blocks differ; block {block} is of write {found} instead of {expected}")
    }
}

pub(crate) fn compare(expected: &[Write], found: &[Write]) -> Result<(), Difference> {
    let differ = expected.iter().zip(found).enumerate().filter(|(_, (expected, found))| expected != found);
    let mut differ = differ.map(|(block, (&expected, &found))| (block, expected, found));
    let Some((block, expected, found)) = differ.next() else { return Ok(()) };
    Err(Difference { block, expected, found, blocks: 1 + differ.count() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_told_with_their_number() {
        assert_eq!(compare(&[1, 0, 2], &[1, 0, 2]), Ok(()));
        let difference = compare(&[1, 0, 2, 5], &[1, 3, 2, 4]).unwrap_err();
        assert_eq!(difference, Difference { block: 1, expected: 0, found: 3, blocks: 2 });
    }

    #[test]
    fn what_is_deleted_is_nobodys_source_any_more() {
        let mut objects = Objects::default();
        objects.0.insert("v".into(), Object::new(Kind::Volume, None, vec![]));
        objects.0.insert("s".into(), Object::new(Kind::Snapshot, Some("v"), vec![]));
        objects.0.insert("t".into(), Object::new(Kind::Snapshot, Some("s"), vec![]));
        objects.remove("v");
        assert_eq!(objects.get("s").source, None);
        assert_eq!(objects.get("t").source.as_deref(), Some("s"));
    }
}
