//! Key=value text of login and text PDUs (RFC 7143 §6).

use thiserror::Error;

/// Most text taken in one negotiation step, over all PDUs that continue it.
pub const MAX_TEXT_BYTES: usize = 64 * 1024;
/// Longest key (§6.1).
const MAX_KEY_BYTES: usize = 63;

/// Why text is not key=value pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TextError {
    /// Not UTF-8.
    #[error("text is not UTF-8")]
    Encoding,
    /// A pair without '='.
    #[error("text without '=' between key and value")]
    NoEquals,
    /// The key is empty, too long or has characters that no key has.
    #[error("malformed key")]
    Key,
}

/// The pairs in order. A missing NUL behind the last one is forgiven.
///
/// # Errors
/// The first pair that is none.
pub fn parse(bytes: &[u8]) -> Result<Vec<(&str, &str)>, TextError> {
    let text = std::str::from_utf8(bytes).map_err(|_| TextError::Encoding)?;
    let pair = |pair: &'_ str| -> Result<_, TextError> {
        let at = pair.find('=').ok_or(TextError::NoEquals)?;
        let key = &pair[..at];
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '@' | '_' | '#');
        if key.is_empty() || key.len() > MAX_KEY_BYTES || !key.chars().all(allowed) {
            return Err(TextError::Key);
        }
        Ok(at)
    };
    let pairs = text.split('\0').filter(|part| !part.is_empty());
    pairs.map(|part| pair(part).map(|at| (&part[..at], &part[at + 1..]))).collect()
}

/// Pairs to send.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Text(Vec<u8>);

impl Text {
    /// Appends a pair.
    pub fn push(&mut self, key: &str, value: impl std::fmt::Display) {
        self.0.extend_from_slice(format!("{key}={value}\0").as_bytes());
    }

    /// Appends all pairs of another.
    pub fn append(&mut self, other: &Text) {
        self.0.extend_from_slice(&other.0);
    }

    /// The value of the first pair with this key.
    pub fn value(&self, key: &str) -> Option<&str> {
        parse(&self.0).ok()?.into_iter().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    /// The bytes of all pairs.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refusals() {
        assert_eq!(parse(b"a=1\0b=2=3"), Ok(vec![("a", "1"), ("b", "2=3")]));
        assert_eq!(parse(b"novalue\0"), Err(TextError::NoEquals));
        assert_eq!(parse(b"=1\0"), Err(TextError::Key));
        assert_eq!(parse(b"a=\xFF\0"), Err(TextError::Encoding));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn what_is_written_is_read(pairs in proptest::collection::vec(("[A-Za-z][A-Za-z0-9.-]{0,62}", "[ -~]{0,40}"), 0..8)) {
            let mut text = Text::default();
            pairs.iter().for_each(|(key, value)| text.push(key, value));
            let bytes = text.into_bytes();
            let read: Vec<_> = parse(&bytes).unwrap().into_iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            prop_assert_eq!(read, pairs);
        }
    }
}
