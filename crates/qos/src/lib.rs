//! Quality of service: limits of IOPS and bandwidth.
//!
//! A [`Throttle`] belongs to a volume. It keeps the volume's own limits, and those of a [`Share`] that several volumes have
//! together. A front end asks it before it takes a request on, so a request that has to wait holds nothing but its place:
//! no memory for data, no turn at a drive.
//!
//! ```text
//! session ── Line ─┐
//! session ── Line ─┴─ Throttle (volume) ─┐
//! session ── Line ─── Throttle (volume) ─┴─ Share (consistency group)
//! ```
//!
//! 1. Requests of one line pass in the order in which they came.
//! 2. Lines of a volume, and volumes of a share, that wait have equal parts of what the limit lets through, however many
//!    requests each has waiting.
//! 3. In any time `t`, a limit lets through no more than `rate × (t + burst)` and one request.
//! 4. A limit leaves nothing unused: while requests wait for it, it lets through all that it may.
//! 5. Limits change while requests wait. What was taken beyond the old rate is paid off at the new one.
//!
//! Where no limit is set, a request costs one atomic load.

mod limits;
mod line;
mod meter;
mod share;
mod throttle;

pub use limits::{Cost, Limits, Rate};
pub use line::{Crowd, Line};
pub use share::Share;
pub use throttle::{Throttle, ThrottleView};
