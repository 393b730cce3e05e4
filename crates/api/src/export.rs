//! Exports: volumes shown to NBD clients.

use crate::Access;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A volume to export to NBD clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportCreate {
    /// The volume.
    #[schema(example = "v1")]
    pub volume: String,
    /// The name that clients ask for; the volume's name if not given. 1 to 63 characters of a-z, 0-9, '.', '_' and
    /// '-', beginning with a letter or digit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "v1", min_length = 1, max_length = 63, pattern = "^[a-z0-9][a-z0-9._-]*$")]
    pub name: Option<String>,
    /// Clients may only read.
    #[serde(default)]
    #[schema(default = false)]
    pub read_only: bool,
    /// Clients may write, even to a snapshot that is read-only by default.
    #[serde(default)]
    #[schema(default = false)]
    pub writable: bool,
    /// Networks that clients may connect from. Empty: only this machine, or any network if `tls_clients` restricts
    /// access.
    #[serde(default)]
    #[schema(example = json!(["10.0.0.0/8"]))]
    pub allow: Vec<String>,
    /// Names of which a client's certificate must have one: in its DNS names, or as its common name if it has none.
    /// Empty: no certificate is required.
    #[serde(default)]
    #[schema(example = json!(["db1.example.com"]))]
    pub tls_clients: Vec<String>,
}

/// A volume exported to NBD clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Export {
    /// The name that clients ask for.
    #[schema(example = "v1")]
    pub name: String,
    /// The volume.
    #[schema(example = "v1")]
    pub volume: String,
    /// Whether clients may currently only read.
    pub read_only: bool,
    /// The access that the export sets.
    pub access: Access,
    /// Networks that clients may connect from.
    #[schema(example = json!(["10.0.0.0/8"]))]
    pub allow: Vec<String>,
    /// Names of which a client's certificate must have one.
    #[schema(example = json!(["db1.example.com"]))]
    pub tls_clients: Vec<String>,
    /// When it was created.
    pub created_ms: u64,
    /// The clients that are connected now.
    pub clients: Vec<ExportClient>,
}

/// A client connected to an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExportClient {
    /// Where the client connects from: an address, or the user and process at a Unix socket.
    #[schema(example = "127.0.0.1:40122")]
    pub peer: String,
    /// The name in the client's certificate; null if none was required.
    pub tls_client: Option<String>,
    /// True if the connection is encrypted.
    pub encrypted: bool,
    /// When it connected.
    pub since_ms: u64,
}
