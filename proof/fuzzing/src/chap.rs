//! Login with CHAP: whoever gets in has proven that it knows the secret.

use crate::{
    Target,
    input::Input,
    pdu::{INITIATOR_NAME, TARGET_NAME, key_words, login_request, next_request},
};
use quoin_iscsi::login::{Authority, Login, Step};
use quoin_scsi::Port;
use quoin_target::{Credentials, Login as Proof, Secret};

/// Login requests to a target that demands CHAP.
pub(crate) const CHAP: Target = Target {
    name: "iscsi_chap",
    about: "login requests as in iscsi_login, to two arrays that differ in their secrets only",
    run,
    seeds,
    words,
    mutations: 3000,
};

const SECRETS: [&str; 2] = ["secret of host one", "secret of host two"];
const ARRAY_SECRET: &str = "secret of the array";
/// Identifier and all bytes of the challenge: the same each time, so that inputs can hold responses.
const FRESH: u8 = 9;
/// What answers it for the first secret, computed with Python's hashlib.
const MD5_RESPONSE: &str = "0xacc98935d17e769c504b0522fd6df042";
const SHA256_RESPONSE: &str = "0x61284288775dc6414da186dbd8bcfcffe810afe102dbf8634dbe111b62b69c99";

struct Array(&'static str);

impl Authority for Array {
    fn credentials(&self, _: &str) -> Option<Credentials> {
        let proof = |user: &str, secret: &str| {
            let secret = Secret::new(secret.as_bytes()).expect("it is long enough");
            Proof { user: user.into(), secret }
        };
        Some(Credentials { host: proof("h", self.0), array: Some(proof("a", ARRAY_SECRET)) })
    }

    fn random(&self, bytes: &mut [u8]) {
        bytes.fill(FRESH);
    }
}

fn run(bytes: &[u8]) {
    let admitted = SECRETS.map(|secret| is_admitted(bytes, &Array(secret)));
    assert!(admitted != [true, true], "what it sends cannot answer for both secrets");
}

/// Whether what `bytes` say logs in.
fn is_admitted(bytes: &[u8], array: &Array) -> bool {
    let mut input = Input::new(bytes);
    let mut login = Login::new(Port { target_name: TARGET_NAME.into(), group: 1 }).before(array);
    while !input.is_empty() {
        let (request, data) = next_request(&mut input);
        match login.receive(&request, data) {
            Step::Respond(_, answer) => keeps_secrets(&answer),
            Step::Done(_, answer, _) => {
                keeps_secrets(&answer);
                assert!(login.is_proven(), "somebody is logged in who has proven nothing");
                return true;
            }
            Step::Refuse(response, why) => {
                assert!(response.status_class != 0 && !why.is_empty());
                return false;
            }
        }
    }
    false
}

fn keeps_secrets(answer: &[u8]) {
    for secret in SECRETS.iter().chain([&ARRAY_SECRET]) {
        assert!(!answer.windows(secret.len()).any(|window| window == secret.as_bytes()), "a secret is told");
    }
}

fn words() -> Vec<Vec<u8>> {
    let more = [
        "CHAP_A=5,7\0",
        "CHAP_A=7\0",
        "CHAP_N=h\0",
        "CHAP_I=200\0",
        "CHAP_C=0x0102030405060708\0",
        "CHAP_C=0bAQIDBAUGBwg=\0",
        "AuthMethod=CHAP\0",
    ];
    let responses = [MD5_RESPONSE, SHA256_RESPONSE].map(|response| format!("CHAP_R={response}\0"));
    let more = more.map(str::to_owned).into_iter().chain(responses);
    key_words().into_iter().chain(more.map(String::into_bytes)).collect()
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let names = format!("InitiatorName={INITIATOR_NAME}\0TargetName={TARGET_NAME}\0AuthMethod=CHAP,None\0");
    let discovery = format!("InitiatorName={INITIATOR_NAME}\0SessionType=Discovery\0AuthMethod=CHAP\0");
    let steps = |names: &str, list: &str, proof: &str| {
        let steps = [(0x00, names), (0x00, list), (0x81, proof), (0x87, "")];
        steps.map(|(flags, text)| login_request(flags, text)).concat()
    };
    let one_way = format!("CHAP_N=h\0CHAP_R={MD5_RESPONSE}\0");
    let mutual = format!("CHAP_N=h\0CHAP_R={SHA256_RESPONSE}\0CHAP_I=200\0CHAP_C=0x0102030405060708\0");
    let wrong = format!("CHAP_N=h\0CHAP_R=0x{}\0", "00".repeat(16));
    let base64 = "CHAP_N=h\0CHAP_R=0bAAAAAAAAAAAAAAAAAAAAAA==\0";
    let methods = login_request(0x81, &names.replace("CHAP,None", "None"));
    let no_proof = [login_request(0x00, &names), login_request(0x87, "CHAP_N=h\0")].concat();
    vec![
        ("one_way", steps(&names, "CHAP_A=5\0", &one_way)),
        ("mutual", steps(&names, "CHAP_A=6,7,5\0", &mutual)),
        ("discovery", steps(&discovery, "CHAP_A=5\0", &one_way)),
        ("wrong", steps(&names, "CHAP_A=5\0", &wrong)),
        ("base64", steps(&names, "CHAP_A=5\0", base64)),
        ("none", methods),
        ("no_proof", no_proof),
        ("operational", login_request(0x87, &names)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_response_logs_in_and_only_where_it_is_right() {
        for (name, bytes) in seeds() {
            let admitted = SECRETS.map(|secret| is_admitted(&bytes, &Array(secret)));
            let is_right = ["one_way", "mutual", "discovery"].contains(&name);
            assert_eq!(admitted, [is_right, false], "{name}");
        }
    }
}
