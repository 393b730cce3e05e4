//! Guards: what takes a volume from under a live session is refused and names the session, unless by force.

use crate::ArrayError;

/// Fails with `title` if the object has users, unless forced. Returns the users, for the event.
pub(crate) fn require_unused(
    title: &'static str,
    which: String,
    users: Vec<String>,
    force: bool,
) -> Result<String, ArrayError> {
    match users.is_empty() {
        true => Ok(String::new()),
        false if force => Ok(format!(", by force: {}", users.join("; "))),
        false => Err(ArrayError::InUse { title, which, users }),
    }
}
