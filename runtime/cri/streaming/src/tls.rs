//! TLS of the server.
//!
//! Owns: the certificate and its key as they are in their files, read again when those have changed. Never: goes on without what it
//! was told to ask of clients.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::settings::TlsSettings;

/// The largest file that is read, in bytes.
pub const PEM_BYTES_MAX: u64 = 1024 * 1024;

/// What keeps TLS from being set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read.
    #[error("{path} cannot be read", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file that holds something else.
    #[error("{path} has no {wanted} in PEM", path = path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it should have.
        wanted: &'static str,
    },
    /// Files that do not go together.
    #[error("{certificate} and {key} cannot be used", certificate = certificate.display(), key = key.display())]
    Pair {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// Certificates of authorities that are none.
    #[error("{path} has no certificate of an authority that can be used: {reason}", path = path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// TLS, ready for connections.
#[derive(Debug)]
pub(crate) struct Tls {
    settings: TlsSettings,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    stamps: Stamps,
    config: Arc<ServerConfig>,
}

/// When each of the files was changed last.
type Stamps = [Option<SystemTime>; 3];

impl Tls {
    /// Reads the files.
    pub(crate) fn load(settings: &TlsSettings) -> Result<Self, TlsError> {
        let current = Current { stamps: stamps(settings), config: read(settings)? };
        Ok(Self { settings: settings.clone(), current: Mutex::new(current) })
    }

    /// What the next connection is accepted with. Files that have changed and cannot be used are said in the log, and what was before
    /// goes on.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.settings);
        if stamps != current.stamps {
            current.stamps = stamps;
            match read(&self.settings) {
                Ok(config) => current.config = config,
                Err(error) => tracing::warn!(%error, "new files for the TLS of streams are not used"),
            }
        }
        Arc::clone(&current.config).into()
    }
}

fn stamps(settings: &TlsSettings) -> Stamps {
    let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    [
        changed(&settings.certificate),
        changed(&settings.key),
        settings.client_authorities.as_deref().and_then(changed),
    ]
}

fn read(settings: &TlsSettings) -> Result<Arc<ServerConfig>, TlsError> {
    let certificates = certificates(&settings.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&bytes(&settings.key)?)
        .map_err(|_| TlsError::Pem { path: settings.key.clone(), wanted: "private key" })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let pair = |source| TlsError::Pair {
        certificate: settings.certificate.clone(),
        key: settings.key.clone(),
        source,
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(pair)?;
    let builder = match &settings.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let unusable = |reason: String| TlsError::Authorities { path: path.clone(), reason };
            let mut roots = RootCertStore::empty();
            for authority in self::certificates(path)? {
                roots.add(authority).map_err(|error| unusable(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().map_err(|error| unusable(error.to_string()))?)
        }
    };
    let mut config = builder.with_single_cert(certificates, key).map_err(pair)?;
    // An upgrade is of HTTP/1.1 alone.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = bytes(path)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(TlsError::Pem { path: path.to_owned(), wanted: "certificate" }),
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>, TlsError> {
    use std::io::Read;
    let at = |source| TlsError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    fs::File::open(path).map_err(at)?.take(PEM_BYTES_MAX).read_to_end(&mut bytes).map_err(at)?;
    Ok(bytes)
}
