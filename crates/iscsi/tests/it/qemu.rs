//! QEMU's initiator (libiscsi inside the block layer) as the client.

use crate::support::{INITIATOR, Server, run};

fn image(server: &Server, lun: u16) -> String {
    format!(
        "driver=raw,file.driver=iscsi,file.transport=tcp,file.portal={},file.target={},file.lun={lun},file.initiator-name={INITIATOR}",
        server.address,
        crate::support::TARGET
    )
}

fn qemu_io(server: &Server, lun: u16, commands: &[&str]) -> String {
    let image = image(server, lun);
    let mut arguments = vec!["--image-opts", &image];
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    let output = run("qemu-utils and qemu-block-extra", "qemu-io", &arguments);
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && !said.contains("failed"), "qemu-io {commands:?}: {said}");
    said
}

#[test]
fn patterns_are_read_back_through_every_size() {
    let server = Server::start();
    for (number, size) in ["4k", "8k", "60k", "64k", "256k", "1M", "4M", "12M"].iter().enumerate() {
        let pattern = number + 1;
        let (write, read) =
            (format!("write -P {pattern} 20M {size}"), format!("read -P {pattern} 20M {size}"));
        qemu_io(&server, 0, &[&write, &read, "read -P 0 40M 1M"]);
    }
}

/// Reads stay below 32 KiB: from there on QEMU 7.2 asks for the status of a range that is no multiple of
/// 4096 bytes, and stops at its own assertion.
#[test]
fn blocks_of_4096_bytes() {
    let server = Server::start();
    qemu_io(&server, 1, &["write -P 5 1M 4M", "read -P 5 1M 28k", "read -P 5 5092k 28k", "read -P 0 5M 4k"]);
    qemu_io(
        &server,
        1,
        &["discard 2M 1M", "read -P 0 2M 28k", "read -P 5 2044k 4k", "write -z 4M 8k", "read -P 0 4M 8k"],
    );
}

#[test]
fn discarded_and_zeroed_ranges_read_zero() {
    let server = Server::start();
    qemu_io(
        &server,
        0,
        &[
            "write -P 7 0 8M",
            "discard 1M 1M",
            "read -P 0 1M 1M",
            "write -z 3M 1M",
            "write -z -u 4M 1M",
            "read -P 0 3M 2M",
            "read -P 7 2M 1M",
            "read -P 7 5M 3M",
            "flush",
        ],
    );
}

#[test]
fn many_requests_at_once() {
    let server = Server::start();
    let writes: Vec<String> =
        (0..200).map(|n| format!("aio_write -q -P {} {}k 28k", n % 250 + 1, n * 28)).collect();
    let reads: Vec<String> =
        (0..200).map(|n| format!("aio_read -q -P {} {}k 28k", n % 250 + 1, n * 28)).collect();
    let mut commands: Vec<&str> = writes.iter().map(String::as_str).collect();
    commands.push("aio_flush");
    commands.extend(reads.iter().map(String::as_str));
    commands.push("aio_flush");
    qemu_io(&server, 0, &commands);
    assert!(server.iscsi.metrics().commands >= 400);
}

#[test]
fn an_image_is_converted_and_compares_equal() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("image");
    let bytes: Vec<u8> = (0..64u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(&file, bytes).unwrap();
    let file = file.to_str().unwrap();
    let image = image(&server, 0);
    let qemu_img = |arguments: &[&str]| {
        let output = run("qemu-utils and qemu-block-extra", "qemu-img", arguments);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "qemu-img {arguments:?}: {said}");
    };
    let target = format!("file.filename={file}");
    qemu_img(&[
        "convert",
        "-n",
        "--image-opts",
        "--target-image-opts",
        &format!("driver=raw,{target}"),
        &image,
    ]);
    qemu_img(&["compare", "--image-opts", &format!("driver=raw,{target}"), &image]);
    qemu_img(&["bench", "-c", "2000", "-d", "64", "-s", "8k", "-S", "24k", "--image-opts", &image]);
    qemu_img(&["bench", "-w", "-c", "2000", "-d", "64", "-s", "8k", "-S", "24k", "--image-opts", &image]);
}
