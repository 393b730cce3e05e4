//! Emulated drives: what they are told to do while they serve.

use crate::{
    Array, ArrayError, DriveEmulateError, drive_view::emulation_view, drives::Emulated, events::Told,
};
use quoin_api::{self as api, EmulateAction as Action, Severity};
use quoin_emulate::{Condition, EmulateError};

/// What is done if the request does not say how much.
const USUAL_FACTOR: u32 = 10;
const USUAL_PAGES: u32 = 1;
/// The bounds of what may be asked for.
const LEAST_FACTOR: u32 = 2;
const MOST_FACTOR: u32 = 10_000;
const MOST_PAGES: u32 = 10_000;
/// So many offsets of corrupted pages are told in an event.
const TOLD_OFFSETS: usize = 8;

impl Array {
    /// Has an emulated drive fail, be slow, hang, be corrupted or detached, or return. `drive` is its path or the end of
    /// it.
    ///
    /// # Errors
    /// [`DriveEmulateError`] if no one drive is meant, if it is not emulated, or if it cannot be done.
    pub async fn emulate_drive(
        &self,
        drive: &str,
        request: api::EmulateDrive,
    ) -> Result<api::Drive, ArrayError> {
        let Emulated { path, drive, data_from } = self.drives().emulated(drive)?;
        if let Some(why) = misuse(&request) {
            return Err(DriveEmulateError::Invalid { drive: path, why }.into());
        }
        let before = drive.state();
        let text = match request.action {
            Action::Corrupt => {
                let seed = request.seed.unwrap_or_else(|| self.world().random_u64() & api::MAX_INTEGER);
                let pages = request.pages.unwrap_or(USUAL_PAGES);
                let refused = |error| DriveEmulateError::Refused { drive: path.clone(), error };
                // NOTE: where the labels are is not touched: a drive that lost them would not be the pool's any more.
                let from = data_from.ok_or_else(|| refused(EmulateError::NotOpen))?;
                let corruption = drive.corrupt(from, pages, seed).await.map_err(refused)?;
                let offsets = corruption.offsets;
                let told: Vec<_> = offsets.iter().take(TOLD_OFFSETS).map(u64::to_string).collect();
                let more = if offsets.len() > TOLD_OFFSETS { ", …" } else { "" };
                let (count, told) = (offsets.len(), told.join(", "));
                format!(
                    "{count} of its pages are corrupted on purpose, with seed {seed}: at byte {told}{more}"
                )
            }
            action => {
                let condition = condition(action, request.factor.unwrap_or(USUAL_FACTOR));
                drive.set_condition(condition);
                told(condition)
            }
        };
        let after = drive.state();
        let told = Told::new(format!("drive {path}"), text)
            .change("condition", emulation_view(&before).condition, emulation_view(&after).condition)
            .change("slow_factor", emulation_view(&before).slow_factor, emulation_view(&after).slow_factor)
            .change("corrupted_pages", before.corrupted_pages, after.corrupted_pages);
        self.log().record_told(Severity::Notice, told);
        let shown = self.list_drives().into_iter().find(|shown| shown.path == path);
        Ok(shown.ok_or(DriveEmulateError::NotFound { drive: path })?)
    }
}

fn condition(action: Action, factor: u32) -> Condition {
    match action {
        Action::Fail => Condition::Failing,
        Action::Slow => Condition::Slow(factor),
        Action::Hang => Condition::Hung,
        Action::Detach => Condition::Detached,
        Action::Return | Action::Corrupt => Condition::Healthy,
    }
}

fn told(condition: Condition) -> String {
    match condition {
        Condition::Healthy => "is back, emulated as configured".to_owned(),
        Condition::Failing => "fails every operation on purpose".to_owned(),
        Condition::Slow(factor) => format!("takes {factor} times as long on purpose"),
        Condition::Hung => "does not answer on purpose".to_owned(),
        Condition::Detached => "is detached on purpose".to_owned(),
    }
}

/// What is wrong with the values of a request.
fn misuse(request: &api::EmulateDrive) -> Option<&'static str> {
    let api::EmulateDrive { action, factor, pages, seed } = *request;
    if factor.is_some() && action != Action::Slow {
        return Some("a factor was given, which is for slow only");
    }
    if (pages.is_some() || seed.is_some()) && action != Action::Corrupt {
        return Some("pages or a seed were given, which are for corrupt only");
    }
    if factor.is_some_and(|factor| !(LEAST_FACTOR..=MOST_FACTOR).contains(&factor)) {
        return Some("the factor is not from 2 to 10000");
    }
    if pages.is_some_and(|pages| !(1..=MOST_PAGES).contains(&pages)) {
        return Some("the number of pages is not from 1 to 10000");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_belong_to_their_actions_and_have_bounds() {
        let plain = api::EmulateDrive { action: Action::Slow, factor: None, pages: None, seed: None };
        for (request, why) in [
            (api::EmulateDrive { factor: Some(2), ..plain }, None),
            (api::EmulateDrive { factor: Some(1), ..plain }, Some("from 2 to 10000")),
            (api::EmulateDrive { action: Action::Hang, factor: Some(2), ..plain }, Some("slow only")),
            (api::EmulateDrive { seed: Some(2), ..plain }, Some("corrupt only")),
            (api::EmulateDrive { action: Action::Corrupt, pages: Some(0), ..plain }, Some("from 1 to 10000")),
            (api::EmulateDrive { action: Action::Corrupt, pages: Some(9), seed: Some(1), ..plain }, None),
        ] {
            let found = misuse(&request);
            assert_eq!(found.is_some(), why.is_some(), "{request:?}: {found:?}");
            assert!(found.unwrap_or_default().contains(why.unwrap_or_default()), "{request:?}: {found:?}");
        }
    }
}
