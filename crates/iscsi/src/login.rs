//! The login phase (RFC 7143 §6.3) as a state machine: requests in, responses out.
//!
//! Invariants: nothing but login requests passes before [`Step::Done`]; a key is negotiated once; the text of
//! one step, over all PDUs that continue it, is bounded, and so are the answer and the keys of all steps; an initiator
//! whose host has credentials leaves the security stage by CHAP alone, in discovery sessions too.

use crate::{
    chap::{Challenge, Chap, ChapError, Keys},
    params::{Answer, MAX_RECV_DATA_BYTES, Params},
    pdu::{CONTINUE, FINAL, LoginRequest, LoginResponse, opcode},
    text::{self, MAX_TEXT_BYTES, Text},
};
use quoin_scsi::Port;
use quoin_target::Credentials;
use std::{collections::BTreeSet, fmt};

/// Longest iSCSI name (RFC 7143 §4.2.7.1).
const NAME_CHARS_MAX: usize = 223;
/// Most text in one answer: what an initiator must take before it declared anything else.
const MAX_ANSWER_BYTES: usize = 8192;

/// Most keys in one login, over all of its steps. Each is remembered, as it may be offered only once; there are about forty.
const MAX_KEYS: usize = 256;

/// Status-Class and Status-Detail (§11.13.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoginStatus(pub u8, pub u8);

#[allow(missing_docs, reason = "the RFC's names")]
impl LoginStatus {
    pub const SUCCESS: Self = Self(0, 0);
    pub const INITIATOR_ERROR: Self = Self(2, 0);
    pub const AUTHENTICATION_FAILURE: Self = Self(2, 1);
    pub const TARGET_NOT_FOUND: Self = Self(2, 3);
    pub const UNSUPPORTED_VERSION: Self = Self(2, 5);
    pub const TOO_MANY_CONNECTIONS: Self = Self(2, 6);
    pub const MISSING_PARAMETER: Self = Self(2, 7);
    pub const SESSION_TYPE_NOT_SUPPORTED: Self = Self(2, 9);
    pub const SESSION_DOES_NOT_EXIST: Self = Self(2, 0x0A);
    pub const INVALID_DURING_LOGIN: Self = Self(2, 0x0B);
    pub const SERVICE_UNAVAILABLE: Self = Self(3, 1);
    pub const OUT_OF_RESOURCES: Self = Self(3, 2);
}

impl fmt::Display for LoginStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}{:02x}", self.0, self.1)
    }
}

/// What kind of session is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionKind {
    /// To find targets only.
    Discovery,
    /// To do I/O.
    Normal,
}

/// Who logged in, for what, and what was agreed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Established {
    /// InitiatorName.
    pub initiator: String,
    /// The initiator's part of the session identifier.
    pub isid: [u8; 6],
    /// A session the initiator believes to have, or 0.
    pub tsih: u16,
    /// The connection, as the initiator numbers it.
    pub cid: u16,
    /// The kind of session.
    pub kind: SessionKind,
    /// What was agreed.
    pub params: Params,
    /// The CmdSN of the first command to come.
    pub cmd_sn: u32,
}

/// What follows from a login request.
#[derive(Debug)]
pub enum Step {
    /// Send this and go on.
    Respond(LoginResponse, Vec<u8>),
    /// Send this, with the session's TSIH filled in, and enter the full feature phase.
    Done(LoginResponse, Vec<u8>, Box<Established>),
    /// Send this and close.
    Refuse(LoginResponse, &'static str),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Security = 0,
    Operational = 1,
    FullFeature = 3,
}

impl Stage {
    /// CSG and NSG, the stages in a login PDU's flags, have two bits each.
    const BITS: u8 = 0x03;
    const CSG_SHIFT: u8 = 2;

