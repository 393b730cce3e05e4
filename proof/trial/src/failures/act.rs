//! What happens to drives while writers write.

use super::{History, LAYOUTS, drives::Behaviour};
use crate::process::{pause, wait_until};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::time::Duration;

/// How long the array may take to go on without a drive that fails, or to end a scrub.
const LIMIT: Duration = Duration::from_secs(60);

impl History {
    /// Does something that can be done now, and tells what.
    pub(super) fn act(&mut self) -> Result<String> {
        loop {
            let done = match self.rng.below(15) {
                0 => self.lose("fail")?,
                1 => self.lose("detach")?,
                2 => self.lose("hang")?,
                3 => self.take_out()?,
                4 => self.slow_down()?,
                5 => self.rot()?,
                6 | 7 => self.give_back()?,
                8 => self.add()?,
                9 => self.remove()?,
                10 => self.evacuate_and_cancel()?,
                11 => self.wait_longer_or_not_at_all()?,
                12 => self.lay_out_anew()?,
                13 => self.expand()?,
                _ => {
                    self.wait_for_rebuild()?;
                    Some("rebuilt".to_owned())
                }
            };
            if let Some(done) = done {
                return Ok(done);
            }
        }
    }

    /// Whether the pool survives it now if a drive fails.
    fn tolerates(&self) -> Result<bool> {
        let status = self.array.status()?;
        let tolerates = &status["protection"]["tolerates_now"];
        Ok(tolerates.as_u64().with_context(|| format!("the status of protection: {status}"))? > 0)
    }

    /// One of the drives that the pool uses.
    fn some_active(&mut self, is_emulated: bool) -> Result<Option<usize>> {
        let listed = self.listed()?;
        let places = self.drives.places(|drive| {
            let is_active = listed.iter().any(|l| l["path"] == drive.name() && l["state"] == "active");
            is_active && drive.behaves == Behaviour::Works && (drive.is_emulated || !is_emulated)
        });
        Ok(self.pick(&places))
    }

    /// Lets a drive fail, vanish or hang, and waits until the pool goes on without it.
    fn lose(&mut self, how: &str) -> Result<Option<String>> {
        if !self.tolerates()? {
            return Ok(None);
        }
        let Some(place) = self.some_active(true)? else { return Ok(None) };
        self.emulate(how, place, &[])?;
        self.drives.all[place].behaves = Behaviour::IsAway;
        self.wait_until_lost(place)?;
        Ok(Some(format!("{how} {place}")))
    }

    fn wait_until_lost(&self, place: usize) -> Result<()> {
        let name = self.drives.all[place].name();
        wait_until(&format!("the pool to go on without {name}"), LIMIT, || {
            let state = self.state_of(&name)?;
            Ok(state != "active" && state != "suspect")
        })
    }

    /// Waits until a drive that is there again is taken back, or given up.
    pub(super) fn wait_until_settled(&self, name: &str) -> Result<()> {
        wait_until(&format!("drive {name} to be taken back or given up"), LIMIT, || {
            Ok(self.state_of(name)? != "absent")
        })
    }

    /// A drive that can be away when the array starts: all serve, and enough of them know which drives the pool has.
    pub(super) fn some_spare(&mut self) -> Result<Option<usize>> {
        let listed = self.listed()?;
        let serve = listed.iter().filter(|drive| drive["state"] == "active").count();
        // A drive that was added a moment ago does not vote yet.
        let vote = listed.iter().filter(|drive| drive["votes"] == true).count();
        let serves_whole = serve == self.drives.all.len() && self.tolerates()?;
        let status = self.array.status()?;
        let parity = status["protection"]["tolerates"].as_u64().unwrap_or(0) as usize;
        if !serves_whole || vote <= parity + 1 {
            return Ok(None);
        }
        self.some_active(false)
    }

