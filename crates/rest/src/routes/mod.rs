//! The resources.

mod copy;
mod export;
mod folder;
mod group;
mod host;
mod mapping;
mod reserve;
mod schedule;
mod scrub;
mod snapshot;
mod space;
mod system;
mod volume;

use crate::server::Server;
use serde::Deserialize;
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
        .routes(routes!(folder::list))
        .routes(routes!(host::list, host::create))
        .routes(routes!(host::show, host::change, host::delete))
        .routes(routes!(mapping::list, mapping::create))
        .routes(routes!(mapping::delete))
        .routes(routes!(export::list, export::create))
        .routes(routes!(export::show, export::delete))
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
        .routes(routes!(reserve::show, reserve::set, reserve::delete))
        .routes(routes!(schedule::list, schedule::create))
        .routes(routes!(schedule::show, schedule::change, schedule::delete))
        .routes(routes!(schedule::run))
        .routes(routes!(group::list, group::create))
        .routes(routes!(group::show, group::delete))
        .routes(routes!(group::add))
        .routes(routes!(group::remove))
        .routes(routes!(group::snapshot))
        .routes(routes!(group::delete_set))
        .routes(routes!(group::restore))
        .routes(routes!(group::refresh))
        .routes(routes!(group::retain))
        .routes(routes!(scrub::show, scrub::change))
        .routes(routes!(scrub::start))
        .routes(routes!(scrub::stop))
        .routes(routes!(space::pool))
        .routes(routes!(space::volume))
        .routes(routes!(space::group))
}

/// Whether an object that is mapped may be deleted.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Deletion {
    /// Take away its mappings too; without it, an object that has any is not deleted.
    #[serde(default)]
    #[param(required = false)]
    unmap: bool,
}
