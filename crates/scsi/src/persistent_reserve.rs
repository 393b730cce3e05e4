//! PERSISTENT RESERVE IN and OUT on the wire (SPC-4 §6.15, §6.16): service actions, parameter lists, parameter data.
//!
//! What they do is decided where reservations are kept. Initiator ports are those of iSCSI: a name and an ISID, which is how
//! TransportIDs (SPC-4 §7.6.4.6) name them.

use crate::{
    fields::{u16_at, u32_at, u64_at},
    sense::Sense,
};

/// SERVICE ACTION of PERSISTENT RESERVE IN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the standard's names")]
pub enum ReserveIn {
    ReadKeys,
    ReadReservation,
    ReportCapabilities,
    ReadFullStatus,
}

/// SERVICE ACTION of PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the standard's names")]
pub enum ReserveAction {
    Register,
    Reserve,
    Release,
    Clear,
    Preempt,
    PreemptAndAbort,
    RegisterAndIgnoreExistingKey,
    RegisterAndMove,
}

impl ReserveIn {
    pub(crate) fn of(code: u8) -> Option<Self> {
        [Self::ReadKeys, Self::ReadReservation, Self::ReportCapabilities, Self::ReadFullStatus]
            .get(usize::from(code))
            .copied()
    }
}

impl ReserveAction {
    const ALL: [Self; 8] = [
        Self::Register,
        Self::Reserve,
        Self::Release,
        Self::Clear,
        Self::Preempt,
        Self::PreemptAndAbort,
        Self::RegisterAndIgnoreExistingKey,
        Self::RegisterAndMove,
    ];

    pub(crate) fn of(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReserveOut {
    /// SERVICE ACTION.
    pub action: ReserveAction,
    /// SCOPE.
    pub scope: u8,
    /// TYPE.
    pub kind: u8,
    /// PARAMETER LIST LENGTH.
    pub parameter_bytes: u32,
}

/// What a persistent reservation lets others do, and who holds it (SPC-4 §6.15.3.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "the standard's names")]
pub enum ReservationType {
    WriteExclusive = 1,
    ExclusiveAccess = 3,
    WriteExclusiveRegistrantsOnly = 5,
    ExclusiveAccessRegistrantsOnly = 6,
    WriteExclusiveAllRegistrants = 7,
    ExclusiveAccessAllRegistrants = 8,
}

impl ReservationType {
    const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrantsOnly,
        Self::ExclusiveAccessRegistrantsOnly,
        Self::WriteExclusiveAllRegistrants,
        Self::ExclusiveAccessAllRegistrants,
    ];

    /// From its code.
    pub fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }

    /// Whether everybody may read.
    pub fn lets_read(self) -> bool {
        matches!(
            self,
            Self::WriteExclusive | Self::WriteExclusiveRegistrantsOnly | Self::WriteExclusiveAllRegistrants
        )
    }

    /// Whether whoever is registered may do all that the holder may.
    pub fn lets_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Whether all who are registered hold it.
    pub fn is_held_by_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants)
    }
}

/// An initiator port, as a TransportID names it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct InitiatorPort {
    /// The initiator's iSCSI name.
    pub name: String,
    /// The session's part; `None` for all sessions of the initiator.
    pub isid: Option<[u8; 6]>,
}

/// The parameter list of PERSISTENT RESERVE OUT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReserveParameters {
    /// RESERVATION KEY.
    pub key: u64,
    /// SERVICE ACTION RESERVATION KEY.
    pub action_key: u64,
    /// APTPL: registrations survive a loss of power.
    pub survives_power_loss: bool,
    /// ALL_TG_PT: for all target ports.
    pub all_target_ports: bool,
    /// SPEC_I_PT: others are registered too; of REGISTER AND MOVE the one that the reservation is moved to.
    pub others: Vec<InitiatorPort>,
    /// Of REGISTER AND MOVE, UNREG: who moves it is not registered afterwards.
    pub unregisters: bool,
    /// Of REGISTER AND MOVE: the relative identifier of the target port for which the other is registered.
    pub relative_port: u16,
}

