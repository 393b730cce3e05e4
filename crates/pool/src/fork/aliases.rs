//! What became of layers that are a part of others by now.

use crate::{fork::changes::Changes, meta::Alias};
use quoin_base::LayerId;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Former layers of which something is left. Each is listed with the layer that it is a part of.
#[derive(Default)]
pub(crate) struct Aliases {
    all: BTreeMap<LayerId, Alias>,
    of: BTreeMap<LayerId, BTreeSet<LayerId>>,
    changes: Arc<Changes>,
}

impl Aliases {
    pub(crate) fn new(all: &BTreeMap<LayerId, Alias>, changes: &Arc<Changes>) -> Self {
        let mut of: BTreeMap<LayerId, BTreeSet<LayerId>> = BTreeMap::new();
        for (id, alias) in all {
            of.entry(alias.owner).or_default().insert(*id);
        }
        Self { all: all.clone(), of, changes: changes.clone() }
    }

    pub(crate) fn all(&self) -> &BTreeMap<LayerId, Alias> {
        &self.all
    }

    pub(crate) fn get(&self, id: LayerId) -> Option<&Alias> {
        self.all.get(&id)
    }

    /// Notes that a layer with so many births became a part of `owner`, and with it what was a part of it.
    pub(crate) fn join(&mut self, id: LayerId, owner: LayerId, births: u64) {
        let mut joined = self.of.remove(&id).unwrap_or_default();
        for former in &joined {
            if let Some(alias) = self.all.get_mut(former) {
                alias.owner = owner;
            }
            self.changes.note_alias(*former);
        }
        if births > 0 {
            self.all.insert(id, Alias { owner, births });
            self.changes.note_alias(id);
            joined.insert(id);
        }
        if !joined.is_empty() {
            self.of.entry(owner).or_default().append(&mut joined);
        }
    }

    /// Notes that nothing of a layer is left.
    pub(crate) fn forget_owner(&mut self, owner: LayerId) {
        for former in self.of.remove(&owner).unwrap_or_default() {
            self.all.remove(&former);
            self.changes.note_alias(former);
        }
    }

    /// Counts one less of what a former layer bore.
    pub(crate) fn forget_birth(&mut self, id: LayerId) {
        let Some(alias) = self.all.get_mut(&id) else { return };
        alias.births -= 1;
        self.changes.note_alias(id);
        if alias.births > 0 {
            return;
        }
        let owner = alias.owner;
        self.all.remove(&id);
        if let Some(of) = self.of.get_mut(&owner) {
            of.remove(&id);
            if of.is_empty() {
                self.of.remove(&owner);
            }
        }
    }
}
