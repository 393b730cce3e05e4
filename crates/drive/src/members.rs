//! The members of a pool: the drives that it has or once had, and what each is for.
//!
//! Every voter has the table twice. A change goes to one copy, durably, and then to the other: first to the one that is
//! damaged or older, or else in turn. So a torn copy is never the only one, and damage of one copy does not bring
//! an older table back.
//!
//! Invariants of a table (asserted before it is written, checked after it is read):
//! 1. A number belongs to one drive for ever, and a drive has one number. Numbers are below `next_index`.
//! 2. From 1 to [`MAX_VOTERS`] members vote. Voters are [needed](Member::is_needed).
//! 3. The journal's set is not empty. Its members are needed and have the journal role.
//!
//! Invariants of a change ([`Members::change_problem`]):
//! 4. No member disappears; what is gone stays gone, and what failed does not come back. What is absent may.
//! 5. At least one voter of the table before is still needed. The new table is written to it, so an opening that
//!    reads all voters of an older table finds the newer one.
//! 6. The journal's set changes only with its generation.

use crate::label::{COUNTERS_END, Label, Roles};
use quoin_base::{DriveId, DriveIndex, Epoch, MembersGeneration, PoolId, crc64};
use quoin_world::Buf;
use std::{collections::BTreeSet, fmt};
use uuid::Uuid;
use zerocopy::{
    FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U16, U32, U64},
};

#[cfg(test)]
mod tests;

/// The most drives that a pool has in its life.
pub const MAX_MEMBERS: usize = MEMBERS_PER_PAGE * MAX_PAGES;
/// The most drives that have the table, and the roots.
pub const MAX_VOTERS: usize = 5;
/// The longest name of a fault domain, in bytes of UTF-8.
pub const DOMAIN_MAX_BYTES: usize = 32;
/// Where the two copies of the table are.
pub const MEMBERS_OFFSETS: [u64; 2] = [1 << 20, (1 << 20) + COPY_BYTES];
/// Size of a page of the table.
pub const MEMBERS_PAGE_BYTES: usize = 4096;
/// Members that a page tells of.
pub const MEMBERS_PER_PAGE: usize = 56;

/// Room for a copy.
const COPY_BYTES: u64 = 128 << 10;
const MAX_PAGES: usize = COPY_BYTES as usize / MEMBERS_PAGE_BYTES;
const MAGIC: [u8; 8] = *b"QUOINMB1";
const FLAG_IN_JOURNAL: u8 = 4;
const FLAG_VOTES: u8 = 8;
const CHECKSUM_OFFSET: usize = MEMBERS_PAGE_BYTES - 8;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawMember {
    drive: [u8; 16],
    index: U16,
    state: u8,
    flags: u8,
    slabs: U32,
    domain: [u8; DOMAIN_MAX_BYTES],
    failed_at: U64,
    absent_since_ms: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPage {
    magic: [u8; 8],
    pool: [u8; 16],
    epoch: U64,
    generation: U64,
    journal_set: U64,
    next_index: U16,
    members: U16,
    number: U16,
    reserved: U16,
    entries: [RawMember; MEMBERS_PER_PAGE],
    checksum: U64,
}

const _: () = assert!(size_of::<RawMember>() == 72);
const _: () = assert!(size_of::<RawPage>() == MEMBERS_PAGE_BYTES);
const _: () = assert!(std::mem::offset_of!(RawPage, entries) == 56);
const _: () = assert!(std::mem::offset_of!(RawPage, checksum) == CHECKSUM_OFFSET);
const _: () = assert!(MEMBERS_OFFSETS[1] + COPY_BYTES == crate::label::HEAD_BYTES);

/// What a drive is to its pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum MemberState {
    /// It holds what the pool needs, and gets more.
    Active = 1,
    /// It holds what the pool needs, and gets nothing new.
    Leaving = 2,
    /// It failed, and the pool went on without it.
    Failed = 3,
    /// It left.
    Gone = 4,
    /// It went away, and the pool went on without it. It may come back, and then it is brought up to date.
    Absent = 5,
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "active",
            Self::Leaving => "leaving",
            Self::Failed => "failed",
            Self::Gone => "gone",
            Self::Absent => "absent",
        })
    }
}