/// Length of a list without TransportIDs, and where they begin in one that has some.
const BASIC_BYTES: usize = 24;
/// Longest parameter list that is taken.
const LONGEST_BYTES: u32 = 64 << 10;
const SPEC_I_PT: u8 = 0x08;
const ALL_TG_PT: u8 = 0x04;
const APTPL: u8 = 0x01;
const UNREG: u8 = 0x02;
/// A TransportID's first byte: of iSCSI, with the name only, or with the ISID too.
const NAME_ONLY: u8 = 0x05;
const WITH_ISID: u8 = 0x45;
const ISID_MARK: &str = ",i,0x";
/// Bytes before a TransportID's name, and how long the name is padded to at least.
const TRANSPORT_ID_HEADER: usize = 4;
const NAME_BYTES_MIN: usize = 20;
/// Longest iSCSI name.
const NAME_BYTES_MAX: usize = 223;

const INVALID: Sense = Sense::INVALID_FIELD_IN_PARAMETER_LIST;

impl ReserveOut {
    /// Checks what can be checked before the parameter list is there.
    pub(crate) fn check(&self) -> Result<(), Sense> {
        let basic = self.parameter_bytes == BASIC_BYTES as u32;
        let may_be_longer = matches!(self.action, ReserveAction::Register | ReserveAction::RegisterAndMove)
            && (BASIC_BYTES as u32..=LONGEST_BYTES).contains(&self.parameter_bytes);
        if basic || may_be_longer { Ok(()) } else { Err(Sense::PARAMETER_LIST_LENGTH_ERROR) }
    }

    /// Reads the parameter list.
    ///
    /// # Errors
    /// PARAMETER LIST LENGTH ERROR if it is cut short or longer than it says, INVALID FIELD IN PARAMETER LIST for a TransportID
    /// that is not one of iSCSI, or a list of them where none may be.
    pub fn parameters(&self, list: &[u8]) -> Result<ReserveParameters, Sense> {
        const SHORT: Sense = Sense::PARAMETER_LIST_LENGTH_ERROR;
        let list = list.get(..self.parameter_bytes as usize).ok_or(SHORT)?;
        let (basic, rest) = list.split_at_checked(BASIC_BYTES).ok_or(SHORT)?;
        let (key, action_key) = (u64_at(basic, 0), u64_at(basic, 8));
        if self.action == ReserveAction::RegisterAndMove {
            let (id, after) = rest.split_at_checked(u32_at(basic, 20) as usize).ok_or(SHORT)?;
            let mut others = transport_ids(id)?;
            if others.len() != 1 || !after.is_empty() {
                return Err(INVALID);
            }
            others.truncate(1);
            return Ok(ReserveParameters {
                key,
                action_key,
                survives_power_loss: basic[17] & APTPL != 0,
                all_target_ports: false,
                others,
                unregisters: basic[17] & UNREG != 0,
                relative_port: u16_at(basic, 18),
            });
        }
        let others = match (basic[20] & SPEC_I_PT != 0, rest) {
            (false, []) => Vec::new(),
            (false, _) => return Err(SHORT),
            (true, rest) if self.action == ReserveAction::Register => {
                let (length, ids) = rest.split_at_checked(4).ok_or(SHORT)?;
                if u32_at(length, 0) as usize != ids.len() {
                    return Err(SHORT);
                }
                transport_ids(ids)?
            }
            (true, _) => return Err(INVALID),
        };
        Ok(ReserveParameters {
            key,
            action_key,
            survives_power_loss: basic[20] & APTPL != 0,
            all_target_ports: basic[20] & ALL_TG_PT != 0,
            others,
            unregisters: false,
            relative_port: 0,
        })
    }
}

fn transport_ids(mut bytes: &[u8]) -> Result<Vec<InitiatorPort>, Sense> {
    let mut ports = Vec::new();
    while !bytes.is_empty() {
        let (header, rest) = bytes.split_at_checked(TRANSPORT_ID_HEADER).ok_or(INVALID)?;
        let length = usize::from(u16_at(header, 2));
        let (name, rest) = rest.split_at_checked(length).ok_or(INVALID)?;
        if length < NAME_BYTES_MIN || !length.is_multiple_of(4) {
            return Err(INVALID);
        }
        ports.push(initiator_port(header[0], name)?);
        bytes = rest;
    }
    Ok(ports)
}

