//! What scripts rely on: formats, empty lists, several objects in one command, exit codes, sizes and times.

use crate::lab::Lab;

#[test]
fn scripts_get_what_they_asked_for() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "1", "--drive-size", "1G"]);
    let mut array = lab.serve(&[]);
    lab.ready();

    let nothing = lab.run(&["volume", "list"]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(0), ""));
    assert!(nothing.stderr.contains("no volumes"), "{nothing:?}");
    assert_eq!(lab.ok(&["volume", "list", "-o", "json"]), "[]\n");
    assert_eq!(lab.ok(&["volume", "list", "-o", "csv"]), "");

    lab.ok(&["volume", "create", "v1", "--size", "1.5M", "--tag", "app=a,b"]);
    lab.ok(&["volume", "create", "v2", "--size", "64M"]);
    assert_eq!(lab.json(&["volume", "show", "v1"])["size_bytes"], 3 << 19);
    let unfit = lab.run(&["volume", "list", "--name", "x*"]);
    assert_eq!((unfit.code, unfit.stdout.as_str()), (Some(0), ""));
    assert!(unfit.stderr.contains("name=x"), "{unfit:?}");

    let table = lab.ok(&["volume", "list"]);
    assert!(table.starts_with("NAME") && table.contains("ALLOCATED") && !table.contains("MAPPED"), "{table}");
    assert!(lab.ok(&["volume", "list", "--no-headers"]).starts_with("v1 "));
    let csv = lab.ok(&["volume", "list", "-o", "csv"]);
    let mut lines = csv.lines();
    assert!(lines.next().unwrap().starts_with("name,"), "{csv}");
    assert!(lines.next().unwrap().starts_with("v1,") && csv.contains("\"a,b\""), "{csv}");
    let plain = lab.ok(&["volume", "list", "-o", "csv", "--no-headers"]);
    assert_eq!(csv.split_once('\n').unwrap().1, plain);
    let yaml = lab.ok(&["volume", "show", "v1", "-o", "yaml"]);
    assert!(yaml.contains("\nname: \"v1\"\n") && yaml.contains("\n  app: \"a,b\"\n"), "{yaml}");
    let created = lab.ok(&["volume", "show", "v1"]);
    let created = created.lines().find_map(|line| line.strip_prefix("created")).unwrap().trim().to_owned();
    assert!(created.len() == 20 && created.as_bytes()[10] == b'T' && created.ends_with('Z'), "{created}");

    lab.ok(&["host", "create", "h1", "--initiator", "iqn.2026-11.test:h1"]);
    lab.ok(&["map", "v1", "--host", "h1"]);
    lab.ok(&["host", "rename", "h1", "h2"]);
    assert_eq!(lab.json(&["mappings"])[0]["host"], "h2");
    lab.ok(&["group", "create", "g1", "--volume", "v2"]);
    lab.ok(&["group", "rename", "g1", "g2"]);

    let slow = lab.run(&["scrub", "set", "--rate", "1"]);
    assert_eq!(slow.code, Some(2));
    assert!(slow.stderr.contains("too slow"), "{slow:?}");

    let copy = lab.json(&["volume", "copy", "v2", "v2", "--to", "32M", "--length", "16M", "--no-wait"]);
    let job = format!("copy-{}", copy["id"]);
    lab.ok(&["job", "watch", &job]);
    assert_eq!(lab.json(&["job", "show", &job])["state"], "done");
    assert!(lab.ok(&["jobs", "list", "--kind", "copy", "--state", "done"]).contains(&job));
    assert_eq!(lab.run(&["job", "cancel", &job]).code, Some(1));

    lab.ok(&["group", "remove", "g2", "v2"]);
    // One is mapped: it stays, and the others go all the same.
    let deleted = lab.run(&["volume", "delete", "v1", "v9", "v2"]);
    assert_eq!(
        (deleted.code, deleted.stdout.as_str()),
        (Some(1), "volume v2 deleted; to undo this within 1d 0h: quoin recycle-bin restore v2\n")
    );
    for told in ["volume v1", "v9"] {
        assert!(deleted.stderr.contains(told), "{told}: {deleted:?}");
    }
    assert_eq!(lab.json(&["volume", "list"]).as_array().map(Vec::len), Some(1));

    // Host and group have their names, and what they see, after a restart.
    array.terminate();
    let _array = lab.serve(&[]);
    lab.ready();
    assert_eq!(lab.json(&["mappings"])[0]["host"], "h2");
    assert_eq!(lab.json(&["host", "list"]).as_array().map(Vec::len), Some(1));
    assert_eq!(lab.json(&["group", "list"])[0]["name"], "g2");

    let help = lab.ok(&["--help"]);
    for told in
        ["Exit codes", "QUOIN_DATA", "QUOIN_API", "QUOIN_TOKEN_FILE", "QUOIN_MEMORY_LIMIT", "QUOIN_LOG"]
    {
        assert!(help.contains(told), "{told} is not in {help}");
    }
}
