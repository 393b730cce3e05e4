//! LOG SENSE, LOG SELECT and the log pages (SPC-4 §6.7, §6.8, §7.3; SBC-3 §6.3).
//!
//! Counters are those of one unit, the same for all who see it. They can be reset, and are not saved.
//! None has a threshold.

use crate::{
    command::{LogSelect, LogSense},
    fields::u16_at,
    limits,
    sense::Sense,
};
use quoin_volume::Thresholds;

/// What a unit counts of its commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the pages name them")]
pub enum LogCounter {
    WrittenBytes,
    WriteErrors,
    ReadBytes,
    ReadErrors,
    VerifiedBytes,
    VerifyErrors,
    NonMediumErrors,
    ReadCommands,
    WriteCommands,
    /// Blocks that hosts sent with commands that write.
    ReceivedBlocks,
    /// Blocks that hosts were sent by commands that read.
    SentBlocks,
    /// Microseconds from a reading command's arrival to its answer, all of them together.
    ReadTime,
    /// The same of writing commands.
    WriteTime,
}

impl LogCounter {
    /// How many there are.
    pub const COUNT: usize = Self::WriteTime as usize + 1;
}

/// The values of the counters, each at the number of its [`LogCounter`].
pub type LogCounts = [u64; LogCounter::COUNT];

const SUPPORTED: u8 = 0x00;
const WRITE_ERRORS: u8 = 0x02;
const READ_ERRORS: u8 = 0x03;
const VERIFY_ERRORS: u8 = 0x05;
const NON_MEDIUM_ERRORS: u8 = 0x06;
const PROVISIONING: u8 = 0x0C;
const STATISTICS: u8 = 0x19;
const INFORMATIONAL_EXCEPTIONS: u8 = 0x2F;
const ALL_SUBPAGES: u8 = 0xFF;

/// DS in a page's first byte: it is not saved.
const DS: u8 = 0x80;
/// SPF in a page's first byte: it is one of several subpages.
const SPF: u8 = 0x40;
/// The bits of a page's first byte that are its code.
const PAGE_CODE: u8 = 0x3F;

/// FORMAT AND LINKING of a parameter's control byte.
const BOUNDED_COUNTER: u8 = 0x00;
const UNBOUNDED_COUNTER: u8 = 0x02;
const BINARY_LIST: u8 = 0x03;
/// The bits of the control byte that LOG SELECT has to repeat: DU, ETC, TMC and FORMAT AND LINKING.
const CONTROL: u8 = 0x9F;

/// PC: which values. Data counters have no thresholds.
const CUMULATIVE: u8 = 1;
const DEFAULT_CUMULATIVE: u8 = 3;

/// Parameter codes of error counters, which are optional each (SPC-4 §7.3.7).
const TOTAL_BYTES_PROCESSED: u16 = 5;
const TOTAL_UNCORRECTED_ERRORS: u16 = 6;
/// Of general statistics (SPC-4 §7.3.11).
const ACCESS_STATISTICS: u16 = 1;
const TIME_INTERVAL: u16 = 3;
/// Intervals in which [`LogCounter::ReadTime`] and [`LogCounter::WriteTime`] count: 1 · 10⁻⁶ s.
const MICROSECONDS: [u8; 8] = [0, 0, 0, 6, 0, 0, 0, 1];
/// Of logical block provisioning (SBC-3 §6.3.4): mapping resources.
const AVAILABLE_RESOURCES: u16 = 1;
const USED_RESOURCES: u16 = 2;
/// SCOPE: other units use them too.
const SHARED: u8 = 2;
/// MOST RECENT TEMPERATURE READING of informational exceptions: there is none.
const NO_TEMPERATURE: u8 = 0xFF;

