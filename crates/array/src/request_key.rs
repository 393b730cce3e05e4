//! The key by which a request is known again.

/// What distinguishes a request from all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// The key, as a short text made from what the sender chose.
    pub key: String,
    /// What the request asks for: another request under the same key has another one.
    pub fingerprint: String,
}
