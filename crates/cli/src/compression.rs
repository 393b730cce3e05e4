//! Compression on the command line, by its name.

use crate::choice::choice;
use quoin_api::{Compression, PolicyCompression};

pub(crate) fn parse_compression(text: &str) -> Result<Compression, String> {
    choice(Compression::ALL, text, ("compression", "off, lz4 or zstd"))
}

pub(crate) fn parse_policy_compression(text: &str) -> Result<PolicyCompression, String> {
    choice(PolicyCompression::ALL, text, ("compression", "off, lz4, zstd or any"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_is_named_and_what_is_none_is_told_with_those_there_are() {
        assert_eq!(parse_compression("zstd"), Ok(Compression::Zstd));
        assert_eq!(parse_compression("off"), Ok(Compression::Off));
        assert!(parse_compression("any").unwrap_err().ends_with("write off, lz4 or zstd"));
        assert_eq!(parse_policy_compression("any"), Ok(PolicyCompression::Any));
        assert_eq!(parse_policy_compression("lz4"), Ok(PolicyCompression::Lz4));
        let error = parse_policy_compression("gzip").unwrap_err();
        assert_eq!(error, r#""gzip" is no compression; write off, lz4, zstd or any"#);
    }
}