/// A drive of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its number.
    pub index: DriveIndex,
    /// Its identity.
    pub drive: DriveId,
    /// What it is used for.
    pub roles: Roles,
    /// What it is to the pool.
    pub state: MemberState,
    /// Batches of the journal are written to it.
    pub in_journal: bool,
    /// It has this table and the roots.
    pub votes: bool,
    /// Its slabs, those of the journal included.
    pub slabs: u32,
    /// The name of its fault domain: drives with the same name may fail together. Empty: it is a domain of its own.
    pub domain: String,
    /// Generation of the table with which the pool went on without it; 0 if it has not, or if the drive is back and nothing of
    /// the journal is needed that began before.
    pub failed_at: MembersGeneration,
    /// When it went away, in milliseconds since 1970; 0 unless it is absent.
    pub absent_since_ms: u64,
}

impl Member {
    /// Whether the pool cannot be opened without it.
    pub fn is_needed(&self) -> bool {
        matches!(self.state, MemberState::Active | MemberState::Leaving)
    }

    /// Whether it was lost and is back, and parts of the journal that began before may be needed still.
    pub fn is_returning(&self) -> bool {
        self.is_needed() && self.failed_at.0 > 0
    }

    /// Whether the pool went on without it, and segments may still name it.
    pub fn is_lost(&self) -> bool {
        matches!(self.state, MemberState::Failed | MemberState::Absent)
    }
}

/// The table of members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Members {
    /// The pool.
    pub pool: PoolId,
    /// Of the owner that wrote it.
    pub epoch: Epoch,
    /// Grows with every change.
    pub generation: MembersGeneration,
    /// Grows with every change of the set of drives that the journal is written to.
    pub journal_set: u64,
    /// The number that the next drive gets.
    pub next_index: u16,
    /// All drives that the pool ever had, in the order of their numbers.
    pub all: Vec<Member>,
}

/// What one copy of the table turned out to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MembersCopy {
    /// A table.
    Sound(Members),
    /// Nothing was ever written there.
    Blank,
    /// It does not verify, or cannot be read.
    Damaged(String),
}

impl Members {
    /// The table of a new pool whose drives have these labels and are in these fault domains, in the order of their numbers.
    pub fn first(pool: PoolId, labels: &[Label], domains: Vec<String>) -> Self {
        let member = |(label, domain): (&Label, String)| Member {
            index: label.index,
            drive: label.drive,
            roles: label.roles,
            state: MemberState::Active,
            in_journal: label.roles.journal,
            votes: false,
            slabs: label.slabs(),
            domain,
            failed_at: MembersGeneration(0),
            absent_since_ms: 0,
        };
        let mut members = Self {
            pool,
            epoch: Epoch::default(),
            generation: MembersGeneration(1),
            journal_set: 1,
            next_index: labels.len() as u16,
            all: labels.iter().zip(domains).map(member).collect(),
        };
        members.appoint_voters();
        members
    }

    /// Notes in the next table how many slabs a drive has by now, if those are more than it tells of.
    pub fn grow(&mut self, index: DriveIndex, slabs: u32) {
        if let Some(member) = self.get_mut(index) {
            member.slabs = member.slabs.max(slabs);
        }
    }

    /// The newer of two tables has the higher age.
    pub fn age(&self) -> (Epoch, MembersGeneration) {
        (self.epoch, self.generation)
    }

    /// The member with a number.
    pub fn get(&self, index: DriveIndex) -> Option<&Member> {
        self.all.binary_search_by_key(&index, |member| member.index).ok().map(|at| &self.all[at])
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, index: DriveIndex) -> Option<&mut Member> {
        self.all.binary_search_by_key(&index, |member| member.index).ok().map(|at| &mut self.all[at])
    }

