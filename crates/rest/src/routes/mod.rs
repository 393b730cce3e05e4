//! The resources.

mod copy;
mod drive;
mod export;
mod folder;
mod group;
mod host;
mod job;
mod mapping;
mod policy;
mod pool;
mod portal;
mod qos;
mod rebuild;
mod recycle_bin;
mod reservation;
mod reserve;
mod schedule;
mod scrub;
mod snapshot;
mod space;
mod system;
mod volume;

use crate::server::Server;
use axum::{
    http::{StatusCode, header::LOCATION},
    response::{IntoResponse, Json, Response},
};
use quoin_api::BASE_PATH;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};

/// All of them, relative to the base path.
pub(crate) fn all() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(system::status))
        .routes(routes!(system::stats))
        .routes(routes!(system::events))
        .routes(routes!(system::sessions))
        .routes(routes!(volume::list, volume::create))
        .routes(routes!(volume::show, volume::change, volume::delete))
        .routes(routes!(volume::reduce))
        .routes(routes!(volume::unreadable))
        .routes(routes!(folder::list))
        .merge(hosts())
        .routes(routes!(snapshot::list, snapshot::create))
        .routes(routes!(snapshot::show, snapshot::delete))
        .routes(routes!(snapshot::restore))
        .routes(routes!(snapshot::refresh))
        .routes(routes!(snapshot::promote))
        .routes(routes!(snapshot::retain))
        .routes(routes!(snapshot::clone))
        .routes(routes!(copy::create))
        .routes(routes!(copy::list))
        .routes(routes!(copy::show, copy::cancel))
        .merge(qos::routes())
        .routes(routes!(reserve::list))
        .routes(routes!(reserve::show, reserve::set, reserve::delete))
        .routes(routes!(reserve::preview))
        .routes(routes!(reserve::show_volume, reserve::set_volume, reserve::delete_volume))
        .routes(routes!(reserve::preview_volume))
        .routes(routes!(reserve::show_group, reserve::set_group, reserve::delete_group))
        .routes(routes!(reserve::preview_group))
        .routes(routes!(recycle_bin::show, recycle_bin::set))
        .routes(routes!(recycle_bin::list))
        .routes(routes!(recycle_bin::show_volume, recycle_bin::purge))
        .routes(routes!(recycle_bin::restore))
        .routes(routes!(schedule::list, schedule::create))
        .routes(routes!(schedule::show, schedule::change, schedule::delete))
        .routes(routes!(schedule::run))
        .routes(routes!(policy::list, policy::create))
        .routes(routes!(policy::show, policy::change, policy::delete))
        .merge(groups())
        .routes(routes!(job::list))
        .routes(routes!(job::show, job::cancel))
        .routes(routes!(scrub::show, scrub::change))
        .routes(routes!(scrub::start))
        .routes(routes!(scrub::stop))
        .merge(drives())
        .routes(routes!(pool::show, pool::change))
        .routes(routes!(pool::expand))
        .routes(routes!(space::pool))
        .routes(routes!(space::history))
        .routes(routes!(space::forecast))
        .routes(routes!(space::volume))
        .routes(routes!(space::group))
}

fn hosts() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(host::list, host::create))
        .routes(routes!(host::show, host::change, host::delete))
        .routes(routes!(mapping::list, mapping::create))
        .routes(routes!(mapping::show, mapping::change, mapping::delete))
        .routes(routes!(export::list, export::create))
        .routes(routes!(export::show, export::change, export::delete))
        .merge(portal::routes())
        .merge(reservation::routes())
}

fn groups() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(group::list, group::create))
        .routes(routes!(group::show, group::change, group::delete))
        .routes(routes!(group::add))
        .routes(routes!(group::remove))
        .routes(routes!(group::snapshot))
        .routes(routes!(group::show_set, group::delete_set))
        .routes(routes!(group::restore))
        .routes(routes!(group::refresh))
        .routes(routes!(group::retain))
}

fn drives() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(drive::list, drive::add))
        .routes(routes!(drive::show))
        .routes(routes!(drive::fail))
        .routes(routes!(drive::evacuate, drive::cancel_evacuation))
        .routes(routes!(drive::remove))
        .routes(routes!(drive::replace))
        .routes(routes!(rebuild::show, rebuild::change))
        .routes(routes!(rebuild::start_balance))
        .routes(routes!(rebuild::stop_balance))
        .routes(routes!(drive::emulate))
}

/// Whether something is done although hosts that see it are logged in.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Forced {
    /// Do it although hosts or clients use it: they are logged in, or have reserved it.
    #[serde(default)]
    #[param(required = false)]
    force: bool,
}

/// Something that was made, and where it is: below the base path.
pub(crate) struct Created<T> {
    at: String,
    body: T,
}

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        let location = [(LOCATION, format!("{BASE_PATH}{}", self.at))];
        (StatusCode::CREATED, location, Json(self.body)).into_response()
    }
}
