//! SCSI reservations: administrators see which hosts have reserved what, and end what no host is left to release.

use crate::{Array, ArrayError, ReservationError, events::Told, words::shortened};
use quoin_api::{self as api, ReservationType, Severity};
use quoin_target::{RegistrationView, ReservationType as Scsi, ReservationsView};
use quoin_volume::{BlockDevice, Volume};

impl Array {
    /// The volumes of which hosts have reserved anything, and what, by name.
    ///
    /// # Errors
    /// `Offline` while the pool has not been open since the array started.
    pub fn list_reservations(&self) -> Result<Vec<api::Reservations>, ArrayError> {
        self.require_catalog()?;
        let seen = |volume: &Volume| (volume.name(), self.target().reservations(volume));
        let all = self.volumes().list().into_iter().map(|volume| seen(&volume));
        let mut reserved: Vec<_> = all.filter(|(_, view)| !view.is_empty()).collect();
        reserved.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(reserved.into_iter().map(|(volume, view)| self.reservations_view(volume, view)).collect())
    }

    /// What hosts have reserved of a volume.
    ///
    /// # Errors
    /// As [`Array::volume`].
    pub fn show_reservations(&self, volume: &str) -> Result<api::Reservations, ArrayError> {
        let view = self.target().reservations(&*self.volume(volume)?);
        Ok(self.reservations_view(volume.to_owned(), view))
    }

    /// Removes all registrations and reservations of a volume, hardened on return; hosts that had any learn of it.
    ///
    /// # Errors
    /// As [`Array::volume`]; [`ReservationError`] while there are any, without `force`, or if the volume cannot harden it.
    pub async fn clear_reservations(&self, volume: &str, force: bool) -> Result<(), ArrayError> {
        let device = self.volume(volume)?;
        let volume = volume.to_owned();
        let may = |view: &ReservationsView| force || users_of(view).is_empty();
        // NOTE: without the turn of changes: this waits for hosts that change reservations, and those for writes.
        let cleared = self.target().clear_reservations(&device, may).await;
        let view = match cleared {
            Ok(view) if view.is_empty() => return Ok(()),
            Ok(view) => view,
            Err(error) => return Err(ReservationError::NotKept { volume, error }.into()),
        };
        let users = users_of(&view);
        if !force && !users.is_empty() {
            return Err(ReservationError::InUse { volume, users }.into());
        }
        let text = match (view.is_unreadable, users.as_slice()) {
            (true, _) => "reservations that could not be read cleared".to_owned(),
            (false, users) => format!("reservations cleared, by force: {}", users.join("; ")),
        };
        let kind = view.kind.map(kind_of);
        let told = Told::new(format!("volume {volume}"), shortened(&text))
            .without("reservation", kind)
            .change("registrations", view.registrations.len(), 0)
            .change("unreadable", view.is_unreadable, false);
        // It fences nobody any more.
        self.log().record_told(Severity::Warning, told);
        Ok(())
    }

    fn reservations_view(&self, volume: String, view: ReservationsView) -> api::Reservations {
        let registration = |one: RegistrationView| api::Registration {
            host: self.hosts().read().host_of(&one.initiator).map(|host| host.name.clone()),
            isid: hexadecimal(one.isid),
            portal_group: one.group,
            key: format!("{:#x}", one.key),
            holder: one.holds,
            connected: one.is_connected,
            initiator: one.initiator,
        };
        api::Reservations {
            volume,
            reservation: view.kind.map(kind_of),
            persists: view.is_kept,
            generation: view.generation,
            registrations: view.registrations.into_iter().map(registration).collect(),
            reserved_by: view.reserved_by,
            unreadable: view.is_unreadable,
        }
    }
}

/// Who loses something when it is cleared.
fn users_of(view: &ReservationsView) -> Vec<String> {
    let registered = view.registrations.iter().map(|one| {
        let holds = view.kind.filter(|_| one.holds).map(|kind| format!(" and holds {}", kind_of(kind)));
        format!("{} is registered with key {:#x}{}", one.initiator, one.key, holds.unwrap_or_default())
    });
    let reserved = view.reserved_by.iter().map(|initiator| format!("{initiator} has it by RESERVE"));
    registered.chain(reserved).collect()
}

fn kind_of(kind: Scsi) -> ReservationType {
    match kind {
        Scsi::WriteExclusive => ReservationType::WriteExclusive,
        Scsi::ExclusiveAccess => ReservationType::ExclusiveAccess,
        Scsi::WriteExclusiveRegistrantsOnly => ReservationType::WriteExclusiveRegistrantsOnly,
        Scsi::ExclusiveAccessRegistrantsOnly => ReservationType::ExclusiveAccessRegistrantsOnly,
        Scsi::WriteExclusiveAllRegistrants => ReservationType::WriteExclusiveAllRegistrants,
        Scsi::ExclusiveAccessAllRegistrants => ReservationType::ExclusiveAccessAllRegistrants,
    }
}

fn hexadecimal(bytes: [u8; 6]) -> String {
    bytes.iter().fold("0x".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}