/// What a parameter holds.
enum Value {
    /// Data counters of 8 bytes each; `None` for one that is not counted, which is 0.
    Counters(u8, &'static [Option<LogCounter>]),
    List(Vec<u8>),
}

struct Parameter {
    code: u16,
    value: Value,
}

struct Page {
    code: u8,
    parameters: Vec<Parameter>,
}

fn bounded(code: u16, counter: &'static [Option<LogCounter>; 1]) -> Parameter {
    Parameter { code, value: Value::Counters(BOUNDED_COUNTER, counter) }
}

fn list(code: u16, bytes: Vec<u8>) -> Parameter {
    Parameter { code, value: Value::List(bytes) }
}

/// A page of bytes processed and uncorrected errors. What the array corrects by itself is not counted
/// here: events tell of it.
fn errors(
    code: u8,
    bytes: &'static [Option<LogCounter>; 1],
    errors: &'static [Option<LogCounter>; 1],
) -> Page {
    let parameters = vec![bounded(TOTAL_BYTES_PROCESSED, bytes), bounded(TOTAL_UNCORRECTED_ERRORS, errors)];
    Page { code, parameters }
}

/// The pages with parameters, by code. A unit with thresholds of space also tells how much there is.
fn pages(thresholds: Option<&Thresholds>) -> Vec<Page> {
    use LogCounter::{
        NonMediumErrors, ReadBytes, ReadCommands, ReadErrors, ReadTime, ReceivedBlocks, SentBlocks,
        VerifiedBytes, VerifyErrors, WriteCommands, WriteErrors, WriteTime, WrittenBytes,
    };
    let mut pages = vec![
        errors(WRITE_ERRORS, &[Some(WrittenBytes)], &[Some(WriteErrors)]),
        errors(READ_ERRORS, &[Some(ReadBytes)], &[Some(ReadErrors)]),
        errors(VERIFY_ERRORS, &[Some(VerifiedBytes)], &[Some(VerifyErrors)]),
        Page { code: NON_MEDIUM_ERRORS, parameters: vec![bounded(0, &[Some(NonMediumErrors)])] },
    ];
    if let Some(thresholds) = thresholds {
        let parameters = vec![
            resources(AVAILABLE_RESOURCES, thresholds.available_bytes()),
            resources(USED_RESOURCES, thresholds.used_bytes()),
        ];
        pages.push(Page { code: PROVISIONING, parameters });
    }
    // The weighted numbers of commands, the last two, are not counted.
    let statistics: &[Option<LogCounter>] = &[
        Some(ReadCommands),
        Some(WriteCommands),
        Some(ReceivedBlocks),
        Some(SentBlocks),
        Some(ReadTime),
        Some(WriteTime),
        None,
        None,
    ];
    let value = Value::Counters(UNBOUNDED_COUNTER, statistics);
    let parameters =
        vec![Parameter { code: ACCESS_STATISTICS, value }, list(TIME_INTERVAL, MICROSECONDS.to_vec())];
    pages.push(Page { code: STATISTICS, parameters });
    // No additional sense code, no temperature.
    pages.push(Page {
        code: INFORMATIONAL_EXCEPTIONS,
        parameters: vec![list(0, vec![0, 0, NO_TEMPERATURE, 0])],
    });
    pages
}

/// A count of threshold sets, as in the page of thresholds (mode page 1Ch/02h).
fn resources(code: u16, bytes: u64) -> Parameter {
    let sets = u32::try_from(bytes / limits::THRESHOLD_SET_BYTES).unwrap_or(u32::MAX);
    list(code, [&sets.to_be_bytes()[..], &[SHARED, 0, 0, 0]].concat())
}

impl Parameter {
    fn counters(&self) -> &'static [Option<LogCounter>] {
        match self.value {
            Value::Counters(_, counters) => counters,
            Value::List(_) => &[],
        }
    }

    fn control(&self) -> u8 {
        match self.value {
            Value::Counters(format, _) => format,
            Value::List(_) => BINARY_LIST,
        }
    }

    /// Returns the value that PC asks for; it is ignored for lists.
    fn bytes(&self, page_control: u8, counts: &LogCounts) -> Vec<u8> {
        let counters = match &self.value {
            Value::List(bytes) => return bytes.clone(),
            Value::Counters(_, counters) => counters.iter(),
        };
        let value = |counter: &Option<LogCounter>| match page_control {
            CUMULATIVE => counter.map_or(0, |counter| counts[counter as usize]),
            DEFAULT_CUMULATIVE => 0,
            // A threshold that is never met.
            _ => u64::MAX,
        };
        counters.flat_map(|counter| value(counter).to_be_bytes()).collect()
    }
}

