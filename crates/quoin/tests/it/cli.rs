//! The binary as scripts use it: every command, and what it says when something is wrong.

use crate::lab::{Lab, Outcome};
use quoin_drive::DriveSet;
use quoin_world::Thread;
use quoin_world_linux::{LinuxWorld, OpenOptions, block_on, open_disk};
use serde_json::{Value, json};
use std::{env, fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

/// Checks that it failed with this exit code and said all of `parts` on standard error.
#[track_caller]
fn refused(outcome: &Outcome, code: i32, parts: &[&str]) {
    assert_eq!(outcome.code, Some(code), "{outcome:?}");
    for part in parts {
        assert!(outcome.stderr.contains(part), "{part:?} is not in {outcome:?}");
    }
}

#[test]
fn a_day_in_the_life() {
    let lab = Lab::new();
    let made: Value = lab.json(&["init", "--drives", "2", "--drive-size", "256M", "--name", "a1"]);
    assert_eq!((&made["name"], made["drives"].as_array().map(Vec::len)), (&json!("a1"), Some(2)));
    let mode = |file: &str| fs::metadata(lab.data().join(file)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("token"), mode("drives")), (0o600, 0o700));
    let mut array = lab.serve(&[]);
    let status = lab.ready();
    assert_eq!((&status["iqn"], &status["name"]), (&made["iqn"], &json!("a1")));

    let volume = lab.json(&["volume", "create", "v1", "--size", "4G", "--block-size", "4096"]);
    assert_eq!((&volume["size_bytes"], &volume["block_bytes"]), (&json!(4u64 << 30), &json!(4096)));
    lab.ok(&["volume", "create", "v2", "--size", "512M"]);
    lab.ok(&[
        "host",
        "create",
        "h1",
        "--initiator",
        "iqn.2026-11.test:h1",
        "--initiator",
        "iqn.2026-11.test:h2",
    ]);
    assert_eq!(lab.json(&["map", "v1", "--host", "h1", "--lun", "1"])["lun"], 1);
    assert_eq!(lab.json(&["map", "v2", "--host", "h1"])["lun"], 0);
    assert_eq!(lab.json(&["volume", "show", "v1"])["uuid"], volume["uuid"]);
    assert_eq!(lab.json(&["volume", "list"])[1]["name"], "v2");
    assert_eq!(lab.json(&["host", "list"])[0]["initiators"][1], "iqn.2026-11.test:h2");
    assert_eq!(lab.json(&["host", "show", "h1"])["mappings"][1]["volume"], "v1");
    assert_eq!(
        lab.json(&["mappings"])[1],
        json!({ "host": "h1", "lun": 1, "volume": "v1", "read_only": false, "access": "default" })
    );
    assert_eq!(lab.json(&["session", "list"]), json!([]));
    assert_eq!(lab.json(&["events", "--limit", "1"])[0]["object"], "volume v2");
    assert!(lab.ok(&["volume", "list"]).contains("v1    4.0 GiB"));
    let is_ready = |line: &str| line.split_whitespace().eq(["ready", "yes"]);
    assert!(lab.ok(&["status"]).lines().any(is_ready));

    refused(&lab.run(&["volume", "create", "v1", "--size", "1G"]), 1, &["v1 already exists", "next: choose"]);
    refused(&lab.run(&["volume", "create", "V1", "--size", "1G"]), 1, &["\"V1\" is not a name", "'V'"]);
    refused(&lab.run(&["volume", "create", "v3", "--size", "1000"]), 1, &["v3", "whole number of blocks"]);
    refused(&lab.run(&["volume", "create", "v3", "--size", "4X"]), 2, &["\"4X\" is not a size", "10GiB"]);
    refused(&lab.run(&["volume", "create", "v3", "--colour", "red"]), 2, &["--colour"]);
    refused(&lab.run(&["volume", "show", "v9"]), 1, &["volume v9 does not exist", "quoin volume list"]);
    refused(&lab.run(&["volume", "show", "../hosts"]), 1, &["volume ../hosts does not exist"]);
    refused(&lab.run(&["map", "v1", "--host", "h1"]), 1, &["host h1 already has volume v1, as LUN 1"]);
    refused(&lab.run(&["host", "create", "h2", "--initiator", "h2"]), 1, &["\"h2\" is not an iSCSI name"]);
    refused(&lab.run(&["host", "create", "h2"]), 2, &["--initiator"]);
    let taken = lab.run(&["host", "create", "h2", "--initiator", "iqn.2026-11.test:h1"]);
    refused(&taken, 1, &["belongs to host h1"]);
    refused(&lab.run(&["volume", "delete", "v1"]), 1, &["mapped to h1", "--unmap"]);
    refused(&lab.run(&["host", "delete", "h1"]), 1, &["host h1 has these volumes mapped: v2, v1"]);
    let problem = lab.run(&["-o", "json", "volume", "show", "v9"]);
    assert_eq!(serde_json::from_str::<Value>(&problem.stderr).unwrap()["status"], 404);
    refused(&lab.run(&["init", "--drives", "1", "--drive-size", "1G"]), 1, &["already holds an array"]);
    refused(
        &lab.run(&["serve", "--iscsi", "127.0.0.1:0", "--api", "127.0.0.1:0"]),
        1,
        &["another process serves"],
    );
    refused(&lab.run(&["check"]), 1, &["another process uses it"]);

    lab.ok(&["unmap", "v2", "--host", "h1"]);
    lab.ok(&["volume", "delete", "v1", "--unmap"]);
    lab.ok(&["host", "delete", "h1"]);
    array.hang_up();
    assert_eq!(lab.json(&["mappings"]), json!([]));
    array.terminate();
    assert!(!lab.data().join("run/api").exists());
    refused(&lab.run(&["status"]), 1, &["run/api", "quoin serve"]);
    assert_eq!(lab.json(&["check"])["ok"], true);

    let mut array = lab.serve(&[]);
    assert_eq!(lab.ready()["recovery"]["replayed_records"], 0);
    array.kill();
    let mut array = lab.serve(&[]);
    lab.ready();
    assert_eq!(lab.json(&["volume", "list"])[0]["name"], "v2");
    array.terminate();
}

