//! A record of the catalog: a layer, what became of one, or an object of the layers above.

use crate::{
    error::PoolError,
    meta::{Alias, LayerImage, ObjectKind, object::encode_key, reader::Reader},
};
use quoin_base::LayerId;
use std::{fmt, sync::Arc};

const LAYER: u8 = 1;
const ALIAS: u8 = 2;
const OBJECT: u8 = 3;

/// What a record describes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RecordKey {
    Layer(LayerId),
    /// A layer that became a part of another.
    Alias(LayerId),
    Object(ObjectKind, Arc<str>),
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layer(id) => write!(f, "layer {id}"),
            Self::Alias(id) => write!(f, "former layer {id}"),
            Self::Object(kind, key) => write!(f, "object {key} of kind {}", kind.0),
        }
    }
}

/// A record, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CatalogRecord {
    Layer(Box<LayerImage>),
    Alias(LayerId, Alias),
    Object((ObjectKind, String), Vec<u8>),
}

pub(crate) fn encode_layer(image: &LayerImage) -> Vec<u8> {
    let mut out = vec![LAYER];
    image.encode(&mut out);
    out
}

pub(crate) fn encode_alias(id: LayerId, alias: &Alias) -> Vec<u8> {
    let mut out = vec![ALIAS];
    out.extend(id.0.to_le_bytes());
    out.extend(alias.owner.0.to_le_bytes());
    out.extend(alias.births.to_le_bytes());
    out
}

pub(crate) fn encode_object(kind: ObjectKind, key: &str, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(9 + key.len() + value.len());
    out.push(OBJECT);
    encode_key(&mut out, kind, key);
    out.extend((value.len() as u32).to_le_bytes());
    out.extend(value);
    out
}

impl CatalogRecord {
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, PoolError> {
        let mut reader = Reader::new(bytes, "the catalog");
        let record = match reader.u8()? {
            LAYER => Self::Layer(Box::new(LayerImage::decode(&mut reader)?)),
            ALIAS => {
                let id = reader.layer()?;
                Self::Alias(id, Alias { owner: reader.layer()?, births: reader.u64()? })
            }
            OBJECT => Self::Object(reader.key()?, reader.value()?),
            other => return Err(reader.damaged(&format!("a record of kind {other} is unknown"))),
        };
        reader.end()?;
        Ok(record)
    }

    pub(crate) fn key(&self) -> RecordKey {
        match self {
            Self::Layer(image) => RecordKey::Layer(image.id),
            Self::Alias(id, _) => RecordKey::Alias(*id),
            Self::Object((kind, key), _) => RecordKey::Object(*kind, key.as_str().into()),
        }
    }
}
