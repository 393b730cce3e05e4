//! Errors as RFC 9457 problem details.

use crate::ProblemKind;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// The media type of a [`Problem`] (RFC 9457 §3).
pub const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";

/// Why a request was refused or failed: RFC 9457 problem details, extended by the parts of the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The kind of problem: stable, for programs; a URN such as `urn:quoin:problem:exists`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What happened, without the particulars: "volume not created".
    pub title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// The whole problem in one sentence, for people.
    pub detail: String,
    /// The object: "volume v1".
    pub which: String,
    /// Why.
    pub why: String,
    /// What to do next.
    pub next: String,
}

impl Problem {
    /// Returns a problem of this kind; `why` names the object by itself.
    pub fn new(
        kind: ProblemKind,
        title: impl Into<String>,
        which: impl Into<String>,
        why: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        let (title, which, why, next) = (title.into(), which.into(), why.into(), next.into());
        let detail = format!("{title}: {why}; {next}");
        Self { kind: kind.urn(), title, status: kind.status(), detail, which, why, next }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n  next: {}", self.title, self.why, self.next)
    }
}

impl std::error::Error for Problem {}