/// LOG SENSE data of a unit with these counts.
///
/// # Errors
/// INVALID FIELD IN CDB for a page that it does not have, or a parameter pointer behind the last one.
pub fn log_sense(
    request: &LogSense,
    counts: &LogCounts,
    thresholds: Option<&Thresholds>,
) -> Result<Vec<u8>, Sense> {
    let pages = pages(thresholds);
    let codes = pages.iter().map(|page| page.code);
    let (first, body) = match (request.page, request.subpage) {
        (SUPPORTED, 0) => (SUPPORTED, [SUPPORTED].into_iter().chain(codes).collect()),
        (SUPPORTED, ALL_SUBPAGES) => {
            let own = [SUPPORTED, 0, SUPPORTED, ALL_SUBPAGES];
            (SUPPORTED | SPF, own.into_iter().chain(codes.flat_map(|code| [code, 0])).collect())
        }
        (code, 0) => {
            let page = pages.iter().find(|page| page.code == code).ok_or(Sense::INVALID_FIELD_IN_CDB)?;
            let mut body = Vec::new();
            for parameter in page.parameters.iter().filter(|parameter| parameter.code >= request.pointer) {
                let value = parameter.bytes(request.page_control, counts);
                body.extend(parameter.code.to_be_bytes());
                body.extend([parameter.control(), value.len() as u8]);
                body.extend(value);
            }
            if body.is_empty() {
                return Err(Sense::INVALID_FIELD_IN_CDB);
            }
            (code | DS, body)
        }
        _ => return Err(Sense::INVALID_FIELD_IN_CDB),
    };
    let [high, low] = (body.len() as u16).to_be_bytes();
    Ok([vec![first, request.subpage, high, low], body].concat())
}

/// The counters that a LOG SELECT with this parameter list sets to 0.
///
/// # Errors
/// INVALID FIELD IN CDB for a page that the unit does not have. PARAMETER LIST LENGTH ERROR for a list
/// that is cut short. INVALID FIELD IN PARAMETER LIST for pages or parameters out of order, ones that
/// the unit does not have or that cannot be reset, and for a value other than 0.
pub fn log_select(
    request: &LogSelect,
    list: &[u8],
    thresholds: Option<&Thresholds>,
) -> Result<Vec<LogCounter>, Sense> {
    const SHORT: Sense = Sense::PARAMETER_LIST_LENGTH_ERROR;
    let pages = pages(thresholds);
    if list.is_empty() {
        return reset_by_cdb(request, &pages);
    }
    let mut reset = Vec::new();
    let (mut rest, mut next_page) = (list, 0);
    while !rest.is_empty() {
        let (header, after) = rest.split_at_checked(4).ok_or(SHORT)?;
        let (body, after) = after.split_at_checked(u16_at(header, 2).into()).ok_or(SHORT)?;
        let code = header[0] & PAGE_CODE;
        let page = pages.iter().find(|page| page.code == code && code >= next_page);
        let page = page.filter(|_| header[0] & SPF == 0 && header[1] == 0);
        reset.extend(selected(page.ok_or(Sense::INVALID_FIELD_IN_PARAMETER_LIST)?, request, body)?);
        (rest, next_page) = (after, code + 1);
    }
    Ok(reset)
}

/// Without a parameter list the CDB names pages, and says whether they are reset.
fn reset_by_cdb(request: &LogSelect, pages: &[Page]) -> Result<Vec<LogCounter>, Sense> {
    let is_meant = |page: &&Page| page.code == request.page || (request.page, request.subpage) == (0, 0);
    let meant: Vec<_> = pages.iter().filter(is_meant).collect();
    let exists = request.page == SUPPORTED || !meant.is_empty();
    if !exists || !matches!(request.subpage, 0 | ALL_SUBPAGES) {
        return Err(Sense::INVALID_FIELD_IN_CDB);
    }
    if !request.resets && request.page_control != DEFAULT_CUMULATIVE {
        return Ok(Vec::new());
    }
    let parameters = meant.into_iter().flat_map(|page| &page.parameters);
    Ok(parameters.flat_map(Parameter::counters).flatten().copied().collect())
}

/// The counters that the parameters of a page in a list set to 0.
fn selected(page: &Page, request: &LogSelect, body: &[u8]) -> Result<Vec<LogCounter>, Sense> {
    const INVALID: Sense = Sense::INVALID_FIELD_IN_PARAMETER_LIST;
    let mut reset = Vec::new();
    let (mut rest, mut next_code) = (body, 0);
    while !rest.is_empty() {
        let (header, after) = rest.split_at_checked(4).ok_or(INVALID)?;
        let (value, after) = after.split_at_checked(header[3].into()).ok_or(INVALID)?;
        let code = u16_at(header, 0);
        let found = page.parameters.iter().find(|parameter| parameter.code == code && code >= next_code);
        let parameter = found.ok_or(INVALID)?;
        let counters = parameter.counters();
        let is_zero = value.len() == counters.len() * size_of::<u64>() && value.iter().all(|byte| *byte == 0);
        if counters.is_empty()
            || !is_zero
            || header[2] & CONTROL != parameter.control()
            || request.page_control != CUMULATIVE
        {
            return Err(INVALID);
        }
        reset.extend(counters.iter().flatten());
        (rest, next_code) = (after, code.saturating_add(1));
    }
    Ok(reset)
}

#[cfg(test)]
mod tests;
