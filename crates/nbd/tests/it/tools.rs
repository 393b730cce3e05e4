//! The clients that people use: libnbd's tools, QEMU's, and fio.

use crate::support::{Server, VOLUME_BYTES, nbdsh, ok, patterned, run};
use quoin_target::{Access, ExportRules};
use serde_json::{Value, json};

const LIBNBD: &str = "libnbd-bin";
const QEMU: &str = "qemu-utils";

fn info(arguments: &[&str]) -> Value {
    serde_json::from_str(&ok(LIBNBD, "nbdinfo", &[&["--json"], arguments].concat())).unwrap()
}

#[test]
fn nbdinfo_sees_what_an_export_can_do() {
    let server = Server::start();
    for uri in [server.uri("v2"), server.unix_uri("v2")] {
        let found = info(&[&uri]);
        assert_eq!((&found["protocol"], &found["TLS"]), (&json!("newstyle-fixed"), &json!(false)));
        assert_eq!(found["structured"], json!(true));
        let export = &found["exports"][0];
        assert_eq!(export["export-size"], json!(VOLUME_BYTES));
        assert_eq!(export["contexts"], json!(["base:allocation"]));
        for can in ["multi_conn", "flush", "fua", "trim", "zero", "fast_zero", "cache", "df"] {
            assert_eq!(export[format!("can_{can}")], json!(true), "{can} of {export}");
        }
        assert_eq!(export["is_read_only"], json!(false));
        assert_eq!(export["block_size_minimum"], json!(4096));
        assert_eq!(export["block_size_preferred"], json!(8192));
        assert_eq!(export["block_size_maximum"], json!(32 << 20));
    }
    let read_only = &info(&[&server.uri("ro")])["exports"][0];
    assert_eq!((&read_only["is_read_only"], &read_only["can_trim"]), (&json!(true), &json!(false)));
    assert_eq!(read_only["block_size_minimum"], json!(512));
    assert_eq!(read_only["can_multi_conn"], json!(true));
}

#[test]
fn only_what_is_shown_is_listed_and_opened() {
    let server = Server::start();
    let elsewhere = ExportRules { networks: vec!["192.0.2.0/24".parse().unwrap()], ..ExportRules::default() };
    server.exports.set("v2", server.device("v2"), elsewhere, Access::Default);
    let listed = info(&["--list", "--no-content", &server.uri("")]);
    let names: Vec<_> = listed["exports"].as_array().unwrap().iter().map(|e| &e["export-name"]).collect();
    assert_eq!(names, ["ro", "v1"]);
    for missing in ["v2", "v9", ""] {
        let output = run(LIBNBD, "nbdinfo", &[&server.uri(missing)]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{missing}");
        assert!(said.contains("No such file or directory"), "{said}");
    }
    assert_eq!(info(&[&server.unix_uri("v2")])["exports"][0]["export-size"], json!(VOLUME_BYTES));
}

#[test]
fn data_and_holes_are_mapped_and_copied_both_ways() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let file = patterned(directory.path(), VOLUME_BYTES as usize);
    // A sparse source: two stretches of data, the rest holes.
    nbdsh(
        &server.uri("v1"),
        "",
        &format!(
            "data = open('{file}', 'rb').read()\nh.pwrite(data[:3 << 20], 1 << 20)\nh.pwrite(data[:8192], 40 << 20)"
        ),
    );
    let map: Value =
        serde_json::from_str(&ok(LIBNBD, "nbdinfo", &["--map", "--json", &server.uri("v1")])).unwrap();
    let extents: Vec<_> = map
        .as_array()
        .unwrap()
        .iter()
        .map(|extent| {
            (
                extent["offset"].as_u64().unwrap(),
                extent["length"].as_u64().unwrap(),
                extent["type"].as_u64().unwrap(),
            )
        })
        .collect();
    let mib = 1 << 20;
    let expected = [
        (0, mib, 3),
        (mib, 3 * mib, 0),
        (4 * mib, 36 * mib, 3),
        (40 * mib, 8192, 0),
        (40 * mib + 8192, 24 * mib - 8192, 3),
    ];
    assert_eq!(extents, expected);
    // Out, in elsewhere, and there the same, with several connections.
    let image = directory.path().join("image");
    let image = image.to_str().unwrap();
    ok(LIBNBD, "nbdcopy", &["--connections=4", "--requests=32", &server.uri("v1"), image]);
    ok(LIBNBD, "nbdcopy", &["--connections=4", "--requests=32", image, &server.unix_uri("v2")]);
    ok(QEMU, "qemu-img", &["compare", "-f", "raw", "-F", "raw", &server.uri("v1"), &server.uri("v2")]);
    ok(LIBNBD, "nbdcopy", &[&file, &server.uri("v1")]);
    ok(LIBNBD, "nbdcopy", &["--request-size=16777216", &server.unix_uri("ro"), image]);
    assert!(
        std::fs::read(&file).unwrap() == std::fs::read(image).unwrap(),
        "what was copied in and out differs"
    );
}

