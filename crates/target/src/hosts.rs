//! Hosts, their initiator names and mappings, and the sessions that are there.

use crate::{
    Access, Credentials, Lun, Nexus, NexusName, TargetError,
    nexus::{Notice, Shared},
    reservations::ItNexus,
    tokens::Tokens,
    traffic::Ledger,
    unit::{Shown, UnitState},
};
use parking_lot::Mutex;
use quoin_scsi::{Port, Sense};
use quoin_volume::BlockDevice;
use quoin_world::{Event, Nanos, OneShot, Task, one_shot};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};
use uuid::Uuid;

/// The target portal group of the only portal, if there is but one.
const FIRST_PORT: u16 = 1;

pub(crate) struct Host<D> {
    initiators: BTreeSet<String>,
    credentials: Option<Credentials>,
    luns: BTreeMap<Lun, Shown<D>>,
}

pub(crate) struct State<D> {
    hosts: BTreeMap<String, Host<D>>,
    pub(crate) sessions: BTreeMap<NexusName, Arc<Shared>>,
    pub(crate) traffic: Ledger,
    units: BTreeMap<Uuid, Arc<UnitState>>,
    /// Target portal groups, which are the target ports: see [`Target::set_ports`].
    ports: BTreeSet<u16>,
}

/// A target: its name, hosts, mappings and sessions. Shared by all threads.
pub struct Target<D: BlockDevice> {
    iqn: String,
    tokens: Tokens<D::Image>,
    carry_on: OnceLock<Box<dyn Fn(Task) + Send + Sync>>,
    pub(crate) state: Mutex<State<D>>,
    /// Counts changes of hosts and mappings.
    version: AtomicU64,
    sessions_opened: AtomicU64,
    session_ended: Event,
}

/// A host, as listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostView {
    /// Its name.
    pub name: String,
    /// Its initiator names, in lower case.
    pub initiators: Vec<String>,
    /// How it logs in; none: by its name alone.
    pub credentials: Option<Credentials>,
    /// What it sees, by number.
    pub mappings: Vec<Mapping>,
}

/// A mapping, as listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// The number.
    pub lun: Lun,
    /// The volume's name.
    pub volume: String,
    /// The volume's identity.
    pub uuid: Uuid,
    /// What the host may do with it.
    pub access: Access,
}

/// A connected session, as listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionView {
    /// Initiator name, in lower case.
    pub initiator: String,
    /// The host it belongs to.
    pub host: Option<String>,
    /// Where it connected from.
    pub address: String,
    /// The target portal group through which it came.
    pub group: u16,
    /// When it logged in, in milliseconds since the Unix epoch.
    pub since_ms: u64,
}

/// The comparable form of an iSCSI name: lower case, as RFC 3722 maps it.
fn normal(initiator: &str) -> String {
    initiator.to_lowercase()
}

fn check_initiator(initiator: &str) -> Result<String, TargetError> {
    let bad = |reason| Err(TargetError::BadInitiator { initiator: initiator.to_string(), reason });
    let name = normal(initiator);
    if !["iqn.", "eui.", "naa."].iter().any(|prefix| name.starts_with(prefix)) {
        return bad("it starts with neither iqn., eui. nor naa.");
    }
    if name.len() > 223 {
        return bad("it is longer than 223 bytes");
    }
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | ':');
    if !name.chars().all(allowed) {
        return bad("only letters, digits, '.', '-' and ':' are allowed");
    }
    Ok(name)
}

impl<D: BlockDevice> Target<D> {
    /// A target named `iqn`, without hosts.
    pub fn new(iqn: &str) -> Arc<Self> {
        Arc::new(Self {
            iqn: normal(iqn),
            tokens: Tokens::default(),
            carry_on: OnceLock::new(),
            state: Mutex::new(State {
                hosts: BTreeMap::new(),
                sessions: BTreeMap::new(),
                traffic: Ledger::default(),
                units: BTreeMap::new(),
                ports: BTreeSet::from([FIRST_PORT]),
            }),
            version: AtomicU64::new(1),
            sessions_opened: AtomicU64::new(0),
            session_ended: Event::new(),
        })
    }

