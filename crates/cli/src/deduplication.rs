//! Deduplication on the command line, by its name.

use crate::choice::choice;
use quoin_api::{Deduplication, PolicyDeduplication};

pub(crate) fn parse_deduplication(text: &str) -> Result<Deduplication, String> {
    choice(Deduplication::ALL, text, ("deduplication", "on or off"))
}

pub(crate) fn parse_policy_deduplication(text: &str) -> Result<PolicyDeduplication, String> {
    choice(PolicyDeduplication::ALL, text, ("deduplication", "on, off or any"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deduplication_is_on_or_off_and_what_is_neither_is_told_with_those_there_are() {
        assert_eq!(parse_deduplication("on"), Ok(Deduplication::On));
        assert_eq!(parse_deduplication("off"), Ok(Deduplication::Off));
        assert!(parse_deduplication("any").unwrap_err().ends_with("write on or off"));
        assert_eq!(parse_policy_deduplication("any"), Ok(PolicyDeduplication::Any));
        assert_eq!(parse_policy_deduplication("on"), Ok(PolicyDeduplication::On));
        let error = parse_policy_deduplication("yes").unwrap_err();
        assert_eq!(error, r#""yes" is no deduplication; write on, off or any"#);
    }
}
