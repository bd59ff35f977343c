//! TLS: authorities of our own, client certificates, and hosts on this machine.

mod world;

use std::path::Path;
use std::sync::Arc;

use mainstay_registry::{Problem, RegistryError, Settings};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use world::content::Content;
use world::stub::{Reply, Stub};
use world::{finish, open, settings, settings_with};

/// An authority, a server that it vouches for, and a client that it vouches for.
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

    fn issue(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> (rcgen::Certificate, KeyPair) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.issuer).expect("signed"), key)
    }

    /// A server at 127.0.0.1, which wants a client certificate or not.
    fn server(&self, clients: Clients) -> ServerConfig {
        let (certificate, key) = self.issue("127.0.0.1", ExtendedKeyUsagePurpose::ServerAuth);
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("versions");
        let builder = match clients {
            Clients::Anybody => builder.with_no_client_auth(),
            Clients::Known => {
                let mut roots = RootCertStore::empty();
                roots.add(self.certificate.der().clone()).expect("an authority");
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
            }
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        builder.with_single_cert(chain, key).expect("a pair")
    }
}

enum Clients {
    Anybody,
    Known,
}

async fn stub(tls: ServerConfig) -> Stub {
    let mut content = Content::default();
    content.image("latest");
    Stub::start_on("127.0.0.1", Some(tls), move |request| content.serve(request)).await
}

fn hosts(stub: &Stub, text: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a directory");
    let dir = root.path().join(format!("127.0.0.1_{}_", stub.address.port()));
    std::fs::create_dir_all(&dir).expect("made");
    std::fs::write(dir.join("hosts.toml"), text).expect("written");
    root
}

fn write(root: &tempfile::TempDir, name: &str, text: &str) {
    let dir =
        std::fs::read_dir(root.path()).expect("readable").next().expect("one").expect("readable").path();
    std::fs::write(dir.join(name), text).expect("written");
}

async fn resolve(stub: &Stub, settings: Settings) -> Result<(), RegistryError> {
    let (repository, _) = open(settings, &stub.name("a/b"), None).await;
    finish("the answer", repository.resolve()).await.map(|_| ())
}

fn with(root: &Path) -> Settings {
    settings_with(root)
}

#[tokio::test]
async fn an_authority_of_our_own_is_trusted_where_it_is_named() {
    let authority = Authority::new();
    let stub = stub(authority.server(Clients::Anybody)).await;
    let named = hosts(&stub, "ca = \"ca.pem\"");
    write(&named, "ca.pem", &authority.certificate.pem());
    resolve(&stub, with(named.path())).await.expect("trusted");
    let unknown = hosts(&stub, "skip_verify = false");
    let error = resolve(&stub, with(unknown.path())).await.expect_err("not trusted");
    assert!(matches!(*error.problem, Problem::Tls { .. }), "{error}");
    let other = hosts(&stub, "ca = \"ca.pem\"");
    write(&other, "ca.pem", &Authority::new().certificate.pem());
    let error = resolve(&stub, with(other.path())).await.expect_err("another authority");
    assert!(matches!(*error.problem, Problem::Tls { .. }), "{error}");
    let skipping = hosts(&stub, "skip_verify = true");
    resolve(&stub, with(skipping.path())).await.expect("taken as it is");
}

#[tokio::test]
async fn a_file_that_is_none_is_named() {
    let authority = Authority::new();
    let stub = stub(authority.server(Clients::Anybody)).await;
    let empty = hosts(&stub, "ca = \"ca.pem\"");
    write(&empty, "ca.pem", "no certificate");
    let error = resolve(&stub, with(empty.path())).await.expect_err("no certificate");
    let source = std::error::Error::source(&error).expect("a source").to_string();
    assert!(source.ends_with("ca.pem: there should be certificates in PEM in it"), "{source}");
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_it_is_named() {
    let authority = Authority::new();
    let stub = stub(authority.server(Clients::Known)).await;
    let (certificate, key) = authority.issue("client", ExtendedKeyUsagePurpose::ClientAuth);
    let pair = hosts(&stub, "ca = \"ca.pem\"\nclient = [[\"c.pem\", \"k.pem\"]]");
    write(&pair, "ca.pem", &authority.certificate.pem());
    write(&pair, "c.pem", &certificate.pem());
    write(&pair, "k.pem", &key.serialize_pem());
    resolve(&stub, with(pair.path())).await.expect("known");
    let both = hosts(&stub, "ca = \"ca.pem\"\nclient = \"both.pem\"");
    write(&both, "ca.pem", &authority.certificate.pem());
    write(&both, "both.pem", &format!("{}{}", certificate.pem(), key.serialize_pem()));
    resolve(&stub, with(both.path())).await.expect("known");
    let nobody = hosts(&stub, "ca = \"ca.pem\"");
    write(&nobody, "ca.pem", &authority.certificate.pem());
    let error = resolve(&stub, with(nobody.path())).await.expect_err("unknown").to_string();
    assert!(error.contains(&stub.address.to_string()), "{error}");
}

/// As containerd has it: a registry on this machine needs no configuration, with TLS or without.
#[tokio::test]
async fn a_registry_on_this_machine_needs_no_configuration() {
    let secure = stub(Authority::new().server(Clients::Anybody)).await;
    resolve(&secure, settings()).await.expect("with TLS, not verified");
    let mut content = Content::default();
    content.image("latest");
    let plain = Stub::start(move |request| content.serve(request)).await;
    resolve(&plain, settings()).await.expect("without");
}

#[tokio::test]
async fn a_redirect_from_https_to_http_is_not_followed() {
    let mut content = Content::default();
    content.image("latest");
    let plain = Stub::start(move |request| content.serve(request)).await;
    let to = plain.address;
    let tls = Authority::new().server(Clients::Anybody);
    let secure = Stub::start_on("127.0.0.1", Some(tls), move |request| {
        Reply::new(307, "").header("location", format!("http://{to}{}", request.path))
    })
    .await;
    let error = resolve(&secure, settings()).await.expect_err("a downgrade");
    assert!(error.to_string().contains("it leads from HTTPS to plain HTTP"), "{error}");
    assert!(plain.seen().is_empty());
}
