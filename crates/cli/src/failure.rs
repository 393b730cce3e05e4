//! How a command fails.

use quoin_api::{Problem, ProblemKind};
use std::fmt;

/// A command that failed: its problem, and its exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What, which object, why, what next.
    pub problem: Box<Problem>,
    /// 1 for a failure, 2 for a wrong command line.
    pub exit_code: u8,
}

impl Failure {
    /// Something did not work: exit code 1.
    pub fn new(
        title: impl Into<String>,
        which: impl Into<String>,
        why: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Problem::new(ProblemKind::Local, title, which, why, next).into()
    }

    /// The command line is wrong: exit code 2.
    pub fn usage(title: impl Into<String>, why: impl Into<String>, next: impl Into<String>) -> Self {
        let problem = Problem::new(ProblemKind::Usage, title, "the command line", why, next);
        Self { problem: Box::new(problem), exit_code: 2 }
    }
}

impl Failure {
    /// True if the array answered that it refuses the request: a retry is no use.
    pub(crate) fn is_refusal(&self) -> bool {
        (400..500).contains(&self.problem.status)
    }

    /// The problem as JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(&self.problem).unwrap_or_else(|_| self.to_string())
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self { problem: Box::new(problem), exit_code: 1 }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.problem)
    }
}

impl std::error::Error for Failure {}
