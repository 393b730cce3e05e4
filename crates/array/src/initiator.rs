//! iSCSI names (RFC 7143 §4.2.7) as people type them.

use crate::HostError;

const NAME_BYTES_MAX: usize = 223;

/// Checks an initiator's name and brings it into the one form in which names are compared: lower case.
pub(crate) fn normalise(given: &str) -> Result<String, HostError> {
    let name = given.trim().to_ascii_lowercase();
    let fault = if name.len() > NAME_BYTES_MAX {
        Some("it is longer than 223 bytes")
    } else if name.chars().any(|c| !(c.is_ascii_alphanumeric() || "-.:".contains(c))) {
        Some("it has a character other than letters, digits, '-', '.' and ':'")
    } else if let Some(rest) = name.strip_prefix("iqn.") {
        (!is_iqn(rest)).then_some("after 'iqn.' a year and month and a domain reversed must follow")
    } else if let Some(hex) = name.strip_prefix("eui.") {
        (!is_hex(hex, &[16])).then_some("after 'eui.' 16 hexadecimal digits must follow")
    } else if let Some(hex) = name.strip_prefix("naa.") {
        (!is_hex(hex, &[16, 32])).then_some("after 'naa.' 16 or 32 hexadecimal digits must follow")
    } else {
        Some("it begins with none of 'iqn.', 'eui.' and 'naa.'")
    };
    match fault {
        None => Ok(name),
        Some(why) => Err(HostError::Initiator { initiator: given.to_owned(), why }),
    }
}

/// `YYYY-MM.domain[:anything]`.
fn is_iqn(rest: &str) -> bool {
    let Some((date, authority)) = rest.split_once('.') else { return false };
    let Some((year, month)) = date.split_once('-') else { return false };
    let digits = |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    let domain = authority.split(':').next().unwrap_or_default();
    digits(year, 4)
        && digits(month, 2)
        && ("01"..="12").contains(&month)
        && !domain.is_empty()
        && domain.split('.').all(|label| !label.is_empty())
}

fn is_hex(text: &str, lengths: &[usize]) -> bool {
    lengths.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// True for a name that a target may have.
pub fn is_target_name(name: &str) -> bool {
    name.starts_with("iqn.") && normalise(name).is_ok_and(|normal| normal == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_three_kinds_are_checked() {
        assert_eq!(normalise("iqn.2026-11.test:H1").unwrap(), "iqn.2026-11.test:h1");
        for good in ["iqn.1991-05.com.microsoft:win-1", "iqn.2026-11.test", "eui.0123456789abcdef"] {
            assert_eq!(normalise(good).unwrap(), good);
        }
        assert!(normalise("naa.0123456789abcdef0123456789abcdef").is_ok());
        for bad in [
            "",
            "h1",
            "iqn.",
            "iqn.2026.test:h1",
            "iqn.2026-13.test:h1",
            "iqn.26-11.test:h1",
            "iqn.2026-11.:h1",
            "iqn.2026-11.a..b:h1",
            "iqn.2026-11.test:h 1",
            "eui.12",
            "naa.xyz",
        ] {
            assert!(normalise(bad).is_err(), "{bad}");
        }
        assert!(normalise(&format!("iqn.2026-11.test:{}", "x".repeat(223))).is_err());
        assert!(is_target_name("iqn.2026-11.io.quoin:a") && !is_target_name("iqn.2026-11.io.quoin:A"));
    }
}
