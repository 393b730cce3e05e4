//! The kinds of problems: the word that programs go by, and the HTTP status.
//!
//! The word is the last part of the URN in [`Problem::kind`](crate::Problem), and stable. Some words stand for two
//! kinds, because HTTP has a status of its own for what went wrong with the body or the path of a request.

/// What kind of problem a request met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// Several objects fit the name.
    Ambiguous,
    /// The management interface works on as many requests as it takes at once.
    Busy,
    /// The request with this key was carried out, and what it made is gone.
    CarriedOut,
    /// The object is no longer what the change is based on.
    Changed,
    /// A running copy writes into the volume.
    CopiedInto,
    /// The item that the previous page ended with is gone.
    CursorGone,
    /// The change would discard data.
    DataLost,
    /// The group has no volumes, or the drive no data.
    Empty,
    /// An object with this name exists.
    Exists,
    /// There are as many exports as there may be.
    ExportsUsedUp,
    /// What the object is about was deleted.
    Gone,
    /// The group has as many volumes as it may have.
    GroupFull,
    /// The snapshot is immutable.
    Immutable,
    /// The volume is in a consistency group.
    InGroup,
    /// The request with this key is being carried out.
    InProgress,
    /// The snapshot belongs to a set.
    InSet,
    /// Hosts or clients use the object.
    InUse,
    /// The initiator belongs to another host.
    InitiatorTaken,
    /// A defect of the software.
    Internal,
    /// The request asks for something that cannot be.
    Invalid,
    /// The path of the request is not well-formed.
    InvalidPath,
    /// Source and target are the same.
    Itself,
    /// Another request has this key.
    KeyReused,
    /// A command failed where it runs.
    Local,
    /// Another volume has the LUN.
    LunTaken,
    /// The host has as many mappings as it may have.
    LunsUsedUp,
    /// The path does not answer to the method.
    Method,
    /// The snapshot was written to after it was taken.
    Modified,
    /// The volume is not a snapshot.
    NoSnapshot,
    /// The volume that the object came from was deleted.
    NoSource,
    /// The pool has too little space.
    NoSpace,
    /// The job cannot be cancelled.
    NotCancellable,
    /// The drive is not an emulated one.
    NotEmulated,
    /// No object has the name.
    NotFound,
    /// The body is not one JSON object.
    NotJson,
    /// The pool is not open.
    NotReady,
    /// The volume is neither compressed nor deduplicated.
    NotReduced,
    /// Nothing runs that could be stopped.
    NotRunning,
    /// The set does not match its group.
    NotWhole,
    /// The pool is offline.
    Offline,
    /// The volumes have different logical blocks.
    OtherBlock,
    /// The pool failed.
    Pool,
    /// The volume is read-only.
    ReadOnly,
    /// It runs already.
    Running,
    /// The array stopped before the change was done.
    Stopping,
    /// The volume is a template.
    Template,
    /// The body did not arrive in time.
    Timeout,
    /// The body is too large.
    TooLarge,
    /// There are as many as there may be.
    TooMany,
    /// The volume is too small.
    TooSmall,
    /// The former tail of the volume is still being given back.
    Trimming,
    /// The token is missing or wrong.
    Unauthorized,
    /// The array cannot listen at the address.
    Unavailable,
    /// The change has effects that must be confirmed.
    Unconfirmed,
    /// This version cannot read an object in the catalog.
    Unreadable,
    /// The body did not arrive whole.
    UnreadableBody,
    /// The request does not say that its body is JSON.
    UnsupportedMediaType,
    /// The command line is wrong.
    Usage,
}

impl ProblemKind {
    /// Returns the URN, for programs: `urn:quoin:problem:exists`.
    pub fn urn(self) -> String {
        format!("urn:quoin:problem:{}", self.word())
    }

    /// Returns the last part of the URN, such as `exists`.
    pub const fn word(self) -> &'static str {
        self.row().0
    }

    /// Returns the HTTP status (RFC 9110 §15).
    pub const fn status(self) -> u16 {
        self.row().1
    }

    /// Returns the word and the HTTP status. No other place pairs a kind with a status.
    const fn row(self) -> (&'static str, u16) {
        match self {
            Self::Ambiguous => ("ambiguous", 409),
            Self::Busy => ("busy", 503),
            Self::CarriedOut => ("carried-out", 409),
            Self::Changed => ("changed", 412),
            Self::CopiedInto => ("copied-into", 409),
            Self::CursorGone => ("cursor-gone", 409),
            Self::DataLost => ("data-lost", 409),
            Self::Empty => ("empty", 409),
            Self::Exists => ("exists", 409),
            Self::ExportsUsedUp => ("exports-used-up", 409),
            Self::Gone => ("gone", 409),
            Self::GroupFull => ("group-full", 409),
            Self::Immutable => ("immutable", 409),
            Self::InGroup => ("in-group", 409),
            Self::InProgress => ("in-progress", 409),
            Self::InSet => ("in-set", 409),
            Self::InUse => ("in-use", 409),
            Self::InitiatorTaken => ("initiator-taken", 409),
            Self::Internal => ("internal", 500),
            Self::Invalid => ("invalid", 422),
            Self::InvalidPath => ("invalid", 400),
            Self::Itself => ("itself", 409),
            Self::KeyReused => ("key-reused", 422),
            Self::Local => ("local", 500),
            Self::LunTaken => ("lun-taken", 409),
            Self::LunsUsedUp => ("luns-used-up", 409),
            Self::Method => ("method", 405),
            Self::Modified => ("modified", 409),
            Self::NoSnapshot => ("no-snapshot", 409),
            Self::NoSource => ("no-source", 409),
            Self::NoSpace => ("no-space", 507),
            Self::NotCancellable => ("not-cancellable", 409),
            Self::NotEmulated => ("not-emulated", 409),
            Self::NotFound => ("not-found", 404),
            Self::NotJson => ("not-json", 400),
            Self::NotReady => ("not-ready", 503),
            Self::NotReduced => ("not-reduced", 409),
            Self::NotRunning => ("not-running", 409),
            Self::NotWhole => ("not-whole", 409),
            Self::Offline => ("offline", 503),
            Self::OtherBlock => ("other-block", 409),
            Self::Pool => ("pool", 500),
            Self::ReadOnly => ("read-only", 409),
            Self::Running => ("running", 409),
            Self::Stopping => ("stopping", 503),
            Self::Template => ("template", 409),
            Self::Timeout => ("timeout", 408),
            Self::TooLarge => ("too-large", 413),
            Self::TooMany => ("too-many", 409),
            Self::TooSmall => ("too-small", 409),
            Self::Trimming => ("trimming", 409),
            Self::Unauthorized => ("unauthorized", 401),
            Self::Unavailable => ("unavailable", 409),
            Self::Unconfirmed => ("unconfirmed", 409),
            Self::Unreadable => ("unreadable", 500),
            Self::UnreadableBody => ("unreadable", 400),
            Self::UnsupportedMediaType => ("not-json", 415),
            Self::Usage => ("usage", 400),
        }
    }
}
