//! A host's directory as Docker has it, without `hosts.toml`: `*.crt` are authorities, `*.cert` with `*.key` is a client
//! certificate.

use std::path::Path;

use super::{ClientCertificate, HostsError, Tls};

/// What the directory says; none when it says nothing.
pub(super) fn read(dir: &Path) -> Result<Option<Tls>, HostsError> {
    let failed = |source| HostsError::Read { path: dir.to_owned(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    let mut tls = Tls::default();
    for path in paths {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("crt") => tls.ca.push(path),
            Some("cert") if tls.client.is_none() => {
                let key = path.with_extension("key");
                if !key.is_file() {
                    let reason = format!("there should be a key {} beside it", key.display());
                    return Err(HostsError::Certificate { path, reason });
                }
                tls.client = Some(ClientCertificate { certificate: path, key: Some(key) });
            }
            _ => {}
        }
    }
    Ok((tls != Tls::default()).then_some(tls))
}
