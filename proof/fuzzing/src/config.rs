//! The configuration file.

use crate::Target;
use quoin_config::{ReadConfig, SECTIONS, read, write};
use std::iter;

/// `quoin.toml`.
pub(crate) const FILE: Target =
    Target { name: "config_file", about: "the bytes of quoin.toml", run, seeds, words, mutations: 3000 };

fn run(bytes: &[u8]) {
    let lines = 1 + bytes.iter().filter(|byte| **byte == b'\n').count();
    let read_config = match read(bytes) {
        Ok(read_config) => read_config,
        Err(fault) => {
            assert!((1..=lines).contains(&fault.line), "there is no line {}: {fault:?}", fault.line);
            assert!(!fault.why.is_empty() && !fault.next.is_empty(), "{fault:?} helps nobody");
            return;
        }
    };
    let ReadConfig { config, lines: found, table } = read_config;
    for (section, key, line) in found {
        let listed = SECTIONS.iter().find(|of| of.name == section).expect("a section that is in the list");
        assert!(listed.keys.iter().any(|of| of.name == key), "{section}.{key} is not in the list");
        assert!((1..=lines).contains(&line), "{section}.{key} is not in line {line}");
    }
    assert!(table.contains_key("drive"), "an array has drives");
    let again = write(&config).expect("what was read can be written");
    let again =
        read(again.as_bytes()).unwrap_or_else(|fault| panic!("{fault:?} in what was written:\n{again}"));
    assert_eq!(again.config, config, "it changes when it is written again");
}

fn words() -> Vec<Vec<u8>> {
    let name = |section: &str, is_array| match (section, is_array) {
        (name, true) => format!("[[{name}]]\n"),
        (name, false) => format!("[{name}]\n"),
    };
    let tables = SECTIONS[1..].iter().map(|section| name(section.name, section.is_array));
    let keys = SECTIONS.iter().flat_map(|section| section.keys);
    let keys = keys.flat_map(|key| [format!("{} = ", key.name), format!("{}\n", key.example)]);
    let values = [
        "0x7fff_ffff",
        "9223372036854775807",
        "\"8388608TiB\"",
        "\"[::1]:1\"",
        "'''",
        "\\u0000",
        "1979-05-27",
    ];
    let words = tables.chain(keys).chain(values.map(str::to_owned)).map(String::into_bytes);
    words.chain(iter::once(b"\xEF\xBB\xBF".to_vec())).collect()
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let least = "name = \"a\"\niqn = \"iqn.2026-11.test:a\"\npool = \"0f4e7a1c-22b9-4a6e-9d55-7d3f7f1f2a10\"\n\
                 drive = [{ path = \"drives/1\" }]\n";
    let mut full = String::new();
    for section in SECTIONS {
        full.push_str(&match (section.name, section.is_array) {
            ("", _) => String::new(),
            (name, true) => format!("[[{name}]]\n"),
            (name, false) => format!("[{name}]\n"),
        });
        section.keys.iter().for_each(|key| full.push_str(&format!("{} = {}\n", key.name, key.example)));
    }
    let written = read(full.as_bytes()).ok().and_then(|read| write(&read.config).ok());
    vec![
        ("least", least.as_bytes().to_vec()),
        ("every_key", full.into_bytes()),
        ("as_written", written.expect("the examples of all keys are a configuration").into_bytes()),
        ("wrong_key", least.replace("name", "nmae").into_bytes()),
        ("not_toml", b"name = \"a\n".to_vec()),
        ("not_utf8", b"name = \"\xFF\"\n".to_vec()),
    ]
}