#[test]
fn a_missing_drive_is_named_and_awaited() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "2", "--drive-size", "256M"]);
    let (drive, away) = (lab.data().join("drives/drive-2"), lab.data().join("away"));
    fs::rename(&drive, &away).unwrap();
    let mut array = lab.serve(&[]);
    let status = lab.until(&["status"], |status| status["state"] == "offline");
    assert!(status["reason"].as_str().unwrap().contains("drives/drive-2"), "{status}");
    refused(&lab.run(&["volume", "list"]), 1, &["pool offline", "drives/drive-2"]);
    refused(&lab.run(&["volume", "create", "v1", "--size", "1G"]), 1, &["pool offline"]);
    fs::rename(&away, &drive).unwrap();
    lab.ready();
    lab.ok(&["volume", "create", "v1", "--size", "1G"]);
    let errors = lab.json(&["events", "--severity", "critical", "--since", "1h"]);
    assert_eq!(errors.as_array().map(Vec::len), Some(1));
    refused(&lab.run(&["events", "--severity", "fatal"]), 2, &["\"fatal\"", "notice, warning"]);
    refused(&lab.run(&["events", "--since", "soon"]), 2, &["\"soon\"", "15m"]);
    assert!(errors[0]["text"].as_str().unwrap().contains("drives/drive-2"), "{errors}");
    array.terminate();
}

