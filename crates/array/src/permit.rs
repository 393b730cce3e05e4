//! What a mapping or an export lets hosts do: one of three, kept as two flags.

use crate::{
    ArrayError,
    record::{ExportRecord, MappingRecord},
};
use quoin_api as api;
use quoin_target::Access;

/// The access that two flags mean. If both are set, which no request can cause, the safer one counts.
fn access(read_only: bool, writable: bool) -> api::Access {
    match (read_only, writable) {
        (true, _) => api::Access::ReadOnly,
        (false, true) => api::Access::ReadWrite,
        (false, false) => api::Access::Default,
    }
}

/// The flags `(read_only, writable)` that say this.
fn flags(access: api::Access) -> (bool, bool) {
    (access == api::Access::ReadOnly, access == api::Access::ReadWrite)
}

/// The same for the target.
pub(crate) fn permit(access: api::Access) -> Access {
    match access {
        api::Access::Default => Access::Default,
        api::Access::ReadWrite => Access::ReadWrite,
        api::Access::ReadOnly => Access::ReadOnly,
    }
}

/// For the events.
pub(crate) fn told(access: api::Access) -> &'static str {
    match access {
        api::Access::Default => "default (as the volume allows)",
        api::Access::ReadWrite => "read-write",
        api::Access::ReadOnly => "read-only",
    }
}

/// The access that two flags of a request ask for.
pub(crate) fn chosen_access(
    title: &'static str,
    which: String,
    read_only: bool,
    writable: bool,
) -> Result<api::Access, ArrayError> {
    match (read_only, writable) {
        (true, true) => Err(ArrayError::ReadOnlyAndWritable { title, which }),
        (true, false) => Ok(api::Access::ReadOnly),
        (false, true) => Ok(api::Access::ReadWrite),
        (false, false) => Ok(api::Access::Default),
    }
}

impl MappingRecord {
    pub(crate) fn access(&self) -> api::Access {
        access(self.read_only, self.writable)
    }

    pub(crate) fn with_access(self, access: api::Access) -> Self {
        let (read_only, writable) = flags(access);
        Self { read_only, writable, ..self }
    }
}

impl ExportRecord {
    pub(crate) fn access(&self) -> api::Access {
        access(self.read_only, self.writable)
    }

    pub(crate) fn with_access(self, access: api::Access) -> Self {
        let (read_only, writable) = flags(access);
        Self { read_only, writable, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_access_say_the_same() {
        for one in [api::Access::Default, api::Access::ReadWrite, api::Access::ReadOnly] {
            let (read_only, writable) = flags(one);
            assert_eq!(access(read_only, writable), one);
        }
        assert_eq!(access(true, true), api::Access::ReadOnly);
    }
}
