//! Guards: what takes a volume from under a live session is refused and names the session, unless by force.

use crate::ArrayError;

/// Fails with `title` if the object has users, unless forced. Returns the users, for the event.
pub(crate) fn require_unused(
    title: &'static str,
    which: String,
    users: Vec<String>,
    force: bool,
) -> Result<String, ArrayError> {
    if users.is_empty() {
        Ok(String::new())
    } else if force {
        Ok(format!(", by force: {}", users.join("; ")))
    } else {
        Err(ArrayError::InUse { title, which, users })
    }
}
