//! The planted bugs, and within how many seeds each must be found.

use crate::{
    Choices, Faults, Load, run_seed,
    search::{self, KnownFile, SearchArgs, Wanted},
};
use anyhow::Result;
use quoin_base::Layout;
use quoin_pool::bugs::{Bug, plant};

const KNOWN: KnownFile = KnownFile {
    path: concat!(env!("CARGO_MANIFEST_DIR"), "/known-seeds.txt"),
    record_with: "cargo run -p quoin-sim --features planted-bugs -- bugs --record",
};

/// The bug of this name.
pub fn named(name: &str) -> Option<Bug> {
    Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name)
}

/// Several times what it takes today: which seeds find a bug changes with every change of the engine.
fn within(bug: Bug) -> u64 {
    match bug {
        Bug::EarlySegmentReuse
        | Bug::SkipReadVerify
        | Bug::ReplayTorn
        | Bug::SkipRecoveryFlush
        | Bug::TailPastDisplaced
        | Bug::TrustPlaced
        | Bug::EarlyPageReuse
        | Bug::ReplayOldLap
        | Bug::StayClosed => 400,
        Bug::EarlyExtentReuse
        | Bug::MergeTwice
        | Bug::ReuseDropped
        | Bug::DropLent
        | Bug::PublishMovesEarly
        | Bug::ReplayUndecided => 600,
        Bug::SkipMendRoots | Bug::ReuseLeftEarly | Bug::ReturnBeforeFlags => 1000,
        Bug::KeepOnOneColumn => 600,
        // What is placed is not in the journal, where they show.
        Bug::VerifyLastBatchOnly | Bug::ReplayIntoForked | Bug::CountBeforeRows | Bug::ForgetNames => 4000,
        // What was stuck seldom lands where something else has come to lie.
        Bug::TakeBackEarly | Bug::EarlyNumberReuse => 2000,
        Bug::KeepWaived => 2000,
        bug if DEDUPLICATION.contains(&bug) => 2000,
        Bug::SameRootSlot => 4000,
        Bug::KeepMovedRecord | Bug::GiveBackEarly | Bug::PublishAsPlaced => 1000,
        _ => 200,
    }
}

/// What goes wrong and what clients do where a bug shows, if not anywhere.
fn faults_and_load(bug: Bug) -> (Option<Faults>, Option<Load>) {
    match bug {
        // A root that is older than a whole turn of the segments leads to what was overwritten.
        Bug::SameRootSlot => (None, Some(Load::Full)),
        // The journal must go round while one checkpoint is being made.
        Bug::EarlyExtentReuse => (Some(Faults::Slow), Some(Load::Rewrite)),
        Bug::SkipMendRoots => (Some(Faults::Roots), None),
        // What one column has must not be on the others, and then that one is damaged.
        Bug::CountOneColumn | Bug::KeepOnOneColumn => (Some(Faults::Column), None),
        // A record must outgrow its page: lists of what was dropped grow.
        Bug::KeepMovedRecord => (None, Some(Load::Forks)),
        Bug::PublishMovesEarly => (Some(Faults::Slow), Some(Load::Full)),
        // Overwrites must have been told that they take no space.
        Bug::LendWhenFull => (None, Some(Load::Full)),
        // What is freed while a checkpoint takes long must be used again before the next one is durable.
        Bug::FreeForFlight => (Some(Faults::Slow), Some(Load::Full)),
        // A read must last from before a number is freed until it is used again.
        Bug::EarlyNumberReuse => (Some(Faults::Late), None),
        // The same for a node of a map, which a read must fetch from a drive on its way down.
        Bug::EarlyPageReuse => (Some(Faults::Late), Some(Load::Turns)),
        // A write must wait for its batch while a checkpoint is made.
        Bug::TailPastDisplaced => (Some(Faults::Slow), Some(Load::Rewrite)),
        // The process must outlive the hang, and what was stuck must meet what was written since.
        Bug::TakeBackEarly => (Some(Faults::Hang), Some(Load::Mixed)),
        // Nothing is looked at while drives hold something wrong.
        Bug::PublishAsPlaced => (Some(Faults::None), Some(Load::Rewrite)),
        Bug::LowerShared => (Some(Faults::None), None),
        // Power must fail while a row of a large write is on its way and its record is there.
        Bug::TrustPlaced | Bug::CountBeforeRows => (None, Some(Load::Rewrite)),
        // Small writes must be on their way while large ones are.
        Bug::VerifyLastBatchOnly => (None, Some(Load::Rewrite)),
        // What is wrong on one drive must be made up for.
        Bug::TrustParity | Bug::RepairNextColumn => (Some(Faults::Rot), None),
        // Drives must come back, and what they hold must be needed.
        Bug::ReturnBeforeFlags | Bug::ForgetMissed | Bug::OpenMinority => (Some(Faults::Vanish), None),
        // One slice must need what another one gives back. And what a column left must be needed before the next checkpoint.
        Bug::GiveBackEarly | Bug::ReuseLeftEarly => (None, Some(Load::Full)),
        // Power must fail between a part and the decision.
        Bug::ReplayUndecided => (None, Some(Load::Forks)),
        _ => (None, None),
    }
}