    fn take_out(&mut self) -> Result<Option<String>> {
        if !self.tolerates()? {
            return Ok(None);
        }
        let Some(place) = self.some_active(false)? else { return Ok(None) };
        self.tell(&["drive", "fail", &self.drives.all[place].name()])?;
        self.drives.all[place].behaves = Behaviour::IsOut;
        Ok(Some(format!("take out {place}")))
    }

    fn slow_down(&mut self) -> Result<Option<String>> {
        let Some(place) = self.some_active(true)? else { return Ok(None) };
        let factor = (2 + self.rng.below(30)).to_string();
        self.emulate("slow", place, &["--factor", &factor])?;
        self.drives.all[place].behaves = Behaviour::IsSlow;
        Ok(Some(format!("slow {place}")))
    }

    /// Lets a drive rot and has all of it scrubbed, while nothing else is wrong.
    fn rot(&mut self) -> Result<Option<String>> {
        if !self.tolerates()? {
            return Ok(None);
        }
        let Some(place) = self.some_active(true)? else { return Ok(None) };
        let (pages, seed) = (1 + self.rng.below(64), self.rng.below(1 << 30));
        self.emulate("corrupt", place, &["--pages", &pages.to_string(), "--seed", &seed.to_string()])?;
        self.scrub()?;
        Ok(Some(format!("rot {place}")))
    }

    /// Scrubs all, which may repair, and must not find anything that cannot be.
    pub(super) fn scrub(&mut self) -> Result<()> {
        self.tell(&["scrub", "set", "--rate", "0"])?;
        self.tell(&["scrub", "start"])?;
        let status = || -> Result<Value> {
            Ok(serde_json::from_str(&self.array.tell(&["scrub", "status", "-o", "json"])?)?)
        };
        wait_until("the end of the scrub", LIMIT, || Ok(status()?["running"].is_null()))?;
        let status = status()?;
        let (ended, damaged) = (&status["last"]["outcome"], status["damaged"].as_array());
        let notes = status["last"]["notes"].to_string();
        let is_repaired = damaged.is_some_and(Vec::is_empty) && !notes.contains("stays as it is");
        ensure!(ended == "completed" && is_repaired, "the scrub could not repair all: {status}");
        Ok(())
    }

    /// From now on drives that go away are rebuilt at once, or waited for.
    fn wait_longer_or_not_at_all(&mut self) -> Result<Option<String>> {
        let delay = ["0s", "2s", "60m"][self.rng.below(3) as usize];
        self.tell(&["rebuild", "set", "--repair-delay", delay])?;
        Ok(Some(format!("repair delay {delay}")))
    }

    /// Lets a drive that is slow or away work again. One that the pool waits for is taken back.
    fn give_back(&mut self) -> Result<Option<String>> {
        let is_changed = |behaves| matches!(behaves, Behaviour::IsSlow | Behaviour::IsAway);
        let places = self.drives.places(|drive| is_changed(drive.behaves));
        let Some(place) = self.pick(&places) else { return Ok(None) };
        self.emulate("return", place, &[])?;
        self.drives.all[place].behaves = Behaviour::Works;
        self.wait_until_settled(&self.drives.all[place].name())?;
        Ok(Some(format!("return {place}")))
    }

    /// Gives a volume another layout, if there are drives for it. What it has is moved while all else goes on.
    fn lay_out_anew(&mut self) -> Result<Option<String>> {
        let (layout, _) = LAYOUTS[self.rng.below(LAYOUTS.len() as u64) as usize];
        let volume = format!("v{}", self.rng.below(self.contents.len() as u64));
        let policy = layout.replace('+', "-");
        if !self.policies.contains(&policy) {
            self.note(&format!("policy create {policy} --layout {layout}"))?;
            if let Err(refused) = self.array.tell(&["policy", "create", &policy, "--layout", layout]) {
                let why = refused.to_string();
                let is_lacking =
                    ["fault domains", "tolerates", "layouts"].iter().any(|what| why.contains(what));
                ensure!(is_lacking, "{why}");
                return Ok(None);
            }
            self.policies.push(policy.clone());
        }
        self.note(&format!("volume set {volume} --policy {policy}"))?;
        if let Err(refused) = self.array.tell(&["volume", "set", &volume, "--policy", &policy]) {
            let why = refused.to_string();
            let is_lacking = ["fault domains", "layouts", "space"].iter().any(|what| why.contains(what));
            ensure!(is_lacking, "{why}");
            return Ok(None);
        }
        Ok(Some(format!("{volume} as {layout}")))
    }

