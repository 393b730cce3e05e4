//! Texts of events and messages: moments in UTC, and what an event has room for.

use quoin_api::Utc;

/// A moment for people, in UTC: `2026-11-20 13:38:01 UTC`.
pub fn utc_text(ms: u64) -> String {
    let Utc { year, month, day, hour, minute, second } = Utc::of_ms(ms);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// A text, shortened to what an event needs.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(500) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_owned(),
    }
}
