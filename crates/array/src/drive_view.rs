//! How the drives are, and how the pool is protected over them.

use crate::{Array, ArrayError, DriveChangeError, drive_leaving::next_of, drives::DriveSlot};
use quoin_api::{self as api, NextStep};
use quoin_base::{DriveIndex, metrics::LatencySnapshot};
use quoin_drive::{Answers, DriveCounters, Member, MemberState, Members};
use quoin_emulate::{Condition, DriveState};
use quoin_pool::{DriveSpace, Pool, PoolState};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// What the fault domains of drive files begin with that are each their own.
const OF_FILE: &str = "file:";

/// What an open pool knows of its drives.
#[derive(Default)]
pub(crate) struct InPool {
    members: Option<Arc<Members>>,
    space: Vec<DriveSpace>,
    leaving: BTreeMap<DriveIndex, api::DriveLeaving>,
    /// Drives that answer much later than the others.
    slow: BTreeSet<DriveIndex>,
}

impl InPool {
    pub(crate) fn of(pool: Option<&Arc<Pool>>) -> Self {
        let pool = pool.filter(|pool| matches!(pool.state(), PoolState::Online));
        Self {
            members: pool.map(|pool| pool.members()),
            space: pool.map(|pool| pool.drive_space()).unwrap_or_default(),
            leaving: BTreeMap::new(),
            slow: pool.map(|pool| slow(pool)).unwrap_or_default(),
        }
    }

    /// The same with how far drives are that leave.
    fn with_leaving(self, leaving: BTreeMap<DriveIndex, api::DriveLeaving>) -> Self {
        Self { leaving, ..self }
    }

    fn member(&self, index: Option<DriveIndex>) -> Option<&Member> {
        self.members.as_ref()?.get(index?)
    }
}

fn slow(pool: &Pool) -> BTreeSet<DriveIndex> {
    let members = pool.members();
    members.needed().map(|member| member.index).filter(|drive| pool.is_slow(*drive)).collect()
}

impl Array {
    /// The drives: those of the configuration in its order, then those of the pool that it does not have.
    pub fn list_drives(&self) -> Vec<api::Drive> {
        let pool = self.catalog().open_pool().ok();
        let leaving = pool.as_ref().map(|pool| self.leaving_views(pool)).unwrap_or_default();
        self.drives_in(&InPool::of(pool.as_ref()).with_leaving(leaving))
    }

    pub(crate) fn drives_in(&self, pool: &InPool) -> Vec<api::Drive> {
        let failing = self.failing_drives().all();
        let mut drives = self.drives().all(|slots| {
            let known: Vec<_> = slots.iter().map(|slot| slot.number()).collect();
            let numbers = numbered(&known, pool);
            slots
                .iter()
                .zip(numbers)
                .map(|(slot, number)| drive(slot, number, pool, &failing))
                .collect::<Vec<_>>()
        });
        let known: BTreeSet<_> = drives.iter().filter_map(|drive| drive.number).collect();
        let members = pool.members.iter().flat_map(|members| &members.all);
        let others = members
            .filter(|member| !known.contains(&member.index.0) && member.state != MemberState::Gone)
            .map(drives_without_slot);
        drives.extend(others);
        drives
    }

    /// The drive whose path is `given` or, if only one is so, ends in it.
    ///
    /// # Errors
    /// [`DriveChangeError`] if no one drive is meant.
    pub fn show_drive(&self, given: &str) -> Result<api::Drive, ArrayError> {
        let path = self.drives().path_of(given)?;
        self.list_drives()
            .into_iter()
            .find(|drive| drive.path == path)
            .ok_or_else(|| DriveChangeError::NotFound { drive: given.to_owned() }.into())
    }

    /// How an open pool is protected.
    pub(crate) fn protection(&self, pool: &Pool) -> api::Protection {
        let found = pool.protection();
        let members = pool.members();
        let count = |state| members.all.iter().filter(|member| member.state == state).count();
        let tolerates = found.layout.parity();
        let is_less = found.tolerates < tolerates || found.layout_now != found.layout;
        let mut of_disk = BTreeMap::<String, BTreeSet<String>>::new();
        let domains = self.drives().each(|slot| {
            let member = slot.number().and_then(|index| members.get(index));
            Some((slot.location()?.disk.clone(), member.filter(|member| member.is_needed())?.clone()))
        });
        for (disk, member) in domains.into_iter().flatten() {
            let domain = if member.domain.is_empty() { format!("#{}", member.index) } else { member.domain };
            of_disk.entry(disk).or_default().insert(domain);
        }
        let shared = of_disk.into_iter().filter(|(_, domains)| domains.len() > 1).map(|(disk, _)| disk);
        api::Protection {
            layout: found.layout.to_string(),
            tolerates,
            layout_now: found.layout_now.to_string(),
            tolerates_now: found.tolerates,
            domains: found.domains,
            journal_columns: found.journal_columns,
            degraded_segments: found.degraded_segments,
            degraded_bytes: found.degraded_bytes,
            rebuild: self.rebuild_progress(),
            failed_drives: count(MemberState::Failed),
            absent_drives: count(MemberState::Absent),
            absent_bytes: found.absent_bytes,
            unreadable_segments: found.unreadable_segments,
            unreadable_bytes: found.unreadable_bytes,
            settled: pool.is_settled(),
            shared_disks: shared.collect(),
            each_file: members.needed().any(|member| member.domain.starts_with(OF_FILE)),
            next: match () {
                () if found.unreadable_segments > 0 => Some(NextStep::BringDrivesBack.into()),
                () if is_less || found.degraded_segments > 0 => Some(NextStep::RestoreProtection.into()),
                () => None,
            },
        }
    }
}

