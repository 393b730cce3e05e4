//! Tags: what people note about a volume, to find it again.

use crate::VolumeError;
use std::collections::BTreeMap;

/// Keys and their values.
pub type Tags = BTreeMap<String, String>;

/// The most tags of one volume.
pub const TAGS_MAX: usize = 32;
const KEY_LEN_MAX: usize = 63;
const VALUE_LEN_MAX: usize = 255;

/// Checks that there are at most [`TAGS_MAX`], that keys are 1 to 63 characters of `a-z A-Z 0-9 . _ - /`, and that values
/// are at most 255 bytes without control characters.
///
/// # Errors
/// [`VolumeError::Tag`] with the first tag that breaks one of these rules.
pub fn check_tags(tags: &Tags) -> Result<(), VolumeError> {
    let bad = |tag: String, why| Err(VolumeError::Tag { tag, why });
    if let Some((key, _)) = tags.iter().nth(TAGS_MAX) {
        return bad(key.clone(), "is one too many: a volume has at most 32");
    }
    for (key, value) in tags {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        if key.is_empty() || key.len() > KEY_LEN_MAX || !key.chars().all(plain) {
            return bad(
                key.clone(),
                "is not a key: that is 1 to 63 characters of a-z, A-Z, 0-9, '.', '_', '-' and '/'",
            );
        }
        if value.len() > VALUE_LEN_MAX || value.chars().any(char::is_control) {
            let tag = format!("{key}={value}");
            return bad(
                tag,
                "has a value that cannot be: that is at most 255 bytes without control characters",
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_checked_and_the_fault_is_said() {
        let check = |key: &str, value: &str| check_tags(&Tags::from([(key.to_owned(), value.to_owned())]));
        for (key, value) in [("a", ""), ("app/tier", "db = 1"), (&"k".repeat(63), &"v".repeat(255))] {
            check(key, value).unwrap();
        }
        for (key, value) in
            [("", "v"), ("a b", "v"), ("k", "a\nb"), (&"k".repeat(64), ""), ("k", &"v".repeat(256))]
        {
            let error = check(key, value).unwrap_err();
            assert!(matches!(error, VolumeError::Tag { .. }), "{error}");
        }
        let many: Tags = (0..33).map(|n| (format!("k{n:02}"), String::new())).collect();
        assert!(check_tags(&many).unwrap_err().to_string().contains("\"k32\" is one too many"));
    }
}
