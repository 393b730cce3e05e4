//! Schedules: take snapshots of a volume or a group by the clock, and delete the oldest beyond those to be kept.
//!
//! One transaction takes a snapshot and notes that it was taken, so no moment counts twice, even after a crash. Moments
//! that passed while the array was off count as one. A schedule recognises its snapshots by their tags and does not
//! delete a snapshot that has lost one.

use crate::{
    Array, ArrayError, ScheduleError,
    catalog::Turn,
    events::Told,
    origin::{Moment, moment_of, snapshot_spec, suffixed},
    record::SCHEDULE_OBJECT,
    schedule_record::{ScheduleRecord, Source, TAGS},
    timetable::{at_text, next_due_ms, parse_at, rules_problem},
};
use quoin_api::{self as api, Rule, Severity, Utc};
use quoin_pool::Transaction;
use quoin_volume::{BlockDevice, ForkSpec, RETAIN_MAX, Tags, Volume, check_name};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

impl Array {
    /// Creates a schedule. Its first snapshot is taken at the next moment it names.
    ///
    /// # Errors
    /// [`ScheduleError`] for a name that breaks the rules or is taken, and for rules, times or sources that
    /// cannot be; `NotFound` or `NoGroup` if the source does not exist. `Offline` or `Pool` if the pool
    /// cannot commit the change.
    pub async fn create_schedule(&self, request: api::ScheduleCreate) -> Result<api::Schedule, ArrayError> {
        let api::ScheduleCreate { name, volume, group, rules, at, retain_s } = request;
        let turn = self.catalog().turn().await;
        self.require_catalog()?;
        check_name(&name).map_err(ScheduleError::Name)?;
        let bad = |why: String| ScheduleError::Invalid { name: name.clone(), why };
        let at_minute = parse_at(&at).ok_or_else(|| bad(format!("{at:?} is not a time such as 02:30")))?;
        if let Some(why) = rules_problem(&rules) {
            return Err(bad(why).into());
        }
        if let Some(seconds) = retain_s.filter(|seconds| !(1..=RETAIN_MAX.as_secs()).contains(seconds)) {
            let why = format!("a snapshot cannot be immutable for {seconds} seconds");
            return Err(bad(format!("{why}: that is 1 second to 100 years")).into());
        }
        let (source, of) = match (volume, group) {
            (Some(volume), None) => (Source::Volume(self.volume(&volume)?.id()), format!("volume {volume}")),
            (None, Some(group)) => (Source::Group(self.group(&group)?.id), format!("group {group}")),
            _ => return Err(bad("give either a volume or a group".to_owned()).into()),
        };
        self.schedules().require_room_for(&name)?;
        let (served_ms, created_ms) = (BTreeMap::new(), self.world().wall_clock_ms());
        let (paused, last_run_ms) = (false, None);
        let record = ScheduleRecord {
            name,
            source,
            rules,
            at_minute,
            retain_s,
            paused,
            created_ms,
            served_ms,
            last_run_ms,
        };
        let told = format!("created: {of}, {} at {at} UTC", rules_text(&record.rules));
        self.change_schedule(&turn, record, told).await
    }

    /// All schedules, by name.
    ///
    /// # Errors
    /// `Offline` while the pool has not been open since the array started.
    pub fn list_schedules(&self) -> Result<Vec<api::Schedule>, ArrayError> {
        self.require_catalog()?;
        let records = self.schedules().list();
        Ok(records.iter().map(|record| self.schedule_view(record)).collect())
    }

    /// One schedule.
    ///
    /// # Errors
    /// [`ScheduleError::NotFound`] if no schedule has the name. `Offline` while the pool has not been open
    /// since the array started.
    pub fn show_schedule(&self, name: &str) -> Result<api::Schedule, ArrayError> {
        Ok(self.schedule_view(&self.schedule(name)?))
    }

