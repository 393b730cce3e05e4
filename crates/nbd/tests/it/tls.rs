//! TLS, with certificates made for the test.

use crate::support::{Server, VOLUME_BYTES, ok, patterned, run};
use quoin_nbd::{Options, Tls, TlsMode};
use quoin_target::{Access, ExportRules};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::Output,
    sync::{Arc, Mutex},
    time::Duration,
};
use tempfile::TempDir;

/// A directory as libnbd's tools want it: authority, client certificate and key; and the server's beside them.
struct Certificates(TempDir);

impl Certificates {
    fn new() -> Self {
        let directory = Self(tempfile::tempdir().unwrap());
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().unwrap();
        directory.write("ca-cert.pem", &params.self_signed(&key).unwrap().pem());
        let issuer = Issuer::new(params, key);
        directory.issue("server", &["localhost", "127.0.0.1"], "server", &issuer);
        directory.issue("client", &["DB1.example.com"], "db1", &issuer);
        fs::create_dir(directory.path().join("plain-name")).unwrap();
        directory.issue("plain-name/client", &[], "db2", &issuer);
        fs::copy(directory.path().join("ca-cert.pem"), directory.path().join("plain-name/ca-cert.pem"))
            .unwrap();
        directory
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    fn issue(&self, name: &str, names: &[&str], common: &str, issuer: &Issuer<'_, KeyPair>) {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, common);
        let key = KeyPair::generate().unwrap();
        self.write(&format!("{name}-cert.pem"), &params.signed_by(&key, issuer).unwrap().pem());
        self.write(&format!("{name}-key.pem"), &key.serialize_pem());
    }

    fn server(&self, mode: TlsMode, ask_clients: bool) -> Server {
        let file = |name: &str| self.path().join(name);
        let authority = file("ca-cert.pem");
        let authorities = ask_clients.then_some(authority.as_path());
        let tls = Tls::load(&file("server-cert.pem"), &file("server-key.pem"), authorities).unwrap();
        Server::start_with(Some((tls, mode)), Options::default())
    }

    fn uri(&self, server: &Server, export: &str) -> String {
        self.uri_with(server, export, self.path())
    }

    fn uri_with(&self, server: &Server, export: &str, directory: &Path) -> String {
        let port = server.address.port();
        format!("nbds://localhost:{port}/{export}?tls-certificates={}", directory.display())
    }
}

fn info(uri: &str) -> Output {
    run("libnbd-bin", "nbdinfo", &["--json", uri])
}

#[track_caller]
fn refused(uri: &str, said: &str) {
    let output = info(uri);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains(said), "{uri}: {text}");
}

#[test]
fn encrypted_connections_carry_data_both_ways() {
    let certificates = Certificates::new();
    let server = certificates.server(TlsMode::Required, false);
    let uri = certificates.uri(&server, "v1");
    let found: Value = serde_json::from_slice(&info(&uri).stdout).unwrap();
    assert_eq!(found["TLS"], json!(true));
    let file = patterned(certificates.path(), VOLUME_BYTES as usize);
    let back = certificates.path().join("back");
    let back = back.to_str().unwrap();
    ok("libnbd-bin", "nbdcopy", &["--connections=2", "--requests=16", &file, &uri]);
    ok("libnbd-bin", "nbdcopy", &["--connections=2", "--requests=16", "--request-size=1048576", &uri, back]);
    assert!(fs::read(&file).unwrap() == fs::read(back).unwrap());
    let creds =
        format!("tls-creds-x509,id=t,dir={},endpoint=client,sanity-check=off", certificates.path().display());
    let image = format!("driver=nbd,host=localhost,port={},export=v1,tls-creds=t", server.address.port());
    let commands = ["-c", "write -P 7 1M 3M", "-c", "read -P 7 1M 3M", "-c", "flush"];
    ok("qemu-utils", "qemu-io", &[&["--object", &creds, "--image-opts", &image], &commands[..]].concat());
}