    /// Those without which the pool cannot be opened.
    pub fn needed(&self) -> impl Iterator<Item = &Member> {
        self.all.iter().filter(|member| member.is_needed())
    }

    /// Those that have the table and the roots.
    pub fn voters(&self) -> impl Iterator<Item = &Member> {
        self.all.iter().filter(|member| member.votes)
    }

    /// Those that the journal is written to.
    pub fn in_journal(&self) -> impl Iterator<Item = &Member> {
        self.all.iter().filter(|member| member.in_journal)
    }

    /// Slabs of all drives that the pool ever had.
    pub fn slabs_ever(&self) -> u64 {
        self.all.iter().map(|member| u64::from(member.slabs)).sum()
    }

    /// Makes active members voters until there are enough, those with the lowest numbers first.
    pub fn appoint_voters(&mut self) {
        let vote = self.voters().count();
        let others =
            self.all.iter_mut().filter(|member| !member.votes && member.state == MemberState::Active);
        others.take(MAX_VOTERS.saturating_sub(vote)).for_each(|member| member.votes = true);
    }

    /// Notes that a drive has failed, in the next table: the journal goes on without it, and no opening needs it any more.
    ///
    /// One that was absent comes back no more.
    pub fn fail(&mut self, index: DriveIndex) {
        self.go_on_without(index, MemberState::Failed);
        if let Some(member) = self.get_mut(index).filter(|member| member.state == MemberState::Absent) {
            (member.state, member.absent_since_ms) = (MemberState::Failed, 0);
        }
    }

    /// Notes in the next table that a drive went away at a time, in milliseconds since 1970. One that leaves is not waited for:
    /// it has failed.
    pub fn miss(&mut self, index: DriveIndex, now_ms: u64) {
        let leaves = self.get(index).is_some_and(|member| member.state == MemberState::Leaving);
        let state = if leaves { MemberState::Failed } else { MemberState::Absent };
        if self.go_on_without(index, state)
            && let Some(member) = self.get_mut(index).filter(|member| member.state == MemberState::Absent)
        {
            member.absent_since_ms = now_ms;
        }
    }

    /// Notes in the next table that the pool goes on without a drive and waits for it, because it holds the last copy of
    /// something. That goes for drives that answered with errors and for drives that were leaving, too.
    pub fn keep_absent(&mut self, index: DriveIndex, now_ms: u64) {
        if self.go_on_without(index, MemberState::Absent)
            && let Some(member) = self.get_mut(index)
        {
            member.absent_since_ms = now_ms;
        }
    }

    /// Notes that an absent drive is back: it holds what it held, and gets more. It joins neither the journal nor the voters.
    pub fn take_back(&mut self, index: DriveIndex) {
        if let Some(member) = self.get_mut(index).filter(|member| member.state == MemberState::Absent) {
            (member.state, member.absent_since_ms) = (MemberState::Active, 0);
        }
    }

    /// Notes that nothing of the journal is needed any more that began before a drive came back.
    pub fn settle(&mut self, index: DriveIndex) {
        if let Some(member) = self.get_mut(index).filter(|member| member.is_needed()) {
            member.failed_at = MembersGeneration(0);
        }
    }

    /// True if the drive was needed until now.
    fn go_on_without(&mut self, index: DriveIndex, state: MemberState) -> bool {
        let next = self.generation.next();
        let Some(member) = self.get_mut(index).filter(|member| member.is_needed()) else { return false };
        (member.state, member.in_journal, member.votes) = (state, false, false);
        member.failed_at = next;
        true
    }