#[test]
fn init_refuses_what_holds_something_else() {
    let lab = Lab::new();
    let drive = lab.data().with_file_name("ext4");
    fs::File::create(&drive).unwrap().set_len(256 << 20).unwrap();
    let made = Command::new("/sbin/mkfs.ext4").arg("-q").arg(&drive).status();
    assert!(made.expect("mkfs.ext4 of e2fsprogs is needed").success());
    let drive = drive.to_str().unwrap();
    refused(&lab.run(&["init", "--drive", drive]), 1, &[drive, "ext4 file system", "--force"]);
    assert!(!lab.data().join("quoin.toml").exists());
    let missing = format!("{drive}-missing");
    refused(&lab.run(&["init", "--drive", &missing, "--force"]), 1, &[&missing, "No such file"]);
    lab.ok(&["init", "--drive", drive, "--force"]);
    let other = lab.data().with_file_name("other");
    let other = other.to_str().unwrap();
    let again = lab.run(&["init", "--data", other, "--drive", drive]);
    refused(&again, 1, &[drive, "Quoin pool quoin"]);

    refused(&lab.run(&["init"]), 2, &["--drives"]);
    refused(&lab.run(&["init", "--drives", "1"]), 2, &["--drive-size"]);
    refused(&lab.run(&["init", "--data", other, "--drives", "1", "--drive-size", "1M"]), 1, &["drive-1"]);
    assert!(!lab.data().with_file_name("other").join("drives/drive-1").exists());
    refused(
        &lab.run(&["init", "--data", other, "--drive", drive, "--iqn", "x"]),
        2,
        &["\"x\" is not a target"],
    );
}

