//! What a host and the array prove to each other at login (CHAP, RFC 1994).

use std::fmt;

/// A secret. It is never shown: its debug form says nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Fewest bytes: 96 bits (RFC 7143 §9.2.1).
    pub const LEAST_BYTES: usize = 12;
    /// Most bytes: what initiators take.
    pub const MOST_BYTES: usize = 255;

    /// A secret of these bytes; `None` if they are fewer or more than a secret has.
    pub fn new(bytes: &[u8]) -> Option<Secret> {
        (Self::LEAST_BYTES..=Self::MOST_BYTES).contains(&bytes.len()).then(|| Secret(bytes.into()))
    }

    /// Its bytes, to compute with.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// A name and the secret that goes with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Login {
    /// CHAP_N.
    pub user: String,
    /// The secret.
    pub secret: Secret,
}

/// How a host logs in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// What the host proves to know.
    pub host: Login,
    /// What the array proves to know if the host asks it to.
    pub array: Option<Login>,
}