fn initiator_port(form: u8, padded: &[u8]) -> Result<InitiatorPort, Sense> {
    let end = padded.iter().position(|&byte| byte == 0).ok_or(INVALID)?;
    let text = std::str::from_utf8(&padded[..end]).map_err(|_| INVALID)?;
    let (name, isid) = match form {
        NAME_ONLY => (text, None),
        WITH_ISID => {
            let (name, isid) = text.split_once(ISID_MARK).ok_or(INVALID)?;
            (name, Some(parse_isid(isid).ok_or(INVALID)?))
        }
        _ => return Err(INVALID),
    };
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(INVALID);
    }
    Ok(InitiatorPort { name: name.to_lowercase(), isid })
}

/// An ISID of twelve hexadecimal digits.
fn parse_isid(text: &str) -> Option<[u8; 6]> {
    let is_hex = text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u64::from_str_radix(text, 16).ok().filter(|_| is_hex)?;
    number.to_be_bytes()[2..].try_into().ok()
}

fn transport_id(port: &InitiatorPort) -> Vec<u8> {
    let (form, mut name) = match port.isid {
        None => (NAME_ONLY, port.name.clone()),
        Some(isid) => {
            let digits: String = isid.iter().map(|byte| format!("{byte:02x}")).collect();
            (WITH_ISID, format!("{}{ISID_MARK}{digits}", port.name))
        }
    };
    name.push('\0');
    let mut bytes = name.into_bytes();
    bytes.resize(bytes.len().next_multiple_of(4).max(NAME_BYTES_MIN), 0);
    let [high, low] = (bytes.len() as u16).to_be_bytes();
    [vec![form, 0, high, low], bytes].concat()
}

/// READ KEYS data.
pub fn read_keys(generation: u32, keys: impl Iterator<Item = u64>) -> Vec<u8> {
    with_header(generation, &keys.flat_map(u64::to_be_bytes).collect::<Vec<_>>())
}

/// READ RESERVATION data; the key is 0 if all registrants hold it.
pub fn read_reservation(generation: u32, reservation: Option<(u64, ReservationType)>) -> Vec<u8> {
    let Some((key, kind)) = reservation else { return with_header(generation, &[]) };
    // The scope is the logical unit (0).
    let rest = [0, 0, 0, 0, 0, kind as u8, 0, 0];
    with_header(generation, &[key.to_be_bytes(), rest].concat())
}

/// REPORT CAPABILITIES data. `is_kept`: registrations survive a loss of power now.
pub fn reserve_capabilities(is_kept: bool) -> Vec<u8> {
    const CRH: u8 = 0x10;
    const SIP_C: u8 = 0x08;
    const ATP_C: u8 = 0x04;
    const PTPL_C: u8 = 0x01;
    const TMV: u8 = 0x80;
    const PTPL_A: u8 = 0x01;
    /// WR_EX_AR, EX_AC_RO, WR_EX_RO, EX_AC and WR_EX; in the next byte EX_AC_AR.
    const TYPES: [u8; 2] = [0xEA, 0x01];
    let active = if is_kept { PTPL_A } else { 0 };
    vec![0, 8, CRH | SIP_C | ATP_C | PTPL_C, TMV | active, TYPES[0], TYPES[1], 0, 0]
}

/// A registration, for READ FULL STATUS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registration {
    /// Its reservation key.
    pub key: u64,
    /// The reservation, if it holds it.
    pub holds: Option<ReservationType>,
    /// Relative identifier of the target port.
    pub relative_port: u16,
    /// The initiator port.
    pub initiator: InitiatorPort,
}

/// READ FULL STATUS data.
pub fn read_full_status(generation: u32, registrations: impl Iterator<Item = Registration>) -> Vec<u8> {
    const R_HOLDER: u8 = 0x01;
    let mut body = Vec::new();
    for Registration { key, holds, relative_port, initiator } in registrations {
        let id = transport_id(&initiator);
        body.extend(key.to_be_bytes());
        body.extend([0; 4]);
        body.extend([if holds.is_some() { R_HOLDER } else { 0 }, holds.map_or(0, |kind| kind as u8)]);
        body.extend([0; 4]);
        body.extend(relative_port.to_be_bytes());
        body.extend((id.len() as u32).to_be_bytes());
        body.extend(id);
    }
    with_header(generation, &body)
}

