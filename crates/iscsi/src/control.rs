//! What is not a command: pings, text, logout, asynchronous messages.

use crate::{
    params::Answer,
    pdu::{
        AsyncMessage, Bhs, CONTINUE, FINAL, LogoutRequest, LogoutResponse, NO_TAG, NopIn, NopOut,
        TextRequest, TextResponse, opcode,
    },
    session::{End, LOGOUT_SECONDS, RejectReason, Session},
    text::{self, MAX_TEXT_BYTES, Text},
};
use quoin_volume::BlockDevice;
use quoin_world::Slice;

impl<D: BlockDevice> Session<D> {
    pub(crate) fn nop_out(&mut self, bhs: Bhs, data: &[u8]) {
        let nop = NopOut::from(bhs);
        // The answer to a ping of ours, or one that wants no answer.
        if nop.itt.get() == NO_TAG {
            return;
        }
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        let answer = NopIn {
            opcode: opcode::NOP_IN,
            flags: FINAL,
            lun: nop.lun,
            itt: nop.itt,
            ttt: NO_TAG.into(),
            stat_sn: self.take_stat_sn().into(),
            exp_cmd_sn: exp_cmd_sn.into(),
            max_cmd_sn: max_cmd_sn.into(),
            ..NopIn::default()
        };
        let echo = &data[..data.len().min(self.params.max_send_data_bytes as usize)];
        self.out.push(answer, (!echo.is_empty()).then(|| Slice::copy_of(echo)));
    }

    /// Asks a silent initiator whether it is there.
    pub(crate) fn ping(&mut self) {
        let ttt = self.take_ttt();
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        let ping = NopIn {
            opcode: opcode::NOP_IN,
            flags: FINAL,
            itt: NO_TAG.into(),
            ttt: ttt.into(),
            stat_sn: self.stat_sn.into(),
            exp_cmd_sn: exp_cmd_sn.into(),
            max_cmd_sn: max_cmd_sn.into(),
            ..NopIn::default()
        };
        self.out.push(ping, []);
    }

    pub(crate) fn text_request(&mut self, bhs: Bhs, data: &[u8]) {
        let request = TextRequest::from(bhs);
        if self.text.len() + data.len() > MAX_TEXT_BYTES {
            return self.end_with(End::Protocol("text request too long"));
        }
        if request.ttt.get() == NO_TAG {
            self.text.clear();
        }
        self.text.extend_from_slice(data);
        let continues = request.flags & CONTINUE != 0;
        let mut answer = Text::default();
        if !continues {
            let text = std::mem::take(&mut self.text);
            let Ok(pairs) = text::parse(&text) else { return self.reject(RejectReason::Protocol, bhs) };
            pairs.into_iter().for_each(|(key, value)| self.text_key(key, value, &mut answer));
        }
        let ttt = if continues { self.take_ttt() } else { NO_TAG };
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        let response = TextResponse {
            opcode: opcode::TEXT_RESPONSE,
            flags: if continues { 0 } else { FINAL },
            lun: request.lun,
            itt: request.itt,
            ttt: ttt.into(),
            stat_sn: self.take_stat_sn().into(),
            exp_cmd_sn: exp_cmd_sn.into(),
            max_cmd_sn: max_cmd_sn.into(),
            ..TextResponse::default()
        };
        let answer = answer.into_bytes();
        if answer.len() > self.params.max_send_data_bytes as usize {
            return self.reject(RejectReason::Protocol, bhs);
        }
        self.out.push(response, (!answer.is_empty()).then(|| Slice::copy_of(&answer)));
    }

    fn text_key(&mut self, key: &str, value: &str, answer: &mut Text) {
        match key {
            "SendTargets" => {
                let is_discovery = self.nexus.is_none();
                let ours = self.targets.value("TargetName").is_some_and(|name| name == value.to_lowercase());
                if ours || value == "All" && is_discovery || value.is_empty() && !is_discovery {
                    answer.append(&self.targets);
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
        /// "Remove the connection for recovery".
        const FOR_RECOVERY: u8 = 2;
        const NOT_SUPPORTED: u8 = 2;
        let for_recovery = request.flags & 0x7F == FOR_RECOVERY;
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        let response = LogoutResponse {
            opcode: opcode::LOGOUT_RESPONSE,
            flags: FINAL,
            response: if for_recovery { NOT_SUPPORTED } else { 0 },
            itt: request.itt,
            stat_sn: self.take_stat_sn().into(),
            exp_cmd_sn: exp_cmd_sn.into(),
            max_cmd_sn: max_cmd_sn.into(),
            ..LogoutResponse::default()
        };
        self.out.push(response, []);
        if !for_recovery {
            self.end_with(End::LoggedOut);
        }
    }

    /// Asks the initiator to log out, since the array shuts down.
    pub(crate) fn request_logout(&mut self) {
        const LOGOUT_REQUESTED: u8 = 1;
        let (exp_cmd_sn, max_cmd_sn) = self.window();
        let message = AsyncMessage {
            opcode: opcode::ASYNC_MESSAGE,
            flags: FINAL,
            no_tag: NO_TAG.into(),
            stat_sn: self.take_stat_sn().into(),
            exp_cmd_sn: exp_cmd_sn.into(),
            max_cmd_sn: max_cmd_sn.into(),
            event: LOGOUT_REQUESTED,
            parameter_3: LOGOUT_SECONDS.into(),
            ..AsyncMessage::default()
        };
        self.out.push(message, []);
    }
}
