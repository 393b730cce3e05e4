//! CHAP within login (RFC 7143 §12.1.3, RFC 1994): the initiator proves that it knows its host's secret, and the
//! array, if asked to, that it knows its own.
//!
//! Invariants: a challenge is used once, in the login it was made for; a challenge that comes back as the
//! initiator's own is refused, or the array would answer for the initiator; responses are compared in a time that
//! tells nothing of them.

use crate::text::Text;
use md5::{Digest, Md5};
use quoin_target::{Credentials, Login as Proof};
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// Bytes of a challenge of ours.
pub(crate) const CHALLENGE_BYTES: usize = 32;
/// Longest challenge or response taken (RFC 7143 §12.1.3).
const MAX_BINARY_BYTES: usize = 1024;

/// A digest, by its number in the registry of PPP authentication algorithms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Algorithm {
    Md5 = 5,
    Sha256 = 7,
}

impl Algorithm {
    /// The first of an initiator's list that we know.
    fn choose(list: &str) -> Option<Self> {
        list.split(',').find_map(|number| match number.trim() {
            "5" => Some(Self::Md5),
            "7" => Some(Self::Sha256),
            _ => None,
        })
    }

    /// The response to a challenge (RFC 1994 §4.1).
    fn response(self, identifier: u8, proof: &Proof, challenge: &[u8]) -> Vec<u8> {
        fn digest<D: Digest>(parts: [&[u8]; 3]) -> Vec<u8> {
            parts.iter().fold(D::new(), |digest, part| digest.chain_update(part)).finalize().to_vec()
        }
        let parts = [&[identifier], proof.secret.expose(), challenge];
        match self {
            Self::Md5 => digest::<Md5>(parts),
            Self::Sha256 => digest::<Sha256>(parts),
        }
    }
}

/// A binary value: hexadecimal behind 0x or base64 behind 0b (RFC 7143 §6.1).
fn binary(value: &str) -> Option<Vec<u8>> {
    if value.len() > 2 + 2 * MAX_BINARY_BYTES {
        return None;
    }
    let (prefix, digits) = value.split_at_checked(2)?;
    let bytes = match prefix {
        "0x" | "0X" => {
            let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
            let digits: Vec<u8> = digits.bytes().map(digit).collect::<Option<_>>()?;
            // An odd count means a leading zero.
            let (first, pairs) = digits.split_at(digits.len() % 2);
            first.iter().copied().chain(pairs.chunks(2).map(|pair| pair[0] << 4 | pair[1])).collect()
        }
        "0b" | "0B" => base64(digits)?,
        _ => return None,
    };
    (1..=MAX_BINARY_BYTES).contains(&bytes.len()).then_some(bytes)
}

/// RFC 4648 §4, padded or not.
fn base64(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u8> = text.trim_end_matches('=').bytes().map(digit).collect::<Option<_>>()?;
    if digits.len() % 4 == 1 {
        return None;
    }
    let group = |group: &[u8]| {
        let bits =
            group.iter().fold(0u32, |bits, digit| bits << 6 | u32::from(*digit)) << (6 * (4 - group.len()));
        bits.to_be_bytes()[1..group.len()].to_vec()
    };
    Some(digits.chunks(4).flat_map(group).collect())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::from("0x"), |text, byte| text + &format!("{byte:02x}"))
}

/// A challenge: CHAP_I and CHAP_C.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Challenge {
    pub(crate) identifier: u8,
    pub(crate) value: [u8; CHALLENGE_BYTES],
}

/// The CHAP keys of one step, as the initiator sent them.
#[derive(Default)]
pub(crate) struct Keys {
    algorithms: Option<String>,
    name: Option<String>,
    response: Option<String>,
    identifier: Option<String>,
    challenge: Option<String>,
}

impl Keys {
    /// Takes a key; false if it is none of CHAP's.
    pub(crate) fn take(&mut self, key: &str, value: &str) -> bool {
        let field = match key {
            "CHAP_A" => &mut self.algorithms,
            "CHAP_N" => &mut self.name,
            "CHAP_R" => &mut self.response,
            "CHAP_I" => &mut self.identifier,
            "CHAP_C" => &mut self.challenge,
            _ => return false,
        };
        *field = Some(value.to_owned());
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        let fields = [&self.algorithms, &self.name, &self.response, &self.identifier, &self.challenge];
        fields.into_iter().all(Option::is_none)
    }
}

