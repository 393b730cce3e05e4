//! What is not a command: pings, text, logout, asynchronous messages.

use crate::{
    params::Answer,
    pdu::{
        AsyncMessage, Bhs, CONTINUE, FINAL, LogoutRequest, LogoutResponse, NO_TAG, NopIn, NopOut,
        TextRequest, TextResponse, opcode,
    },
    session::{End, RejectReason, Session},
    text::{self, MAX_TEXT_BYTES, Text},
};
use quoin_volume::BlockDevice;
use quoin_world::Slice;
use std::time::Duration;

/// Events of an asynchronous message (RFC 7143 §11.9.1).
#[derive(Clone, Copy)]
enum AsyncEvent {
    LogoutRequested = 1,
    ConnectionDropped = 2,
}

/// Answers to a logout (§11.15.1).
#[derive(Clone, Copy, PartialEq, Eq)]
enum LogoutOutcome {
    Closed = 0,
    NoSuchConnection = 1,
    NoRecovery = 2,
}

impl<D: BlockDevice> Session<D> {
    pub(crate) fn nop_out(&mut self, bhs: Bhs, data: &[u8]) {
        let nop = NopOut::from(bhs);
        // The answer to a ping of ours, or one that wants no answer.
        if nop.itt.get() == NO_TAG {
            return;
        }
        let (exp_cmd_sn, max_cmd_sn) = self.numbers.window();
        let answer = NopIn {
            opcode: opcode::NOP_IN,
            flags: FINAL,
            lun: nop.lun,
            itt: nop.itt,
            ttt: NO_TAG.into(),
            stat_sn: self.numbers.take_stat_sn().into(),
            exp_cmd_sn: exp_cmd_sn.into(),
            max_cmd_sn: max_cmd_sn.into(),
            ..NopIn::default()
        };
        // Ping data comes back, as much of it as the initiator takes in one PDU.
        let echo = &data[..data.len().min(self.params.max_send_data_bytes as usize)];
        self.out.push(answer, (!echo.is_empty()).then(|| Slice::copy_of(echo)));
    }

    /// Asks a silent initiator whether it is there.
    pub(crate) fn ping(&mut self) {
        let ttt = self.numbers.take_ttt();
        let (exp_cmd_sn, max_cmd_sn) = self.numbers.window();
        let ping = NopIn {
            opcode: opcode::NOP_IN,
            flags: FINAL,
            itt: NO_TAG.into(),
            ttt: ttt.into(),
            stat_sn: self.numbers.stat_sn().into(),
            exp_cmd_sn: exp_cmd_sn.into(),
            max_cmd_sn: max_cmd_sn.into(),
            ..NopIn::default()
        };
        self.out.push(ping, []);
    }

    pub(crate) fn text_request(&mut self, bhs: Bhs, data: &[u8]) {
        let request = TextRequest::from(bhs);
        // The initiator says when it has said all: only then may the answer be the last one (§11.11.1).
        let (is_final, continues) = (request.flags & FINAL != 0, request.flags & CONTINUE != 0);
        if is_final && continues {
            return self.reject(RejectReason::Protocol, bhs);
        }
        if request.ttt.get() == NO_TAG {
            self.text.clear();
        }
        // The text may come in several PDUs; it is parsed when it is whole.
        if self.text.len() + data.len() > MAX_TEXT_BYTES {
            return self.end_with(End::Protocol("text request too long"));
        }
        self.text.extend_from_slice(data);
        let mut answer = Text::default();
        if !continues {
            let text = std::mem::take(&mut self.text);
            let Ok(pairs) = text::parse(&text) else { return self.reject(RejectReason::Protocol, bhs) };
            pairs.into_iter().for_each(|(key, value)| self.text_key(key, value, &mut answer));
        }
        let answer = answer.into_bytes();
        if answer.len() > self.params.max_send_data_bytes as usize {
            return self.reject(RejectReason::Protocol, bhs);
        }
        // An answer that is not the last has a tag, by which the initiator continues.
        let ttt = if is_final { NO_TAG } else { self.numbers.take_ttt() };
        let (exp_cmd_sn, max_cmd_sn) = self.numbers.window();
        let response = TextResponse {
            opcode: opcode::TEXT_RESPONSE,
            flags: if is_final { FINAL } else { 0 },
            lun: request.lun,
            itt: request.itt,
            ttt: ttt.into(),
            stat_sn: self.numbers.take_stat_sn().into(),
            exp_cmd_sn: exp_cmd_sn.into(),
            max_cmd_sn: max_cmd_sn.into(),
            ..TextResponse::default()
        };
        self.out.push(response, (!answer.is_empty()).then(|| Slice::copy_of(&answer)));
    }

