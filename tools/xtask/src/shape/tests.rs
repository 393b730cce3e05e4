//! What the figures count, and what they leave out.

use super::*;
use std::path::Path;

fn source(path: &str, text: &str) -> Source {
    Source::parse(Path::new("crates/a"), path.into(), text.to_owned()).unwrap()
}

fn figure(sources: &[Source], name: &str) -> Figure {
    figures(sources).into_iter().find(|figure| figure.name == name).unwrap()
}

#[test]
fn a_loop_goes_through_what_is_handed_on() {
    let sources = [
        source("crates/a/src/lib.rs", "mod b; mod c; mod d; pub use b::B;"),
        source("crates/a/src/b/mod.rs", "use crate::c::C; pub struct B(C);"),
        source("crates/a/src/c.rs", "pub struct C; fn c() { crate::d::d() }"),
        source("crates/a/src/d.rs", "use crate::B; pub(crate) fn d() { let _: B; }"),
    ];
    assert_eq!(figure(&sources, "files-in-the-largest-import-loop").value, 3.0);
    assert_eq!(figure(&sources, "import-loops-of-over-3-files").value, 0.0);
    let straight =
        [source("crates/a/src/c.rs", "pub struct C;"), source("crates/a/src/d.rs", "use super::c::C;")];
    assert_eq!(figure(&straight, "files-in-the-largest-import-loop").value, 1.0);
}

#[test]
fn what_is_for_tests_only_does_not_count() {
    let text = "#[cfg(test)] mod tests { use crate::d::D; fn t() { assert!(true) } }";
    let sources = [
        source("crates/a/src/c.rs", &format!("pub struct C; {text}")),
        source("crates/a/src/d.rs", "use super::c::C; pub struct D { pub(super) c: C }"),
        source("crates/a/src/lib.rs", "use d::D; pub struct L(D);"),
    ];
    assert_eq!(figure(&sources, "files-in-the-largest-import-loop").value, 1.0);
    assert_eq!(figure(&sources, "asserts-in-release").value, 0.0);
}

#[test]
fn functions_are_measured() {
    let long = format!("fn long() {{\n{}}}\n", "    // Why.\n    x();\n    y();\n".repeat(40));
    let text = format!(
        "{long}/// Fails.\npub fn told(a: u64, b: u64) -> Result<(), E> {{\n    assert!(a > 0);\n    Ok(())\n}}\n\
         /// # Errors\n/// Never.\npub async fn fine(a: u64, b: u32) -> Result<(), E> {{ Ok(()) }}\n"
    );
    let sources = [source("crates/a/src/c.rs", &text)];
    assert_eq!(figure(&sources, "functions-over-60-lines").value, 1.0);
    assert_eq!(figure(&sources, "functions-over-100-lines").value, 1.0);
    assert_eq!(figure(&sources, "asserts-in-release").value, 1.0);
    assert_eq!(figure(&sources, "fallible-without-errors-section").places, ["crates/a/src/c.rs:124 told"]);
    assert_eq!(figure(&sources, "bare-integers-side-by-side").places, ["crates/a/src/c.rs:124 told"]);
    assert_eq!(figure(&sources, "comments-in-bodies-percent").value, 48.78);
}

#[test]
fn open_fields_are_counted_of_structs() {
    let fields = |visibility: &str| (0..11).map(|n| format!("{visibility} f{n}: u8,")).collect::<String>();
    let (ours, theirs) = (fields("pub(crate)"), fields("pub"));
    let text = format!(
        "pub struct A {{ {ours} }} pub struct B {{ {theirs} }} struct C {{ {theirs} }} #[repr(C)] struct D {{ {theirs} }}"
    );
    let sources = [source("crates/a/src/c.rs", &text)];
    assert_eq!(
        figure(&sources, "structs-with-over-10-open-fields").places,
        ["crates/a/src/c.rs:1 A (11)", "crates/a/src/c.rs:1 C (11)"]
    );
}

#[test]
fn a_bound_is_kept_from_its_side() {
    let bound = |at_least| Bound { limit: 2.0, aim: 1.0, at_least };
    assert!(bound(false).is_kept(2.0) && !bound(false).is_kept(3.0) && !bound(false).is_reached(2.0));
    assert!(bound(true).is_kept(2.0) && !bound(true).is_kept(1.0) && bound(true).is_reached(1.0));
}