    /// Why no pool can have this table, if so.
    pub fn problem(&self) -> Option<String> {
        let all = &self.all;
        let drives: BTreeSet<_> = all.iter().map(|member| member.drive).collect();
        let in_order = all.is_sorted_by(|one, next| one.index < next.index);
        let is_numbered = |member: &Member| member.index.0 < self.next_index;
        let is_journal = |member: &Member| !member.in_journal || member.is_needed() && member.roles.journal;
        let is_voter = |member: &Member| !member.votes || member.is_needed();
        let is_named =
            |member: &Member| member.domain.len() <= DOMAIN_MAX_BYTES && !member.domain.contains('\0');
        let why = match () {
            () if self.epoch.0 >= COUNTERS_END
                || self.generation.0 >= COUNTERS_END
                || self.journal_set >= COUNTERS_END =>
            {
                "a counter is impossible"
            }
            () if all.len() > MAX_MEMBERS || usize::from(self.next_index) > MAX_MEMBERS => {
                "it has more members than a pool can have"
            }
            () if !in_order || drives.len() < all.len() || !all.iter().all(is_numbered) => {
                "its numbers of drives are impossible"
            }
            () if !(1..=MAX_VOTERS).contains(&self.voters().count()) || !all.iter().all(is_voter) => {
                "its voters are impossible"
            }
            () if self.in_journal().next().is_none() || !all.iter().all(is_journal) => {
                "its journal drives are impossible"
            }
            () if !all.iter().all(is_named) => "the name of a fault domain is impossible",
            () => return None,
        };
        Some(why.into())
    }

    /// Why this table cannot follow `before`, if so.
    pub fn change_problem(&self, before: &Members) -> Option<String> {
        if let Some(why) = self.problem() {
            return Some(why);
        }
        if let Some(member) = before.all.iter().find(|member| !self.may_follow(member)) {
            return Some(format!("drive {} ({}) cannot change so", member.index, member.drive));
        }
        // An opening that finds an older table reads its voters: one of them must have this one.
        let is_heard = |member: &Member| self.get(member.index).is_some_and(Member::is_needed);
        if !before.voters().any(is_heard) {
            return Some("no voter would be left that knows what was before".into());
        }
        let set = |members: &Members| members.in_journal().map(|m| m.index).collect::<Vec<_>>();
        let is_counted = set(self) == set(before) || self.journal_set > before.journal_set;
        let grows = self.next_index >= before.next_index && self.journal_set >= before.journal_set;
        (!is_counted || !grows || self.age() <= before.age()).then(|| "a counter does not grow".into())
    }

    fn may_follow(&self, member: &Member) -> bool {
        let Some(after) = self.get(member.index) else { return false };
        let is_same = (after.drive, after.roles) == (member.drive, member.roles);
        // Drives grow.
        is_same
            && after.slabs >= member.slabs
            && match member.state {
                MemberState::Active | MemberState::Leaving => true,
                MemberState::Absent => after.state != MemberState::Leaving,
                MemberState::Failed => matches!(after.state, MemberState::Failed | MemberState::Gone),
                MemberState::Gone => after.state == MemberState::Gone,
            }
    }

    /// The table as it is on a drive: whole pages.
    pub fn encode(&self) -> Buf {
        let pages = self.all.len().div_ceil(MEMBERS_PER_PAGE).max(1);
        let mut bytes = Vec::with_capacity(pages * MEMBERS_PAGE_BYTES);
        for number in 0..pages {
            // Every page has what the table says of itself, so that pages of two tables are told apart.
            let mut page = RawPage::new_zeroed();
            page.magic = MAGIC;
            page.pool = *self.pool.0.as_bytes();
            page.epoch = self.epoch.0.into();
            page.generation = self.generation.0.into();
            page.journal_set = self.journal_set.into();
            page.next_index = self.next_index.into();
            page.members = (self.all.len() as u16).into();
            page.number = (number as u16).into();
            for (entry, member) in page.entries.iter_mut().zip(&self.all[number * MEMBERS_PER_PAGE..]) {
                *entry = raw(member);
            }
            page.checksum = crc64(&page.as_bytes()[..CHECKSUM_OFFSET]).0.into();
            bytes.extend_from_slice(page.as_bytes());
        }
        Buf::copy_of(&bytes)
    }