/// Bugs of deduplication.
const DEDUPLICATION: [Bug; 6] = [
    Bug::TrustIndex,
    Bug::ShareDropped,
    Bug::ForgetBearer,
    Bug::LendWhenFull,
    Bug::ReferLate,
    Bug::ExchangeFrozen,
];

/// What ordinary seeds would find too, after far more of them, is looked for where it shows.
fn choices(bug: Bug) -> Choices {
    let (faults, load) = faults_and_load(bug);
    // With little RAM a checkpoint waits for pages, and takes longer; and nodes of maps are read from drives.
    // And pages of the block table are not in RAM when numbers are dropped.
    let little_ram = matches!(
        bug,
        Bug::EarlyExtentReuse
            | Bug::EarlyPageReuse
            | Bug::LoseDropped
            | Bug::MergeTwice
            | Bug::ReuseDropped
            | Bug::DropLent
    );
    let of_several =
        matches!(bug, Bug::ForgetDecisions | Bug::ReplayUndecided | Bug::GiveBackEarly | Bug::UseUngranted);
    let leaving = matches!(bug, Bug::GoneTooSoon | Bug::ReuseLeftEarly);
    let growing = bug == Bug::GrowBeforeGrants;
    let policies = matches!(bug, Bug::PublishAsPlaced | Bug::LowerShared);
    let deduplicated = DEDUPLICATION.contains(&bug);
    Choices {
        leaving,
        growing,
        deduplicated,
        policies,
        faults,
        load,
        little_ram,
        slices: of_several.then_some(3),
        layout: layout(bug),
        ..Choices::default()
    }
}

/// The layout with which a bug shows, if not with any.
fn layout(bug: Bug) -> Option<Layout> {
    match bug {
        // With redundancy what was overwritten follows from other columns.
        Bug::ReuseLeftEarly => Layout::of_columns((1, 0)),
        Bug::GoneTooSoon | Bug::TrustParity | Bug::RepairNextColumn => Layout::of_columns((3, 1)),
        Bug::ReturnBeforeFlags
        | Bug::ForgetMissed
        | Bug::OpenMinority
        | Bug::PublishAsPlaced
        | Bug::LowerShared => Layout::of_columns((1, 1)),
        _ => None,
    }
}

/// Looks for the planted bugs and tells how each was found.
///
/// # Errors
/// As [`search::look_for_all`].
pub fn look_for_all(args: &SearchArgs) -> Result<()> {
    let wanted = Bug::ALL.map(|bug| Wanted { bug, within: within(bug) });
    search::look_for_all(args, &wanted, KNOWN, |bug, seed| {
        finds(bug, || run_seed(seed, choices(bug)).violation)
    })
}

/// What a run finds with the bug, unless it finds something without the bug, too: then it tells nothing about the bug.
pub fn finds(bug: Bug, run: impl Fn() -> Option<String>) -> Option<String> {
    plant(Some(bug));
    let what = run();
    plant(None);
    what.filter(|_| run().is_none())
}
