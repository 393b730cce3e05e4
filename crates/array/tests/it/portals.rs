//! Portals, as management sets them: where the array listens, and what becomes of it over a restart.

use crate::lab::{Lab, newest};
use quoin_api::{PortalCreate, PortalState, PortalUpdate, Severity};
use quoin_array::{Array, ArrayError, Listen, Portal, PortalError};
use quoin_world::Task;
use serde_json::json;
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

/// A machine with addresses, and what listens at them.
#[derive(Default)]
struct Machine {
    lacks: Mutex<BTreeSet<SocketAddr>>,
    serves: Mutex<Vec<(String, u16)>>,
}

struct FrontEnd {
    machine: Arc<Machine>,
    configured: Vec<SocketAddr>,
}

impl Listen for FrontEnd {
    fn configured(&self) -> Vec<SocketAddr> {
        self.configured.clone()
    }

    fn listen(&self, address: SocketAddr) -> Result<(), String> {
        let has = !self.machine.lacks.lock().unwrap().contains(&address);
        has.then_some(()).ok_or_else(|| "this machine does not have the address".to_owned())
    }

    fn serve(&self, portals: Vec<Portal>) -> Task {
        let rows = portals.into_iter().map(|portal| (portal.address.to_string(), portal.group)).collect();
        *self.machine.serves.lock().unwrap() = rows;
        Box::pin(async {})
    }
}

impl Machine {
    fn serves(&self) -> Vec<(String, u16)> {
        self.serves.lock().unwrap().clone()
    }

    fn start(self: &Arc<Self>, lab: &Lab, configured: &[&str]) -> Arc<Array> {
        let configured = configured.iter().map(|address| address.parse().unwrap()).collect();
        lab.start_with(Box::new(FrontEnd { machine: self.clone(), configured }))
    }
}

fn at(address: &str, group: u16) -> (String, u16) {
    (address.to_owned(), group)
}

fn create(address: &str) -> PortalCreate {
    PortalCreate { address: address.to_owned() }
}

const ENABLE: PortalUpdate = PortalUpdate { enabled: true, force: false };
const DISABLE: PortalUpdate = PortalUpdate { enabled: false, force: false };
const FIRST: &str = "10.0.0.5:3260";
const SECOND: &str = "10.0.1.5:3260";
const THIRD: &str = "10.0.2.5:3260";

#[test]
fn portals_that_were_created_and_disabled_are_so_after_a_restart() {
    let (lab, machine) = (Lab::new(), Arc::new(Machine::default()));
    let array = machine.start(&lab, &[FIRST]);
    lab.on_array(&array, async |array| {
        let created = array.create_portal(create("10.0.1.5")).await.unwrap();
        assert_eq!((created.address.as_str(), created.portal_group, created.configured), (SECOND, 2, false));
        assert_eq!(newest(&array, "portal_group").1, Some((json!(null), json!(2))));
        let refused = array.create_portal(create(FIRST)).await.unwrap_err();
        assert!(matches!(refused, ArrayError::Portal(PortalError::Exists { .. })), "{refused}");
        array.create_portal(create(THIRD)).await.unwrap();
        array.set_portal(SECOND, DISABLE).await.unwrap();
        assert_eq!(newest(&array, "enabled").1, Some((json!(true), json!(false))));
    });
    let served = [at(FIRST, 1), at(THIRD, 3)];
    assert_eq!(machine.serves(), served);
    lab.stop(array);
    let array = machine.start(&lab, &[FIRST]);
    assert_eq!(machine.serves(), served);
    assert_eq!(array.status().portals, [FIRST, THIRD]);
    assert_eq!(array.show_portal(SECOND).unwrap().state, PortalState::Disabled);
    lab.on_array(&array, async |array| {
        assert_eq!(array.set_portal(SECOND, ENABLE).await.unwrap().portal_group, 2);
        array.delete_portal(THIRD, false).await.unwrap();
        let refused = array.delete_portal(FIRST, true).await.unwrap_err();
        assert!(matches!(refused, ArrayError::Portal(PortalError::Configured { .. })), "{refused}");
        assert!(array.set_portal(THIRD, ENABLE).await.is_err());
    });
    assert_eq!(machine.serves(), [at(FIRST, 1), at(SECOND, 2)]);
    lab.stop(array);
    // Another order of the configuration, and one of them was there already.
    let array = machine.start(&lab, &[THIRD, SECOND, FIRST]);
    assert_eq!(machine.serves(), [at(FIRST, 1), at(SECOND, 2), at(THIRD, 3)]);
    lab.stop(array);
}

#[test]
fn an_address_that_the_machine_lacks_is_refused_and_waited_for_after_a_restart() {
    let (lab, machine) = (Lab::new(), Arc::new(Machine::default()));
    let array = machine.start(&lab, &[FIRST]);
    let second: SocketAddr = SECOND.parse().unwrap();
    let lacks = |lacks: bool| {
        *machine.lacks.lock().unwrap() = lacks.then_some(second).into_iter().collect();
    };
    lacks(true);
    lab.on_array(&array, async |array| {
        let refused = array.create_portal(create(SECOND)).await.unwrap_err();
        assert!(matches!(refused, ArrayError::Portal(PortalError::Unavailable { .. })), "{refused}");
    });
    lacks(false);
    lab.on_array(&array, async |array| drop(array.create_portal(create(SECOND)).await.unwrap()));
    lab.stop(array);
    lacks(true);
    let array = machine.start(&lab, &[FIRST]);
    let shown = array.show_portal(SECOND).unwrap();
    assert_eq!((shown.state, array.status().portals), (PortalState::Down, vec![FIRST.to_owned()]));
    assert_eq!(shown.problem.as_deref(), Some("this machine does not have the address"));
    let told = array.events(quoin_array::EventSelection::default());
    let told = told.iter().find(|event| event.object == format!("portal {SECOND}")).unwrap();
    assert_eq!(told.severity, Severity::Warning, "{told:?}");
    lacks(false);
    while array.show_portal(SECOND).unwrap().state != PortalState::Up {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(machine.serves(), [at(FIRST, 1), at(SECOND, 2)]);
    lab.stop(array);
}
