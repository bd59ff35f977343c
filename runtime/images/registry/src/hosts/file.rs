//! `hosts.toml`, as containerd has it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Url;
use serde::Deserialize;
use toml::{Table, Value};

use super::{
    Capabilities, ClientCertificate, Endpoint, HUB, HUB_SERVER, HostsError, Scheme, Tls, Verify, direct,
    is_this_machine, read_file,
};

/// The longest file that is read, in bytes.
pub const HOSTS_LENGTH_MAX: u64 = 1 << 20;

/// The file, or nothing when it is not there.
pub(super) fn read(path: &Path) -> Result<Option<String>, HostsError> {
    let bytes = match read_file(path, HOSTS_LENGTH_MAX) {
        Err(HostsError::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(None);
        }
        bytes => bytes?,
    };
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|error| HostsError::Malformed { path: path.to_owned(), reason: error.to_string() })
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    server: String,
    #[serde(flatten)]
    own: Host,
    /// In the order of the file.
    #[serde(default)]
    host: Table,
}

/// What can be said of a host.
#[derive(Deserialize)]
struct Host {
    capabilities: Option<Vec<String>>,
    ca: Option<Value>,
    client: Option<Value>,
    skip_verify: Option<bool>,
    override_path: Option<bool>,
    dial_timeout: Option<String>,
    header: Option<Table>,
}

/// The hosts that a file names, and the registry itself as the last one.
pub(crate) fn parse(text: &str, dir: &Path, registry: &str) -> Result<Vec<Endpoint>, HostsError> {
    let path = dir.join("hosts.toml");
    let malformed = |error: toml::de::Error| {
        let reason = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        HostsError::Malformed { path: path.clone(), reason }
    };
    let file: File = toml::from_str(text).map_err(malformed)?;
    let reader = Reader { dir, path: &path, registry };
    let mut endpoints = Vec::with_capacity(file.host.len() + 1);
    for (url, table) in file.host {
        let host: Host = table.try_into().map_err(malformed)?;
        endpoints.push(reader.endpoint(&format!("host.{url:?}"), &url, host)?);
    }
    endpoints.push(reader.endpoint("server", &file.server, file.own)?);
    Ok(endpoints)
}

/// Reads the tables of one file.
struct Reader<'a> {
    dir: &'a Path,
    path: &'a Path,
    registry: &'a str,
}