    /// Pauses or resumes a schedule. Runs missed during a pause are not made up for.
    ///
    /// # Errors
    /// [`ScheduleError::NotFound`] if no schedule has the name. `Offline` or `Pool` if the pool cannot commit
    /// the change.
    pub async fn update_schedule(
        &self,
        name: &str,
        request: api::ScheduleUpdate,
    ) -> Result<api::Schedule, ArrayError> {
        let turn = self.catalog().turn().await;
        let mut record = self.schedule(name)?;
        let Some(paused) = request.paused.filter(|paused| *paused != record.paused) else {
            return Ok(self.schedule_view(&record));
        };
        record.paused = paused;
        let now_ms = self.world().wall_clock_ms();
        record.served_ms = record.rules.iter().map(|rule| (rule.every, now_ms)).collect();
        self.change_schedule(&turn, record, if paused { "paused" } else { "resumed" }.to_owned()).await
    }

    /// Takes the snapshots of a schedule's first rule now, whatever the clock says.
    ///
    /// # Errors
    /// [`ScheduleError::NotFound`] if no schedule has the name, [`ScheduleError::SourceDeleted`] if its
    /// source is gone; what refuses the snapshots, such as `NoSpace`. `Offline` or `Pool` if the pool cannot
    /// commit the change.
    pub async fn run_schedule(self: &Arc<Self>, name: &str) -> Result<api::Schedule, ArrayError> {
        let turn = self.catalog().turn().await;
        let record = self.schedule(name)?;
        let rule =
            record.rules.first().copied().ok_or_else(|| ScheduleError::NotFound { name: name.to_owned() })?;
        let record = self.serve(&turn, record, rule, true).await?;
        Ok(self.schedule_view(&record))
    }

    /// Deletes a schedule; its snapshots stay.
    ///
    /// # Errors
    /// [`ScheduleError::NotFound`] if no schedule has the name. `Offline` or `Pool` if the pool cannot commit
    /// the change.
    pub async fn delete_schedule(&self, name: &str) -> Result<(), ArrayError> {
        let turn = self.catalog().turn().await;
        let record = self.schedule(name)?;
        let tx = Transaction::new().delete(SCHEDULE_OBJECT, &record.name);
        let own = Told::new(format!("schedule {name}"), "deleted; its snapshots stay")
            .without("source", self.source_of_schedule(&record))
            .without("rules", &record.rules)
            .without("at", at_text(record.at_minute))
            .without("retain_s", record.retain_s)
            .without("paused", record.paused);
        self.commit_told(&turn, tx, own).await?;
        self.schedules().remove(name);
        Ok(())
    }

    /// Takes the snapshots that are due.
    pub(crate) async fn serve_schedules(self: &Arc<Self>) {
        let now_ms = self.world().wall_clock_ms();
        let due = self.schedules().due(now_ms);
        for (name, rule) in due {
            let turn = self.catalog().turn().await;
            // It may have been replaced or deleted by now.
            let Ok(record) = self.schedule(&name) else { continue };
            if record.paused || !record.due(now_ms).contains(&rule) {
                continue;
            }
            if let Err(error) = self.serve(&turn, record, rule, false).await {
                self.not_served(&turn, &name, rule, &error).await;
            }
        }
    }

    /// Takes the snapshots of one rule, and deletes those that are too many.
    async fn serve(
        self: &Arc<Self>,
        turn: &Turn<'_>,
        mut record: ScheduleRecord,
        rule: Rule,
        by_hand: bool,
    ) -> Result<ScheduleRecord, ArrayError> {
        self.schedules().count_run();
        let now_ms = self.world().wall_clock_ms();
        let stamp = format!("{}-{}", rule.every, Utc::of_ms(now_ms).stamp());
        let tags = [record.name.as_str(), rule.every.name()];
        let tags: Tags = TAGS.into_iter().zip(tags).map(|(key, value)| (key.into(), value.into())).collect();
        let (specs, named) = self.planned(&record, &stamp)?;
        let retain = record.retain_s.map(Duration::from_secs);
        let specs: Vec<_> =
            specs.into_iter().map(|spec| ForkSpec { tags: tags.clone(), retain, ..spec }).collect();
        let last_run_ms = record.last_run_ms.replace(now_ms);
        if !by_hand {
            record.served_ms.insert(rule.every, now_ms);
        }
        let how = if by_hand { ", by request" } else { "" };
        let text = format!("{} snapshot {named} taken{how}", rule.every);
        let own = Told::new(format!("schedule {}", record.name), text)
            .with("snapshots", specs.iter().map(|spec| &spec.name).collect::<Vec<_>>())
            .change("last_run_ms", last_run_ms, now_ms);
        let (tx, staged) = self.stage_with(turn, record.put(Transaction::new()), own);
        self.volumes().fork(specs, tx).await.map_err(ArrayError::not("snapshot not taken"))?;
        self.log().saved(staged);
        self.schedules().put(record.clone());
        self.trim_volumes();
        self.delete_surplus(turn, &record, rule).await;
        Ok(record)
    }

