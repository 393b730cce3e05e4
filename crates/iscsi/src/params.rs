//! Operational parameters and how each key is negotiated (RFC 7143 §13).

/// The longest data segment we take (our MaxRecvDataSegmentLength).
pub(crate) const MAX_RECV_DATA_BYTES: u32 = 256 * 1024;
const MAX_BURST_BYTES: u32 = 1024 * 1024;
const FIRST_BURST_BYTES: u32 = 256 * 1024;
const MAX_OUTSTANDING_R2T: u32 = 4;
/// What the RFC allows for the lengths of segments and bursts.
const MIN_SEGMENT_BYTES: u32 = 512;
const MAX_SEGMENT_BYTES: u32 = (1 << 24) - 1;

const _: () = assert!(FIRST_BURST_BYTES <= MAX_BURST_BYTES, "what comes unsolicited is part of a burst");
const _: () = assert!(MAX_BURST_BYTES <= MAX_SEGMENT_BYTES && MAX_RECV_DATA_BYTES <= MAX_SEGMENT_BYTES);

/// What both sides agreed on; starts with the RFC's defaults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Params {
    /// HeaderDigest=CRC32C.
    pub header_digest: bool,
    /// DataDigest=CRC32C.
    pub data_digest: bool,
    /// InitialR2T.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate_data: bool,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: u32,
    /// MaxBurstLength.
    pub max_burst_bytes: u32,
    /// FirstBurstLength, as agreed; never above [`Params::max_burst_bytes`] where it is used.
    pub first_burst_bytes: u32,
    /// The initiator's MaxRecvDataSegmentLength.
    pub max_send_data_bytes: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            initial_r2t: true,
            immediate_data: true,
            max_outstanding_r2t: 1,
            max_burst_bytes: 262_144,
            first_burst_bytes: 65_536,
            max_send_data_bytes: 8192,
        }
    }
}

/// What to say to an offered key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// `key=` this.
    Value(String),
    /// Nothing: the key only declares.
    Nothing,
}

/// A number in the RFC's notation: decimal, or hexadecimal behind 0x.
fn number(value: &str) -> Option<u32> {
    match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => value.parse().ok(),
    }
}

fn reject() -> Answer {
    Answer::Value("Reject".into())
}

/// Both sides' minimum.
fn minimum(field: &mut u32, value: &str, allowed: std::ops::RangeInclusive<u32>, ours: u32) -> Answer {
    match number(value).filter(|n| allowed.contains(n)) {
        Some(offered) => {
            *field = offered.min(ours);
            Answer::Value(field.to_string())
        }
        None => reject(),
    }
}

/// A boolean, combined with ours by `or` or else by "and".
fn boolean(field: &mut bool, value: &str, ours: bool, or: bool) -> Answer {
    let offered = match value {
        "Yes" => true,
        "No" => false,
        _ => return reject(),
    };
    *field = if or { offered | ours } else { offered & ours };
    Answer::Value(if *field { "Yes" } else { "No" }.into())
}

/// The first digest of the initiator's list that we know.
fn digest(field: &mut bool, value: &str) -> Answer {
    match value.split(',').find(|choice| matches!(*choice, "None" | "CRC32C")) {
        Some(choice) => {
            *field = choice == "CRC32C";
            Answer::Value(choice.into())
        }
        None => reject(),
    }
}

impl Params {
    /// Takes an operational key that the initiator sent during login.
    pub fn negotiate(&mut self, key: &str, value: &str) -> Answer {
        const LENGTHS: std::ops::RangeInclusive<u32> = MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES;
        let fixed = |value: &str| Answer::Value(value.into());
        match key {
            "HeaderDigest" => digest(&mut self.header_digest, value),
            "DataDigest" => digest(&mut self.data_digest, value),
            "InitialR2T" => boolean(&mut self.initial_r2t, value, false, true),
            "ImmediateData" => boolean(&mut self.immediate_data, value, true, false),
            "MaxOutstandingR2T" => {
                minimum(&mut self.max_outstanding_r2t, value, 1..=65_535, MAX_OUTSTANDING_R2T)
            }
            "MaxBurstLength" => minimum(&mut self.max_burst_bytes, value, LENGTHS, MAX_BURST_BYTES),
            "FirstBurstLength" => minimum(&mut self.first_burst_bytes, value, LENGTHS, FIRST_BURST_BYTES),
            "MaxRecvDataSegmentLength" => self.declare_max_recv(value),
            "MaxConnections" => match number(value) {
                Some(1..=65_535) => fixed("1"),
                _ => reject(),
            },
            "ErrorRecoveryLevel" => match number(value) {
                Some(0..=2) => fixed("0"),
                _ => reject(),
            },
            "DataPDUInOrder" | "DataSequenceInOrder" => boolean(&mut true, value, true, true),
            // A session that is gone may be replaced at once: the initiator's own wish is the larger one.
            "DefaultTime2Wait" => match number(value) {
                Some(offered @ 0..=3600) => Answer::Value(offered.to_string()),
                _ => reject(),
            },
            // Nothing of a session is kept once its connection is gone.
            "DefaultTime2Retain" => fixed("0"),
            "TaskReporting" => fixed("RFC3720"),
            "iSCSIProtocolLevel" => fixed("1"),
            "IFMarker" | "OFMarker" => fixed("No"),
            "IFMarkInt" | "OFMarkInt" => fixed("Irrelevant"),
            "InitiatorAlias" => Answer::Nothing,
            _ => fixed("NotUnderstood"),
        }
    }

    /// Takes the initiator's MaxRecvDataSegmentLength, which it may change at any time.
    pub fn declare_max_recv(&mut self, value: &str) -> Answer {
        match number(value) {
            Some(bytes @ MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES) => {
                self.max_send_data_bytes = bytes;
                Answer::Nothing
            }
            _ => reject(),
        }
    }

    /// The most an initiator sends unsolicited with one command.
    pub fn unsolicited_bytes(&self) -> u32 {
        self.first_burst_bytes.min(self.max_burst_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_key() {
        let mut params = Params::default();
        let mut say = |key: &str, value: &str| match params.negotiate(key, value) {
            Answer::Value(value) => value,
            Answer::Nothing => String::new(),
        };
        assert_eq!(say("HeaderDigest", "X,CRC32C,None"), "CRC32C");
        assert_eq!(say("DataDigest", "X"), "Reject");
        assert_eq!(say("InitialR2T", "No"), "No");
        assert_eq!(say("ImmediateData", "Maybe"), "Reject");
        assert_eq!(say("MaxBurstLength", "0x1000"), "4096");
        assert_eq!(say("FirstBurstLength", "16777215"), "262144");
        assert_eq!(say("MaxRecvDataSegmentLength", "65536"), "");
        assert_eq!(say("MaxConnections", "8"), "1");
        assert_eq!(say("X-com.example.key", "1"), "NotUnderstood");
        assert!(params.header_digest && !params.data_digest && !params.initial_r2t);
        assert_eq!((params.max_send_data_bytes, params.unsolicited_bytes()), (65536, 4096));
    }
}
