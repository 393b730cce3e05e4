//! Sizes as people write them.

/// The slowest that a scrub may be set to.
const RATE_LEAST: u64 = 64 << 10;
const BINARY: [(&str, u64); 4] = [("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];

/// A size in bytes, parsed from `4G`, `512M`, `10GiB`, `4096`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// Reads a size: a number, alone for bytes or followed by K, M, G or T (also KiB and so on), which are powers of 1024, or
/// by KB, MB, GB or TB, which are powers of 1000. Upper or lower case. A fraction, as in 1.5G, must come to whole bytes.
///
/// # Errors
/// A sentence for the user if the text has no number or an unknown unit, is not a whole number of bytes, or
/// exceeds 64 bits.
pub fn parse_size(text: &str) -> Result<Size, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim_start().to_ascii_uppercase();
    let factor = match unit.as_str() {
        "" | "B" => Some(1),
        _ => BINARY.iter().zip([4, 3, 2, 1]).find_map(|((letter, binary), power)| {
            let rest = unit.strip_prefix(letter)?;
            match rest {
                "" | "IB" => Some(*binary),
                "B" => Some(1000u64.pow(power)),
                _ => None,
            }
        }),
    };
    let wrong = || format!("{text:?} is not a size; write a number and a unit, such as 512M, 1.5G or 10GiB");
    let factor = u128::from(factor.ok_or_else(wrong)?);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    // More digits than that are not needed for whole bytes.
    if fraction.is_empty() || fraction.len() > 15 {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let parts: u64 = fraction.parse().map_err(|_| wrong())?;
    let bytes_of_parts = u128::from(parts) * factor;
    let scale = 10u128.pow(fraction.len() as u32);
    if bytes_of_parts % scale != 0 {
        return Err(format!("{text} is not a whole number of bytes; write fewer digits, or the bytes"));
    }
    let bytes = u128::from(whole) * factor + bytes_of_parts / scale;
    u64::try_from(bytes).map(Size).map_err(|_| format!("{text} is too large"))
}

/// Reads how much may be read in a second: a size, perhaps with /s behind it. 0 is for as fast as it can; less than 64 KiB
/// would never come to an end.
pub(crate) fn parse_rate(text: &str) -> Result<Size, String> {
    let size = parse_size(text.strip_suffix("/s").unwrap_or(text))?;
    match size.0 {
        1..RATE_LEAST => Err(format!(
            "{text} is too slow: write at least {} a second, such as 50M, or 0 for as fast as it can",
            size_text(RATE_LEAST)
        )),
        _ => Ok(size),
    }
}

/// A size for people: `4.0 GiB`.
pub fn size_text(bytes: u64) -> String {
    match BINARY.iter().find(|(_, unit)| bytes >= *unit) {
        Some((letter, unit)) => format!("{:.1} {letter}iB", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in [
            ("4096", 4096),
            ("4G", 4 << 30),
            ("4g", 4 << 30),
            ("10GiB", 10 << 30),
            ("10 GiB", 10 << 30),
            ("512M", 512 << 20),
            ("2T", 2 << 40),
            ("1k", 1024),
            ("1GB", 1_000_000_000),
            ("7B", 7),
            ("1.5G", 3 << 29),
            ("0.25 KiB", 256),
            ("2.50MB", 2_500_000),
        ] {
            assert_eq!(parse_size(text), Ok(Size(bytes)), "{text}");
        }
        for bad in
            ["", "G", "-1", "1.5", "0.1K", "1.G", ".5G", "1.2.3G", "4X", "4GiBs", "99999999999T", "0x10"]
        {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert!(parse_size("0.1K").unwrap_err().contains("whole number of bytes"));
        assert_eq!(parse_rate("50M/s"), Ok(Size(50 << 20)));
        assert_eq!(parse_rate("0"), Ok(Size(0)));
        assert!(parse_rate("1").unwrap_err().contains("64.0 KiB"));
        assert_eq!(size_text(4 << 30), "4.0 GiB");
        assert_eq!(size_text(1536 << 10), "1.5 MiB");
        assert_eq!(size_text(100), "100 B");
    }
}
