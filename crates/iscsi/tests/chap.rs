//! CHAP against libiscsi's client, and what is told of those who fail.

#[allow(dead_code, unreachable_pub, reason = "shared by several tests")]
mod support;

use quoin_iscsi::LoginFailure;
use quoin_target::{Access, Credentials, Login, Lun, Secret, Target};
use std::sync::{Arc, Mutex};
use support::{INITIATOR, RamVolume, SECOND_INITIATOR, Server, TARGET, options, run};

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
        target.map(host, Lun::new(0).unwrap(), RamVolume::new(0, 1 << 20, 512), Access::ReadWrite).unwrap();
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut options = options();
    options.authentication_failed = Box::new({
        let told = told.clone();
        move |failure| told.lock().unwrap().push(failure)
    });
    (Server::with(target, options), told)
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
