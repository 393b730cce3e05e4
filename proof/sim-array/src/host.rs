//! Hosts: each reads, writes and unmaps volumes through the block device that a front end would use.

use crate::{
    model::{MOST_SECTORS, Model, Moment, hashes},
    scenario::log_uniform,
    shared::Shared,
    vol::Vol,
};
use quoin_base::{ByteRange, SECTOR_BYTES};
use quoin_sim::content;
use quoin_volume::{BlockDevice, DeviceError, Volume};
use quoin_world::World;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// The longest write or read of most, and the longest there is.
const LONG_SECTORS: u64 = 512;
const LONGEST_SECTORS: u64 = 4096;

pub(crate) struct Host {
    pub shared: Arc<Shared>,
    pub rng: ChaCha8Rng,
}

/// What a request is about.
struct Request {
    name: String,
    vol: Vol,
    device: Arc<Volume>,
    first: u32,
    sectors: u32,
    begun: Moment,
    /// The content must stay as it is, and so it was when the request began.
    frozen: bool,
}

impl Request {
    fn range(&self) -> ByteRange {
        Model::range(self.first, self.sectors)
    }
}

impl Host {
    pub(crate) async fn run(mut self) {
        for _ in 0..self.shared.boot.operations {
            if self.shared.stop.load(Ordering::Relaxed) {
                break;
            }
            if let Err(violation) = self.step().await {
                self.shared.violated(violation);
            }
        }
    }

    async fn step(&mut self) -> Result<(), String> {
        match self.rng.random_range(0..100) {
            0..=51 => self.write().await,
            52..=78 => self.read().await,
            79..=90 => self.unmap().await,
            _ => {
                let micros = log_uniform(&mut self.rng, 10, 100_000);
                self.shared.world.sleep(Duration::from_micros(micros)).await;
                Ok(())
            }
        }
    }

    fn request(&mut self, changes: bool) -> Option<Request> {
        let mut model = self.shared.model.lock();
        let fitting: Vec<_> =
            model.volumes.iter().filter(|(_, vol)| !changes || !model.quiet.contains(&vol.id)).collect();
        if fitting.is_empty() {
            return None;
        }
        let (name, vol) = fitting[self.rng.random_range(0..fitting.len())];
        let (name, vol) = (name.clone(), vol.clone());
        // It is being renamed, or deleted.
        let device = self.shared.array.volume(&name).ok()?;
        let rng = &mut self.rng;
        let unit = vol.block_bytes / SECTOR_BYTES as u32;
        let units = vol.sectors() / unit;
        let first = match rng.random_range(0..4) {
            0 => rng.random_range(0..units.min(64)),
            1 => rng.random_range(0..units) / 16 * 16,
            _ => rng.random_range(0..units),
        };
        let most = if rng.random_bool(0.06) { LONGEST_SECTORS } else { LONG_SECTORS };
        let count = (log_uniform(rng, 1, most) as u32).div_ceil(unit).min(units - first);
        let (first, sectors) = (first * unit, count * unit);
        let begun = model.moment(&name, vol.id);
        let frozen = model.frozen.contains_key(&vol.id) && model.is_free(&name);
        *model.requests.entry(vol.id).or_default() += u32::from(changes);
        Some(Request { name, vol, device, first, sectors, begun, frozen })
    }

    async fn write(&mut self) -> Result<(), String> {
        let Some(request) = self.request(true) else { return Ok(()) };
        let zero = self.rng.random_bool(0.03);
        let (id, value) = {
            let mut model = self.shared.model.lock();
            let id = model.history.begin(request.vol.id, 0, request.first, request.sectors, zero);
            (id, model.history.value(id))
        };
        let data = content(value, request.vol.id, u64::from(request.first), request.sectors);
        let outcome = request.device.write(request.range().offset, vec![data]).await;
        let is_good = outcome.is_ok();
        self.ended(&request, id, outcome, "write")?;
        self.shared.totals.lock().writes += u64::from(is_good);
        Ok(())
    }

    async fn unmap(&mut self) -> Result<(), String> {
        let Some(mut request) = self.request(true) else { return Ok(()) };
        if self.rng.random_bool(0.2) {
            // Recorded in several parts.
            (request.first, request.sectors) = (0, request.vol.sectors());
        }
        let (volume, first, sectors) = (request.vol.id, request.first, request.sectors);
        let id = self.shared.model.lock().history.begin(volume, 0, first, sectors, true);
        let outcome = request.device.unmap(request.range()).await;
        let is_good = outcome.is_ok();
        self.ended(&request, id, outcome, "unmap")?;
        self.shared.totals.lock().unmaps += u64::from(is_good);
        Ok(())
    }

