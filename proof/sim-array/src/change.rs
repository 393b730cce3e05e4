//! Changes that administrators ask for, and the objects that each is about.

use crate::vol::Vol;

/// A change that is not acknowledged yet. While it is under way, no other is about the same objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    pub number: u32,
    pub what: String,
    /// Volumes by name, before and after.
    pub volumes: Vec<(String, Option<Vol>, Option<Vol>)>,
    /// Groups that come or go.
    pub groups: Vec<(String, bool)>,
    /// The fork of the history that it is, and others it makes.
    pub fork: Option<usize>,
    /// What it does with the recycle bin.
    pub bin: Bin,
}

/// What a change does with the recycle bin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bin {
    #[default]
    Nothing,
    /// Volumes that go come there.
    Fill,
    /// The one of this name is deleted for good.
    Purge(String),
}

impl Change {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), ..Self::default() }
    }

    pub(crate) fn volume(mut self, name: &str, before: Option<Vol>, after: Option<Vol>) -> Self {
        self.volumes.push((name.to_owned(), before, after));
        self
    }

    pub(crate) fn group(mut self, name: &str, comes: bool) -> Self {
        self.groups.push((name.to_owned(), comes));
        self
    }

    pub(crate) fn fork(mut self, fork: usize) -> Self {
        self.fork = Some(fork);
        self
    }

    pub(crate) fn bin(mut self, bin: Bin) -> Self {
        self.bin = bin;
        self
    }

    pub(crate) fn creates(&self) -> usize {
        self.volumes.iter().filter(|(_, before, after)| before.is_none() && after.is_some()).count()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        let purged = match &self.bin {
            Bin::Purge(name) => Some(name),
            _ => None,
        };
        self.volumes
            .iter()
            .map(|(name, ..)| name)
            .chain(self.groups.iter().map(|(name, _)| name))
            .chain(purged)
    }

    /// Its objects: each before and after.
    pub(crate) fn sides(&self) -> Vec<(String, Option<String>, Option<String>)> {
        let seen = |vol: &Option<Vol>| vol.as_ref().map(Vol::seen);
        // What it only keeps others away from is not its own: a change that follows it may be about that.
        let volumes = self.volumes.iter().filter(|(_, before, after)| before != after);
        let volumes =
            volumes.map(|(name, before, after)| (format!("volume {name}"), seen(before), seen(after)));
        let groups = self.groups.iter().map(|(name, comes)| {
            let there = |is: bool| is.then(|| "there".to_owned());
            (format!("group {name}"), there(!comes), there(*comes))
        });
        volumes.chain(groups).collect()
    }
}
