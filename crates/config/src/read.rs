//! From the bytes of the file to a configuration.

use crate::{
    Config, Fault,
    check::{check, line_of},
};
use std::str;

/// The key of the first threshold of space.
const NOTICE: &str = "notice_percent";
/// That of the second one.
const WARNING: &str = "warning_percent";
/// That of the third one.
const CRITICAL: &str = "critical_percent";

/// A configuration and where its values are in the file.
#[derive(Clone, Debug)]
pub struct ReadConfig {
    /// What the file says.
    pub config: Config,
    /// Section, key and line, from 1 on, of each value.
    pub lines: Vec<(&'static str, &'static str, usize)>,
    /// The file as a table.
    pub table: toml::Table,
}

/// Reads and checks a file. The first fault, if there is one.
///
/// # Errors
/// The first [`Fault`]: bytes that are not UTF-8, an unknown or missing key, a value of the wrong kind or out
/// of range, or thresholds that are not ascending.
pub fn read(bytes: &[u8]) -> Result<ReadConfig, Fault> {
    let text = str::from_utf8(bytes).map_err(|error| Fault {
        line: 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count(),
        why: "it is not text in UTF-8".to_owned(),
        next: "correct that line with an editor that writes UTF-8".to_owned(),
    })?;
    // The list of keys first: its messages say more than those of the parser.
    let lines = check(text)?;
    let odd = |error: toml::de::Error| Fault {
        line: error.span().map_or(1, |span| line_of(text, span)),
        why: error.message().replace('\n', "; "),
        next: "correct that line; docs/configuration.md lists what each key may be".to_owned(),
    };
    let config: Config = toml::from_str(text).map_err(odd)?;
    // What goes together is checked once all of it is known.
    let percents = [NOTICE, WARNING, CRITICAL].into_iter().zip(config.space.percents());
    let on: Vec<_> = percents.filter(|(_, percent)| *percent > 0).collect();
    if let Some([(lower, percent), (upper, above)]) =
        on.array_windows().find(|[lower, upper]| lower.1 > upper.1)
    {
        let line = lines.iter().find(|(section, key, _)| *section == "space" && key == lower);
        return Err(Fault {
            line: line.map_or(1, |(_, _, line)| *line),
            why: format!("space.{lower} is {percent}, above space.{upper}, {above}"),
            next: format!("give {lower} the lower of the two, or 0 to turn it off"),
        });
    }
    let table = toml::from_str(text).map_err(odd)?;
    Ok(ReadConfig { config, lines, table })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "name = \"a\"\niqn = \"iqn.2026-11.test:a\"\npool = \"0f4e7a1c-22b9-4a6e-9d55-7d3f7f1f2a10\"\n\
                         drive = [{ path = \"d1\" }]\n";

    #[test]
    fn what_a_file_says_is_read_with_its_lines() {
        let found = read(LEAST.as_bytes()).unwrap();
        assert_eq!((found.config.name.as_str(), found.config.drives.len()), ("a", 1));
        assert_eq!(found.lines.len(), 4);
        assert!(found.lines.contains(&("drive", "path", 4)), "{:?}", found.lines);
    }

    #[test]
    fn what_is_emulated_is_the_same_after_it_is_written_and_read_again() {
        let emulated = LEAST.replace(
            "[{ path = \"d1\" }]",
            "[{ path = \"d1\", emulate = { technology = \"7.2k\", iops = 90, latency_ms = 11, mbps = 200 } },\
             { path = \"d2\", emulate = { technology = \"flash\", latency_ms = 0.25 } }, { path = \"d3\" }]",
        );
        let read_config = read(emulated.as_bytes()).unwrap().config;
        let texts: Vec<_> =
            read_config.drives.iter().map(|drive| drive.emulate.map(|emulation| emulation.text())).collect();
        let wanted = ["7.2k 90 IOPS 11 ms 200 MB/s", "flash 75000 IOPS 0.25 ms 500 MB/s"];
        assert_eq!(texts, [Some(wanted[0].to_owned()), Some(wanted[1].to_owned()), None]);
        let written = crate::write(&read_config).unwrap();
        assert_eq!(read(written.as_bytes()).unwrap().config, read_config, "{written}");
    }

    #[test]
    fn bytes_that_are_no_text_and_values_that_do_not_go_together_have_a_line() {
        let fault = read(b"name = \"a\"\niqn = \"\xFF\"\n").unwrap_err();
        assert_eq!((fault.line, fault.why.as_str()), (2, "it is not text in UTF-8"));
        let crossed = [LEAST, "[space]\nwarning_percent = 50\nnotice_percent = 70\n"].concat();
        let fault = read(crossed.as_bytes()).unwrap_err();
        assert_eq!(fault.line, 7);
        assert!(fault.why.contains("space.notice_percent is 70, above"), "{fault:?}");
        let crossed = [LEAST, "[space]\nwarning_percent = 95\ncritical_percent = 90\n"].concat();
        let fault = read(crossed.as_bytes()).unwrap_err();
        assert_eq!(fault.line, 6);
        assert!(fault.why.contains("space.warning_percent is 95, above"), "{fault:?}");
        let off =
            [LEAST, "[space]\nwarning_percent = 0\nnotice_percent = 90\ncritical_percent = 95\n"].concat();
        assert_eq!(read(off.as_bytes()).unwrap().config.space.percents(), [90, 0, 95]);
        let critical = [LEAST, "[space]\ncritical_percent = 50\n"].concat();
        assert_eq!(read(critical.as_bytes()).unwrap().config.space.percents(), [50, 50, 50]);
    }
}
