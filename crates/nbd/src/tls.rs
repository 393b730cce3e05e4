//! TLS: the server's certificate, and whose certificates it believes.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};
use thiserror::Error;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
        server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    },
};
use x509_parser::{
    extensions::GeneralName,
    prelude::{FromDer, X509Certificate},
};

/// Why TLS could not be set up.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("cannot read {what} from {}: {source}", path.display())]
    File {
        /// What it should hold.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// The cause.
        source: pem::Error,
    },
    /// A file holds no certificate.
    #[error("{} holds no certificate", path.display())]
    NoCertificate {
        /// Which.
        path: PathBuf,
    },
    /// Certificate, key or authorities do not fit.
    #[error("{0}")]
    Refused(String),
}

/// What connections are encrypted with.
#[derive(Clone)]
pub struct Tls(pub(crate) TlsAcceptor);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the server's certificate chain and its key, and if clients shall prove who they are, the authorities
    /// that vouch for them; all PEM. With authorities, a client without a certificate of one of them is refused.
    ///
    /// # Errors
    /// A file that cannot be read or does not fit.
    pub fn load(certificate: &Path, key: &Path, client_authorities: Option<&Path>) -> Result<Tls, TlsError> {
        let refused = |error: &dyn fmt::Display| TlsError::Refused(error.to_string());
        let chain = certificates(certificate)?;
        let key_der = PrivateKeyDer::from_pem_file(key).map_err(|source| TlsError::File {
            what: "the private key",
            path: key.to_owned(),
            source,
        })?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(&error))?;
        let builder = match client_authorities {
            None => builder.with_no_client_auth(),
            Some(path) => builder.with_client_cert_verifier(verifier(path, provider)?),
        };
        let config = builder.with_single_cert(chain, key_der).map_err(|error| {
            refused(&format!("{} and {} do not fit: {error}", certificate.display(), key.display()))
        })?;
        Ok(Tls(TlsAcceptor::from(Arc::new(config))))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let file = |source| TlsError::File { what: "a certificate", path: path.to_owned(), source };
    let found: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(file)?.collect::<Result<_, _>>().map_err(file)?;
    if found.is_empty() { Err(TlsError::NoCertificate { path: path.to_owned() }) } else { Ok(found) }
}

fn verifier(
    path: &Path,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let refused = |error: &dyn fmt::Display| TlsError::Refused(format!("{}: {error}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| refused(&error))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| refused(&error))
}

/// The names a certificate bears, in lower case: its DNS names, or the common name of one that has none.
pub(crate) fn names(certificate: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let dns: Vec<_> = alternative
        .iter()
        .flat_map(|extension| &extension.value.general_names)
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_lowercase()),
            _ => None,
        })
        .collect();
    if !dns.is_empty() {
        return dns;
    }
    let common = certificate.subject().iter_common_name();
    common.filter_map(|name| name.as_str().ok()).map(str::to_lowercase).collect()
}
