//! What else can be done with volumes, snapshots and clones, and what it makes of what they hold.

use super::{
    BLOCK_BYTES, GROUP, LONGEST_BLOCKS, Trial,
    objects::{Kind, Object},
    stamp::{Write, stamp},
};
use anyhow::{Context, Result};
use std::sync::atomic::Ordering;

/// Above this many objects those that could be deleted are, rather than others made.
const CROWD: usize = 24;

impl Trial {
    /// Does one thing that is drawn, if it can be done.
    pub(super) fn act(&mut self) -> Result<()> {
        let crowded = self.objects.0.len() > CROWD;
        match self.rng.below(100) {
            0..30 => self.write(),
            30..50 if crowded => self.delete(),
            30..42 => self.snapshot(),
            42..50 => self.clone_of_some(),
            50..60 => self.restore(),
            60..68 => self.refresh(),
            68..72 => self.promote(),
            72..80 => self.group_restore(),
            80..84 => self.group_refresh(),
            84..94 => self.delete(),
            _ => self.delete_set(),
        }
    }

    /// Overwrites some of any object, or zeroes it.
    fn write(&mut self) -> Result<()> {
        let Some(name) = self.any(|_| true) else { return Ok(()) };
        self.connect(&name)?;
        for _ in 0..1 + self.rng.below(12) {
            let blocks = self.objects.get(&name).content.len() as u64;
            let at = self.rng.below(blocks);
            let len = 1 + self.rng.below(LONGEST_BLOCKS.min(blocks - at));
            let zero = self.rng.below(6) == 0;
            let mut data = vec![0; len as usize * BLOCK_BYTES];
            let mut writes: Vec<Write> = Vec::new();
            for (block, data) in (at..).zip(data.chunks_exact_mut(BLOCK_BYTES)) {
                let write = if zero { 0 } else { self.next_write.fetch_add(1, Ordering::SeqCst) };
                stamp(write, block, data);
                writes.push(write);
            }
            let object = self.objects.get_mut(&name);
            let disk = object.disk.as_mut().context("connected")?;
            disk.write(at * BLOCK_BYTES as u64, &mut data).with_context(|| format!("writing {name}"))?;
            object.content[at as usize..][..len as usize].copy_from_slice(&writes);
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<()> {
        let Some(source) = self.any(|_| true) else { return Ok(()) };
        let name = self.name("p");
        self.tell(&["snapshot", "create", &source, &name, "--writable"])?;
        self.came_of(&source, name, Kind::Snapshot);
        Ok(())
    }

    fn clone_of_some(&mut self) -> Result<()> {
        let Some(source) = self.any(|_| true) else { return Ok(()) };
        let name = self.name("c");
        self.tell(&["volume", "clone", &source, &name])?;
        self.came_of(&source, name, Kind::Clone);
        Ok(())
    }

    /// A source becomes what a snapshot of it is; now and then what it was before is kept.
    fn restore(&mut self) -> Result<()> {
        let Some(name) = self.any(|object| object.kind == Kind::Snapshot && object.source.is_some()) else {
            return Ok(());
        };
        let source = self.objects.get(&name).source.clone().context("it has a source")?;
        if self.rng.below(3) == 0 {
            let kept = self.name("k");
            self.tell(&["snapshot", "restore", &name, "--force", "--keep", &kept])?;
            // It is written to, and becomes what its own snapshots are.
            self.tell(&["volume", "set", &kept, "--writable"])?;
            self.came_of(&source, kept, Kind::Snapshot);
        } else {
            self.tell(&["snapshot", "restore", &name, "--force"])?;
        }
        self.become_like(&source, &name);
        Ok(())
    }

    fn refresh(&mut self) -> Result<()> {
        let Some(name) = self.any(|object| object.source.is_some() && object.set.is_none()) else {
            return Ok(());
        };
        let source = self.objects.get(&name).source.clone().context("it has a source")?;
        self.tell(&["snapshot", "refresh", &name, "--force"])?;
        self.become_like(&name, &source);
        Ok(())
    }

    fn promote(&mut self) -> Result<()> {
        let Some(name) = self.any(|object| object.kind != Kind::Volume && object.set.is_none()) else {
            return Ok(());
        };
        self.tell(&["snapshot", "promote", &name])?;
        let object = self.objects.get_mut(&name);
        (object.kind, object.source) = (Kind::Volume, None);
        Ok(())
    }

    fn group_restore(&mut self) -> Result<()> {
        let Some(set) = self.any_set() else { return Ok(()) };
        if self.rng.below(3) == 0 {
            let kept = self.name("k");
            self.tell(&["group", "restore", GROUP, &set, "--force", "--keep", &kept])?;
            for member in self.members.clone() {
                let name = format!("{member}.{kept}");
                self.tell(&["volume", "set", &name, "--writable"])?;
                self.came_of(&member, name.clone(), Kind::Snapshot);
                self.objects.get_mut(&name).set = Some(kept.clone());
            }
            self.sets.push(kept);
        } else {
            self.tell(&["group", "restore", GROUP, &set, "--force"])?;
        }
        for member in self.members.clone() {
            self.become_like(&member, &format!("{member}.{set}"));
        }
        Ok(())
    }

    fn group_refresh(&mut self) -> Result<()> {
        let Some(set) = self.any_set() else { return Ok(()) };
        self.tell(&["group", "refresh", GROUP, &set, "--force"])?;
        for member in self.members.clone() {
            self.become_like(&format!("{member}.{set}"), &member);
        }
        Ok(())
    }

    fn delete(&mut self) -> Result<()> {
        let members = self.members.clone();
        let names = self.objects.names(|object| object.set.is_none());
        let names: Vec<String> = names.into_iter().filter(|name| !members.contains(name)).collect();
        match self.pick(&names) {
            Some(name) => self.delete_object(&name),
            None => Ok(()),
        }
    }

    fn delete_set(&mut self) -> Result<()> {
        match self.any_set() {
            Some(set) => self.delete_whole_set(&set),
            None => Ok(()),
        }
    }

    /// Deletes everything, in an order that is drawn. Sets that outlive the group are snapshots like others.
    pub(super) fn delete_all(&mut self) -> Result<()> {
        while !self.sets.is_empty() && self.rng.below(4) != 0 {
            self.delete_set()?;
        }
        self.tell(&["group", "delete", GROUP])?;
        self.members.clear();
        self.sets.clear();
        while let Some(name) = self.any(|_| true) {
            self.delete_object(&name)?;
        }
        Ok(())
    }

    fn delete_object(&mut self, name: &str) -> Result<()> {
        let what = if self.objects.get(name).kind == Kind::Snapshot { "snapshot" } else { "volume" };
        self.tell(&[what, "delete", name, "--force", "--now"])?;
        self.objects.remove(name);
        Ok(())
    }

    fn delete_whole_set(&mut self, set: &str) -> Result<()> {
        self.tell(&["group", "delete-snapshot", GROUP, set, "--force", "--now"])?;
        for name in self.objects.set(set) {
            self.objects.remove(&name);
        }
        self.sets.retain(|other| other != set);
        Ok(())
    }

    fn came_of(&mut self, source: &str, name: String, kind: Kind) {
        let content = self.objects.get(source).content.clone();
        self.objects.0.insert(name, Object::new(kind, Some(source), content));
    }

    fn become_like(&mut self, name: &str, other: &str) {
        self.objects.get_mut(name).content = self.objects.get(other).content.clone();
    }

    fn any(&mut self, is: impl Fn(&Object) -> bool) -> Option<String> {
        let names = self.objects.names(is);
        self.pick(&names)
    }

    pub(super) fn any_set(&mut self) -> Option<String> {
        let sets = self.sets.clone();
        self.pick(&sets)
    }

    fn pick(&mut self, names: &[String]) -> Option<String> {
        (!names.is_empty()).then(|| names[self.rng.below(names.len() as u64) as usize].clone())
    }
}