    /// How many bytes a copy has that begins with this page.
    pub(crate) fn len_bytes(first: &[u8]) -> usize {
        let Ok((page, _)) = RawPage::ref_from_prefix(first) else { return MEMBERS_PAGE_BYTES };
        let pages = usize::from(page.members.get()).div_ceil(MEMBERS_PER_PAGE);
        pages.clamp(1, MAX_PAGES) * MEMBERS_PAGE_BYTES
    }

    /// Reads a copy. Any bytes of any length are fine.
    pub fn decode(bytes: &[u8]) -> MembersCopy {
        if bytes.iter().all(|byte| *byte == 0) {
            return MembersCopy::Blank;
        }
        match Self::parse(bytes) {
            Ok(members) => MembersCopy::Sound(members),
            Err(why) => MembersCopy::Damaged(why),
        }
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let page = |number: usize| {
            let at = bytes.get(number * MEMBERS_PAGE_BYTES..)?;
            let (page, _) = RawPage::ref_from_prefix(at).ok()?;
            let is_sound = page.magic == MAGIC
                && page.checksum.get() == crc64(&page.as_bytes()[..CHECKSUM_OFFSET]).0
                && usize::from(page.number.get()) == number;
            is_sound.then_some(page)
        };
        // The first page tells how many members there are, and so how many pages.
        let first = page(0).ok_or("it does not verify")?;
        let count = usize::from(first.members.get());
        let mut all = Vec::new();
        for number in 0..count.div_ceil(MEMBERS_PER_PAGE).max(1) {
            let page = page(number).ok_or("a page of it does not verify")?;
            if page.as_bytes()[..50] != first.as_bytes()[..50] || page.members != first.members {
                return Err("its pages do not go together".into());
            }
            let left = count - all.len();
            for entry in page.entries.iter().take(left) {
                all.push(member(entry).ok_or("it tells of an impossible drive")?);
            }
        }
        // The checksums hold. Whether the table makes sense is another question.
        let members = Self {
            pool: PoolId(Uuid::from_bytes(first.pool)),
            epoch: Epoch(first.epoch.get()),
            generation: MembersGeneration(first.generation.get()),
            journal_set: first.journal_set.get(),
            next_index: first.next_index.get(),
            all,
        };
        match members.problem() {
            None => Ok(members),
            Some(why) => Err(why),
        }
    }
}

fn raw(member: &Member) -> RawMember {
    let mut raw = RawMember::new_zeroed();
    raw.drive = *member.drive.0.as_bytes();
    raw.index = member.index.0.into();
    raw.state = member.state as u8;
    raw.flags = member.roles.to_bits() as u8
        + u8::from(member.in_journal) * FLAG_IN_JOURNAL
        + u8::from(member.votes) * FLAG_VOTES;
    raw.slabs = member.slabs.into();
    raw.failed_at = member.failed_at.0.into();
    raw.absent_since_ms = member.absent_since_ms.into();
    raw.domain[..member.domain.len()].copy_from_slice(member.domain.as_bytes());
    raw
}

fn member(raw: &RawMember) -> Option<Member> {
    let domain_len = raw.domain.iter().position(|byte| *byte == 0).unwrap_or(DOMAIN_MAX_BYTES);
    Some(Member {
        index: DriveIndex(raw.index.get()),
        drive: DriveId(Uuid::from_bytes(raw.drive)),
        roles: Roles::from_bits(raw.flags.into()),
        state: match raw.state {
            1 => MemberState::Active,
            2 => MemberState::Leaving,
            3 => MemberState::Failed,
            4 => MemberState::Gone,
            5 => MemberState::Absent,
            _ => return None,
        },
        in_journal: raw.flags & FLAG_IN_JOURNAL != 0,
        votes: raw.flags & FLAG_VOTES != 0,
        slabs: raw.slabs.get(),
        domain: std::str::from_utf8(&raw.domain[..domain_len]).ok()?.to_owned(),
        failed_at: MembersGeneration(raw.failed_at.get()),
        absent_since_ms: raw.absent_since_ms.get(),
    })
}