/// The numbers of the drives of the configuration, of which these are known. One that cannot be opened since the array
/// started is the drive that failed at its position, or the only one that failed.
fn numbered(known: &[Option<DriveIndex>], pool: &InPool) -> Vec<Option<DriveIndex>> {
    let members = pool.members.iter().flat_map(|members| &members.all);
    let failed = members.filter(|member| member.is_lost()).map(|member| member.index);
    let failed: BTreeSet<_> = failed.filter(|index| !known.contains(&Some(*index))).collect();
    let unknown = known.iter().filter(|number| number.is_none()).count();
    let guess = |at: usize| {
        let at = DriveIndex(at as u16);
        if failed.contains(&at) {
            return Some(at);
        }
        failed.first().copied().filter(|_| failed.len() == 1 && unknown == 1)
    };
    known.iter().enumerate().map(|(at, number)| number.or_else(|| guess(at))).collect()
}

/// A drive as clients see it.
fn drive(
    slot: &DriveSlot,
    number: Option<DriveIndex>,
    pool: &InPool,
    failing: &BTreeSet<DriveIndex>,
) -> api::Drive {
    let label = slot.drive().map(|drive| drive.label());
    let counters = slot.drive().map(|drive| drive.counters()).unwrap_or_default();
    let DriveCounters { reads, read_bytes, writes, write_bytes, flushes, errors, repairs } = counters;
    let member = pool.member(number);
    let state = state(slot, pool, member);
    let space = pool.space.iter().find(|space| Some(space.drive) == number);
    let latencies = slot.drive().and_then(|drive| drive.latencies());
    let (path, reason) = (slot.path(), slot.fault().map(str::to_owned));
    api::Drive {
        path: path.to_owned(),
        number: number.map(|index| index.0),
        id: member.map(|member| member.drive.0).or(label.as_ref().map(|label| label.drive.0)),
        state,
        domain: member.map(|member| member.domain.clone()).filter(|domain| !domain.is_empty()),
        votes: member.is_some_and(|member| member.votes),
        location: slot.location().cloned(),
        found_at: slot.found_at().map(str::to_owned),
        device: slot.device().map(str::to_owned),
        answers: match slot.watch().answers() {
            Answers::InTime => api::DriveAnswers::InTime,
            Answers::Suspect(_) => api::DriveAnswers::Suspect,
            Answers::Failed(_) => api::DriveAnswers::Failed,
        },
        no_room: slot.no_room(),
        unfinished: slot.watch().under_way() as u64,
        timeouts: slot.watch().timeouts(),
        slow: number.is_some_and(|number| pool.slow.contains(&number)),
        failing: number.is_some_and(|number| failing.contains(&number)),
        online: slot.drive().is_some_and(|drive| !drive.is_failed())
            && !matches!(state, api::DriveState::Failed | api::DriveState::Absent),
        reason: reason.or_else(|| why_out(member?.state)),
        next: next(state, path).or_else(|| next_of(pool.leaving.get(&number?)?, path)),
        leaving: number.and_then(|number| pool.leaving.get(&number).cloned()),
        absent_since_ms: member.and_then(absent_since_ms),
        size_bytes: label.as_ref().map(|label| label.len_bytes),
        data_bytes: space.map(|space| space.data_bytes),
        used_bytes: space.map(|space| space.used_bytes),
        journal: label.as_ref().map_or(member.is_some_and(|m| m.roles.journal), |label| label.roles.journal),
        data: label.as_ref().map_or(member.is_some_and(|m| m.roles.data), |label| label.roles.data),
        reads,
        read_bytes,
        writes,
        write_bytes,
        flushes,
        errors,
        repairs,
        read_latency: latencies.as_ref().map(|measured| latency(&[measured.read.snapshot()])),
        write_latency: latencies
            .map(|measured| latency(&[measured.write.snapshot(), measured.durable_write.snapshot()])),
        emulated: slot.emulated().map(|drive| emulation_view(&drive.state())),
    }
}