/// PRGENERATION and ADDITIONAL LENGTH before what there is.
fn with_header(generation: u32, body: &[u8]) -> Vec<u8> {
    [&generation.to_be_bytes()[..], &(body.len() as u32).to_be_bytes(), body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ISID: [u8; 6] = [0x40, 1, 2, 3, 0xAB, 0xFF];

    fn out(action: ReserveAction, list: &[u8]) -> Result<ReserveParameters, Sense> {
        let parameter_bytes = list.len() as u32;
        ReserveOut { action, scope: 0, kind: 0, parameter_bytes }.parameters(list)
    }

    fn port(name: &str, isid: Option<[u8; 6]>) -> InitiatorPort {
        InitiatorPort { name: name.to_owned(), isid }
    }

    #[test]
    fn transport_ids_are_read_as_they_are_written() {
        for port in [port("iqn.2026-11.test:a", Some(ISID)), port("iqn.a", None)] {
            let id = transport_id(&port);
            assert!(id.len().is_multiple_of(4) && id.len() >= 24);
            assert_eq!(transport_ids(&[id.clone(), id].concat()).unwrap(), [port.clone(), port]);
        }
        assert_eq!(transport_id(&port("iqn.a", None))[..10], *b"\x05\0\0\x14iqn.a\0");
    }

    #[test]
    fn lists_say_who_is_registered_too() {
        let ids = transport_id(&port("iqn.b", Some(ISID)));
        let mut list = [&7_u64.to_be_bytes()[..], &9_u64.to_be_bytes(), &[0; 4], &[0x0D, 0, 0, 0]].concat();
        assert_eq!(out(ReserveAction::Register, &list), Err(Sense::PARAMETER_LIST_LENGTH_ERROR));
        list.extend((ids.len() as u32).to_be_bytes());
        list.extend(&ids);
        let read = out(ReserveAction::Register, &list).unwrap();
        assert_eq!(
            (read.key, read.action_key, read.survives_power_loss, read.all_target_ports),
            (7, 9, true, true)
        );
        assert_eq!(read.others, [port("iqn.b", Some(ISID))]);
        // Only REGISTER may name others, and what is announced must be there.
        assert_eq!(out(ReserveAction::RegisterAndIgnoreExistingKey, &list), Err(INVALID));
        list.pop();
        assert_eq!(out(ReserveAction::Register, &list), Err(Sense::PARAMETER_LIST_LENGTH_ERROR));
    }

    #[test]
    fn a_move_names_one_port() {
        let ids = transport_id(&port("iqn.b", Some(ISID)));
        let mut list = [&7_u64.to_be_bytes()[..], &9_u64.to_be_bytes(), &[0, 3, 0, 2]].concat();
        list.extend((ids.len() as u32).to_be_bytes());
        list.extend(&ids);
        let read = out(ReserveAction::RegisterAndMove, &list).unwrap();
        assert_eq!((read.relative_port, read.unregisters, read.survives_power_loss), (2, true, true));
        assert_eq!(read.others, [port("iqn.b", Some(ISID))]);
        list[20..24].fill(0);
        assert_eq!(out(ReserveAction::RegisterAndMove, &list), Err(INVALID));
    }

    #[test]
    fn full_status_names_holder_and_port() {
        let registration = Registration {
            key: 5,
            holds: Some(ReservationType::ExclusiveAccess),
            relative_port: 2,
            initiator: port("iqn.b", Some(ISID)),
        };
        let data = read_full_status(3, [registration].into_iter());
        assert_eq!(data[..8], [0, 0, 0, 3, 0, 0, 0, data.len() as u8 - 8]);
        assert_eq!(data[8..32], [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 1, 3, 0, 0, 0, 0, 0, 2, 0, 0, 0, 28]);
        assert_eq!(read_reservation(3, None), [0, 0, 0, 3, 0, 0, 0, 0]);
        assert_eq!(read_keys(3, [5].into_iter()), [0, 0, 0, 3, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 5]);
    }

    proptest! {
        #[test]
        fn any_list_is_read_or_refused(
            code in 0_u8..8,
            bytes in proptest::collection::vec(any::<u8>(), 0..120),
            named in proptest::bool::ANY,
        ) {
            let mut list = bytes;
            if named && list.len() > 24 {
                list[20] |= SPEC_I_PT;
            }
            let _ = out(ReserveAction::ALL[usize::from(code)], &list);
        }
    }
}