#[test]
fn journal_drives_and_the_client_can_be_apart() {
    let lab = Lab::new();
    let path = |name: &str| {
        let path = lab.data().with_file_name(name);
        fs::File::create(&path).unwrap().set_len(256 << 20).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (data, journal) = (path("data-drive"), path("journal-drive"));
    lab.ok(&["init", "--drive", &data, "--journal-drive", &journal, "--iqn", "iqn.2026-11.test:array"]);
    let mut array = lab.serve(&[]);
    let status = lab.ready();
    assert_eq!(status["iqn"], "iqn.2026-11.test:array");
    let roles = |n: usize| (status["drives"][n]["journal"] == true, status["drives"][n]["data"] == true);
    assert_eq!((roles(0), roles(1)), ((false, true), (true, false)));

    let address = fs::read_to_string(lab.data().join("run/api")).unwrap();
    let token = lab.data().join("token");
    let wrong = lab.data().with_file_name("wrong-token");
    fs::write(&wrong, "guessed").unwrap();
    let status = |token: &std::path::Path| {
        let variables = [("QUOIN_API", address.trim()), ("QUOIN_TOKEN_FILE", token.to_str().unwrap())];
        lab.run_without_data(&["status"], &variables)
    };
    assert_eq!(status(&token).code, Some(0));
    refused(&status(&wrong), 1, &["not this array's", "QUOIN_TOKEN_FILE"]);
    array.terminate();
}

/// Notes on the other drives that the last one has failed, as the array does when it goes on without it.
fn give_up_last(paths: &[String]) {
    let world = LinuxWorld::start(1).unwrap();
    let disks: Vec<_> = paths
        .iter()
        .map(|path| open_disk(path.as_ref(), OpenOptions { create_len: None }).unwrap())
        .collect();
    let done = world.run_on(Thread::Data(0), async move {
        let DriveSet { mut drives, mut members, .. } = DriveSet::open(disks).await.unwrap();
        let last = drives.pop().unwrap();
        members.fail(last.index());
        (members.generation, members.journal_set) = (members.generation.next(), members.journal_set + 1);
        for drive in drives {
            drive.fence(drive.writer_session().holder, 1).await.unwrap();
            drive.write_members(&members).await.unwrap();
        }
    });
    block_on(done).unwrap();
    world.shutdown();
}

#[test]
fn a_drive_that_the_pool_went_on_without_is_needed_neither_to_serve_nor_to_check() {
    let lab = Lab::new();
    let path = |name: &str| {
        let path = lab.data().with_file_name(name);
        fs::File::create(&path).unwrap().set_len(256 << 20).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let paths = ["d0", "d1", "d2"].map(path);
    let [data, journal, failed] = &paths;
    lab.ok(&["init", "--drive", data, "--journal-drive", journal, "--journal-drive", failed]);
    give_up_last(&paths);
    fs::write(failed, vec![0; 8 << 20]).unwrap();
    assert_eq!(lab.json(&["check"])["ok"], true);
    fs::remove_file(failed).unwrap();
    assert_eq!(lab.json(&["check"])["ok"], true);
    let mut array = lab.serve(&[]);
    let status = lab.ready();
    assert!(status["drives"].to_string().contains("d2"), "{status}");
    lab.ok(&["volume", "create", "v1", "--size", "1G"]);
    array.terminate();

    fs::remove_file(data).unwrap();
    refused(&lab.run(&["check"]), 1, &["not checked", "d0", "d2", "missing", "attach all its drives"]);
}

#[test]
fn serve_says_what_is_in_its_way() {
    let lab = Lab::new();
    refused(&lab.run(&["serve"]), 1, &["quoin.toml", "quoin init"]);
    lab.ok(&["init", "--drives", "1", "--drive-size", "256M"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let outcome = lab.run(&["serve", "--iscsi", &address, "--api", "127.0.0.1:0"]);
    refused(&outcome, 1, &[&address, "another process listens", "--iscsi"]);
    let outcome = lab.run(&["serve", "--iscsi", "127.0.0.1:0", "--api", "0.0.0.0:0"]);
    refused(&outcome, 2, &["0.0.0.0:0", "--api-remote"]);
    let config = lab.data().join("quoin.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("colour = \"red\"\n{text}")).unwrap();
    refused(&lab.run(&["check"]), 1, &["quoin.toml, line 1", "no key colour", "next:"]);
}

#[test]
fn a_volume_changes_while_it_is_there() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "2", "--drive-size", "256M"]);
    let mut array = lab.serve(&["--memory-limit", "128M"]);
    lab.ready();
    lab.ok(&["volume", "create", "v1", "--size", "32M", "--thick", "--tag", "app=db"]);
    lab.ok(&["volume", "create", "v2", "--size", "1G"]);
    assert_eq!(lab.json(&["volume", "list", "--tag", "app=db"]).as_array().map(Vec::len), Some(1));
    assert_eq!(lab.json(&["volume", "list", "--tag", "app=web"]), json!([]));
    assert_eq!(lab.json(&["volume", "grow", "v1", "--size", "64M"])["reserved_bytes"], 64 << 20);
    refused(&lab.run(&["volume", "grow", "v1", "--size", "1M"]), 2, &["more than the new size", "resize"]);
    refused(
        &lab.run(&["volume", "grow", "v1", "--size", "1T"]),
        1,
        &["cannot keep", "volume v1", "quoin status"],
    );
    refused(&lab.run(&["volume", "rename", "v1", "v2"]), 1, &["volume not changed", "v2 already exists"]);
    refused(&lab.run(&["volume", "set", "v1"]), 2, &["--thick", "--compression", "--dedup"]);
    refused(&lab.run(&["volume", "set", "v1", "--tag", "app"]), 2, &["KEY=VALUE"]);
    lab.ok(&["volume", "rename", "v1", "db1"]);
    let set = lab.json(&["volume", "set", "db1", "--thin", "--untag", "app", "--tag", "tier=gold"]);
    assert_eq!((&set["thick"], &set["tags"]), (&json!(false), &json!({ "tier": "gold" })));
    assert_eq!(lab.json(&["volume", "resize", "db1", "--size", "16M"])["size_bytes"], 16 << 20);
    assert!(lab.ok(&["volume", "list"]).contains("tier=gold"));
    let capacity = &lab.json(&["status"])["capacity"];
    assert_eq!((&capacity["reserved_bytes"], &capacity["level"]), (&json!(0), &json!("normal")));
    assert_eq!(capacity["provisioned_bytes"], (1u64 << 30) + (16 << 20));
    let top = lab.json(&["top"]);
    assert_eq!((&top["volumes"][1]["name"], &top["total"]["read"]["iops"]), (&json!("v2"), &json!(0.0)));
    assert!(lab.ok(&["top", "--once"]).contains("total"));
    array.terminate();
}

