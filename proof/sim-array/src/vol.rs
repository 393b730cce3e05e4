//! A volume, snapshot or clone, and how administrators see it.

use quoin_api::OriginKind;
use quoin_base::SECTOR_BYTES;
use std::collections::BTreeMap;

/// Every object by kind and name, as text.
pub(crate) type Objects = BTreeMap<String, String>;

/// A volume, snapshot or clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Vol {
    /// Its number in the history of sectors.
    pub id: u32,
    pub size_bytes: u64,
    pub block_bytes: u32,
    pub thick: bool,
    pub template: bool,
    pub immutable: bool,
    /// How it was made, and of which volume.
    pub origin: Option<(OriginKind, u32)>,
    pub group: Option<String>,
    /// The LUN by which the one host sees it.
    pub lun: Option<u16>,
}

impl Vol {
    pub(crate) fn is_frozen(&self) -> bool {
        self.template || self.immutable
    }

    pub(crate) fn sectors(&self) -> u32 {
        (self.size_bytes / SECTOR_BYTES) as u32
    }

    /// As administrators see it.
    pub(crate) fn seen(&self) -> String {
        let kind = match self.origin {
            None => "volume",
            Some((OriginKind::Snapshot, _)) => "snapshot",
            Some((OriginKind::Clone, _)) => "clone",
        };
        text(
            kind,
            self.size_bytes,
            self.block_bytes,
            self.thick,
            self.template,
            self.immutable,
            self.group.as_deref(),
            self.lun,
        )
    }

    /// What comes of forking it.
    pub(crate) fn forked(&self, id: u32, kind: OriginKind) -> Vol {
        let origin = Some((kind, self.id));
        Vol {
            id,
            thick: false,
            template: false,
            immutable: false,
            origin,
            group: None,
            lun: None,
            ..self.clone()
        }
    }
}

/// A volume with its name.
pub(crate) type Named = (String, Vol);

#[expect(clippy::too_many_arguments, reason = "the two sides of one comparison")]
pub(crate) fn text(
    kind: &str,
    size_bytes: u64,
    block_bytes: u32,
    thick: bool,
    template: bool,
    immutable: bool,
    group: Option<&str>,
    lun: Option<u16>,
) -> String {
    format!(
        "{kind} of {size_bytes} bytes in {block_bytes}, thick {thick}, template {template}, immutable {immutable}, \
         group {group:?}, LUN {lun:?}"
    )
}