    fn of(bits: u8) -> Option<Stage> {
        match bits & Self::BITS {
            0 => Some(Stage::Security),
            1 => Some(Stage::Operational),
            3 => Some(Stage::FullFeature),
            _ => None,
        }
    }
}

/// Knows who must prove what.
pub trait Authority {
    /// How an initiator logs in; `None`: by its name alone.
    fn credentials(&self, initiator: &str) -> Option<Credentials>;
    /// Fills in bytes that nobody can foresee.
    fn random(&self, bytes: &mut [u8]);
}

/// A login in progress.
pub struct Login<'a> {
    authority: Option<&'a dyn Authority>,
    /// What the initiator must prove: known, once its name is.
    credentials: Option<Option<Credentials>>,
    chap: Option<Chap>,
    /// AuthMethod and CHAP keys of this step.
    methods: Option<String>,
    keys: Keys,
    port: Port,
    stage: Option<Stage>,
    /// ISID, TSIH and CID of the first request, which all have (§11.12.5 to §11.12.7).
    connection: Option<([u8; 6], u16, u16)>,
    initiator: Option<String>,
    kind: SessionKind,
    target_named: bool,
    /// What it named, if that is another target.
    other_target: Option<String>,
    params: Params,
    seen: BTreeSet<String>,
    text: Vec<u8>,
    declared: bool,
    stat_sn: u32,
}