#[test]
fn the_configuration_is_checked_and_shown_with_where_it_comes_from() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "1", "--drive-size", "256M"]);
    assert_eq!(lab.json(&["config", "check"])["ok"], true);
    let path = lab.data().join("quoin.toml");
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.contains("# memory_limit = \"2GiB\"") && text.contains("# What people call the array."),
        "{text}"
    );
    fs::write(&path, text.replace("# memory_limit = \"2GiB\"", "memory_limit = \"256MiB\"")).unwrap();
    let shown = lab.json(&["config", "show"]);
    let of = |key: &str| shown.as_array().unwrap().iter().find(|row| row["key"] == key).unwrap().clone();
    assert_eq!(of("serve.memory_limit")["value"], "256MiB");
    assert!(of("serve.memory_limit")["source"].as_str().unwrap().starts_with("quoin.toml, line "), "{shown}");
    assert_eq!(of("space.warning_percent")["source"], "default");
    assert_eq!(of("drive.path")["value"], "drives/drive-1");
    for (wrong, said) in [
        ("memory_limit = \"much\"", "serve.memory_limit cannot be \"much\""),
        ("memory_limt = \"1GiB\"", "the nearest key is serve.memory_limit"),
    ] {
        fs::write(&path, text.replace("# memory_limit = \"2GiB\"", wrong)).unwrap();
        refused(&lab.run(&["config", "check"]), 1, &["quoin.toml, line ", said]);
        refused(&lab.run(&["serve"]), 1, &[said]);
    }
    fs::write(&path, text.replace("# warning_percent = 80", "warning_percent = 50")).unwrap();
    let shown = lab.json(&["config", "show"]);
    let notice = shown.as_array().unwrap().iter().find(|row| row["key"] == "space.notice_percent").unwrap();
    assert_eq!((&notice["value"], &notice["source"]), (&json!("50"), &json!("default")));
    refused(&lab.run(&["serve", "--memory-limit", "1K"]), 1, &["at least 64.0 MiB"]);
}