    /// The forks to make, and the name of the set or snapshot.
    fn planned(&self, record: &ScheduleRecord, stamp: &str) -> Result<(Vec<ForkSpec>, String), ArrayError> {
        let gone = || ScheduleError::SourceDeleted { name: record.name.clone() };
        let numbered = (2..).map(|n| format!("{stamp}-{n}"));
        let names = std::iter::once(stamp.to_owned()).chain(numbered);
        match record.source {
            Source::Volume(id) => {
                let volume = self.volumes().by_id(id).ok_or_else(gone)?;
                let names = names.map(|suffix| suffixed(&volume.name(), &suffix));
                let name =
                    names.into_iter().find(|name| self.volumes().get(name).is_err()).unwrap_or_default();
                Ok((vec![snapshot_spec(volume, name.clone())], name))
            }
            Source::Group(id) => {
                let group = self.volumes().group_by_id(id).ok_or_else(gone)?;
                let taken = self.set_names(&group);
                let set = names.into_iter().find(|name| !taken.contains(name)).unwrap_or_default();
                Ok((self.plan_set(&group, &set)?, format!("set {set}")))
            }
        }
    }

    /// Deletes the oldest snapshots of a rule beyond those to be kept, but for those that are immutable or seen by hosts.
    async fn delete_surplus(&self, turn: &Turn<'_>, record: &ScheduleRecord, rule: Rule) {
        let mut moments: BTreeMap<Moment, Vec<Arc<Volume>>> = BTreeMap::new();
        for volume in self.volumes().list() {
            if let Some(moment) = moment_of(&volume).filter(|_| record.took(&volume, Some(rule.every))) {
                moments.entry(moment).or_default().push(volume);
            }
        }
        let surplus = moments.len().saturating_sub(rule.keep as usize);
        let (mut deleted, mut kept) = (Vec::new(), Vec::new());
        for snapshots in moments.into_values().take(surplus) {
            let names: Vec<_> = snapshots.iter().map(|volume| volume.name()).collect();
            match snapshots.iter().find_map(|volume| self.why_it_stays(volume)) {
                Some(why) => kept.push(format!("{} ({why})", names.join(", "))),
                None => deleted.extend(snapshots),
            }
        }
        let object = format!("schedule {}", record.name);
        if !kept.is_empty() {
            let text =
                format!("more than {} {} snapshots are kept: {}", rule.keep, rule.every, kept.join("; "));
            self.log().record(Severity::Notice, object.clone(), text);
        }
        for few in deleted.chunks(DELETED_AT_ONCE) {
            let names: Vec<_> = few.iter().map(|volume| volume.name()).collect();
            let text = format!(
                "deleted, beyond the {} {} snapshots to keep: {}",
                rule.keep,
                rule.every,
                names.join(", ")
            );
            if let Err(error) = self.delete_all(turn, few, (object.clone(), text)).await {
                let text = format!("surplus snapshots were not deleted: {error}");
                self.log().record(Severity::Warning, object.clone(), text);
            }
        }
    }

