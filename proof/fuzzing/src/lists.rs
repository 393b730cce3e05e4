//! Parameter lists of SCSI commands about reservations, copies and logs.

use crate::{Target, input::Input};
use quoin_scsi::{Command, CopyList, LogCounter, LogSelect, PopulateToken, WriteUsingToken, log_select};
use quoin_volume::Thresholds;

/// A list, and the command that it comes with.
pub(crate) const LISTS: Target = Target {
    name: "scsi_lists",
    about: "a byte for the command, two for its service action and length, then its parameter list",
    run,
    seeds,
    words: || {
        vec![vec![0xE4], vec![2, 0, 0, 24], vec![0x45, 0, 0, 28], b",i,0x".to_vec(), vec![0xFF, 0xFF, 0, 1]]
    },
    mutations: 3000,
};

/// Each TransportID, range or descriptor takes at least so many bytes of a list.
const LEAST_BYTES: usize = 16;

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (kind, action) = (input.u8() % 5, input.u8() & 0x1F);
    let list = input.rest();
    let most = list.len() / LEAST_BYTES;
    match kind {
        0 => {
            let length = (list.len() as u32).to_be_bytes();
            let cdb = [0x5F, action, 0x05, 0, 0, length[0], length[1], length[2], length[3], 0];
            if let Ok(Command::PersistentReserveOut(request)) = Command::parse(&cdb)
                && let Ok(parameters) = request.parameters(list)
            {
                assert!(
                    parameters.others.len() <= most,
                    "{} others in {} bytes",
                    parameters.others.len(),
                    list.len()
                );
                assert!(parameters.others.iter().all(|port| port.name == port.name.to_lowercase()));
            }
        }
        1 => {
            if let Ok(Some(copy)) = CopyList::parse(list) {
                assert!(copy.segments.len() <= most);
            }
        }
        2 => {
            if let Ok(request) = PopulateToken::parse(list) {
                assert!(
                    !request.ranges.is_empty() && request.ranges.len() <= most && request.inactivity_s > 0
                );
            }
        }
        3 => {
            if let Ok(request) = WriteUsingToken::parse(list) {
                assert!(!request.ranges.is_empty() && request.ranges.len() <= most);
            }
        }
        _ => select_log(action, list),
    }
}

/// LOG SELECT with this page control, of a unit that has all pages.
fn select_log(page_control: u8, list: &[u8]) {
    let parameter_bytes = u16::try_from(list.len()).unwrap_or(u16::MAX);
    let list = &list[..parameter_bytes.into()];
    let page_control = page_control & 3;
    let request = LogSelect { resets: false, page_control, page: 0, subpage: 0, parameter_bytes };
    if let Ok(mut reset) = log_select(&request, list, Some(&Thresholds::default())) {
        let found = reset.len();
        reset.sort_unstable_by_key(|counter| *counter as usize);
        reset.dedup();
        assert_eq!(reset.len(), found, "a counter is reset twice");
        assert!(found <= LogCounter::COUNT && (list.is_empty() || page_control == 1 || found == 0));
    }
}

fn with(kind: u8, action: u8, list: &[u8]) -> Vec<u8> {
    [&[kind, action], list].concat()
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut id = vec![0x45, 0, 0, 36];
    id.extend(b"iqn.2026-11.test:h,i,0x000000000001\0");
    let keys = [&7_u64.to_be_bytes()[..], &9_u64.to_be_bytes()].concat();
    let basic = [&keys[..], &[0, 0, 0, 0, 1, 0, 0, 0]].concat();
    let others = [&keys[..], &[0, 0, 0, 0, 0x0D, 0, 0, 0, 0, 0, 0, 40], &id].concat();
    let moved = [&keys[..], &[0, 3, 0, 1, 0, 0, 0, 40], &id].concat();
    let target = [&[0xE4, 0, 0, 0, 1, 3, 0, 16][..], &[6; 16], &[0; 8]].concat();
    let segment = [&[2, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 8][..], &[0; 16]].concat();
    let copy = [&[1, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0][..], &target, &segment].concat();
    let range = [&5_u64.to_be_bytes()[..], &[0, 0, 0, 8, 0, 0, 0, 0]].concat();
    let populate = [&[0, 30, 0, 0, 0, 0, 0, 30][..], &[0, 0, 0, 0, 0, 0, 0, 16], &range].concat();
    let mut write = vec![0; 536];
    write[16..24].copy_from_slice(&[0, 0x80, 0, 0, 0, 0, 1, 0xF8]);
    write[535] = 16;
    write.extend(&range);
    let counter = |code: u8| [&[0, code, 0, 8][..], &[0; 8]].concat();
    let pages = [&[0x83, 0, 0, 24][..], &counter(5), &counter(6), &[6, 0, 0, 12], &counter(0)].concat();
    vec![
        ("log_select", with(4, 1, &pages)),
        ("register", with(0, 0, &basic)),
        ("register_others", with(0, 0, &others)),
        ("register_and_move", with(0, 7, &moved)),
        ("extended_copy", with(1, 0, &copy)),
        ("populate_token", with(2, 0, &populate)),
        ("write_using_token", with(3, 0, &write)),
    ]
}
