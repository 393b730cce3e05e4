//! The secret of a bearer token.

use sha2::{Digest, Sha256};
use std::{fmt, hint::black_box};

/// The secret that clients show. Never printed.
pub struct Token(String);

impl Token {
    /// A token; blanks around it do not count.
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// Identifies a token without disclosing it: the first 8 hexadecimal digits of its SHA-256.
    pub(crate) fn fingerprint(&self) -> String {
        Sha256::digest(self.0.as_bytes()).iter().take(4).map(|byte| format!("{byte:02x}")).collect()
    }

    /// True if `shown` is the token. Takes the same time whatever the first difference is.
    pub(crate) fn matches(&self, shown: &str) -> bool {
        let (own, shown) = (self.0.as_bytes(), shown.as_bytes());
        let differing = own.iter().zip(shown).fold(0, |bits, (a, b)| black_box(bits | (a ^ b)));
        !own.is_empty() && own.len() == shown.len() && differing == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_token_matches() {
        let token = Token::new("secret\n");
        assert!(token.matches("secret"));
        for wrong in ["", "secreT", "secret1", "secre"] {
            assert!(!token.matches(wrong), "{wrong}");
        }
        assert!(!Token::new("").matches(""));
        assert_eq!(format!("{token:?}"), "Token(..)");
        assert_eq!(Token::new("test").fingerprint(), "9f86d081");
    }
}
