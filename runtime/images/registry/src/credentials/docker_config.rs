//! Docker's `config.json`: which entry is for which host.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::Deserialize;

use super::{Credentials, CredentialsError, Secret};

/// The longest file that is read, in bytes.
pub const CONFIG_LENGTH_MAX: u64 = 1 << 20;
/// The key under which Docker keeps the credentials of its own registry.
const HUB_KEY: &str = "https://index.docker.io/v1/";
/// Names of Docker's own registry.
const HUB_HOSTS: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// The part of the file that is of interest.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DockerConfig {
    #[serde(default)]
    auths: Option<BTreeMap<String, Entry>>,
    #[serde(default)]
    cred_helpers: Option<BTreeMap<String, String>>,
    #[serde(default)]
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
struct Entry {
    #[serde(default)]
    auth: Option<String>,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password: Option<String>,
    #[serde(default)]
    identitytoken: Option<String>,
    #[serde(default)]
    registrytoken: Option<String>,
}

/// Reads the file; one that is not there says nothing.
pub(super) async fn read(path: PathBuf) -> Result<DockerConfig, CredentialsError> {
    // The file may lie on a file system that takes its time.
    let task = tokio::task::spawn_blocking(move || read_blocking(&path));
    // The task is not cancelled, and does not panic.
    task.await.expect("reading a file does not panic")
}

fn read_blocking(path: &Path) -> Result<DockerConfig, CredentialsError> {
    let failed = |source| CredentialsError::Read { path: path.to_owned(), source };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(DockerConfig::default()),
        Err(error) => return Err(failed(error)),
    };
    let mut text = Vec::new();
    file.take(CONFIG_LENGTH_MAX + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > CONFIG_LENGTH_MAX {
        return Err(CredentialsError::TooLong { path: path.to_owned() });
    }
    parse(&text).map_err(|error| CredentialsError::Malformed {
        path: path.to_owned(),
        line: error.line(),
        column: error.column(),
    })
}

pub(crate) fn parse(text: &[u8]) -> Result<DockerConfig, serde_json::Error> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok(DockerConfig::default());
    }
    serde_json::from_slice(text)
}

impl DockerConfig {
    /// The helper for a host and the key to ask it for.
    pub(crate) fn helper(&self, host: &str) -> Option<(String, String)> {
        let key = key_of(host);
        let own = self.cred_helpers.iter().flatten().find(|(name, _)| host_of(name) == canonical(host));
        let helper =
            own.map(|(_, helper)| helper).or(self.creds_store.as_ref()).filter(|name| !name.is_empty())?;
        Some((helper.clone(), key))
    }

    /// The entry for a repository on a host, the longest path first; the key of an entry that cannot be read.
    pub(crate) fn auth(&self, host: &str, path: &str) -> Result<Option<Credentials>, String> {
        let wanted = canonical(host);
        let best = self
            .auths
            .iter()
            .flatten()
            .filter(|(key, entry)| host_of(key) == wanted && !entry.is_empty())
            .filter_map(|(key, entry)| {
                let prefix = path_of(key);
                let within = prefix.is_empty()
                    || path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
                within.then_some((prefix.len(), key, entry))
            })
            .max_by_key(|(length, ..)| *length);
        match best {
            Some((_, key, entry)) => entry.credentials().map(Some).ok_or_else(|| key.clone()),
            None => Ok(None),
        }
    }
}

impl Entry {
    /// An entry that says nothing: Docker writes one for hosts whose credentials a helper keeps.
    fn is_empty(&self) -> bool {
        let fields = [&self.auth, &self.username, &self.password, &self.identitytoken, &self.registrytoken];
        fields.into_iter().all(|field| field.as_deref().is_none_or(str::is_empty))
    }

    fn credentials(&self) -> Option<Credentials> {
        let filled = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
        if let Some(token) = filled(&self.registrytoken) {
            return Some(Credentials::RegistryToken(Secret::new(token)));
        }
        if let Some(token) = filled(&self.identitytoken) {
            return Some(Credentials::IdentityToken(Secret::new(token)));
        }
        let (user, password) = match filled(&self.auth) {
            Some(auth) => {
                let auth = auth.trim();
                let bytes = STANDARD.decode(auth).or_else(|_| STANDARD_NO_PAD.decode(auth)).ok()?;
                let text = String::from_utf8(bytes).ok()?;
                let (user, password) = text.split_once(':')?;
                // Docker's own padding.
                (user.to_owned(), password.trim_end_matches('\0').to_owned())
            }
            None => (filled(&self.username)?, self.password.clone().unwrap_or_default()),
        };
        Some(Credentials::Basic { user, password: Secret::new(password) })
    }
}

