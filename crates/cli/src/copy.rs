//! `quoin volume copy`, `copies` and `copy-cancel`: copies of ranges.

use crate::{
    Failure, Output, Size,
    client::{Client, segment},
    output::{pairs, table},
    parse_size,
    report::{list, show},
    size_text,
    time::{duration_text, utc_text},
};
use clap::Args;
use quoin_api::{CopyCreate, CopyState, VolumeCopy};
use signal_hook::{consts::SIGINT, flag};
use std::{
    io::{self, IsTerminal, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// How soon the array is asked again how far a copy is: at first, and in the long run.
const LOOK_FIRST: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(crate) const COPY_EXAMPLES: &str = "The copy takes the content of SRC at the moment it starts; later writes to SRC are not copied. DST must exist and be \
    large enough; for its hosts the copied range changes as if another host had written it. Offsets and length are \
    sizes, and multiples of the logical block size of both volumes. Ranges with the same alignment to 8 KiB share their \
    blocks instead of duplicating them. A copy that a crash interrupts is not resumed; start it again.\n\nExamples:\n  \
    quoin --data /srv/a volume copy v1 v2\n  \
    quoin --data /srv/a volume copy v1 v2 --from 1G --to 0 --length 512M\n  \
    quoin --data /srv/a volume copy v1 v1 --to 4G --length 1G     # within one volume\n  \
    quoin --data /srv/a volume copy v1 v2 --no-wait -o json | jq .id";

pub(crate) const COPIES_EXAMPLES: &str = "The list shows running copies and the last 32 that ended since the array started.\n\n\
    Examples:\n  quoin --data /srv/a volume copies\n  quoin --data /srv/a volume copies 7\n  \
    quoin --data /srv/a volume copies -o json";

pub(crate) const CANCEL_EXAMPLES: &str =
    "Data that was already copied stays.\n\nExamples:\n  quoin --data /srv/a volume copy-cancel 7";

/// Options of `quoin volume copy`.
#[derive(Args, Debug)]
pub struct CopyArgs {
    /// The volume to copy from
    #[arg(id = "volume", value_name = "SRC")]
    source: String,
    /// The volume to copy to; may be SRC
    #[arg(id = "name", value_name = "DST")]
    target: String,
    /// The first byte to copy
    #[arg(long, value_name = "OFFSET", value_parser = parse_size, default_value = "0")]
    from: Size,
    /// The first byte of the range in DST
    #[arg(long, value_name = "OFFSET", value_parser = parse_size, default_value = "0")]
    to: Size,
    /// Length of the range [default: to the end of SRC]
    #[arg(long, value_name = "LEN", value_parser = parse_size)]
    length: Option<Size>,
    /// Copy although hosts with access to DST are logged in
    #[arg(long)]
    force: bool,
    /// Start the copy and do not wait for it
    #[arg(long)]
    no_wait: bool,
}

pub(crate) fn copy(client: &Client, output: &Output, args: CopyArgs) -> Result<(), Failure> {
    let CopyArgs { source, target, from, to, length, force, no_wait } = args;
    let length_bytes = length.map(|length| length.0);
    let request = CopyCreate { target, from_bytes: from.0, to_bytes: to.0, length_bytes, force };
    let begun: VolumeCopy = client.post(&format!("/volumes/{}/copy", segment(&source)), &request)?;
    let copy = if no_wait { begun } else { wait(client, begun)? };
    output.show(&copy, copy_text);
    match copy.state {
        CopyState::Failed | CopyState::Cancelled => Err(Failure::new(
            "copy not completed",
            format!("copy {}", copy.id),
            copy.error.unwrap_or_else(|| format!("copy {} was cancelled", copy.id)),
            "data that was already copied stays; start the copy again",
        )),
        _ => Ok(()),
    }
}

pub(crate) fn copies(client: &Client, output: &Output, id: Option<u32>) -> Result<(), Failure> {
    match id {
        Some(id) => show(client, output, &path(id), copy_text),
        None => list(client, output, "/copies", copies_text),
    }
}

pub(crate) fn cancel(client: &Client, output: &Output, id: u32) -> Result<(), Failure> {
    client.delete(&path(id))?;
    show(client, output, &path(id), copy_text)
}

fn path(id: u32) -> String {
    format!("/copies/{id}")
}

/// Waits until a copy has ended, and shows how far it is on a terminal.
fn wait(client: &Client, begun: VolumeCopy) -> Result<VolumeCopy, Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    // Without the handler an interrupt ends this process, and the copy continues as well.
    drop(flag::register(SIGINT, interrupted.clone()));
    let line = Line { is_shown: io::stderr().is_terminal() };
    let (mut copy, mut pause) = (begun, LOOK_FIRST);
    while !copy.state.is_ended() {
        if interrupted.load(Ordering::Relaxed) {
            drop(line);
            return Err(goes_on(copy.id));
        }
        line.draw(&progress(&copy));
        thread::sleep(pause);
        // A short copy is seen to end soon, a long one is not asked about all the time.
        pause = (pause * 2).min(LOOK_EVERY);
        copy = client.get(&path(copy.id))?;
    }
    Ok(copy)
}

fn goes_on(id: u32) -> Failure {
    let why = format!("you interrupted the wait; copy {id} continues");
    let next =
        format!("show its progress: quoin volume copies {id}; cancel it: quoin volume copy-cancel {id}");
    Failure::new("copy still running", format!("copy {id}"), why, next)
}

/// A line on the terminal that is overwritten; dropping this erases it.
struct Line {
    is_shown: bool,
}

impl Line {
    fn draw(&self, text: &str) {
        if self.is_shown {
            let mut out = io::stderr().lock();
            drop(write!(out, "\r{text}\x1b[K").and_then(|()| out.flush()));
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.draw("");
        if self.is_shown {
            drop(write!(io::stderr().lock(), "\r"));
        }
    }
}

/// `copy 7: 42.0 %, 1.7 GiB of 4.0 GiB, 812.3 MiB/s, 3s left`.
fn progress(copy: &VolumeCopy) -> String {
    let rate = copy.bytes_per_s.map_or_else(String::new, |rate| format!(", {}/s", size_text(rate)));
    let left = copy.remaining_s.map_or_else(String::new, |s| format!(", {} left", duration_text(s)));
    let finishing = if copy.state == CopyState::Finishing { ", finishing" } else { "" };
    format!("copy {}: {}{rate}{left}{finishing}", copy.id, done(copy))
}

fn done(copy: &VolumeCopy) -> String {
    let percent = copy.done_bytes as f64 * 100.0 / copy.length_bytes.max(1) as f64;
    format!("{percent:.1} %, {} of {}", size_text(copy.done_bytes), size_text(copy.length_bytes))
}

fn optional(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn rate(copy: &VolumeCopy) -> Option<String> {
    copy.bytes_per_s.map(|rate| format!("{}/s", size_text(rate)))
}

fn copy_text(copy: &VolumeCopy) -> String {
    let at = |offset: u64| format!("byte {offset}");
    let mut rows = vec![
        ("copy", copy.id.to_string()),
        ("source", format!("{}, from {}", copy.source, at(copy.from_bytes))),
        ("target", format!("{}, to {}", copy.target, at(copy.to_bytes))),
        ("length", format!("{} ({} bytes)", size_text(copy.length_bytes), copy.length_bytes)),
        ("state", copy.state.to_string()),
        ("done", format!("{} ({} bytes)", done(copy), copy.done_bytes)),
        ("rate", optional(rate(copy))),
        ("started", utc_text(copy.started_ms)),
    ];
    rows.extend(copy.remaining_s.map(|s| ("left", duration_text(s))));
    rows.extend(copy.ended_ms.map(|ms| ("ended", utc_text(ms))));
    rows.extend(copy.error.clone().map(|why| ("error", why)));
    pairs(rows)
}

fn copies_text(copies: &[VolumeCopy]) -> String {
    let row = |copy: &VolumeCopy| {
        vec![
            copy.id.to_string(),
            copy.source.clone(),
            copy.from_bytes.to_string(),
            copy.target.clone(),
            copy.to_bytes.to_string(),
            copy.state.to_string(),
            done(copy),
            optional(rate(copy)),
            optional(copy.remaining_s.map(duration_text)),
        ]
    };
    table(
        &["copy", "source", "from", "target", "to", "state", "done", "rate", "left"],
        copies.iter().map(row).collect(),
        "no copies; begin one: quoin volume copy SRC DST",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_copy_is_is_told_in_a_line() {
        let mut copy = VolumeCopy {
            id: 7,
            source: "v1".into(),
            target: "v2".into(),
            from_bytes: 0,
            to_bytes: 4096,
            length_bytes: 4 << 30,
            done_bytes: 1 << 30,
            state: CopyState::Running,
            bytes_per_s: None,
            remaining_s: None,
            started_ms: 0,
            ended_ms: None,
            error: None,
        };
        assert_eq!(progress(&copy), "copy 7: 25.0 %, 1.0 GiB of 4.0 GiB");
        (copy.bytes_per_s, copy.remaining_s) = (Some(256 << 20), Some(12));
        assert_eq!(progress(&copy), "copy 7: 25.0 %, 1.0 GiB of 4.0 GiB, 256.0 MiB/s, 12s left");
        assert!(copies_text(&[copy.clone()]).contains("7     v1"), "{}", copies_text(&[copy]));
        assert!(goes_on(7).to_string().contains("quoin volume copy-cancel 7"));
    }
}
