//! TLS: whom to trust, what to show, and the one place that knows rustls.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::hosts::{ClientCertificate, HostsError, Tls, Verify, read_file};

/// The longest file of certificates or of a key that is read, in bytes; all authorities that a system trusts are a
/// quarter of a MiB.
pub const CERTIFICATES_LENGTH_MAX: u64 = 8 << 20;

/// The certificates of the system and of the settings.
pub(crate) fn system_roots(ca_files: &[PathBuf]) -> Result<RootCertStore, HostsError> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    for error in native.errors {
        tracing::debug!(%error, "a certificate of the system cannot be read");
    }
    // A store of the system has now and then one that no library takes.
    roots.add_parsable_certificates(native.certs);
    ca_files.iter().try_for_each(|path| trust(&mut roots, path))?;
    Ok(roots)
}

/// What a connection with these settings trusts and shows.
pub(crate) fn client_config(system: &RootCertStore, tls: &Tls) -> Result<ClientConfig, HostsError> {
    let mut roots = system.clone();
    tls.ca.iter().try_for_each(|path| trust(&mut roots, path))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        // ring has the suites of both versions.
        .expect("the provider has what the versions need");
    let builder = match tls.verify {
        Verify::Yes => builder.with_root_certificates(roots),
        Verify::Skip => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate { provider }))
        }
    };
    match &tls.client {
        None => Ok(builder.with_no_client_auth()),
        Some(client) => {
            let (certificates, key) = identity(client)?;
            builder.with_client_auth_cert(certificates, key).map_err(|error| HostsError::Certificate {
                path: client.certificate.clone(),
                reason: format!("certificate and key cannot be used: {error}"),
            })
        }
    }
}

fn trust(roots: &mut RootCertStore, path: &Path) -> Result<(), HostsError> {
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| HostsError::Certificate {
            path: path.to_owned(),
            reason: format!("the certificate cannot be used: {error}"),
        })?;
    }
    Ok(())
}

fn identity(
    client: &ClientCertificate,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), HostsError> {
    let path = client.key.as_ref().unwrap_or(&client.certificate);
    let key = PrivateKeyDer::from_pem_slice(&read_file(path, CERTIFICATES_LENGTH_MAX)?).map_err(|_| {
        HostsError::Certificate {
            path: path.clone(),
            reason: "there should be a private key in PEM in it".to_owned(),
        }
    })?;
    Ok((certificates(&client.certificate)?, key))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, HostsError> {
    let text = read_file(path, CERTIFICATES_LENGTH_MAX)?;
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    parsed.ok().filter(|certificates| !certificates.is_empty()).ok_or_else(|| HostsError::Certificate {
        path: path.to_owned(),
        reason: "there should be certificates in PEM in it".to_owned(),
    })
}

/// Takes any certificate, as `skip_verify` asks for; that the other side has its key is checked all the same.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file without an end, such as a device, was read for ever.
    #[test]
    fn a_file_that_is_too_long_is_refused_by_its_name() {
        let tls = Tls { ca: vec!["/dev/zero".into()], ..Tls::default() };
        let error = client_config(&RootCertStore::empty(), &tls).expect_err("it has no end");
        assert_eq!(error.to_string(), format!("/dev/zero has more than {CERTIFICATES_LENGTH_MAX} bytes"));
    }
}
