//! TLS, and certificates that change.

use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::fakes::{Fake, PIPES, Script};
use super::soon;
use crate::backend::Exit;
use crate::testing::request_over;
use crate::testing::spdy::SpdyClient;
use crate::{BindError, Server, StreamingSettings, TlsError, TlsSettings};

struct Authority {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("signed");
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    fn issue(&self, usage: ExtendedKeyUsagePurpose) -> (rcgen::Certificate, KeyPair) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.issuer).expect("signed"), key)
    }

    /// Writes the files of a server.
    fn write(&self, directory: &Path) -> TlsSettings {
        let (certificate, key) = self.issue(ExtendedKeyUsagePurpose::ServerAuth);
        let write = |name: &str, text: String| {
            let path = directory.join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        TlsSettings {
            certificate: write("certificate.pem", certificate.pem()),
            key: write("key.pem", key.serialize_pem()),
            client_authorities: Some(write("clients.pem", self.certificate.pem())),
        }
    }

    /// A client that trusts this authority, with a certificate of its own or none.
    async fn connect(&self, server: &Server, has_certificate: bool) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).expect("an authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let config = if has_certificate {
            let (certificate, key) = self.issue(ExtendedKeyUsagePurpose::ClientAuth);
            let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
            let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
            builder.with_client_auth_cert(chain, key).expect("a pair")
        } else {
            builder.with_no_client_auth()
        };
        let stream = TcpStream::connect(server.address()).await?;
        let name = ServerName::try_from("127.0.0.1").expect("a name");
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }
}

async fn hello(server: &Server, stream: TlsStream<TcpStream>) -> String {
    let script = Script::Cat { exit: Exit::Code(0) };
    let url = server.exec(Fake::new(script).0, PIPES).expect("issued");
    let path = url.strip_prefix(&format!("https://{}/", server.address())).expect("a URL of this server");
    let headers = [
        ("Connection", "Upgrade"),
        ("Upgrade", "SPDY/3.1"),
        ("X-Stream-Protocol-Version", "v4.channel.k8s.io"),
    ];
    let (stream, _) = request_over(stream, "POST", path, &headers).await.expect("upgraded");
    let (reading, writing) = tokio::io::split(stream);
    let mut client = SpdyClient::over(reading, writing);
    let streams = client.open_process(&["error", "stdin", "stdout", "stderr"]).await;
    client.writer.data(streams[1], b"hello", true).await;
    soon(client.reader.collect()).await.text(streams[2])
}

#[tokio::test]
async fn streams_are_served_over_tls_to_clients_with_a_certificate_and_new_files_are_used() {
    let (directory, authority) = (TempDir::new().expect("a directory"), Authority::new());
    let tls = Some(authority.write(directory.path()));
    let server =
        Server::bind(&StreamingSettings { tls, ..StreamingSettings::default() }).await.expect("bound");
    let stream = authority.connect(&server, true).await.expect("connected");
    assert_eq!(hello(&server, stream).await, "hello");
    // TLS 1.3 tells a client that it is refused with the first bytes that it reads.
    if let Ok(mut stream) = authority.connect(&server, false).await {
        use tokio::io::AsyncReadExt;
        assert!(stream.read_u8().await.is_err(), "a client without a certificate is not let in");
    }
    let next = Authority::new();
    next.write(directory.path());
    assert!(
        authority.connect(&server, true).await.is_err(),
        "the old authority has not signed the new files"
    );
    let stream = next.connect(&server, true).await.expect("connected");
    assert_eq!(hello(&server, stream).await, "hello");
    // Files that cannot be used change nothing.
    std::fs::write(directory.path().join("key.pem"), "nonsense").expect("written");
    let stream = next.connect(&server, true).await.expect("connected");
    assert_eq!(hello(&server, stream).await, "hello");
}

#[tokio::test]
async fn files_that_are_missing_or_wrong_are_told_apart() {
    let (directory, authority) = (TempDir::new().expect("a directory"), Authority::new());
    let tls = authority.write(directory.path());
    let bind = async |tls: TlsSettings| {
        Server::bind(&StreamingSettings { tls: Some(tls), ..StreamingSettings::default() }).await
    };
    let missing = bind(TlsSettings { certificate: directory.path().join("none"), ..tls.clone() }).await;
    assert!(matches!(missing, Err(BindError::Tls(TlsError::Read { .. }))), "{missing:?}");
    let no_key = bind(TlsSettings { key: tls.certificate.clone(), ..tls.clone() }).await;
    assert!(matches!(no_key, Err(BindError::Tls(TlsError::Pem { wanted: "private key", .. }))), "{no_key:?}");
    let other = TempDir::new().expect("a directory");
    let other = Authority::new().write(other.path()).key;
    // It is gone with its directory; another one that is there does not belong to the certificate.
    assert!(bind(TlsSettings { key: other, ..tls }).await.is_err());
}