    fn text_key(&mut self, key: &str, value: &str, answer: &mut Text) {
        match key {
            "SendTargets" => {
                let is_discovery = self.nexus.is_none();
                let ours =
                    self.targets().value("TargetName").is_some_and(|name| name == value.to_lowercase());
                if ours || value == "All" && is_discovery || value.is_empty() && !is_discovery {
                    answer.append(self.targets());
                } else if value == "All" {
                    answer.push(key, "Reject");
                }
            }
            "MaxRecvDataSegmentLength" => {
                if let Answer::Value(value) = self.params.declare_max_recv(value) {
                    answer.push(key, value);
                }
            }
            _ => answer.push(key, "NotUnderstood"),
        }
    }

    pub(crate) fn logout(&mut self, request: LogoutRequest) {
        const REASON: u8 = 0x7F;
        const CLOSE_SESSION: u8 = 0;
        const CLOSE_CONNECTION: u8 = 1;
        const REMOVE_FOR_RECOVERY: u8 = 2;
        let response = match request.flags & REASON {
            CLOSE_SESSION => LogoutOutcome::Closed,
            CLOSE_CONNECTION if request.cid.get() == self.cid => LogoutOutcome::Closed,
            CLOSE_CONNECTION => LogoutOutcome::NoSuchConnection,
            REMOVE_FOR_RECOVERY => LogoutOutcome::NoRecovery,
            _ => return self.reject(RejectReason::InvalidField, request.into()),
        };
        let (exp_cmd_sn, max_cmd_sn) = self.numbers.window();
        let pdu = LogoutResponse {
            opcode: opcode::LOGOUT_RESPONSE,
            flags: FINAL,
            response: response as u8,
            itt: request.itt,
            stat_sn: self.numbers.take_stat_sn().into(),
            exp_cmd_sn: exp_cmd_sn.into(),
            max_cmd_sn: max_cmd_sn.into(),
            ..LogoutResponse::default()
        };
        self.out.push(pdu, []);
        // NOTE: the session ends once the response is sent.
        if response == LogoutOutcome::Closed {
            self.end_with(End::LoggedOut);
        }
    }

    /// Asks the initiator to log out, since the array shuts down.
    pub(crate) fn request_logout(&mut self, within: Duration) {
        let seconds = within.as_secs() + u64::from(within.subsec_nanos() > 0);
        self.push_event(AsyncEvent::LogoutRequested, 0, u16::try_from(seconds).unwrap_or(u16::MAX));
    }

    /// Says that the connection is about to be dropped, after which nothing of the session is kept.
    pub(crate) fn announce_drop(&mut self) {
        self.push_event(AsyncEvent::ConnectionDropped, self.cid, 0);
    }

    fn push_event(&mut self, event: AsyncEvent, parameter_1: u16, parameter_3: u16) {
        let (exp_cmd_sn, max_cmd_sn) = self.numbers.window();
        let message = AsyncMessage {
            opcode: opcode::ASYNC_MESSAGE,
            flags: FINAL,
            no_tag: NO_TAG.into(),
            stat_sn: self.numbers.take_stat_sn().into(),
            exp_cmd_sn: exp_cmd_sn.into(),
            max_cmd_sn: max_cmd_sn.into(),
            event: event as u8,
            parameter_1: parameter_1.into(),
            parameter_3: parameter_3.into(),
            ..AsyncMessage::default()
        };
        self.out.push(message, []);
    }
}