type Refusal = (LoginStatus, &'static str);

fn malformed(why: &'static str) -> Refusal {
    (LoginStatus::INITIATOR_ERROR, why)
}

impl<'a> Login<'a> {
    /// A login to the target behind `port`, by name alone.
    pub fn new(port: Port) -> Self {
        Self {
            authority: None,
            credentials: None,
            chap: None,
            methods: None,
            keys: Keys::default(),
            port,
            stage: None,
            connection: None,
            initiator: None,
            kind: SessionKind::Normal,
            target_named: false,
            other_target: None,
            params: Params::default(),
            seen: BTreeSet::new(),
            text: Vec::new(),
            declared: false,
            stat_sn: 0,
        }
    }

    /// The same, of initiators that prove what `authority` says.
    pub fn before(self, authority: &'a dyn Authority) -> Self {
        Self { authority: Some(authority), ..self }
    }

    /// True once the initiator has proven who it is.
    pub fn is_proven(&self) -> bool {
        matches!(self.chap, Some(Chap::Proven))
    }

    /// The initiator's name, once it gave it.
    pub fn initiator(&self) -> Option<&str> {
        self.initiator.as_deref()
    }

    /// The target that the initiator asked for, if that is another one.
    pub fn other_target(&self) -> Option<&str> {
        self.other_target.as_deref()
    }

    /// Takes a login request and its text.
    pub fn receive(&mut self, request: &LoginRequest, data: &[u8]) -> Step {
        if self.stage.is_none() {
            self.stat_sn = request.exp_stat_sn.get();
        }
        match self.try_receive(request, data) {
            Ok(step) => step,
            Err((status, why)) => Step::Refuse(self.refusal(request, status), why),
        }
    }

    /// The response that refuses `request`.
    pub fn refusal(&mut self, request: &LoginRequest, status: LoginStatus) -> LoginResponse {
        let mut response = self.response(request);
        (response.status_class, response.status_detail) = (status.0, status.1);
        response
    }

    fn response(&mut self, request: &LoginRequest) -> LoginResponse {
        let stat_sn = self.stat_sn;
        self.stat_sn = stat_sn.wrapping_add(1);
        LoginResponse {
            opcode: opcode::LOGIN_RESPONSE,
            isid: request.isid,
            tsih: request.tsih,
            itt: request.itt,
            stat_sn: stat_sn.into(),
            exp_cmd_sn: request.cmd_sn,
            max_cmd_sn: request.cmd_sn,
            ..LoginResponse::default()
        }
    }

    fn try_receive(&mut self, request: &LoginRequest, data: &[u8]) -> Result<Step, Refusal> {
        // The header must fit what was agreed so far; then the text counts.
        let current = self.check_header(request)?;
        if self.text.len() + data.len() > MAX_TEXT_BYTES {
            return Err(malformed("its text is too long"));
        }
        self.text.extend_from_slice(data);
        let transit = request.flags & FINAL != 0;
        // The text of a step may come in several requests. Only the last one is answered with text.
        if request.flags & CONTINUE != 0 {
            if transit {
                return Err(malformed("it continues and transits at once"));
            }
            let flags = (current as u8) << Stage::CSG_SHIFT;
            return Ok(Step::Respond(LoginResponse { flags, ..self.response(request) }, Vec::new()));
        }
        // The stage that the initiator wants to go to, if it wants to leave this one.
        let next = match Stage::of(request.flags).filter(|next| *next > current) {
            _ if !transit => None,
            Some(next) => Some(next),
            None => return Err(malformed("its next stage is none")),
        };
        let (answer, may_go_on) = self.negotiate(current)?;
        // The initiator asks for the transit, but leaves a stage only when what it must prove is proven.
        let mut response = self.response(request);
        response.flags = (current as u8) << Stage::CSG_SHIFT;
        let Some(next) = next.filter(|_| may_go_on) else { return Ok(Step::Respond(response, answer)) };
        response.flags |= FINAL | next as u8;
        // The transit is agreed on.
        self.stage = Some(next);
        if next != Stage::FullFeature {
            return Ok(Step::Respond(response, answer));
        }
        Ok(Step::Done(response, answer, Box::new(self.established(request))))
    }

    /// Checks what each request of a login must say alike. Returns the stage it is in.
    fn check_header(&mut self, request: &LoginRequest) -> Result<Stage, Refusal> {
        // We speak version 0 only.
        if request.version_min > 0 {
            return Err((LoginStatus::UNSUPPORTED_VERSION, "it offers no version we speak"));
        }
        let current =
            Stage::of(request.flags >> Stage::CSG_SHIFT).filter(|stage| *stage != Stage::FullFeature);
        let current = current.ok_or(malformed("its current stage is none"))?;
        if *self.stage.get_or_insert(current) != current {
            return Err(malformed("its current stage is not the one agreed on"));
        }
        let connection = (request.isid, request.tsih.get(), request.cid.get());
        if *self.connection.get_or_insert(connection) != connection {
            return Err(malformed("it changes its ISID, TSIH or CID on the way"));
        }
        Ok(current)
    }

    /// Takes the text of a step. Returns what is answered, and whether the initiator may leave the stage.
    fn negotiate(&mut self, current: Stage) -> Result<(Vec<u8>, bool), Refusal> {
        let text = std::mem::take(&mut self.text);
        let pairs = text::parse(&text).map_err(|_| malformed("its text is malformed"))?;
        let mut answer = Text::default();
        for (key, value) in pairs {
            self.take(key, value, &mut answer)?;
        }
        // NOTE: names before authentication, which goes by the initiator's name.
        self.check_names(&mut answer)?;
        let may_go_on = self.authenticate(current, &mut answer)?;
        if current == Stage::Operational && !std::mem::replace(&mut self.declared, true) {
            answer.push("MaxRecvDataSegmentLength", MAX_RECV_DATA_BYTES);
        }
        let answer = answer.into_bytes();
        if answer.len() > MAX_ANSWER_BYTES {
            Err(malformed("it offers too many keys"))
        } else {
            Ok((answer, may_go_on))
        }
    }

    fn established(&self, request: &LoginRequest) -> Established {
        Established {
            initiator: self.initiator.clone().unwrap_or_default(),
            isid: request.isid,
            tsih: request.tsih.get(),
            cid: request.cid.get(),
            kind: self.kind,
            params: self.params.clone(),
            cmd_sn: request.cmd_sn.get(),
        }
    }

    fn take(&mut self, key: &str, value: &str, answer: &mut Text) -> Result<(), Refusal> {
        // A key is negotiated once in a login.
        if !self.seen.insert(key.to_string()) {
            return Err((LoginStatus::INITIATOR_ERROR, "it offers a key twice"));
        }
        if self.seen.len() > MAX_KEYS {
            return Err(malformed("it offers too many keys"));
        }
        match key {
            "InitiatorName" if value.is_empty() || value.len() > NAME_CHARS_MAX => {
                return Err((LoginStatus::INITIATOR_ERROR, "its InitiatorName is none"));
            }
            "InitiatorName" => self.initiator = Some(value.to_lowercase()),
            "TargetName" if value.to_lowercase() != self.port.target_name => {
                self.other_target = Some(value.chars().take(NAME_CHARS_MAX).collect());
                return Err((LoginStatus::TARGET_NOT_FOUND, "there is no target of that name"));
            }
            "TargetName" => self.target_named = true,
            "SessionType" => {
                self.kind = match value {
                    "Normal" => SessionKind::Normal,
                    "Discovery" => SessionKind::Discovery,
                    _ => return Err((LoginStatus::SESSION_TYPE_NOT_SUPPORTED, "its SessionType is none")),
                }
            }
            "AuthMethod" => self.methods = Some(value.to_owned()),
            _ if self.keys.take(key, value) => {}
            _ => {
                if let Answer::Value(value) = self.params.negotiate(key, value) {
                    answer.push(key, value);
                }
            }
        }
        Ok(())
    }

    /// After the text of a step: does the initiator prove what it must? Returns whether it may leave the stage.
    fn authenticate(&mut self, current: Stage, answer: &mut Text) -> Result<bool, Refusal> {
        let fail = |why| Err((LoginStatus::AUTHENTICATION_FAILURE, why));
        let (Some(initiator), authority) = (&self.initiator, self.authority) else { return Ok(false) };
        // NOTE: looked up once: what must be proven does not change in the middle of a login.
        let credentials = self
            .credentials
            .get_or_insert_with(|| authority.and_then(|authority| authority.credentials(initiator)));
        let (methods, keys) = (self.methods.take(), std::mem::take(&mut self.keys));
        let offers = |method: &str| methods.iter().flat_map(|list| list.split(',')).any(|one| one == method);
        if current != Stage::Security && (methods.is_some() || !keys.is_empty()) {
            return Err((LoginStatus::INITIATOR_ERROR, "it authenticates itself outside the security stage"));
        }
        // An initiator without credentials logs in by its name, and may say so.
        let Some(credentials) = credentials else {
            return match methods {
                Some(_) if !offers("None") => {
                    fail("it insists on an authentication that its host has no secret for")
                }
                Some(_) => {
                    answer.push("AuthMethod", "None");
                    Ok(true)
                }
                None if keys.is_empty() => Ok(true),
                None => Err((LoginStatus::INITIATOR_ERROR, "its CHAP keys are not those of this step")),
            };
        };
        // One with credentials must offer CHAP, once.
        match (&mut self.chap, methods.is_some()) {
            (Some(_), true) => return Err((LoginStatus::INITIATOR_ERROR, "it chooses its AuthMethod twice")),
            (Some(_), false) => {}
            (None, true) if offers("CHAP") => {
                answer.push("AuthMethod", "CHAP");
                self.chap = Some(Chap::Agreed);
            }
            (None, _) => return fail("it does not authenticate itself, as its host must"),
        }
        // Each challenge draws random bytes of its own, and none are drawn without one.
        let fresh = || {
            let mut challenge = Challenge { identifier: 0, value: [0; crate::chap::CHALLENGE_BYTES] };
            let mut identifier = [0];
            if let Some(authority) = authority {
                authority.random(&mut identifier);
                authority.random(&mut challenge.value);
            }
            challenge.identifier = identifier[0];
            challenge
        };
        // The CHAP step that the keys of this text are for.
        let Some(chap) = &mut self.chap else { return Ok(false) };
        chap.step(&keys, credentials, fresh, answer).map_err(|error| match error {
            ChapError::Protocol(why) => (LoginStatus::INITIATOR_ERROR, why),
            ChapError::Refused(why) => (LoginStatus::AUTHENTICATION_FAILURE, why),
        })?;
        Ok(matches!(chap, Chap::Proven))
    }

    /// After the first request's text: are the names there that must be?
    fn check_names(&mut self, answer: &mut Text) -> Result<(), Refusal> {
        if self.initiator.is_none() {
            return Err((LoginStatus::MISSING_PARAMETER, "InitiatorName is missing"));
        }
        if self.kind == SessionKind::Normal {
            if !self.target_named {
                return Err((LoginStatus::MISSING_PARAMETER, "TargetName is missing"));
            }
            if self.seen.insert("TargetPortalGroupTag".into()) {
                answer.push("TargetPortalGroupTag", self.port.group);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::FromBytes;

    fn login() -> Login<'static> {
        Login::new(Port { target_name: "iqn.2026-11.test:t".into(), group: 1 })
    }

    fn request(flags: u8) -> LoginRequest {
        LoginRequest { opcode: 0x43, flags, cmd_sn: 7.into(), ..LoginRequest::default() }
    }

    const NAMES: &str = "InitiatorName=iqn.2026-11.test:H\0TargetName=iqn.2026-11.TEST:t\0";

    #[test]
    fn through_both_stages() {
        let mut login = login();
        let text = format!("{NAMES}AuthMethod=CHAP,None\0");
        let Step::Respond(response, answer) = login.receive(&request(0x81), text.as_bytes()) else {
            panic!()
        };
        assert_eq!(response.flags, 0x81);
        assert_eq!(answer, b"TargetPortalGroupTag=1\0AuthMethod=None\0");
        let Step::Done(response, answer, established) = login.receive(&request(0x87), b"InitialR2T=No\0")
        else {
            panic!()
        };
        assert_eq!((response.flags, response.stat_sn.get()), (0x87, 1));
        assert_eq!(answer, b"InitialR2T=No\0MaxRecvDataSegmentLength=262144\0");
        assert_eq!(established.initiator, "iqn.2026-11.test:h");
        assert_eq!((established.cmd_sn, established.kind), (7, SessionKind::Normal));
    }

    #[test]
    fn refusals() {
        let status = |flags: u8, text: &str| match login().receive(&request(flags), text.as_bytes()) {
            Step::Refuse(r, _) => LoginStatus(r.status_class, r.status_detail),
            _ => LoginStatus::SUCCESS,
        };
        assert_eq!(status(0x87, NAMES), LoginStatus::SUCCESS);
        assert_eq!(status(0x87, "TargetName=iqn.2026-11.test:t\0"), LoginStatus::MISSING_PARAMETER);
        assert_eq!(status(0x87, "InitiatorName=a\0"), LoginStatus::MISSING_PARAMETER);
        assert_eq!(status(0x87, "InitiatorName=a\0TargetName=b\0"), LoginStatus::TARGET_NOT_FOUND);
        assert_eq!(status(0x81, &format!("{NAMES}AuthMethod=CHAP\0")), LoginStatus::AUTHENTICATION_FAILURE);
        assert_eq!(
            status(0x87, &format!("{NAMES}InitialR2T=No\0InitialR2T=No\0")),
            LoginStatus::INITIATOR_ERROR
        );
        let many_keys: String = (0..300).map(|n| format!("X-{n}=1\0")).collect();
        assert_eq!(status(0x87, &format!("{NAMES}{many_keys}")), LoginStatus::INITIATOR_ERROR);
        assert_eq!(status(0x8F, NAMES), LoginStatus::INITIATOR_ERROR);
        assert_eq!(status(0x84, NAMES), LoginStatus::INITIATOR_ERROR);
    }

    #[test]
    fn another_target_is_remembered_in_part() {
        let mut other = login();
        let text = format!("InitiatorName=iqn.2026-11.test:h\0TargetName={}\0", "x".repeat(500));
        assert!(matches!(other.receive(&request(0x87), text.as_bytes()), Step::Refuse(..)));
        assert_eq!(other.other_target().map(str::len), Some(NAME_CHARS_MAX));
    }

    #[test]
    fn a_login_is_of_one_connection() {
        let changed: [fn(LoginRequest) -> LoginRequest; 4] = [
            |request| request,
            |request| LoginRequest { isid: [1; 6], ..request },
            |request| LoginRequest { tsih: 1.into(), ..request },
            |request| LoginRequest { cid: 1.into(), ..request },
        ];
        let passes = changed.map(|change| {
            let mut login = login();
            assert!(matches!(login.receive(&request(0x81), NAMES.as_bytes()), Step::Respond(..)));
            matches!(login.receive(&change(request(0x87)), b""), Step::Done(..))
        });
        assert_eq!(passes, [true, false, false, false]);
    }

    struct OneHost;

    impl Authority for OneHost {
        fn credentials(&self, initiator: &str) -> Option<Credentials> {
            let secret = quoin_target::Secret::new(b"secret of the host").unwrap();
            let host = quoin_target::Login { user: "h".into(), secret };
            (initiator == "iqn.2026-11.test:h").then_some(Credentials { host, array: None })
        }
        fn random(&self, bytes: &mut [u8]) {
            bytes.fill(9);
        }
    }

    #[test]
    fn a_host_with_credentials_cannot_go_around_chap() {
        let say = |steps: &[(u8, &str)]| {
            let mut login = login().before(&OneHost);
            let mut last = (LoginStatus(9, 9), 0, String::new());
            for (flags, text) in steps {
                last = match login.receive(&request(*flags), text.as_bytes()) {
                    Step::Respond(r, text) => {
                        (LoginStatus::SUCCESS, r.flags, String::from_utf8(text).unwrap())
                    }
                    Step::Refuse(r, _) => (LoginStatus(r.status_class, r.status_detail), 0, String::new()),
                    Step::Done(..) => panic!("{steps:?} logs in"),
                };
            }
            last
        };
        let with = |text: &str| format!("{NAMES}{text}");
        // Straight to the operational stage, without a method, with none.
        assert_eq!(say(&[(0x87, NAMES)]).0, LoginStatus::AUTHENTICATION_FAILURE);
        assert_eq!(say(&[(0x81, NAMES)]).0, LoginStatus::AUTHENTICATION_FAILURE);
        assert_eq!(say(&[(0x81, &with("AuthMethod=None\0"))]).0, LoginStatus::AUTHENTICATION_FAILURE);
        // Discovery is no way around it.
        let discovery = "InitiatorName=iqn.2026-11.test:h\0SessionType=Discovery\0";
        assert_eq!(say(&[(0x87, discovery)]).0, LoginStatus::AUTHENTICATION_FAILURE);
        // CHAP agreed on, but wants to go on at once, or again: it stays where it is.
        let agreed = with("AuthMethod=CHAP,None\0");
        assert_eq!(
            say(&[(0x81, &agreed)]),
            (LoginStatus::SUCCESS, 0, "TargetPortalGroupTag=1\0AuthMethod=CHAP\0".into())
        );
        assert_eq!(say(&[(0x81, &agreed), (0x83, "")]).1, 0);
        let (status, flags, challenge) = say(&[(0x81, &agreed), (0x81, "CHAP_A=7,5\0")]);
        assert_eq!((status, flags), (LoginStatus::SUCCESS, 0));
        assert!(challenge.starts_with("CHAP_A=7\0CHAP_I=9\0CHAP_C=0x0909"));
        let wrong = format!("CHAP_N=h\0CHAP_R=0x{}\0", "00".repeat(32));
        assert_eq!(
            say(&[(0x81, &agreed), (0x00, "CHAP_A=7,5\0"), (0x81, &wrong)]).0,
            LoginStatus::AUTHENTICATION_FAILURE
        );
        assert_eq!(say(&[(0x81, &agreed), (0x81, &wrong)]).0, LoginStatus::INITIATOR_ERROR);
        assert_eq!(say(&[(0x81, &agreed), (0x85, "CHAP_A=5\0")]).0, LoginStatus::INITIATOR_ERROR);
        // Another name in mid-login is none.
        let other = "InitiatorName=iqn.2026-11.test:other\0";
        assert_eq!(say(&[(0x00, &agreed), (0x81, other)]).0, LoginStatus::INITIATOR_ERROR);
    }

    #[test]
    fn a_host_with_credentials_logs_in_by_chap() {
        use md5::{Digest, Md5};
        let mut login = login().before(&OneHost);
        login.receive(&request(0x81), format!("{NAMES}AuthMethod=CHAP\0").as_bytes());
        login.receive(&request(0x00), b"CHAP_A=5\0");
        let digest = Md5::new().chain_update([9]).chain_update(b"secret of the host").chain_update([9; 32]);
        let response: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let proof = format!("CHAP_N=h\0CHAP_R=0x{response}\0");
        let Step::Respond(answer, _) = login.receive(&request(0x81), proof.as_bytes()) else { panic!() };
        assert_eq!((answer.flags, login.is_proven()), (0x81, true));
        assert!(matches!(login.receive(&request(0x87), b""), Step::Done(..)));
    }

    #[test]
    fn text_may_come_in_parts() {
        let mut login = login();
        let (first, second) = NAMES.split_at(20);
        assert!(matches!(login.receive(&request(0x44), first.as_bytes()), Step::Respond(..)));
        assert!(matches!(login.receive(&request(0x87), second.as_bytes()), Step::Done(..)));
    }

    proptest! {
        #[test]
        fn any_requests_are_answered_or_refused(
            requests in proptest::collection::vec((any::<[u8; 48]>(), any::<Vec<u8>>()), 1..4),
        ) {
            let mut login = login();
            for (header, data) in requests {
                let _ = login.receive(&LoginRequest::read_from_bytes(&header).unwrap(), &data);
            }
        }
    }
}