/// Why the pool goes on without a drive in this state, if it does.
fn why_out(state: MemberState) -> Option<String> {
    match state {
        MemberState::Failed => Some("it failed, and the pool goes on without it".to_owned()),
        MemberState::Absent => Some("it went away, and the pool goes on without it".to_owned()),
        MemberState::Active | MemberState::Leaving | MemberState::Gone => None,
    }
}

fn latency(of: &[LatencySnapshot]) -> api::Latency {
    let mut all = api::Latency::default();
    for snapshot in of {
        let filled = snapshot.filled().map(|(bound, count)| (bound.as_nanos() as u64, count));
        all.merge(&api::Latency::new(snapshot.sum().as_nanos() as u64, filled));
    }
    all
}

fn state(slot: &DriveSlot, pool: &InPool, member: Option<&Member>) -> api::DriveState {
    let is_open = pool.members.is_some();
    match (member.map(|member| member.state), slot.watch().answers()) {
        (Some(MemberState::Absent), _) => api::DriveState::Absent,
        (Some(MemberState::Failed), _) | (_, Answers::Failed(_)) => api::DriveState::Failed,
        (Some(MemberState::Gone), _) => api::DriveState::Foreign,
        (_, Answers::Suspect(_)) => api::DriveState::Suspect,
        _ if slot.drive().is_some_and(|drive| drive.is_failed()) => api::DriveState::Failed,
        (Some(MemberState::Leaving), _) => api::DriveState::Leaving,
        (Some(MemberState::Active), _) => api::DriveState::Active,
        (None, _) if is_open && slot.is_stranger() => api::DriveState::Foreign,
        (None, _) if slot.fault().is_some() => api::DriveState::Missing,
        (None, _) => api::DriveState::Unknown,
    }
}

fn next(state: api::DriveState, path: &str) -> Option<String> {
    match state {
        api::DriveState::Failed => Some(NextStep::ReplaceDrive { drive: path }.into()),
        api::DriveState::Missing | api::DriveState::Absent => {
            Some(NextStep::AttachDrive { drive: path }.into())
        }
        api::DriveState::Suspect => Some(NextStep::FailDrive { drive: path }.into()),
        api::DriveState::Foreign => Some(NextStep::TakeOutDrive { drive: path }.into()),
        api::DriveState::Active
        | api::DriveState::Leaving
        | api::DriveState::Removed
        | api::DriveState::Unknown => None,
    }
}

fn absent_since_ms(member: &Member) -> Option<u64> {
    (member.state == MemberState::Absent).then_some(member.absent_since_ms)
}

/// A drive of the pool that the configuration does not have.
fn drives_without_slot(member: &Member) -> api::Drive {
    let state = match member.state {
        MemberState::Absent => api::DriveState::Absent,
        _ if member.is_needed() => api::DriveState::Missing,
        _ => api::DriveState::Failed,
    };
    let path = format!("number {}", member.index);
    api::Drive {
        number: Some(member.index.0),
        id: Some(member.drive.0),
        state,
        domain: Some(member.domain.clone()).filter(|domain| !domain.is_empty()),
        votes: member.votes,
        location: None,
        found_at: None,
        device: None,
        answers: api::DriveAnswers::InTime,
        no_room: false,
        unfinished: 0,
        timeouts: 0,
        slow: false,
        failing: false,
        online: false,
        reason: Some(match member.state {
            MemberState::Failed => {
                "it failed, and the pool goes on without it; it is not in quoin.toml".to_owned()
            }
            _ => "it is not in quoin.toml".to_owned(),
        }),
        next: Some(match state {
            api::DriveState::Failed => NextStep::RestoreProtection.into(),
            _ => NextStep::AttachDrive { drive: &path }.into(),
        }),
        path,
        leaving: None,
        absent_since_ms: absent_since_ms(member),
        size_bytes: None,
        data_bytes: None,
        used_bytes: None,
        journal: member.roles.journal,
        data: member.roles.data,
        reads: 0,
        read_bytes: 0,
        writes: 0,
        write_bytes: 0,
        flushes: 0,
        errors: 0,
        repairs: 0,
        read_latency: None,
        write_latency: None,
        emulated: None,
    }
}

/// What a drive emulates and how it is, for clients.
pub(crate) fn emulation_view(state: &DriveState) -> api::EmulatedDrive {
    let DriveState { emulation, condition, corrupted_pages } = *state;
    api::EmulatedDrive {
        technology: emulation.technology.to_string(),
        iops: emulation.iops(),
        latency_ms: emulation.latency().as_f64(),
        mbps: emulation.mbps(),
        condition: match condition {
            Condition::Healthy => api::EmulatedCondition::Healthy,
            Condition::Failing => api::EmulatedCondition::Failing,
            Condition::Slow(_) => api::EmulatedCondition::Slow,
            Condition::Hung => api::EmulatedCondition::Hung,
            Condition::Detached => api::EmulatedCondition::Detached,
        },
        slow_factor: if let Condition::Slow(factor) = condition { factor } else { 1 },
        corrupted_pages,
    }
}
