//! Exports: volumes shown to NBD clients.

use crate::Access;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A volume to show to NBD clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportCreate {
    /// The volume.
    #[schema(example = "v1")]
    pub volume: String,
    /// The name clients ask for; the volume's if it is not given. 1 to 63 characters of a-z, 0-9, '.', '_' and '-',
    /// beginning with a letter or digit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "v1", min_length = 1, max_length = 63, pattern = "^[a-z0-9][a-z0-9._-]*$")]
    pub name: Option<String>,
    /// Clients may only read.
    #[serde(default)]
    #[schema(default = false)]
    pub read_only: bool,
    /// Clients may write, also to a snapshot that is read-only for others.
    #[serde(default)]
    #[schema(default = false)]
    pub writable: bool,
    /// Networks clients may come from. None: this machine only, or any network if `tls_clients` says who may come.
    #[serde(default)]
    #[schema(example = json!(["10.0.0.0/8"]))]
    pub allow: Vec<String>,
    /// Names of which a client's certificate must bear one: its DNS names, or its common name if it has none. None: no
    /// certificate is asked for.
    #[serde(default)]
    #[schema(example = json!(["db1.example.com"]))]
    pub tls_clients: Vec<String>,
}

/// A volume shown to NBD clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Export {
    /// The name clients ask for.
    #[schema(example = "v1")]
    pub name: String,
    /// The volume.
    #[schema(example = "v1")]
    pub volume: String,
    /// Clients may only read, as things are now.
    pub read_only: bool,
    /// What the export says that clients may do.
    pub access: Access,
    /// Networks clients may come from.
    #[schema(example = json!(["10.0.0.0/8"]))]
    pub allow: Vec<String>,
    /// Names of which a client's certificate must bear one.
    #[schema(example = json!(["db1.example.com"]))]
    pub tls_clients: Vec<String>,
    /// When it was created.
    pub created_ms: u64,
    /// The clients connected now.
    pub clients: Vec<ExportClient>,
}

/// A client connected to an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExportClient {
    /// Where it comes from: an address, or the user and process at a Unix socket.
    #[schema(example = "127.0.0.1:40122")]
    pub peer: String,
    /// The name it proved by certificate; null if it was asked for none.
    pub tls_client: Option<String>,
    /// True if the connection is encrypted.
    pub encrypted: bool,
    /// When it connected.
    pub since_ms: u64,
}
