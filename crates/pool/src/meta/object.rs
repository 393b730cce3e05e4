//! Objects of the layers above, by kind and key.

/// What sort of object a catalog entry is. Numbers belong to the layers above and are never given another
/// meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ObjectKind(pub u16);

/// Objects that name the transactions over several slices that are decided, until no slice's journal holds a part of them.
pub(crate) const DECISION_OBJECT: ObjectKind = ObjectKind(41);

pub(crate) fn encode_key(out: &mut Vec<u8>, kind: ObjectKind, key: &str) {
    out.extend(kind.0.to_le_bytes());
    out.extend((key.len() as u16).to_le_bytes());
    out.extend(key.as_bytes());
}
