//! Connections that hold up nobody: requests that do not arrive, clients that go away, more connections than there are
//! places.

use crate::lab::{LIMITS, Lab, TOKEN};
use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// Connects, sends `text` and keeps the connection.
fn send(lab: &Lab, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(lab.address()).unwrap();
    // Fails if the array has closed the connection already.
    drop(stream.write_all(text.as_bytes()));
    stream
}

/// What the array says before it closes the connection.
#[track_caller]
fn answer(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut text = Vec::new();
    let end = stream.read_to_end(&mut text);
    assert!(!end.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "it is not closed");
    String::from_utf8_lossy(&text).into_owned()
}

fn half_a_body(token: &str) -> String {
    format!(
        "POST /api/v1/volumes HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\nContent-Type: \
         application/json\r\nContent-Length: 100\r\n\r\n{{"
    )
}

#[test]
fn requests_that_do_not_arrive_in_time_are_given_up() {
    let lab = Lab::new();
    let stalled = send(&lab, &half_a_body(TOKEN));
    let stranger = send(&lab, &half_a_body("wrong"));
    let half = send(&lab, "GET /api/v1/status HTTP/1.1\r\nHost:");
    let silent = send(&lab, "");
    let idle = send(&lab, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
    let told = answer(stalled);
    assert!(told.starts_with("HTTP/1.1 408") && told.contains("urn:quoin:problem:timeout"), "{told}");
    let told = answer(stranger);
    assert!(told.starts_with("HTTP/1.1 401"), "nobody waits for the body of those without a token: {told}");
    let told = answer(idle);
    assert!(told.starts_with("HTTP/1.1 200") && told.ends_with("ok\n"), "{told}");
    answer(half);
    answer(silent);
}

#[test]
fn more_connections_than_places_close_the_oldest_that_wait() {
    let lab = Lab::new();
    let half = "POST /api/v1/volumes HTTP/1.1\r\nHost: a\r\nContent-";
    let flood: Vec<_> = (0..4 * LIMITS.total).map(|_| send(&lab, half)).collect();
    for _ in 0..20 {
        assert_eq!(lab.get("/api/v1/status").status, 200);
    }
    let mut flood = flood.into_iter();
    answer(flood.next().unwrap());
    assert_eq!(flood.len(), 4 * LIMITS.total - 1);
}

#[test]
fn probes_need_no_token() {
    let lab = Lab::new();
    for (path, text) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let told =
            answer(send(&lab, &format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")));
        assert!(told.starts_with("HTTP/1.1 200") && told.ends_with(text), "{told}");
    }
}
