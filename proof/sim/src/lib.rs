//! The pool on a simulated world, seed by seed, against a model of what it must remember.
//!
//! A seed decides drives, options, load, faults and power cuts; [`run_seed`] runs it through several boots. The
//! model knows of every sector which writes its content may be of, and of the catalog which transactions took
//! effect. What the pool returns and the model does not allow is a violation, told with its history.
//!
//! Shows: I1, I2, I4, I5 and I7 of the pool on one node, over power cuts and kills at any step, recovery
//! included, failing, dying and lying drives. [`run_wire_seed`] does the same for whole sessions of hosts over a
//! simulated network. Does not show: races between instructions of two threads, which the simulated world does not
//! run in parallel.

mod boot;
#[cfg(feature = "planted-bugs")]
pub mod bugs;
mod choices;
mod client;
mod copies;
mod damage;
mod death;
mod excuse;
mod figures;
mod forks;
mod growing;
mod known;
mod leaving;
mod model;
mod policies;
mod reduce;
mod runner;
mod scenario;
mod scrubbing;
pub mod search;
mod seed;
mod stamp;
mod streams;
mod totals;
mod vanish;
mod wire;

pub use boot::problems_of;
pub use choices::{Choices, Faults, Load};
pub use figures::{Figures, write_figure};
pub use model::{History, OpId, Place, Window};
pub use runner::{Outcome, SeedArgs, Simulation, run_seeds};
pub use seed::run_seed;
pub use stamp::{Value, content};
pub use totals::Totals;
pub use wire::{WireTotals, run_wire_seed};