    fn add(&mut self) -> Result<Option<String>> {
        if self.drives.all.len() >= 12 {
            return Ok(None);
        }
        let name = self.drives.add(false)?.name();
        let place = self.drives.all.len() - 1;
        self.tell(&["drive", "add", &name, "--domain", &format!("drive{place}")])?;
        Ok(Some(format!("add {place}")))
    }

    /// Makes the files of drives a little longer: those of all if all serve, or that of one.
    fn expand(&mut self) -> Result<Option<String>> {
        let serve = self.listed()?.iter().all(|drive| drive["state"] == "active");
        if serve && self.rng.below(2) == 0 {
            self.tell(&["pool", "expand", "--by", "5%"])?;
            return Ok(Some("expand all".to_owned()));
        }
        let Some(place) = self.some_active(false)? else { return Ok(None) };
        self.tell(&["pool", "expand", "--by", "40M", "--drive", &self.drives.all[place].name()])?;
        Ok(Some(format!("expand {place}")))
    }

    /// Has a drive evacuated and removed, if the others have room for what it holds.
    fn remove(&mut self) -> Result<Option<String>> {
        let Some(place) = self.some_active(false)? else { return Ok(None) };
        let name = self.drives.all[place].name();
        self.note(&format!("drive remove {name} --narrower --wait"))?;
        let outcome = self.array.tell(&["drive", "remove", &name, "--narrower", "--wait"]);
        if let Err(refused) = outcome {
            let why = refused.to_string();
            ensure!(why.contains("cannot be evacuated"), "{why}");
            return Ok(None);
        }
        self.drives.all[place].behaves = Behaviour::IsOut;
        Ok(Some(format!("remove {place}")))
    }

    /// Begins to evacuate a drive, and has it stay after all.
    fn evacuate_and_cancel(&mut self) -> Result<Option<String>> {
        let Some(place) = self.some_active(false)? else { return Ok(None) };
        let name = self.drives.all[place].name();
        self.note(&format!("drive evacuate {name} --narrower"))?;
        let outcome = self.array.tell(&["drive", "evacuate", &name, "--narrower"]);
        if let Err(refused) = outcome {
            let why = refused.to_string();
            ensure!(why.contains("cannot be evacuated"), "{why}");
            return Ok(None);
        }
        pause(Duration::from_millis(self.rng.below(300)))?;
        self.tell(&["drive", "evacuate", &name, "--cancel"])?;
        Ok(Some(format!("evacuate {place} and cancel")))
    }

    fn listed(&self) -> Result<Vec<Value>> {
        Ok(serde_json::from_str(&self.array.tell(&["drive", "list", "-o", "json"])?)?)
    }

    fn state_of(&self, name: &str) -> Result<String> {
        let listed = self.listed()?;
        let drive = listed.iter().find(|drive| drive["path"] == name);
        let state = drive.and_then(|drive| drive["state"].as_str());
        Ok(state.with_context(|| format!("drive {name} is not listed"))?.to_owned())
    }

    fn emulate(&mut self, how: &str, place: usize, options: &[&str]) -> Result<()> {
        let name = self.drives.all[place].name();
        self.tell(&[&["drive", "emulate", how, &name], options].concat())
    }

    fn tell(&mut self, args: &[&str]) -> Result<()> {
        self.note(&args.join(" "))?;
        self.array.tell(args).map(drop)
    }

    fn pick(&mut self, places: &[usize]) -> Option<usize> {
        (!places.is_empty()).then(|| places[self.rng.below(places.len() as u64) as usize])
    }
}