    /// Its iSCSI name, in lower case.
    pub fn iqn(&self) -> &str {
        &self.iqn
    }

    /// One of its ports: its name and a target portal group, whose tag is the relative identifier of the port, too.
    pub fn port(&self, group: u16) -> Port {
        Port { target_name: self.iqn.clone(), group }
    }

    /// Its ports, by target portal group.
    pub fn ports(&self) -> Vec<u16> {
        self.state.lock().ports.iter().copied().collect()
    }

    /// Makes these its ports. Sessions through others stay.
    pub fn set_ports(&self, ports: impl IntoIterator<Item = u16>) {
        self.state.lock().ports = ports.into_iter().collect();
    }

    /// Has it take what nobody can foresee from here, for tokens.
    pub fn draw_from(&self, random_u64: impl Fn() -> u64 + Send + Sync + 'static) {
        self.tokens.draw_from(Box::new(random_u64));
    }

    /// Tells the time, from time to time: tokens that were not used for too long are gone.
    pub fn tick(&self, now: Nanos) {
        self.tokens.tick(now);
    }

    /// Sets how the target runs work that goes on after its command is answered. The target calls `spawn` on the thread that
    /// runs the command, and the work is to run on that thread. Only the first call has an effect.
    pub fn carry_on_with(&self, spawn: impl Fn(Task) + Send + Sync + 'static) {
        let _ = self.carry_on.set(Box::new(spawn));
    }

    /// Runs work apart from the command that began it.
    ///
    /// # Errors
    /// The work itself, if [`Target::carry_on_with`] was not called.
    pub(crate) fn carry_on(&self, work: Task) -> Result<(), Task> {
        match self.carry_on.get() {
            Some(spawn) => {
                spawn(work);
                Ok(())
            }
            None => Err(work),
        }
    }

    pub(crate) fn tokens(&self) -> &Tokens<D::Image> {
        &self.tokens
    }

    /// True if `name` is this target's.
    pub fn is_named(&self, name: &str) -> bool {
        normal(name) == self.iqn
    }

    /// Creates a host, or replaces the initiator names and credentials of one. Sessions that are logged in stay.
    ///
    /// # Errors
    /// A name that is none, or that another host has.
    pub fn set_host(
        &self,
        host: &str,
        initiators: &[String],
        credentials: Option<Credentials>,
    ) -> Result<(), TargetError> {
        let initiators: BTreeSet<_> =
            initiators.iter().map(|i| check_initiator(i)).collect::<Result<_, _>>()?;
        let mut state = self.state.lock();
        for (other, has) in state.hosts.iter().filter(|(name, _)| *name != host) {
            // An initiator name belongs to one host: it decides what a session sees.
            if let Some(initiator) = has.initiators.intersection(&initiators).next() {
                let (initiator, host) = (initiator.clone(), other.clone());
                return Err(TargetError::InitiatorTaken { initiator, host });
            }
        }
        // NOTE: nothing is changed before all names are checked.
        let entry = state.hosts.entry(host.to_string()).or_insert_with(|| Host {
            initiators: BTreeSet::new(),
            credentials: None,
            luns: BTreeMap::new(),
        });
        (entry.initiators, entry.credentials) = (initiators, credentials);
        state.prune_traffic();
        drop(state);
        self.changed();
        Ok(())
    }

    /// Gives a host another name. Its sessions and what they see stay.
    ///
    /// # Errors
    /// No such host, or the new name is taken.
    pub fn rename_host(&self, host: &str, new_name: &str) -> Result<(), TargetError> {
        let mut state = self.state.lock();
        if state.hosts.contains_key(new_name) {
            return Err(TargetError::HostExists { host: new_name.to_string() });
        }
        let renamed = state.hosts.remove(host);
        let renamed = renamed.ok_or_else(|| TargetError::NoSuchHost { host: host.to_string() })?;
        state.hosts.insert(new_name.to_string(), renamed);
        Ok(())
    }

    /// Removes a host and its mappings. Its initiators see no unit from then on.
    ///
    /// # Errors
    /// No such host.
    pub fn remove_host(&self, host: &str) -> Result<(), TargetError> {
        let mut state = self.state.lock();
        let removed = state.hosts.remove(host);
        removed.ok_or_else(|| TargetError::NoSuchHost { host: host.to_string() })?;
        state.prune_traffic();
        drop(state);
        self.changed();
        Ok(())
    }