/// What Docker's tools ask a helper for.
fn key_of(host: &str) -> String {
    if HUB_HOSTS.contains(&host) { HUB_KEY.to_owned() } else { host.to_owned() }
}

/// One name for each host, Docker's own included.
fn canonical(host: &str) -> &str {
    if HUB_HOSTS.contains(&host) { HUB_HOSTS[0] } else { host }
}

/// The host of a key, which may have a scheme before and a path after it.
fn host_of(key: &str) -> &str {
    let rest = without_scheme(key);
    canonical(rest.split('/').next().unwrap_or(rest))
}

/// The path of a key that is a prefix of repositories; `/v1/` and `/v2/` are parts of old keys and say nothing.
fn path_of(key: &str) -> &str {
    let path = without_scheme(key).split_once('/').map_or("", |(_, path)| path.trim_end_matches('/'));
    if matches!(path, "v1" | "v2") { "" } else { path }
}

fn without_scheme(key: &str) -> &str {
    key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn config(text: &str) -> DockerConfig {
        parse(text.as_bytes()).expect("a configuration")
    }

    fn basic(user: &str, password: &str) -> Option<Credentials> {
        Some(Credentials::Basic { user: user.to_owned(), password: Secret::new(password) })
    }

    const AUTHS: &str = r#"{"auths":{
        "https://index.docker.io/v1/": {"auth":"aHViOnNlY3JldA=="},
        "r.example": {"auth":"cjpjb2xvbjppbg"},
        "r.example/team/secret": {"username":"team","password":"p"},
        "https://old.example/v2/": {"identitytoken":"t"},
        "127.0.0.1:5000": {"registrytoken":"t"},
        "helped.example": {}
    }, "HttpHeaders": {"x": [1]}}"#;

    #[rstest]
    #[case("docker.io", "library/a", basic("hub", "secret"))]
    #[case("registry-1.docker.io", "library/a", basic("hub", "secret"))]
    #[case("r.example", "a", basic("r", "colon:in"))]
    #[case("r.example", "team/secret/a", basic("team", "p"))]
    #[case("r.example", "team/secrets", basic("r", "colon:in"))]
    #[case("old.example", "a", Some(Credentials::IdentityToken(Secret::new("t"))))]
    #[case("127.0.0.1:5000", "a", Some(Credentials::RegistryToken(Secret::new("t"))))]
    #[case("127.0.0.1", "a", None)]
    #[case("example", "a", None)]
    #[case("helped.example", "a", None)]
    fn finds_the_entry(#[case] host: &str, #[case] path: &str, #[case] expected: Option<Credentials>) {
        assert_eq!(config(AUTHS).auth(host, path), Ok(expected));
    }

    #[test]
    fn a_helper_of_the_host_goes_before_the_store() {
        let config = config(r#"{"credsStore":"all","credHelpers":{"https://r.example":"own"}}"#);
        assert_eq!(config.helper("r.example"), Some(("own".into(), "r.example".into())));
        assert_eq!(config.helper("docker.io"), Some(("all".into(), HUB_KEY.into())));
    }

    #[rstest]
    #[case("%%%")]
    #[case("bm9jb2xvbg==")]
    fn an_entry_that_cannot_be_read_is_named(#[case] auth: &str) {
        let config = config(&format!(r#"{{"auths":{{"r.example":{{"auth":"{auth}"}}}}}}"#));
        assert_eq!(config.auth("r.example", "a"), Err("r.example".to_owned()));
    }

    #[rstest]
    #[case("")]
    #[case("\n")]
    #[case("{}")]
    #[case(r#"{"auths":null,"credHelpers":null,"credsStore":""}"#)]
    fn nothing_says_nothing(#[case] text: &str) {
        let config = config(text);
        assert_eq!((config.helper("r.example"), config.auth("r.example", "a")), (None, Ok(None)));
    }

    #[tokio::test]
    async fn an_error_has_no_secret_in_it() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), r#"{"auths":{"r.example":{"password": hunter2}}}"#).expect("written");
        let error = read(file.path().to_owned()).await.err().expect("no JSON");
        let text = format!("{error} {error:?}");
        assert!(text.contains("line 1, column 36") && !text.contains("hunter2"), "{text}");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_give_a_configuration_or_an_error(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            if let Ok(config) = parse(&bytes) {
                let _ = (config.helper("r.example"), config.auth("r.example", "a"));
            }
        }
    }
}
