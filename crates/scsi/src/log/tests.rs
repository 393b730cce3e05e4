//! Log pages as bytes, what LOG SELECT resets, and which requests are refused.

use super::*;
use crate::Command;

/// Counts that differ: 1 for the first, 2 for the second.
fn counts() -> LogCounts {
    std::array::from_fn(|at| at as u64 + 1)
}

fn thresholds() -> Thresholds {
    let thresholds = Thresholds::default();
    thresholds.note_used(5 << 30);
    thresholds.note_available((3 << 20) - 1);
    thresholds
}

fn sense(
    page_control: u8,
    page: u8,
    subpage: u8,
    pointer: u8,
    thin: Option<&Thresholds>,
) -> Result<Vec<u8>, Sense> {
    let cdb = [0x4D, 0, page_control << 6 | page, subpage, 0, 0, pointer, 4, 0, 0];
    let Ok(Command::LogSense(request)) = Command::parse(&cdb) else { panic!("{cdb:?}") };
    log_sense(&request, &counts(), thin)
}

fn cumulative(page: u8) -> Vec<u8> {
    sense(CUMULATIVE, page, 0, 0, Some(&thresholds())).unwrap()
}

#[test]
fn it_lists_the_pages_that_there_are() {
    assert_eq!(cumulative(0), [0, 0, 0, 8, 0, 2, 3, 5, 6, 0x0C, 0x19, 0x2F]);
    assert_eq!(sense(1, 0, 0, 0, None), Ok(vec![0, 0, 0, 7, 0, 2, 3, 5, 6, 0x19, 0x2F]));
    let pairs = sense(1, 0, 0xFF, 0, Some(&thresholds())).unwrap();
    assert_eq!(pairs[..10], [0x40, 0xFF, 0, 18, 0, 0, 0, 0xFF, 2, 0]);
    // Each page in the list is there, and no other.
    for page in 1..=0x3F {
        for (subpage, exists) in [(0, pairs[8..].contains(&page)), (1, false), (0xFF, false)] {
            let found = sense(1, page, subpage, 0, Some(&thresholds()));
            assert_eq!(found.is_ok(), exists, "{page:#x}/{subpage:#x}");
            assert!(exists || found == Err(Sense::INVALID_FIELD_IN_CDB));
        }
    }
    assert_eq!(sense(1, 0x0C, 0, 0, None), Err(Sense::INVALID_FIELD_IN_CDB), "no thresholds, no such page");
}

#[test]
fn pages_have_the_standards_form() {
    let counter = |code: u8, value: u8| [0, code, 0, 8, 0, 0, 0, 0, 0, 0, 0, value];
    for (page, first) in [(2, 1), (3, 3), (5, 5)] {
        let expected = [&[0x80 | page, 0, 0, 24][..], &counter(5, first), &counter(6, first + 1)].concat();
        assert_eq!(cumulative(page), expected);
    }
    assert_eq!(cumulative(6), [&[0x86, 0, 0, 12][..], &counter(0, 7)].concat());
    // In threshold sets of 1 MiB, which other units use too.
    let resources = cumulative(0x0C);
    assert_eq!(resources[..16], [0x8C, 0, 0, 24, 0, 1, 3, 8, 0, 0, 0, 2, 2, 0, 0, 0]);
    assert_eq!(resources[16..], [0, 2, 3, 8, 0, 0, 0x14, 0, 2, 0, 0, 0]);
    let statistics = cumulative(0x19);
    assert_eq!(statistics[..8], [0x99, 0, 0, 80, 0, 1, 2, 64]);
    let values: Vec<u8> = statistics[8..72].chunks(8).map(|value| value[7]).collect();
    assert_eq!(values, [8, 9, 10, 11, 12, 13, 0, 0]);
    assert_eq!(statistics[72..], [0, 3, 3, 8, 0, 0, 0, 6, 0, 0, 0, 1]);
    assert_eq!(cumulative(0x2F), [0xAF, 0, 0, 8, 0, 0, 3, 4, 0, 0, 0xFF, 0]);
}

#[test]
fn page_control_and_pointer_say_which_values() {
    for (page_control, filled) in [(0, 0xFF), (2, 0xFF), (3, 0)] {
        for page in [2, 0x19] {
            let found = sense(page_control, page, 0, 0, None).unwrap();
            assert!(found[8..16].iter().all(|byte| *byte == filled), "{page_control} {page:#x}");
        }
        // It means nothing to lists.
        assert_eq!(sense(page_control, 0x2F, 0, 0, None).unwrap(), cumulative(0x2F));
    }
    let from = |page, pointer| sense(1, page, 0, pointer, None).map(|page| (page[3], page[5]));
    assert_eq!((from(2, 5), from(2, 6)), (Ok((24, 5)), Ok((12, 6))));
    assert_eq!((from(0x19, 2), from(0x19, 3)), (Ok((12, 3)), Ok((12, 3))));
    for (page, behind) in [(2, 7), (6, 1), (0x19, 4), (0x2F, 1)] {
        assert_eq!(from(page, behind), Err(Sense::INVALID_FIELD_IN_CDB));
    }
}

