//! CHAP against libiscsi's client, and what is told of those who fail.

use crate::support::{INITIATOR, SECOND_INITIATOR, Server, TARGET, client::Client, options, run, volume};
use quoin_iscsi::{
    LoginFailure,
    login::LoginStatus,
    pdu::{LoginRequest, LoginResponse, opcode},
};
use quoin_target::{Access, Credentials, Login, Lun, Secret, Target};
use std::{
    io::Write,
    net::TcpStream,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

const HOST_SECRET: &str = "host-secret-12";
const ARRAY_SECRET: &str = "array-secret-34";

fn login(user: &str, secret: &str) -> Login {
    Login { user: user.into(), secret: Secret::new(secret.as_bytes()).unwrap() }
}

/// A server of which INITIATOR must authenticate itself and SECOND_INITIATOR need not, and what it tells.
fn server(mutual: bool) -> (Server, Arc<Mutex<Vec<LoginFailure>>>) {
    let target = Target::new(TARGET);
    let array = mutual.then(|| login("the-array", ARRAY_SECRET));
    let credentials = Credentials { host: login("the-host", HOST_SECRET), array };
    target.set_host("h1", &[INITIATOR.into()], Some(credentials)).unwrap();
    target.set_host("h2", &[SECOND_INITIATOR.into()], None).unwrap();
    for host in ["h1", "h2"] {
        target.map(host, Lun::new(0).unwrap(), volume(0, 1 << 20, 512), Access::ReadWrite).unwrap();
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut options = options();
    options.login_failed = Box::new({
        let told = told.clone();
        move |failure| told.lock().unwrap().push(failure)
    });
    (Server::with(target, options), told)
}

/// Waits until so much was told.
#[track_caller]
fn until(told: &Mutex<Vec<LoginFailure>>, count: usize) -> Vec<LoginFailure> {
    let began = Instant::now();
    loop {
        let told = told.lock().unwrap().clone();
        if told.len() >= count {
            return told;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{told:?}");
        std::thread::yield_now();
    }
}

/// Whether an initiator gets in: by a session to the unit, and by a discovery session.
fn gets_in(server: &Server, initiator: &str, user: &str, more: &str) -> (bool, bool) {
    let url = format!("iscsi://{user}{}/{TARGET}/0{more}", server.address);
    let unit = run("libiscsi-bin", "iscsi-inq", &["-i", initiator, &url]);
    let portal = format!("iscsi://{user}{}{more}", server.address);
    let discovery = run("libiscsi-bin", "iscsi-ls", &["-i", initiator, &portal]);
    let said = String::from_utf8_lossy(&discovery.stdout).into_owned();
    (unit.status.success(), discovery.status.success() && said.contains(TARGET))
}

#[test]
fn a_host_with_a_secret_must_prove_it() {
    let (server, told) = server(false);
    assert_eq!(gets_in(&server, INITIATOR, &format!("the-host%{HOST_SECRET}@"), ""), (true, true));
    assert!(told.lock().unwrap().is_empty());
    assert_eq!(gets_in(&server, INITIATOR, "", ""), (false, false));
    assert_eq!(gets_in(&server, INITIATOR, "the-host%host-secret-13@", ""), (false, false));
    let told = told.lock().unwrap();
    assert_eq!(told.iter().map(|failure| failure.failures).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(told.iter().all(|failure| failure.initiator.as_deref() == Some(INITIATOR)));
    assert!(
        told[0].why.contains("does not authenticate itself") && told[2].why.contains("response is wrong")
    );
    assert_eq!(server.iscsi.metrics().authentications_failed, 4);
    assert!(!format!("{told:?} {:?}", server.target.hosts()).contains("host-secret"));
}

#[test]
fn a_host_without_a_secret_need_not_and_cannot() {
    let (server, _) = server(false);
    assert_eq!(gets_in(&server, SECOND_INITIATOR, "", ""), (true, true));
    // libiscsi offers CHAP alone then: nobody could say whether what it sends is right.
    assert_eq!(gets_in(&server, SECOND_INITIATOR, &format!("the-host%{HOST_SECRET}@"), ""), (false, false));
}

#[test]
fn the_array_proves_itself_if_it_is_asked_to() {
    let (server, _) = server(true);
    let user = format!("the-host%{HOST_SECRET}@");
    assert_eq!(gets_in(&server, INITIATOR, &user, ""), (true, true));
    let mutual = format!("?target_user=the-array&target_password={ARRAY_SECRET}");
    assert!(gets_in(&server, INITIATOR, &user, &mutual).0);
    assert!(!gets_in(&server, INITIATOR, &user, &mutual.replace("34", "35")).0, "it believes a wrong proof");
}

#[test]
fn every_login_that_fails_is_told_with_what_is_known_of_it() {
    let (server, told) = server(false);
    let connect = || Client::connect(&server);
    let ask = |version: u8, keys: &str| {
        let mut client = connect();
        let request = LoginRequest {
            opcode: 0x40 | opcode::LOGIN_REQUEST,
            flags: 0x87,
            version_min: version,
            version_max: version,
            isid: [0x80, 0, 0, 0, 0, 9],
            cmd_sn: 1.into(),
            ..LoginRequest::default()
        };
        client.send(request, keys.as_bytes());
        let response = LoginResponse::from(client.receive().0);
        LoginStatus(response.status_class, response.status_detail)
    };
    let names = |initiator: &str, target: &str| format!("InitiatorName={initiator}\0TargetName={target}\0");
    let stranger = "iqn.2026-11.test:stranger";
    let other = "iqn.2026-11.test:other";
    let asked = [
        ask(0, &names(stranger, other)),
        ask(1, &names(stranger, TARGET)),
        ask(0, &format!("TargetName={TARGET}\0")),
        ask(0, &names(stranger, TARGET)),
    ];
    use LoginStatus as Status;
    let answers =
        [Status::TARGET_NOT_FOUND, Status::UNSUPPORTED_VERSION, Status::MISSING_PARAMETER, Status::SUCCESS];
    assert_eq!(asked, answers);
    let failures = until(&told, 4);
    assert_eq!(failures.iter().map(|f| f.status).collect::<Vec<_>>(), answers.map(Some));
    let initiators: Vec<_> = failures.iter().map(|failure| failure.initiator.as_deref()).collect();
    assert_eq!(initiators, [Some(stranger), None, None, Some(stranger)]);
    assert_eq!(failures[0].other_target.as_deref(), Some(other));
    assert!(failures[3].why.contains("no host has this initiator"), "{failures:?}");
    assert_eq!(failures.iter().map(|failure| failure.failures).collect::<Vec<_>>(), [1, 2, 3, 0]);

    // What is no login request, and a session that is not there.
    TcpStream::connect(server.address).unwrap().write_all(&[0; 48]).unwrap();
    let failures = until(&told, 5);
    assert_eq!((failures[4].status, failures[4].initiator.as_deref()), (None, None));
    connect().login_as(SECOND_INITIATOR, 1, 77, 0, "");
    assert_eq!(until(&told, 6)[5].status, Some(Status::SESSION_DOES_NOT_EXIST));
    // Who looks and leaves was not refused, and who gets in neither.
    drop(connect());
    assert!(gets_in(&server, SECOND_INITIATOR, "", "").0);
    assert_eq!(told.lock().unwrap().len(), 6);
}

#[test]
fn connections_that_are_too_many_are_told() {
    let target = Target::new(TARGET);
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = told.clone();
    let options = quoin_iscsi::Options {
        max_pending_logins_of_address: 1,
        login_failed: Box::new(move |failure| list.lock().unwrap().push(failure)),
        ..options()
    };
    let server = Server::with(target, options);
    let _first = Client::connect(&server);
    assert!(Client::connect(&server).is_closed());
    let failures = until(&told, 1);
    assert!(failures[0].why.contains("too many connections") && failures[0].status.is_none(), "{failures:?}");
}
