//! Which volumes may share blocks because of forks.

use crate::lifecycle::slice::Slice;
use quoin_base::{LayerId, VolumeId};
use std::collections::BTreeMap;

impl Slice {
    /// For each volume the layer at the root of its tree: volumes with the same one are related by snapshots and clones, and
    /// what deleting one frees may depend on whether the others are there.
    pub(crate) fn families(&self) -> BTreeMap<VolumeId, LayerId> {
        let layers = self.layers.read();
        let mut roots: BTreeMap<LayerId, LayerId> = BTreeMap::new();
        let mut families = BTreeMap::new();
        for (volume, leaf) in &layers.volumes {
            let (mut path, mut layer) = (Vec::new(), leaf.clone());
            let root = loop {
                if let Some(root) = roots.get(&layer.id) {
                    break *root;
                }
                path.push(layer.id);
                match layer.parent() {
                    Some(parent) => layer = parent,
                    None => break layer.id,
                }
            };
            roots.extend(path.into_iter().map(|id| (id, root)));
            families.insert(*volume, root);
        }
        families
    }
}
