//! A host's login, and what it agrees on with the array.

use super::{initiator::Connection, shared::Trouble};
use crate::scenario::log_uniform;
use quoin_iscsi::pdu::{IMMEDIATE, LoginRequest, LoginResponse, opcode};
use rand::RngExt;
use std::collections::BTreeMap;

/// Times that nothing comes before a login is given up: one that replaces a session waits for its commands.
const PATIENCE: u32 = 40;
/// T, from operational negotiation to the full feature phase.
const TRANSIT: u8 = 0x87;
/// "Session does not exist".
const NO_SESSION: (u8, u8) = (2, 0x0A);

/// What both sides agreed on.
#[derive(Clone, Debug)]
pub(super) struct Agreed {
    pub(super) header_digest: bool,
    pub(super) data_digest: bool,
    pub(super) immediate_data: bool,
    pub(super) initial_r2t: bool,
    pub(super) first_burst_bytes: usize,
    pub(super) burst_bytes: usize,
    pub(super) outstanding_r2ts: usize,
    pub(super) segment_bytes: usize,
}

impl Default for Agreed {
    fn default() -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            immediate_data: true,
            initial_r2t: true,
            first_burst_bytes: 65_536,
            burst_bytes: 262_144,
            outstanding_r2ts: 1,
            segment_bytes: 8192,
        }
    }
}

impl Connection<'_> {
    /// Logs in, in place of the session's last connection if there is one.
    pub(super) async fn login(&mut self) -> Result<(), Trouble> {
        let text = self.offer();
        let replaces = if self.host.rng.random() { self.host.tsih } else { 0 };
        let request = LoginRequest {
            opcode: opcode::LOGIN_REQUEST | IMMEDIATE,
            flags: TRANSIT,
            isid: self.host.isid,
            tsih: replaces.into(),
            cid: 1.into(),
            cmd_sn: self.cmd_sn.into(),
            ..LoginRequest::default()
        };
        self.push(request, text.as_bytes());
        let mut quiet = 0;
        let (response, text) = loop {
            if let Some((bhs, data)) = self.next_pdu()? {
                break (LoginResponse::from(bhs), data);
            }
            quiet = if self.exchange().await? { 0 } else { quiet + 1 };
            if quiet >= PATIENCE || self.array().shared.is_over() {
                return Err(Trouble::Lost);
            }
        };
        let array = self.array();
        let status = (response.status_class, response.status_detail);
        if status == NO_SESSION && replaces != 0 {
            array.shared.totals.lock().refused_logins += 1;
            self.host.tsih = 0;
            return Err(Trouble::Lost);
        }
        if array.shared.is_over() {
            return Err(Trouble::Lost);
        }
        if status != (0, 0) || response.flags & TRANSIT != TRANSIT {
            return Err(Trouble::Violation(format!("its login was refused: {response:?}")));
        }
        // The session there was has ended, and with it all its commands.
        {
            let mut totals = array.shared.totals.lock();
            totals.logins += 1;
            totals.reinstatements += u64::from(self.host.tsih != 0);
        }
        array.shared.settle(self.host.orphans.drain(..));
        self.host.tsih = response.tsih.get();
        self.start_window(response.max_cmd_sn.get());
        self.stat_sn = response.stat_sn.get().wrapping_add(1);
        self.established(agreed(&text));
        Ok(())
    }

    fn offer(&mut self) -> String {
        let rng = &mut self.host.rng;
        let (header, data) = (digest(rng.random()), digest(rng.random()));
        let (immediate, r2t) = (yes(rng.random_bool(0.7)), yes(rng.random()));
        let (first, longest) = (log_uniform(rng, 512, 128 << 10), log_uniform(rng, 512, 256 << 10));
        let (r2ts, segment) = (rng.random_range(1..=6), log_uniform(rng, 512, 64 << 10));
        self.takes_bytes = segment as usize;
        let name = &self.host.name;
        format!(
            "InitiatorName={name}\0TargetName={}\0SessionType=Normal\0HeaderDigest={header}\0\
             DataDigest={data}\0ImmediateData={immediate}\0InitialR2T={r2t}\0FirstBurstLength={}\0\
             MaxBurstLength={longest}\0MaxOutstandingR2T={r2ts}\0MaxRecvDataSegmentLength={segment}\0",
            super::TARGET_NAME,
            first.min(longest),
        )
    }
}

fn digest(on: bool) -> &'static str {
    if on { "CRC32C" } else { "None" }
}

fn yes(on: bool) -> &'static str {
    if on { "Yes" } else { "No" }
}

fn agreed(text: &[u8]) -> Agreed {
    let text = String::from_utf8_lossy(text);
    let keys: BTreeMap<&str, &str> = text.split('\0').filter_map(|pair| pair.split_once('=')).collect();
    let number = |key, default| keys.get(key).and_then(|value| value.parse().ok()).unwrap_or(default);
    let before = Agreed::default();
    Agreed {
        header_digest: keys.get("HeaderDigest") == Some(&"CRC32C"),
        data_digest: keys.get("DataDigest") == Some(&"CRC32C"),
        immediate_data: keys.get("ImmediateData") != Some(&"No"),
        initial_r2t: keys.get("InitialR2T") != Some(&"No"),
        first_burst_bytes: number("FirstBurstLength", before.first_burst_bytes),
        burst_bytes: number("MaxBurstLength", before.burst_bytes),
        outstanding_r2ts: number("MaxOutstandingR2T", before.outstanding_r2ts),
        segment_bytes: number("MaxRecvDataSegmentLength", before.segment_bytes),
    }
}
