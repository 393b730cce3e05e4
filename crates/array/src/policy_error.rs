//! Why requests about policies were refused, and the problem reported to clients.

use quoin_api::{DEFAULT_POLICY, NextStep as Next, Problem, ProblemKind as Kind};
use quoin_volume::BadName;
use thiserror::Error;

/// Why a request about policies was refused. [`PolicyError::problem`] adds what to do next.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum PolicyError {
    /// The name breaks the rules for names.
    #[error(transparent)]
    Name(BadName),
    /// Neither a layout nor failures to tolerate are given, or both.
    #[error("policy {name}: give either a layout or the failures to tolerate")]
    OneOfTwo {
        /// Its name.
        name: String,
    },
    /// The layout is none.
    #[error("policy {name}: {why}")]
    Layout {
        /// Its name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The pool cannot place it.
    #[error("policy {name}: {why}")]
    Lacks {
        /// Its name.
        name: String,
        /// What the pool lacks.
        why: String,
        /// It could be placed in part.
        may_force: bool,
    },
    /// The name is taken.
    #[error("policy {name} already exists")]
    Exists {
        /// The name.
        name: String,
    },
    /// There are as many as there may be.
    #[error("there are {most} policies, the maximum")]
    TooMany {
        /// How many there may be.
        most: usize,
    },
    /// No policy has the name.
    #[error("policy {name} does not exist")]
    NotFound {
        /// The name asked for.
        name: String,
    },
    /// The default policy cannot be changed.
    #[error("policy {DEFAULT_POLICY} has the layout of the pool, which was chosen when the pool was made")]
    IsDefault,
    /// Volumes have it.
    #[error(
        "policy {name} is that of {volumes} volumes, snapshots and clones, deleted ones in the recycle bin included"
    )]
    InUse {
        /// The policy.
        name: String,
        /// How many have it.
        volumes: u64,
    },
}

impl PolicyError {
    /// Returns the problem as reported to clients.
    pub fn problem(&self) -> Problem {
        let (not_set, of) = ("policy not set", |name: &str| format!("policy {name}"));
        let (kind, title, which, next) = match self {
            Self::Name(bad) => {
                (Kind::Invalid, not_set, format!("policy {:?}", bad.name), Next::ChooseAnotherName)
            }
            Self::OneOfTwo { name } | Self::Layout { name, .. } => {
                (Kind::Invalid, not_set, of(name), Next::GiveLayout)
            }
            Self::Lacks { name, may_force: true, .. } => {
                (Kind::Invalid, not_set, of(name), Next::ChooseLayout)
            }
            Self::Lacks { name, .. } => (Kind::Invalid, not_set, of(name), Next::ChooseAllowedLayout),
            Self::Exists { name } => (Kind::Exists, not_set, of(name), Next::ChooseAnotherName),
            Self::TooMany { .. } => (Kind::TooMany, not_set, "another policy".to_owned(), Next::ListPolicies),
            Self::NotFound { name } => (Kind::NotFound, "no such policy", of(name), Next::ListPolicies),
            Self::IsDefault => (Kind::Invalid, not_set, of(DEFAULT_POLICY), Next::UseAnotherPolicy),
            Self::InUse { name, .. } => {
                (Kind::InUse, "policy not deleted", of(name), Next::AssignOtherPolicy)
            }
        };
        Problem::new(kind, title, which, self.to_string(), next)
    }
}