    /// Shows `device` to `host` as `lun`. Mapping the same volume there again changes its access only.
    ///
    /// # Errors
    /// No such host, or the number names another volume.
    pub fn map(&self, host: &str, lun: Lun, device: Arc<D>, access: Access) -> Result<(), TargetError> {
        {
            let mut state = self.state.lock();
            let unit = state.unit_of(&*device);
            let entry = state.host(host)?;
            let other = entry.luns.get(&lun).map(|shown| &shown.device);
            if let Some(other) = other.filter(|other| other.uuid() != device.uuid()) {
                let (host, volume) = (host.to_string(), other.name());
                return Err(TargetError::LunTaken { host, lun, volume });
            }
            entry.luns.insert(lun, Shown { device, access, state: unit });
        }
        self.changed();
        Ok(())
    }

    /// Hides what `host` sees as `lun`. Commands already with the device run to their end.
    ///
    /// # Errors
    /// No such host or number.
    pub fn unmap(&self, host: &str, lun: Lun) -> Result<(), TargetError> {
        let removed = self.state.lock().host(host)?.luns.remove(&lun);
        removed.ok_or_else(|| TargetError::NoSuchLun { host: host.to_string(), lun })?;
        self.changed();
        Ok(())
    }

    /// All hosts by name.
    pub fn hosts(&self) -> Vec<HostView> {
        let view = |(name, host): (&String, &Host<D>)| HostView {
            name: name.clone(),
            initiators: host.initiators.iter().cloned().collect(),
            credentials: host.credentials.clone(),
            mappings: host
                .luns
                .iter()
                .map(|(&lun, Shown { device, access, .. })| Mapping {
                    lun,
                    volume: device.name(),
                    uuid: device.uuid(),
                    access: *access,
                })
                .collect(),
        };
        self.state.lock().hosts.iter().map(view).collect()
    }

    /// All sessions by initiator name.
    pub fn sessions(&self) -> Vec<SessionView> {
        let state = self.state.lock();
        let view = |shared: &Arc<Shared>| SessionView {
            initiator: shared.name.initiator.clone(),
            host: state.host_of(&shared.name.initiator).map(|(name, _)| name.clone()),
            address: shared.address.clone(),
            group: shared.name.group,
            since_ms: shared.since_ms,
        };
        state.sessions.values().map(view).collect()
    }

    /// How an initiator must log in; `None`: by its name alone.
    pub fn credentials(&self, initiator: &str) -> Option<Credentials> {
        self.state.lock().host_of(&normal(initiator)).and_then(|(_, host)| host.credentials.clone())
    }

    /// True if the initiator belongs to a host. One that does not can log in, but sees no unit.
    pub fn knows(&self, initiator: &str) -> bool {
        self.state.lock().host_of(&normal(initiator)).is_some()
    }

    /// True if a session of this name is there.
    pub fn has_session(&self, name: &NexusName) -> bool {
        let name = NexusName { initiator: normal(&name.initiator), ..*name };
        self.state.lock().sessions.contains_key(&name)
    }

    /// Opens the nexus of a session that logged in. An older one of the same name is closed, and the call
    /// returns once the last command of it has ended.
    pub async fn connect(self: &Arc<Self>, name: NexusName, address: String, since_ms: u64) -> Nexus<D> {
        let name = NexusName { initiator: normal(&name.initiator), ..name };
        let id = self.sessions_opened.fetch_add(1, Ordering::Relaxed);
        // Where the session counts is decided as it begins.
        let traffic = self.state.lock().traffic_of(&name);
        let port = self.port(name.group);
        let shared = Arc::new(Shared::new(id, (name, port), address, since_ms, traffic));
        self.session_ended
            .until(|| {
                let mut state = self.state.lock();
                // Told each time it looks: a session that takes over meanwhile must go as well.
                if let Some(older) = state.sessions.get(&shared.name) {
                    older.notify(Notice::Reinstated);
                    return None;
                }
                let before = state.sessions.insert(shared.name.clone(), shared.clone());
                assert!(before.is_none(), "target: two sessions have one name");
                Some(())
            })
            .await;
        Nexus::new(self.clone(), shared)
    }

