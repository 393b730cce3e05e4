//! Compression, as the engine and as the management interface call it.

use quoin_api as api;
use quoin_base::Compression;

/// What the engine does for it.
pub(crate) fn of_api(compression: api::Compression) -> Compression {
    match compression {
        api::Compression::Off => Compression::Off,
        api::Compression::Lz4 => Compression::Lz4,
        api::Compression::Zstd => Compression::Zstd,
    }
}

/// What it is called.
pub(crate) fn to_api(compression: Compression) -> api::Compression {
    match compression {
        Compression::Off => api::Compression::Off,
        Compression::Lz4 => api::Compression::Lz4,
        Compression::Zstd => api::Compression::Zstd,
    }
}

/// `compressed with lz4`, for events.
pub(crate) fn told(compression: api::Compression) -> String {
    match compression {
        api::Compression::Off => "not compressed".to_owned(),
        other => format!("compressed with {other}"),
    }
}