#[test]
fn qemu_reads_what_it_wrote() {
    let server = Server::start();
    let qemu_io = |uri: &str, commands: &[&str]| {
        let commands = commands.iter().flat_map(|command| ["-c", command]);
        let arguments: Vec<_> = ["-f", "raw", uri].into_iter().chain(commands).collect();
        let output = run(QEMU, "qemu-io", &arguments);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(
            output.status.success() && !said.contains("failed"),
            "{commands:?}: {said}",
            commands = arguments
        );
        said
    };
    for uri in [server.uri("v1"), server.unix_uri("v2")] {
        for (number, size) in ["512", "4k", "8k", "60k", "64k", "256k", "1M", "4M", "12M"].iter().enumerate()
        {
            let (write, read) =
                (format!("write -P {} 20M {size}", number + 1), format!("read -P {} 20M {size}", number + 1));
            qemu_io(&uri, &[&write, &read, "read -P 0 40M 1M", "flush"]);
        }
        qemu_io(
            &uri,
            &[
                "write -P 7 0 8M",
                "discard 1M 1M",
                "read -P 0 1M 1M",
                "write -z 3M 1M",
                "write -z -u 4M 1M",
                "write -f -P 9 6M 4k",
                "read -P 9 6M 4k",
                "read -P 0 3M 2M",
                "read -P 7 2M 1M",
                "read -P 7 5M 1M",
                "flush",
            ],
        );
        // QEMU itself changes parts of blocks here.
        qemu_io(
            &uri,
            &["write -P 3 1000 30", "read -P 3 1000 30", "read -P 7 512 488", "read -P 7 1030 100"],
        );
    }
    let writes: Vec<String> =
        (0..200).map(|n| format!("aio_write -q -P {} {}k 28k", n % 250 + 1, n * 28)).collect();
    let reads: Vec<String> =
        (0..200).map(|n| format!("aio_read -q -P {} {}k 28k", n % 250 + 1, n * 28)).collect();
    let mut commands: Vec<&str> = writes.iter().map(String::as_str).collect();
    commands.push("aio_flush");
    commands.extend(reads.iter().map(String::as_str));
    commands.push("aio_flush");
    qemu_io(&server.uri("v1"), &commands);
    let bench = ["bench", "-f", "raw", "-c", "2000", "-d", "64", "-s", "8k", "-S", "24k"];
    ok(QEMU, "qemu-img", &[&bench[..], &[&server.uri("v1")]].concat());
    ok(QEMU, "qemu-img", &[&bench[..], &["-w", "--flush-interval=100", &server.uri("v1")]].concat());
}

#[test]
fn an_image_is_converted_and_compares_equal() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let file = patterned(directory.path(), VOLUME_BYTES as usize);
    for uri in [server.uri("v1"), server.unix_uri("v2")] {
        ok(QEMU, "qemu-img", &["convert", "-n", "-W", "-m", "8", "-f", "raw", "-O", "raw", &file, &uri]);
        ok(QEMU, "qemu-img", &["compare", "-f", "raw", "-F", "raw", &file, &uri]);
    }
}

#[test]
fn fio_finds_what_it_wrote() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("--uri={}", server.uri("v1"));
    let at = format!("--directory={}", directory.path().display());
    let shape = [
        "--name=verify",
        "--ioengine=nbd",
        "--rw=randrw",
        "--bsrange=512-64k",
        "--iodepth=32",
        "--size=32m",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_backlog=512",
        "--randrepeat=1",
        "--trim_percentage=5",
        // Else it leaves a file where it runs.
        "--verify_state_save=0",
    ];
    ok("fio", "fio", &[&shape[..], &[&uri, &at]].concat());
    assert!(server.nbd.metrics().requests > 1000);
}

#[test]
fn parts_of_blocks_are_served_to_those_who_did_not_agree_otherwise() {
    let server = Server::start();
    for export in ["v1", "v2"] {
        // The client neither asks for block sizes nor checks alignment itself.
        nbdsh(
            &server.uri(export),
            "h.set_request_block_size(False)",
            "\
h.set_strict_mode(0)
size = h.get_size()
h.pwrite(b'a' * 20000, 0)
h.pwrite(b'b' * 100, 1)
h.pwrite(b'c' * 9000, 4090)
h.pwrite(b'd', size - 1)
expected = bytearray(b'a' * 20000)
expected[1:101] = b'b' * 100
expected[4090:13090] = b'c' * 9000
assert h.pread(20000, 0) == expected
assert h.pread(3, 4089) == expected[4089:4092]
assert h.pread(1, size - 1) == b'd'
h.zero(5000, 4095)
expected[4095:9095] = bytes(5000)
assert h.pread(20000, 0) == expected
h.trim(4097, 13000)
assert h.pread(13000, 0) == expected[:13000]
assert h.pread(20000 - 17097, 17097) == expected[17097:]
assert h.pread(0, 17) == b''
h.cache(3, 5)
",
        );
    }
    // One who agreed is held to it.
    nbdsh(&server.uri("v2"), "", "\
h.set_strict_mode(0)
for break_it in [lambda: h.pwrite(b'x' * 512, 512), lambda: h.pread(512, 0), lambda: h.zero(512, 0), lambda: h.trim(1, 0)]:
    try:
        break_it()
        raise SystemExit('an unaligned request was served')
    except nbd.Error as error:
        assert error.errno == 'EINVAL', error
assert len(h.pread(4096, 0)) == 4096
");
}

/// Two connections that change different bytes of the same blocks, one of them whole blocks around.
#[test]
fn concurrent_changes_of_parts_are_not_lost() {
    let server = Server::start();
    nbdsh(
        &server.uri("v1"),
        "h.set_request_block_size(False)",
        &format!(
            "\
h.set_strict_mode(0)
g = nbd.NBD()
g.set_request_block_size(False)
g.set_strict_mode(0)
g.connect_uri('{}')
for turn in range(40):
    letter = bytes([65 + turn % 26])
    pending = []
    for n in range(64):
        at = 17 * n
        handle = (h, g)[n % 2]
        pending.append((handle, handle.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(letter * 17)), at)))
    pending.append((g, g.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(letter * 4096)), 4096)))
    for handle, cookie in pending:
        while not handle.aio_command_completed(cookie):
            handle.poll(-1)
    assert h.pread(64 * 17, 0) == letter * (64 * 17), turn
    assert g.pread(4096, 4096) == letter * 4096, turn
",
            server.unix_uri("v1")
        ),
    );
}