/// What bash offers for the last of these words.
fn offered(lab: &Lab, words: &[&str]) -> Vec<String> {
    let script = "source <(quoin completions bash) && COMP_WORDS=(quoin \"$@\") && COMP_CWORD=$# && COMP_TYPE=9 && \
                  _clap_complete_quoin quoin \"${!#}\" && printf '%s\\n' \"${COMPREPLY[@]}\"";
    let program = Path::new(env!("CARGO_BIN_EXE_quoin")).parent().unwrap();
    let path = format!("{}:{}", program.display(), env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    bash.args(["-c", script, "bash"]).args(words).env("PATH", path).env("QUOIN_DATA", lab.data());
    let output = bash.output().expect("bash is needed");
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn shells_complete_commands_and_the_names_there_are() {
    let lab = Lab::new();
    for (shell, way) in [("bash", "complete "), ("zsh", "#compdef quoin"), ("fish", "complete ")] {
        let script = lab.ok(&["completions", shell]);
        assert!(script.contains(way) && script.contains("QUOIN_COMPLETE"), "{shell}: {script}");
    }
    lab.ok(&["init", "--drives", "1", "--drive-size", "1G"]);
    assert_eq!(offered(&lab, &["volume", "sh"]), ["show"]);
    assert!(!offered(&lab, &["volume", "show", ""]).contains(&"db-1".to_owned()), "the array does not run");
    let mut array = lab.serve(&[]);
    lab.ready();
    for name in ["db-1", "db-2", "web"] {
        lab.ok(&["volume", "create", name, "--size", "1G"]);
    }
    lab.ok(&["host", "create", "h1", "--initiator", "iqn.2026-11.test:h1"]);
    assert_eq!(offered(&lab, &["volume", "show", "db"]), ["db-1", "db-2"]);
    assert_eq!(offered(&lab, &["volume", "rename", "w"]), ["web"]);
    assert_eq!(offered(&lab, &["map", "db-1", "--host", "h"]), ["h1"]);
    assert_ne!(offered(&lab, &["volume", "create", "w"]), ["web"], "that is a new name");
    array.terminate();
}

#[test]
fn every_command_has_help_with_examples() {
    let lab = Lab::new();
    for command in [
        "",
        "init",
        "serve",
        "check",
        "volume create",
        "volume list",
        "volume show",
        "volume grow",
        "volume resize",
        "volume rename",
        "volume set",
        "volume delete",
        "policy create",
        "policy list",
        "policy show",
        "policy status",
        "policy set",
        "policy delete",
        "recycle-bin list",
        "recycle-bin show",
        "recycle-bin restore",
        "recycle-bin empty",
        "recycle-bin set",
        "host create",
        "host list",
        "host show",
        "host delete",
        "map",
        "unmap",
        "mappings",
        "mapping list",
        "mapping set",
        "export create",
        "export list",
        "export show",
        "export set",
        "export delete",
        "session list",
        "space",
        "space pool",
        "space volume",
        "space group",
        "drive emulate fail",
        "drive emulate slow",
        "drive emulate hang",
        "drive emulate corrupt",
        "drive emulate detach",
        "drive emulate return",
        "scrub start",
        "scrub stop",
        "scrub status",
        "scrub set",
        "status",
        "top",
        "events",
        "config check",
        "config show",
        "completions",
    ] {
        let words: Vec<_> = command.split_whitespace().chain(["--help"]).collect();
        assert!(lab.ok(&words).contains("Examples:\n  quoin "), "{command}");
    }
    refused(&lab.run(&["volumes"]), 2, &["Usage"]);
    refused(&lab.run_without_data(&["status"], &[]), 2, &["--data DIR"]);
}

#[test]
fn several_objects_are_made_by_one_command() {
    let lab = Lab::new();
    lab.ok(&["init", "--drives", "1", "--drive-size", "512M"]);
    let _array = lab.serve(&[]);
    lab.ready();
    let names = |list: &Value, field: &str| -> Vec<String> {
        list.as_array().unwrap().iter().map(|item| item[field].as_str().unwrap().to_owned()).collect()
    };
    let made = lab.json(&["volume", "create", "d1", "d2", "--size", "64M", "--tag", "app=db1", "--thick"]);
    assert_eq!(names(&made, "name"), ["d1", "d2"]);
    assert!(
        made.as_array().unwrap().iter().all(|v| v["size_bytes"] == 64 << 20 && v["tags"]["app"] == "db1")
    );
    let some = lab.run(&["volume", "create", "d1", "d3", "--size", "64M", "-o", "json"]);
    refused(&some, 1, &["d1 already exists"]);
    let made: Value = serde_json::from_str(&some.stdout).unwrap();
    assert_eq!(names(&made, "name"), ["d3"], "what could be made is a list all the same");
    let none = lab.run(&["volume", "create", "d1", "d2", "--size", "64M"]);
    refused(&none, 1, &["d1 already exists", "d2 already exists"]);
    let json = lab.run(&["volume", "create", "d1", "d2", "--size", "64M", "-o", "json"]);
    let problems = serde_json::Deserializer::from_str(&json.stderr).into_iter::<Value>();
    let kinds: Vec<_> = problems.map(|problem| problem.unwrap()["type"].clone()).collect();
    assert_eq!(kinds, ["urn:quoin:problem:exists", "urn:quoin:problem:exists"]);
    assert_eq!(none.stdout, "");

    lab.ok(&["host", "create", "h1", "--initiator", "iqn.2026-11.test:h1"]);
    let mapped = lab.json(&["map", "d2", "d1", "--host", "h1", "--lun", "10"]);
    assert_eq!(
        (names(&mapped, "volume"), &mapped[0]["lun"], &mapped[1]["lun"]),
        (vec!["d2".into(), "d1".into()], &json!(10), &json!(11))
    );
    assert_eq!(lab.json(&["map", "d3", "--host", "h1"])["lun"], 0);
    let last = lab.run(&["map", "d1", "d2", "--host", "h1", "--lun", "65535"]);
    refused(&last, 1, &["volume d2 would need a logical unit number above 65535"]);
}