    /// What became of a write or unmap, and whether it may.
    fn ended(
        &self,
        request: &Request,
        id: quoin_sim::OpId,
        outcome: Result<(), DeviceError>,
        what: &str,
    ) -> Result<(), String> {
        let Request { name, vol, begun, frozen, .. } = request;
        let mut guard = self.shared.model.lock();
        let model = &mut *guard;
        model.request_ended(vol.id);
        let now = model.name_of(vol.id).and_then(|name| model.volumes.get(&name)).cloned();
        let is_changing = model.is_changed_since(*begun, name, vol.id);
        let mut totals = self.shared.totals.lock();
        let excused = match &outcome {
            Ok(()) => {
                model.history.end(id, true);
                if *frozen && !is_changing {
                    return Err(format!("a {what} to {name}, whose content must stay, was acknowledged"));
                }
                return Ok(());
            }
            Err(DeviceError::Replaced { .. }) => {
                // Nothing was written.
                model.history.cancel(id);
                totals.refused_replaced += 1;
                if !is_changing {
                    return Err(format!("a {what} to {name} was refused as replaced, and it was not"));
                }
                return Ok(());
            }
            Err(DeviceError::ReadOnly { .. }) => {
                totals.refused_read_only += 1;
                is_changing || vol.is_frozen() || now.as_ref().is_some_and(Vol::is_frozen)
            }
            Err(DeviceError::NoSpace { .. }) => {
                totals.refused_full += 1;
                let is_promised = vol.thick && now.as_ref().is_some_and(|now| now.thick) && !is_changing;
                what == "unmap" || !is_promised
            }
            Err(DeviceError::OutOfRange { .. }) => {
                is_changing || now.as_ref().is_some_and(|now| now.size_bytes < request.range().end())
            }
            Err(DeviceError::Deleted { .. }) => is_changing,
            Err(DeviceError::Offline { .. }) => self.shared.stopping.load(Ordering::Relaxed),
            Err(DeviceError::Stopped { .. }) => {
                totals.refused_stopped += 1;
                is_changing && model.stoppable.contains(&vol.id)
            }
            Err(DeviceError::Medium { .. }) => false,
            #[allow(unreachable_patterns, reason = "refusals that are added are to be looked at here")]
            Err(_) => false,
        };
        model.history.end(id, false);
        match (excused, outcome) {
            (true, _) | (_, Ok(())) => Ok(()),
            (false, Err(error)) => Err(format!("a {what} to {name} ({vol:?}, now {now:?}) failed: {error}")),
        }
    }

    async fn read(&mut self) -> Result<(), String> {
        let Some(mut request) = self.request(false) else { return Ok(()) };
        // What is just being written is the most interesting.
        let last = self.shared.model.lock().history.last_begun();
        if let Some((volume, _, first, sectors)) = last.filter(|_| self.rng.random_bool(0.4)) {
            let fits = volume == request.vol.id && first + sectors <= request.vol.sectors();
            if fits && first.is_multiple_of(8) && sectors.is_multiple_of(8) {
                (request.first, request.sectors) = (first, sectors);
            }
        }
        let Request { name, vol, device, first, sectors, .. } = request;
        read(&self.shared, &name, &vol, &device, first, sectors).await
    }
}

/// Reads a range of a volume, and compares it with what it may hold.
pub(crate) async fn read(
    shared: &Shared,
    name: &str,
    vol: &Vol,
    device: &Volume,
    first: u32,
    sectors: u32,
) -> Result<(), String> {
    let (begun, before, moment) = {
        let mut model = shared.model.lock();
        (model.history.begin_read(), model.frozen.get(&vol.id).cloned(), model.moment(name, vol.id))
    };
    let outcome = device.read(Model::range(first, sectors)).await;
    let mut model = shared.model.lock();
    let now = model.name_of(vol.id).and_then(|name| model.volumes.get(&name)).cloned();
    let is_changing = model.is_changed_since(moment, name, vol.id);
    match outcome {
        Ok(slices) => {
            if let Some(before) = before.filter(|_| !is_changing) {
                let found = hashes(slices.iter().map(|slice| &slice[..]));
                let expected = before.get(first as usize..(first + sectors) as usize).unwrap_or_default();
                shared.totals.lock().reads_of_frozen += 1;
                if let Some(at) = found.iter().zip(expected).position(|(found, expected)| found != expected) {
                    return Err(format!("sector {} of {name} changed, and must not", first as usize + at));
                }
            }
            if now.is_none() {
                // A read that was on its way when the volume was deleted may be answered.
                model.history.read_failed(begun);
                return Ok(());
            }
            let bytes = slices.iter().map(|slice| &slice[..]);
            let outcome = model.history.read_returned(begun, vol.id, 0, first, bytes);
            outcome.map_err(|story| format!("{name}: {story}"))?;
            shared.totals.lock().reads += 1;
            Ok(())
        }
        Err(error) => {
            model.history.read_failed(begun);
            let end = Model::range(first, sectors).end();
            let excused = match &error {
                DeviceError::OutOfRange { .. } => {
                    is_changing || now.as_ref().is_some_and(|now| now.size_bytes < end)
                }
                DeviceError::Deleted { .. } => is_changing,
                DeviceError::Stopped { .. } => is_changing && model.stoppable.contains(&vol.id),
                DeviceError::Offline { .. } => shared.stopping.load(Ordering::Relaxed),
                _ => false,
            };
            if excused {
                Ok(())
            } else {
                Err(format!("a read of {name} ({vol:?}, now {now:?}) failed: {error}"))
            }
        }
    }
}

/// Reads all of a volume; if its content must stay as it is, remembers it.
pub(crate) async fn read_all(shared: &Shared, name: &str, freeze: bool) -> Result<(), String> {
    let Some(vol) = shared.model.lock().volumes.get(name).cloned() else { return Ok(()) };
    let Ok(device) = shared.array.volume(name) else { return Err(format!("volume {name} is gone")) };
    let all = vol.sectors().min(MOST_SECTORS);
    for first in (0..all).step_by(LONG_SECTORS as usize) {
        let sectors = (LONG_SECTORS as u32).min(all - first);
        read(shared, name, &vol, &device, first, sectors).await?;
    }
    if freeze && !shared.model.lock().frozen.contains_key(&vol.id) {
        let slices = device.read(Model::range(0, all)).await;
        let slices = slices.map_err(|error| format!("a read of {name} failed: {error}"))?;
        let now = hashes(slices.iter().map(|slice| &slice[..]));
        shared.model.lock().frozen.insert(vol.id, now);
    }
    Ok(())
}