fn request(
    flags: u8,
    page_control: u8,
    page: u8,
    subpage: u8,
    parameter_bytes: usize,
) -> Result<LogSelect, Sense> {
    let [high, low] = (parameter_bytes as u16).to_be_bytes();
    let cdb = [0x4C, flags, page_control << 6 | page, subpage, 0, 0, 0, high, low, 0];
    Command::parse(&cdb).map(|command| match command {
        Command::LogSelect(request) => request,
        command => panic!("{command:?}"),
    })
}

const PCR: u8 = 2;

#[test]
fn without_a_list_the_cdb_names_pages() {
    use LogCounter::*;
    let select = |flags, page_control, page, subpage| {
        log_select(&request(flags, page_control, page, subpage, 0)?, &[], Some(&thresholds()))
    };
    let all = select(PCR, 1, 0, 0).unwrap();
    assert_eq!(all.len(), LogCounter::COUNT);
    assert_eq!(select(0, 3, 0, 0), Ok(all), "default cumulative values");
    for page_control in 0..3 {
        assert_eq!(select(0, page_control, 0, 0), Ok(vec![]), "nothing is to change");
        assert_eq!(select(PCR, page_control, 6, 0), Ok(vec![NonMediumErrors]));
    }
    assert_eq!(select(PCR, 1, 3, 0xFF), Ok(vec![ReadBytes, ReadErrors]));
    // Pages of which nothing can be reset.
    for (page, subpage) in [(0, 0xFF), (0x0C, 0), (0x2F, 0)] {
        assert_eq!(select(PCR, 1, page, subpage), Ok(vec![]));
    }
    for (page, subpage) in [(1, 0), (0x3F, 0xFF), (2, 1), (0, 1)] {
        for flags in [0, PCR] {
            assert_eq!(select(flags, 1, page, subpage), Err(Sense::INVALID_FIELD_IN_CDB));
        }
    }
}

#[test]
fn what_a_cdb_cannot_mean_is_refused() {
    let invalid = Err(Sense::INVALID_FIELD_IN_CDB);
    assert_eq!(request(1, 1, 0, 0, 0), invalid, "SP");
    assert_eq!(request(PCR, 1, 0, 0, 16), invalid, "PCR with a list");
    assert_eq!(request(0, 1, 2, 0, 16), invalid, "the list names its pages itself");
    assert_eq!(request(0, 1, 0, 1, 16), invalid);
}

#[test]
fn a_list_resets_single_parameters() {
    use LogCounter::*;
    let select = |page_control, list: &[u8]| {
        log_select(&request(0, page_control, 0, 0, list.len()).unwrap(), list, Some(&thresholds()))
    };
    let counter = |code: u8| [&[0, code, 0, 8][..], &[0; 8]].concat();
    let page = |code: u8, parameters: &[Vec<u8>]| {
        let body = parameters.concat();
        [&[code, 0, 0, body.len() as u8][..], &body].concat()
    };
    let statistics = [&[0, 1, 2, 64][..], &[0; 64]].concat();
    let two = [page(0x82, &[counter(6)]), page(0x19, std::slice::from_ref(&statistics))].concat();
    let reset =
        vec![WriteErrors, ReadCommands, WriteCommands, ReceivedBlocks, SentBlocks, ReadTime, WriteTime];
    assert_eq!(select(1, &two), Ok(reset));
    assert_eq!(select(1, &page(3, &[counter(5), counter(6)])), Ok(vec![ReadBytes, ReadErrors]));
    assert_eq!(select(1, &page(3, &[])), Ok(vec![]));
    // TSD is ignored.
    let mut implicit = page(6, &[counter(0)]);
    implicit[6] = 0x20;
    assert_eq!(select(1, &implicit), Ok(vec![NonMediumErrors]));

    for cut in [1, 3, 5, two.len() - 1] {
        let refused = select(1, &two[..cut]);
        assert_eq!(refused, Err(Sense::PARAMETER_LIST_LENGTH_ERROR), "{cut} bytes");
    }
    let changed = |at: usize, byte: u8| {
        let mut list = page(2, &[counter(5), counter(6)]);
        list[at] = byte;
        list
    };
    let short = |parameter: &[u8]| page(2, &[parameter.to_vec()]);
    let invalid = [
        changed(0, 1),
        changed(0, 0x42),
        changed(1, 1),
        changed(5, 4),
        changed(5, 7),
        changed(6, 3),
        changed(6, 0x80),
        changed(7, 7),
        changed(15, 1),
        page(2, &[counter(6), counter(5)]),
        page(2, &[counter(5), counter(5)]),
        [page(3, &[]), page(2, &[])].concat(),
        [page(3, &[]), page(3, &[])].concat(),
        short(&[0, 5, 0]),
        short(&[0, 5, 0, 8, 0, 0]),
        page(0, &[]),
        page(0x0C, &[vec![0, 1, 3, 8, 0, 0, 0, 0, 0, 0, 0, 0]]),
        page(0x19, &[vec![0, 3, 3, 8, 0, 0, 0, 0, 0, 0, 0, 0]]),
        page(0x2F, &[vec![0, 0, 3, 4, 0, 0, 0, 0]]),
    ];
    for list in invalid {
        assert_eq!(select(1, &list), Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST), "{list:?}");
    }
    for page_control in [0, 2, 3] {
        let refused = select(page_control, &two);
        assert_eq!(refused, Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST), "no thresholds, no other defaults");
    }
}