impl Reader<'_> {
    fn endpoint(&self, field: &str, url: &str, host: Host) -> Result<Endpoint, HostsError> {
        let mut endpoint = direct(self.registry, &[]);
        if !url.is_empty() {
            self.place(&mut endpoint, field, url, host.override_path == Some(true))?;
        }
        let named = |name: &str| format!("{field}.{name}");
        if let Some(capabilities) = &host.capabilities {
            endpoint.capabilities = self.capabilities(named("capabilities"), capabilities)?;
        }
        if let Some(ca) = host.ca {
            endpoint.tls.ca = self.paths(named("ca"), ca)?;
        }
        if let Some(client) = host.client {
            endpoint.tls.client = self.client(named("client"), client)?;
        }
        match host.skip_verify {
            Some(true) => endpoint.tls.verify = Verify::Skip,
            Some(false) => endpoint.tls.verify = Verify::Yes,
            // Who configures TLS means it.
            None if endpoint.tls != (Tls { verify: Verify::Skip, ..Tls::default() }) => {
                endpoint.tls.verify = Verify::Yes
            }
            None => {}
        }
        if endpoint.scheme == Scheme::HttpsOrHttp && (host.skip_verify.is_some() || endpoint.tls.has_files())
        {
            endpoint.scheme = Scheme::Https;
        }
        if let Some(timeout) = host.dial_timeout {
            let expected = "a duration as Go writes it, as 500ms, 3s or 1m30s";
            let wrong = || self.wrong(named("dial_timeout"), &timeout, expected);
            endpoint.dial_timeout = Some(duration(&timeout).ok_or_else(wrong)?);
        }
        for (name, value) in host.header.unwrap_or_default() {
            let field = named("header");
            let values = self.texts(field.clone(), value, "a text or a list of texts")?;
            for value in values {
                let good = reqwest::header::HeaderName::from_bytes(name.as_bytes()).is_ok()
                    && reqwest::header::HeaderValue::from_str(&value).is_ok();
                // The value may be a secret.
                let wrong =
                    || self.wrong(format!("{field}.{name:?}"), "…", "a name and a text that HTTP allows");
                good.then_some(()).ok_or_else(wrong)?;
                endpoint.headers.push((name.clone(), value));
            }
        }
        let own =
            endpoint.authority == self.registry || (self.registry == HUB && endpoint.authority == HUB_SERVER);
        endpoint.namespace = (!own).then(|| self.registry.to_owned());
        Ok(endpoint)
    }

    /// Where the host is: scheme, authority and path.
    fn place(
        &self,
        endpoint: &mut Endpoint,
        field: &str,
        url: &str,
        override_path: bool,
    ) -> Result<(), HostsError> {
        let full = if url.contains("://") { url.to_owned() } else { format!("https://{url}") };
        let expected = "an http or https URL without user, query and fragment";
        let parsed = Url::parse(&full).ok().filter(|url| {
            let plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
            plain && url.fragment().is_none() && matches!(url.scheme(), "http" | "https") && url.has_host()
        });
        let url = parsed.ok_or_else(|| self.wrong(field.to_owned(), "…", expected))?;
        let host = url.host_str().unwrap_or_default();
        let authority = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        endpoint.scheme = if url.scheme() == "http" { Scheme::Http } else { Scheme::Https };
        endpoint.tls.verify = Verify::Yes;
        endpoint.authority = if authority == HUB { HUB_SERVER.to_owned() } else { authority };
        let path = url.path().trim_end_matches('/');
        endpoint.prefix =
            if override_path || path.ends_with("/v2") { path.to_owned() } else { format!("{path}/v2") };
        debug_assert!(endpoint.scheme != Scheme::HttpsOrHttp || is_this_machine(&endpoint.authority));
        Ok(())
    }

    fn capabilities(&self, field: String, words: &[String]) -> Result<Capabilities, HostsError> {
        let mut capabilities = Capabilities { resolve: false, pull: false };
        for word in words {
            match word.as_str() {
                "resolve" => capabilities.resolve = true,
                "pull" => capabilities.pull = true,
                // We never do either.
                "push" | "referrers" => {}
                other => return Err(self.wrong(field, other, "pull, resolve, push or referrers")),
            }
        }
        Ok(capabilities)
    }

    /// A certificate with its key: one file with both, a list of such, or a list of pairs. The first is used.
    fn client(&self, field: String, value: Value) -> Result<Option<ClientCertificate>, HostsError> {
        let expected = "a path, a list of paths, or a list of pairs of certificate and key";
        let first = match value {
            Value::Array(values) => values.into_iter().next(),
            single => Some(single),
        };
        let Some(first) = first else { return Ok(None) };
        let texts = self.texts(field.clone(), first, expected)?;
        match texts.as_slice() {
            [both] => Ok(Some(ClientCertificate { certificate: self.dir.join(both), key: None })),
            [certificate, key] if key.is_empty() => {
                Ok(Some(ClientCertificate { certificate: self.dir.join(certificate), key: None }))
            }
            [certificate, key] => {
                let key = Some(self.dir.join(key));
                Ok(Some(ClientCertificate { certificate: self.dir.join(certificate), key }))
            }
            _ => Err(self.wrong(field, "a list of another length", expected)),
        }
    }

    fn paths(&self, field: String, value: Value) -> Result<Vec<PathBuf>, HostsError> {
        let texts = self.texts(field, value, "a path or a list of paths")?;
        Ok(texts.into_iter().map(|path| self.dir.join(path)).collect())
    }

    fn texts(&self, field: String, value: Value, expected: &'static str) -> Result<Vec<String>, HostsError> {
        let wrong = |value: &Value| self.wrong(field.clone(), value.type_str(), expected);
        match value {
            Value::String(text) => Ok(vec![text]),
            Value::Array(values) => values
                .into_iter()
                .map(|value| match value {
                    Value::String(text) => Ok(text),
                    other => Err(wrong(&other)),
                })
                .collect(),
            other => Err(wrong(&other)),
        }
    }

    fn wrong(&self, field: String, value: &str, expected: &'static str) -> HostsError {
        let value = value.chars().take(80).collect();
        HostsError::Value { path: self.path.to_owned(), field, value, expected }
    }
}

impl Tls {
    fn has_files(&self) -> bool {
        !self.ca.is_empty() || self.client.is_some()
    }
}

/// The longest `dial_timeout`, in seconds.
const DIAL_TIMEOUT_MAX_S: f64 = 86_400.0;

/// A duration as Go writes it: numbers, each with its unit, without a sign.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (unit, after) = after.split_at(after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len()));
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * seconds;
        rest = after;
    }
    (total > 0.0 && total <= DIAL_TIMEOUT_MAX_S).then(|| Duration::from_secs_f64(total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("1s", Some(1000))]
    #[case("500ms", Some(500))]
    #[case("1m30s", Some(90_000))]
    #[case("1.5s", Some(1500))]
    #[case("", None)]
    #[case("0s", None)]
    #[case("1", None)]
    #[case("-1s", None)]
    #[case("1.2.3s", None)]
    #[case("99999h", None)]
    fn durations(#[case] text: &str, #[case] expected: Option<u64>) {
        assert_eq!(duration(text), expected.map(Duration::from_millis));
    }

    proptest! {
        #[test]
        fn any_text_gives_hosts_or_an_error(text in any::<String>()) {
            let _ = parse(&text, Path::new("/d"), "r.example");
        }

        #[test]
        fn anything_like_a_file_gives_hosts_or_an_error(
            key in "(server|ca|client|capabilities|skip_verify|header|dial_timeout|host)",
            value in "(\"[a-z:/.@?0-9]{0,20}\"|[0-9]{1,3}|true|\\[\\]|\\[\\[\"a\",\"b\"\\]\\]|\\{a=1\\}|\\[1\\])",
        ) {
            let _ = parse(&format!("{key} = {value}"), Path::new("/d"), "r.example");
            let _ = parse(&format!("[host.\"https://m.example\"]\n{key} = {value}"), Path::new("/d"), "r.example");
        }
    }
}
