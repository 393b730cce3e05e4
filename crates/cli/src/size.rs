//! Sizes as people write them.

const BINARY: [(&str, u64); 4] = [("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];

/// A size in bytes, parsed from `4G`, `512M`, `10GiB`, `4096`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// Reads a size: a whole number, alone for bytes or followed by K, M, G or T (also KiB and so on), which are
/// powers of 1024, or by KB, MB, GB or TB, which are powers of 1000. Upper or lower case.
pub fn parse_size(text: &str) -> Result<Size, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
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
    let wrong =
        || format!("{text:?} is not a size; write a whole number and a unit, such as 512M, 4G or 10GiB");
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(factor.ok_or_else(wrong)?).map(Size).ok_or_else(|| format!("{text} is too large"))
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
        ] {
            assert_eq!(parse_size(text), Ok(Size(bytes)), "{text}");
        }
        for bad in ["", "G", "-1", "1.5G", "4X", "4GiBs", "99999999999T", "0x10"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert_eq!(size_text(4 << 30), "4.0 GiB");
        assert_eq!(size_text(1536 << 10), "1.5 MiB");
        assert_eq!(size_text(100), "100 B");
    }
}