/// Why a step of CHAP fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChapError {
    /// The keys are not those of this step.
    Protocol(&'static str),
    /// The initiator is not who it says, or wants what cannot be.
    Refused(&'static str),
}

/// Authentication in progress.
pub(crate) enum Chap {
    /// AuthMethod=CHAP was agreed on.
    Agreed,
    /// A challenge was sent.
    Challenged(Algorithm, Challenge),
    /// The initiator is who it says.
    Proven,
}

impl Chap {
    /// Takes the keys of one step and puts the answers in `answer`. `fresh` is a challenge to use, should one be
    /// needed now.
    pub(crate) fn step(
        &mut self,
        keys: &Keys,
        credentials: &Credentials,
        fresh: impl FnOnce() -> Challenge,
        answer: &mut Text,
    ) -> Result<(), ChapError> {
        match (&*self, keys) {
            (_, keys) if keys.is_empty() => Ok(()),
            // The initiator lists digests: one of them is chosen, and it is challenged.
            (Self::Agreed, Keys { algorithms: Some(list), name: None, response: None, .. }) => {
                let algorithm = Algorithm::choose(list)
                    .ok_or(ChapError::Refused("it offers no digest that is known here"))?;
                let challenge = fresh();
                answer.push("CHAP_A", algorithm as u8);
                answer.push("CHAP_I", challenge.identifier);
                answer.push("CHAP_C", hexadecimal(&challenge.value));
                *self = Self::Challenged(algorithm, challenge);
                Ok(())
            }
            // It answers the challenge, and may send one of its own.
            (Self::Challenged(algorithm, challenge), Keys { algorithms: None, .. }) => {
                verify(*algorithm, challenge, keys, &credentials.host)?;
                prove(*algorithm, challenge, keys, credentials.array.as_ref(), answer)?;
                *self = Self::Proven;
                Ok(())
            }
            _ => Err(ChapError::Protocol("its CHAP keys are not those of this step")),
        }
    }
}

/// Whether the initiator knows the secret.
fn verify(algorithm: Algorithm, challenge: &Challenge, keys: &Keys, host: &Proof) -> Result<(), ChapError> {
    let (Some(name), Some(response)) = (&keys.name, &keys.response) else {
        return Err(ChapError::Protocol("CHAP_N or CHAP_R is missing"));
    };
    let response = binary(response).ok_or(ChapError::Protocol("CHAP_R is not a binary value"))?;
    let expected = algorithm.response(challenge.identifier, host, &challenge.value);
    // NOTE: both in constant time, and both always: how long it takes tells nothing of the secret.
    let is_right = name.as_bytes().ct_eq(host.user.as_bytes()) & response.ct_eq(&expected);
    if is_right.into() { Ok(()) } else { Err(ChapError::Refused("its CHAP name or response is wrong")) }
}

/// Answers the initiator's own challenge, if it sent one.
fn prove(
    algorithm: Algorithm,
    ours: &Challenge,
    keys: &Keys,
    array: Option<&Proof>,
    answer: &mut Text,
) -> Result<(), ChapError> {
    let (identifier, challenge) = match (&keys.identifier, &keys.challenge) {
        (None, None) => return Ok(()),
        (Some(identifier), Some(challenge)) => (identifier, challenge),
        _ => return Err(ChapError::Protocol("CHAP_I or CHAP_C is missing")),
    };
    // The identifier is a number, decimal or hexadecimal; the challenge any bytes.
    let identifier = match identifier.strip_prefix("0x").or_else(|| identifier.strip_prefix("0X")) {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => identifier.parse().ok(),
    };
    let identifier = identifier.ok_or(ChapError::Protocol("CHAP_I is not a number below 256"))?;
    let challenge = binary(challenge).ok_or(ChapError::Protocol("CHAP_C is not a binary value"))?;
    // NOTE: or the answer to our challenge could be had from ourselves.
    if challenge == ours.value {
        return Err(ChapError::Refused("it sends our own challenge back"));
    }
    let array = array
        .ok_or(ChapError::Refused("it wants the array to prove itself, and no secret is set for that"))?;
    answer.push("CHAP_N", &array.user);
    answer.push("CHAP_R", hexadecimal(&algorithm.response(identifier, array, &challenge)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use quoin_target::Secret;

    fn proof(user: &str, secret: &[u8]) -> Proof {
        Proof { user: user.into(), secret: Secret::new(secret).unwrap() }
    }

    fn credentials() -> Credentials {
        Credentials {
            host: proof("h", b"secret of the host"),
            array: Some(proof("a", b"secret of the array")),
        }
    }

    fn keys(pairs: &[(&str, &str)]) -> Keys {
        let mut keys = Keys::default();
        assert!(pairs.iter().all(|(key, value)| keys.take(key, value)));
        keys
    }

    const FRESH: Challenge = Challenge { identifier: 7, value: [9; CHALLENGE_BYTES] };

    fn step(chap: &mut Chap, pairs: &[(&str, &str)], credentials: &Credentials) -> Result<String, ChapError> {
        let mut answer = Text::default();
        chap.step(&keys(pairs), credentials, || FRESH, &mut answer)?;
        Ok(String::from_utf8(answer.into_bytes()).unwrap())
    }

    fn challenged(list: &str) -> Chap {
        let mut chap = Chap::Agreed;
        step(&mut chap, &[("CHAP_A", list)], &credentials()).unwrap();
        chap
    }

    /// Computed with Python's hashlib.
    #[test]
    fn responses_are_those_of_other_implementations() {
        let host = proof("h", b"secret of the host");
        let response = |algorithm: Algorithm| hexadecimal(&algorithm.response(7, &host, &FRESH.value));
        assert_eq!(response(Algorithm::Md5), "0xf2f6d5d8a1abe7dd444fb6bb30c6caa8");
        assert_eq!(
            response(Algorithm::Sha256),
            "0x8eb101ca937f58b1b1bf86e7146c8d9970707df1156802271e631d94daa7e10f"
        );
    }

    #[test]
    fn one_way_and_mutual() {
        let credentials = credentials();
        for (list, number) in [("5", "5"), ("6,7,5", "7"), ("8,5,7", "5")] {
            let mut chap = Chap::Agreed;
            let challenge = step(&mut chap, &[("CHAP_A", list)], &credentials).unwrap();
            assert_eq!(challenge, format!("CHAP_A={number}\0CHAP_I=7\0CHAP_C=0x{}\0", "09".repeat(32)));
            let algorithm = Algorithm::choose(list).unwrap();
            let response = hexadecimal(&algorithm.response(7, &credentials.host, &FRESH.value));
            let theirs = [1; 16];
            let answer = step(
                &mut chap,
                &[
                    ("CHAP_N", "h"),
                    ("CHAP_R", &response),
                    ("CHAP_I", "200"),
                    ("CHAP_C", &hexadecimal(&theirs)),
                ],
                &credentials,
            );
            let proof = algorithm.response(200, credentials.array.as_ref().unwrap(), &theirs);
            assert_eq!(answer.unwrap(), format!("CHAP_N=a\0CHAP_R={}\0", hexadecimal(&proof)));
            assert!(matches!(chap, Chap::Proven));
        }
    }

    #[test]
    fn who_cannot_prove_itself_is_refused() {
        let credentials = credentials();
        let right = hexadecimal(&Algorithm::Md5.response(7, &credentials.host, &FRESH.value));
        let wrong = "CHAP name or response is wrong";
        let refused = |pairs: &[(&str, &str)], credentials: &Credentials| match step(
            &mut challenged("5"),
            pairs,
            credentials,
        ) {
            Err(ChapError::Refused(why) | ChapError::Protocol(why)) => why,
            Ok(_) => "",
        };
        assert_eq!(refused(&[("CHAP_N", "h"), ("CHAP_R", &right)], &credentials), "");
        assert!(refused(&[("CHAP_N", "H"), ("CHAP_R", &right)], &credentials).contains(wrong));
        assert!(refused(&[("CHAP_N", "h"), ("CHAP_R", "0x00")], &credentials).contains(wrong));
        assert!(refused(&[("CHAP_N", "h"), ("CHAP_R", &right[..30])], &credentials).contains(wrong));
        assert!(refused(&[("CHAP_N", "h"), ("CHAP_R", "right")], &credentials).contains("binary"));
        assert!(refused(&[("CHAP_N", "h")], &credentials).contains("missing"));
        let mutual = |challenge: &str, credentials: &Credentials| {
            let pairs = [("CHAP_N", "h"), ("CHAP_R", &right), ("CHAP_I", "1"), ("CHAP_C", challenge)];
            refused(&pairs, credentials)
        };
        assert_eq!(mutual("0x01", &credentials), "");
        assert!(mutual(&hexadecimal(&FRESH.value), &credentials).contains("our own challenge"));
        let one_way = Credentials { array: None, ..credentials.clone() };
        assert!(mutual("0x01", &one_way).contains("no secret is set"));
        let refused = step(&mut Chap::Agreed, &[("CHAP_A", "6,8")], &credentials);
        assert!(matches!(refused, Err(ChapError::Refused(_))));
        let early = step(&mut Chap::Agreed, &[("CHAP_N", "h"), ("CHAP_R", &right)], &credentials);
        assert!(matches!(early, Err(ChapError::Protocol(_))));
        let mut proven = Chap::Proven;
        let again = step(&mut proven, &[("CHAP_N", "h"), ("CHAP_R", &right)], &credentials);
        assert!(matches!(again, Err(ChapError::Protocol(_))));
    }

    #[test]
    fn binary_values_of_both_kinds() {
        assert_eq!(binary("0x0aFF"), Some(vec![10, 255]));
        assert_eq!(binary("0xabc"), Some(vec![0x0a, 0xbc]));
        assert_eq!(binary("0bCv8="), Some(vec![10, 255]));
        assert_eq!(binary("0bCv8A"), Some(vec![10, 255, 0]));
        for none in ["", "0", "0x", "0b", "12", "0xg0", "0bA", "0bA!==", &format!("0x{}", "0".repeat(2050))] {
            assert_eq!(binary(none), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn any_value_is_taken_or_refused(name: String, value: String, challenge in "0[xb][0-9a-zA-Z+/=]{0,40}") {
            let pairs = [("CHAP_N", name.as_str()), ("CHAP_R", &challenge), ("CHAP_I", &value), ("CHAP_C", &challenge)];
            prop_assert!(step(&mut challenged("5"), &pairs, &credentials()).is_err());
        }
    }
}