#[test]
fn without_tls_a_client_learns_nothing_where_it_is_required() {
    let certificates = Certificates::new();
    let server = certificates.server(TlsMode::Required, false);
    refused(&server.uri("v1"), "Operation not supported");
    refused(&server.uri("no-such-export"), "Operation not supported");
    let listed = run("libnbd-bin", "nbdinfo", &["--list", &server.uri("")]);
    assert!(!listed.status.success(), "{}", String::from_utf8_lossy(&listed.stdout));
    assert!(info(&server.unix_uri("v1")).status.success(), "what does not leave the machine may be plain");
    let optional = certificates.server(TlsMode::Optional, false);
    assert!(info(&optional.uri("v1")).status.success());
    assert!(info(&certificates.uri(&optional, "v1")).status.success());
    let off = Server::start();
    assert!(
        !info(&certificates.uri(&off, "v1")).status.success(),
        "a client that insists is not served plainly"
    );
}

#[test]
fn exports_are_shown_to_the_names_that_certificates_bear() {
    let certificates = Certificates::new();
    let server = certificates.server(TlsMode::Required, true);
    for (export, name) in [("v1", "db1.example.com"), ("v2", "db2")] {
        let rules = ExportRules { tls_clients: [name.to_owned()].into(), ..ExportRules::default() };
        server.exports.set(export, server.device(export), rules, Access::Default);
    }
    let other = certificates.path().join("plain-name");
    let uri = |export: &str| certificates.uri(&server, export);
    let other_uri = |export: &str| certificates.uri_with(&server, export, &other);
    assert!(info(&uri("v1")).status.success());
    assert!(info(&other_uri("v2")).status.success());
    refused(&uri("v2"), "No such file or directory");
    refused(&other_uri("v1"), "No such file or directory");
    // No certificate at all: the TLS handshake does not succeed.
    let none = tempfile::tempdir().unwrap();
    fs::copy(certificates.path().join("ca-cert.pem"), none.path().join("ca-cert.pem")).unwrap();
    assert!(!info(&certificates.uri_with(&server, "v1", none.path())).status.success());
    // One of a stranger's authority neither.
    let strangers = Certificates::new();
    fs::copy(certificates.path().join("ca-cert.pem"), strangers.path().join("ca-cert.pem")).unwrap();
    assert!(!info(&certificates.uri_with(&server, "v1", strangers.path())).status.success());
    assert_eq!(server.nbd.metrics().negotiations, 2);
}

/// Bytes sent in the clear right behind the wish for TLS must not be taken for what TLS protects.
#[test]
fn what_follows_starttls_in_the_clear_ends_the_connection() {
    let certificates = Certificates::new();
    let server = certificates.server(TlsMode::Required, false);
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    let option = |number: u32| [&b"IHAVEOPT"[..], &number.to_be_bytes(), &[0; 4]].concat();
    stream.write_all(&[&3u32.to_be_bytes()[..], &option(5), &option(8)].concat()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(answer.len(), 20, "an acknowledgment and nothing else: {answer:x?}");
    // The connection is counted behind its end.
    let nbd = server.nbd.clone();
    drop(server);
    assert_eq!(nbd.metrics().negotiations_failed, 1);
}

#[test]
fn files_that_do_not_fit_are_named() {
    let certificates = Certificates::new();
    let file = |name: &str| certificates.path().join(name);
    let load = |certificate: &str, key: &str| {
        Tls::load(&file(certificate), &file(key), None).unwrap_err().to_string()
    };
    assert!(load("missing.pem", "server-key.pem").contains("missing.pem"));
    assert!(load("server-cert.pem", "missing.pem").contains("missing.pem"));
    assert!(load("server-key.pem", "server-key.pem").contains("server-key.pem holds no certificate"));
    assert!(load("server-cert.pem", "client-key.pem").contains("do not fit"));
}

#[test]
fn clients_that_do_not_use_tls_where_they_must_are_told_once_each() {
    let certificates = Certificates::new();
    let file = |name: &str| certificates.path().join(name);
    let tls = Tls::load(&file("server-cert.pem"), &file("server-key.pem"), None).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = told.clone();
    let refused = Box::new(move |refused: quoin_nbd::Refused| list.lock().unwrap().push(refused.why));
    let server =
        Server::start_with(Some((tls, TlsMode::Required)), Options { refused, ..Options::default() });
    assert!(!info(&server.uri("v1")).status.success());
    assert!(info(&certificates.uri(&server, "v1")).status.success());
    // What the first connection of nbdinfo was refused is told before its answer is sent.
    let told = told.lock().unwrap();
    assert!(!told.is_empty(), "nothing told");
    assert!(told.iter().all(|why| *why == "the client does not use TLS, which is required"), "{told:?}");
}
