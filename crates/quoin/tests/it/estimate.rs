//! `quoin estimate`: needs no array, and says what files would take.

use crate::lab::Lab;
use std::fs;

/// Half a MiB of text, the same for each seed.
fn text(seed: u32) -> String {
    (0..16_384).map(|at| format!("{seed:08}|row {at:06}|paid   |         \n")).collect::<String>()
        [..512 << 10]
        .to_owned()
}

#[test]
fn two_copies_and_a_file_of_zeroes_are_told_apart() {
    let lab = Lab::new();
    let at = |name: &str| lab.data().join(name).display().to_string();
    fs::create_dir_all(lab.data()).unwrap();
    let [one, two, page] = ["one", "two", "page.html"].map(at);
    fs::write(&one, text(1)).unwrap();
    fs::write(&two, text(1) + &"\0".repeat(512 << 10)).unwrap();
    let asked = ["estimate", &one, &two, "--block", "8K", "--codec", "lz4", "--layout", "raid6"];
    let told = lab.ok(&asked);
    for word in [
        "All was read: figures are exact.",
        "1.5 MiB in 2 files, of which 512.0 KiB are zeroes",
        "across sets",
    ] {
        assert!(told.contains(word), "{told}");
    }

    let estimate = lab.json(&asked);
    let option = |dedup: &str, compression: &str| {
        let options = estimate["all"]["options"].as_array().unwrap();
        options.iter().find(|one| one["dedup"] == dedup && one["compression"] == compression).unwrap().clone()
    };
    assert_eq!(option("off", "off")["stored_bytes"]["estimate"], 1 << 20);
    assert_eq!(option("within", "off")["stored_bytes"]["estimate"], 1 << 20);
    assert_eq!(option("across", "off")["stored_bytes"]["estimate"], 512 << 10);
    let both = option("across", "lz4");
    assert!(both["reduction_ratio"].as_f64().unwrap() > 4.0, "{both:?}");
    let raw = both["layouts"][0]["raw_bytes"].as_u64().unwrap() as f64;
    let net = both["stored_bytes"]["estimate"].as_u64().unwrap() + both["metadata_bytes"].as_u64().unwrap();
    assert!((raw / net as f64 - 1.5).abs() < 0.01, "{both:?}");

    // A page is written, and is not overwritten by mistake.
    let with_page = [&asked[..], &["--html", &page]].concat();
    lab.ok(&with_page);
    let written = fs::read_to_string(&page).unwrap();
    assert!(written.contains("<svg") && written.contains("raid6"));
    let refused = lab.run(&with_page);
    assert!(refused.code == Some(1) && refused.stderr.contains("--force"), "{}", refused.stderr);
    lab.ok(&[&with_page[..], &["--force"]].concat());
}