    /// Why a snapshot is not deleted to make room.
    pub(crate) fn why_it_stays(&self, volume: &Volume) -> Option<&'static str> {
        let seen = !self.hosts().read().mappings_of_volume(volume.id()).is_empty();
        match (volume.is_immutable(), seen || !self.export_list().names_of(volume.id()).is_empty()) {
            (true, _) => Some("immutable"),
            (_, true) => Some("in use"),
            _ if self.volumes().is_copied_into(volume) => Some("copied into"),
            _ => None,
        }
    }

    /// Reports that a moment passed without a snapshot, and continues with the next one; a schedule without a source is
    /// paused. If that cannot be committed, the moment stays due, and nothing is reported.
    async fn not_served(&self, turn: &Turn<'_>, name: &str, rule: Rule, error: &ArrayError) {
        self.schedules().count_failure();
        let Ok(mut record) = self.schedule(name) else { return };
        let object = format!("schedule {name}");
        let before = record.paused;
        record.paused = matches!(error, ArrayError::Schedule(ScheduleError::SourceDeleted { .. }));
        let rests = if record.paused { "; it is paused" } else { "" };
        let text = format!("{} snapshot not taken: {error}{rests}", rule.every);
        let told = Told::new(object, text).change("paused", before, record.paused).warning();
        record.served_ms.insert(rule.every, self.world().wall_clock_ms());
        match self.commit_told(turn, record.put(Transaction::new()), told).await {
            Ok(()) => self.schedules().put(record),
            Err(error) => {
                tracing::debug!(schedule = name, %error, "its moment is still due, and is tried again")
            }
        }
    }

    fn schedule(&self, name: &str) -> Result<ScheduleRecord, ArrayError> {
        self.require_catalog()?;
        let found = self.schedules().get(name).cloned();
        Ok(found.ok_or_else(|| ScheduleError::NotFound { name: name.to_owned() })?)
    }

    async fn change_schedule(
        &self,
        turn: &Turn<'_>,
        record: ScheduleRecord,
        told: String,
    ) -> Result<api::Schedule, ArrayError> {
        let before = self.schedules().get(&record.name).cloned();
        let of = |record: &ScheduleRecord| self.source_of_schedule(record);
        let own = Told::new(format!("schedule {}", record.name), told)
            .change("source", before.as_ref().map(of), of(&record))
            .change("at", before.as_ref().map(|b| at_text(b.at_minute)), at_text(record.at_minute))
            .change("rules", before.as_ref().map(|b| b.rules.clone()), Some(&record.rules))
            .change("paused", before.as_ref().map(|b| b.paused), Some(record.paused))
            .change("retain_s", before.as_ref().and_then(|b| b.retain_s), record.retain_s);
        self.commit_told(turn, record.put(Transaction::new()), own).await?;
        let view = self.schedule_view(&record);
        self.schedules().put(record);
        Ok(view)
    }

    /// The source of a schedule, by its current name.
    fn source_of_schedule(&self, record: &ScheduleRecord) -> String {
        let deleted = |kind: &str| format!("{kind} (deleted)");
        match record.source {
            Source::Volume(id) => {
                let volume = self.volumes().by_id(id);
                volume.map_or_else(|| deleted("volume"), |volume| format!("volume {}", volume.name()))
            }
            Source::Group(id) => {
                let group = self.volumes().group_by_id(id);
                group.map_or_else(|| deleted("group"), |group| format!("group {}", group.name))
            }
        }
    }

    fn schedule_view(&self, record: &ScheduleRecord) -> api::Schedule {
        let now_ms = self.world().wall_clock_ms();
        let next = record.rules.iter().map(|rule| next_due_ms(rule.every, record.at_minute, now_ms)).min();
        let (volume, group) = match record.source {
            Source::Volume(id) => (self.volumes().by_id(id).map(|volume| volume.name()), None),
            Source::Group(id) => (None, self.volumes().group_by_id(id).map(|group| group.name)),
        };
        let taken = self.volumes().list().into_iter().filter(|volume| record.took(volume, None));
        let moments: BTreeSet<_> = taken.filter_map(|volume| moment_of(&volume)).collect();
        api::Schedule {
            name: record.name.clone(),
            volume,
            group,
            rules: record.rules.clone(),
            at: at_text(record.at_minute),
            retain_s: record.retain_s,
            paused: record.paused,
            created_ms: record.created_ms,
            last_run_ms: record.last_run_ms,
            next_run_ms: next.filter(|_| !record.paused),
            snapshots: moments.len() as u64,
        }
    }
}

/// The most snapshots that one transaction deletes.
const DELETED_AT_ONCE: usize = 50;

fn rules_text(rules: &[Rule]) -> String {
    rules.iter().map(|Rule { every, keep }| format!("{every}:{keep}")).collect::<Vec<_>>().join(",")
}
