//! Gives one target of `quoin-fuzzing` to libFuzzer: the one this program is named after.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quoin_fuzzing::Target;
use std::sync::LazyLock;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = env!("CARGO_BIN_NAME");
    quoin_fuzzing::target(name).unwrap_or_else(|| panic!("no target called {name}"))
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));
