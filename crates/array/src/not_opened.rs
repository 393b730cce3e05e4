//! Why the pool was not opened.

use quoin_pool::PoolError;

/// What becomes of a pool that another owner has. Two arrays that reopen it would take it from each other for ever.
pub(crate) const NOT_REOPENED: &str = "The array does not open the pool again by itself. Make sure that no other array uses its \
                            drives, then restart this one";

/// Why the pool was not opened.
pub(crate) struct NotOpened {
    pub(crate) reason: String,
    /// The only reason is that another process uses drives.
    pub(crate) in_use: bool,
    /// Another owner took the pool over meanwhile.
    pub(crate) taken_over: bool,
}

impl From<String> for NotOpened {
    fn from(reason: String) -> Self {
        Self { reason, in_use: false, taken_over: false }
    }
}

impl From<PoolError> for NotOpened {
    fn from(error: PoolError) -> Self {
        let (reason, taken_over) = (error.to_string(), error.is_expulsion());
        if taken_over {
            Self { reason: format!("{reason}. {NOT_REOPENED}"), in_use: false, taken_over }
        } else {
            reason.into()
        }
    }
}
