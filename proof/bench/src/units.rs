//! Sizes as people write and read them.

/// Parses `8k`, `64K`, `1M`, `4G` (powers of 1024) or plain bytes.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| !c.is_ascii_digit());
    let scale = match &lower[digits.len()..] {
        "" | "b" => 1_u64,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        other => return Err(format!("'{other}' is not a unit; use k, m, g or t")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("'{text}' is not a size such as 8k or 4G"))?;
    number.checked_mul(scale).ok_or_else(|| format!("'{text}' is too large"))
}

/// Parses `100k`, `4m` (powers of 1000) or a plain number.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let (digits, scale) = match lower.strip_suffix('m').map(|digits| (digits, 1_000_000)) {
        Some(millions) => millions,
        None => lower.strip_suffix('k').map_or((lower.as_str(), 1), |digits| (digits, 1_000)),
    };
    let number = digits.parse::<u64>().map_err(|_| format!("'{text}' is not a number such as 500k or 4m"))?;
    number.checked_mul(scale).ok_or_else(|| format!("'{text}' is too large"))
}

/// `8 KiB`, `1 MiB`: exact where it can be, else to one digit.
pub(crate) fn show_bytes(bytes: u64) -> String {
    for (unit, name) in [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit {
            return if bytes.is_multiple_of(unit) {
                format!("{} {name}", bytes / unit)
            } else {
                format!("{:.1} {name}", bytes as f64 / unit as f64)
            };
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes) in [("512", 512), ("8k", 8192), ("64K", 65536), ("1MiB", 1 << 20), ("4G", 4 << 30)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes));
        }
        for wrong in ["", "k", "8x", "-1", "99999999999T", "1.5G"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(["4m", "500K", "7"].map(parse_count), [Ok(4_000_000), Ok(500_000), Ok(7)]);
        assert!(["", "m", "4g", "-1"].iter().all(|wrong| parse_count(wrong).is_err()));
        assert_eq!(show_bytes(8192), "8 KiB");
        assert_eq!(show_bytes(1536), "1.5 KiB");
        assert_eq!(show_bytes(7), "7 B");
    }
}