    pub(crate) fn disconnect(&self, shared: &Shared) {
        let removed = self.state.lock().sessions.remove(&shared.name);
        assert!(
            removed.is_some_and(|removed| removed.id == shared.id),
            "target: a session ended whose name another one had"
        );
        self.session_ended.notify();
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The mappings of an initiator and the version they are of.
    pub(crate) fn luns_of(&self, initiator: &str) -> (u64, BTreeMap<Lun, Shown<D>>) {
        let state = self.state.lock();
        let luns = state.host_of(initiator).map(|(_, host)| host.luns.clone()).unwrap_or_default();
        (self.version(), luns)
    }

    /// What an initiator sees under a number.
    pub(crate) fn shown_as(&self, initiator: &str, lun: Lun) -> Option<Shown<D>> {
        let state = self.state.lock();
        state.host_of(initiator).and_then(|(_, host)| host.luns.get(&lun).cloned())
    }

    /// Tells every session but `except` that a unit is being reset. Each returned future resolves when that
    /// session has nothing left running on it.
    pub(crate) fn announce_reset(&self, unit: Uuid, except: &Shared) -> Vec<OneShot<()>> {
        let state = self.state.lock();
        let others = state.sessions.values().filter(|shared| shared.id != except.id);
        others
            .map(|shared| {
                let (sender, done) = one_shot();
                shared.notify(Notice::UnitReset { unit, done: sender });
                done
            })
            .collect()
    }

    /// The nexuses that are there of an initiator.
    pub(crate) fn nexuses_of(&self, initiator: &str) -> Vec<ItNexus> {
        let state = self.state.lock();
        let own = state.sessions.keys().filter(|name| name.initiator == initiator);
        own.map(NexusName::it_nexus).collect()
    }

    /// What is known of a volume beside its device, if anything is.
    pub(crate) fn unit(&self, uuid: Uuid) -> Option<Arc<UnitState>> {
        self.state.lock().units.get(&uuid).cloned()
    }

    /// The same for a volume of which nothing need be known yet.
    pub(crate) fn unit_of(&self, device: &D) -> Arc<UnitState> {
        self.state.lock().unit_of(device)
    }

    /// Tells the session of a nexus, if it is there, what happened elsewhere.
    pub(crate) fn notify(&self, nexus: &ItNexus, notice: Notice) {
        if let Some(shared) = self.state.lock().sessions.get(&NexusName::of(nexus)) {
            shared.notify(notice);
        }
    }

    /// Establishes a unit attention for every session but `except`.
    pub(crate) fn announce(&self, unit: Uuid, sense: Sense, except: Option<&Shared>) {
        let state = self.state.lock();
        let others = state.sessions.values().filter(|shared| except.is_none_or(|one| one.id != shared.id));
        others.for_each(|shared| shared.notify(Notice::Attention { unit, sense }));
    }

    fn changed(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }
}

impl<D> State<D> {
    fn host(&mut self, host: &str) -> Result<&mut Host<D>, TargetError> {
        self.hosts.get_mut(host).ok_or_else(|| TargetError::NoSuchHost { host: host.to_string() })
    }

    pub(crate) fn host_of(&self, initiator: &str) -> Option<(&String, &Host<D>)> {
        self.hosts.iter().find(|(_, host)| host.initiators.contains(initiator))
    }
}

impl<D: BlockDevice> State<D> {
    /// What is known of a volume under whatever number it is shown. Who reserved it stays known while nobody sees it.
    fn unit_of(&mut self, device: &D) -> Arc<UnitState> {
        let shown: BTreeSet<_> = self
            .hosts
            .values()
            .flat_map(|host| host.luns.values())
            .map(|shown| shown.device.uuid())
            .collect();
        // NOTE: a session or a request may still have it.
        self.units
            .retain(|uuid, unit| shown.contains(uuid) || Arc::strong_count(unit) > 1 || !unit.is_plain());
        self.units.entry(device.uuid()).or_insert_with(|| Arc::new(UnitState::of(device))).clone()
    }
}
