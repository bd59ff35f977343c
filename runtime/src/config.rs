//! The configuration: its keys, its defaults, and what is said when a file is wrong. It never touches the
//! machine; whether directories can be made is found out when the runtime starts.

mod audit;
mod cri;
mod handler;
mod images;
mod network;
mod nri;
mod usage;

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use mainstay_admin::Limits;
use mainstay_metrics::MetricsSettings;
use mainstay_supervisor::nri::NriSettings;
use mainstay_supervisor::{Timeouts, UserNamespaces, cdi};
use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;

pub use audit::AuditSettings;
pub use cri::{CgroupDriver, CriSettings, StreamTls, StreamingSettings};
pub use handler::{HandlerSettings, HandlerTable, OptionValue, ShimOutput};
pub use mainstay_messages::id::HANDLER_DEFAULT;
pub use network::{CNI_PLUGIN_TIMEOUT_DEFAULT_MS, Masquerading, NetworkSettings};
pub use usage::UsageSettings;

pub use images::{GC_INTERVAL_DEFAULT_MS, IMAGES_DIRECTORY, ImageSettings, PULL_FLOOR_WINDOW_DEFAULT_MS};

/// The largest configuration file that is read, in bytes.
pub const CONFIG_LENGTH_MAX: u64 = 1024 * 1024;
/// Where the daemon looks for its configuration when not told.
pub const CONFIG_PATH_DEFAULT: &str = "/etc/mainstay/config.toml";
/// How unlike a known key a wrong one may be to be taken for a slip of the pen (Jaro-Winkler, 0 to 1).
const KEY_LIKENESS_MIN: f64 = 0.7;

/// The configuration of a runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What lasts: the store, logs, writable layers.
    pub root_dir: PathBuf,
    /// What a reboot may take: sockets, bundles, exit records. One runtime at a time has it.
    pub state_dir: PathBuf,
    /// The socket of the admin RPC.
    pub admin_socket: PathBuf,
    /// The cgroup below which all pods are. It is this runtime's own: made when it is not there, and removed when the runtime
    /// ends and no pod is in it. Limits for all pods together belong on a cgroup above it.
    pub cgroup_parent: String,
    /// Whether shims live on when the runtime ends.
    pub shims: ShimLifetime,
    /// The program that is started as shim; the running program itself when not given.
    pub shim_program: Option<PathBuf>,
    /// What is done when the machine forbids an `oom_score_adj`.
    pub oom_score_adj: OomScorePolicy,
    /// Where the files of the Container Device Interface (CDI) are, the weakest directory first.
    pub cdi_dirs: Vec<PathBuf>,
    /// Which ids of the host are given to pods with a user namespace.
    pub user_namespaces: UserNamespaces,
    /// How long the supervisor waits for shims and for the machine.
    pub timeouts: Timeouts,
    /// Limits of the store.
    pub store: StoreLimits,
    /// Where images are, how they are pulled, and what is taken of them.
    pub images: ImageSettings,
    /// The audit in the background.
    pub audit: AuditSettings,
    /// What pods and containers use.
    pub usage: UsageSettings,
    /// Where a daemon serves its metrics.
    pub metrics: MetricsSettings,
    /// Plugins that watch and change pods and containers.
    pub nri: NriSettings,
    /// Which networks pods can have.
    pub network: NetworkSettings,
    /// What runs the containers of which pods.
    pub handler: HandlerTable,
    /// Limits of the admin RPC.
    pub admin: Limits,
    /// How a daemon serves the Container Runtime Interface.
    pub cri: CriSettings,
}

/// Limits of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreLimits {
    /// Entries that the journal keeps: [`mainstay_store::EVENTS_KEPT_MAX`].
    pub events_kept_max: u64,
    /// Bytes of the database above which the oldest entries of the journal go, but for the newest
    /// [`mainstay_store::EVENTS_KEPT_MIN`]: [`mainstay_store::BYTES_MAX`].
    pub bytes_max: u64,
    /// Commits that may wait for the writer: [`mainstay_store::COMMIT_QUEUE_MAX`].
    pub commit_queue_max: usize,
    /// Reads that may wait for the reader: [`mainstay_store::READ_QUEUE_MAX`].
    pub read_queue_max: usize,
    /// How long a write waits for a program that has the database locked, in milliseconds:
    /// [`mainstay_store::BUSY_TIMEOUT_DEFAULT_MS`].
    pub busy_timeout_ms: u64,
}

/// Whether shims live on when the runtime ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShimLifetime {
    /// They do, with their containers; the next runtime on the same directories adopts them.
    #[default]
    Outlive,
    /// They end with it, however it ends.
    WithRuntime,
}

/// What is done when the machine forbids an `oom_score_adj` (lowering it needs CAP_SYS_RESOURCE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OomScorePolicy {
    /// The nearest allowed value is used.
    #[default]
    Clamp,
    /// The container is not started.
    Refuse,
}

/// Why a configuration file was not taken.
#[derive(Debug, ThisError)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{path}: cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is larger than any configuration.
    #[error("{path}: too long; a configuration has at most {CONFIG_LENGTH_MAX} bytes")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// A key that is not known.
    #[error("{path}, line {line}: unknown key {key:?}{}", did_you_mean(.nearest))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key.
        key: String,
        /// The known key that is most like it.
        nearest: Option<String>,
    },
    /// Anything else that is wrong with the text.
    #[error("{path}, line {line}: {message}")]
    Text {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A value that cannot be right.
    #[error("{path}: {field}: {value:?} is not valid; expected {expected}")]
    Value {
        /// The file.
        path: PathBuf,
        /// The key.
        field: String,
        /// Its value.
        value: String,
        /// What would be right.
        expected: Cow<'static, str>,
    },
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            events_kept_max: mainstay_store::EVENTS_KEPT_MAX,
            bytes_max: mainstay_store::BYTES_MAX,
            commit_queue_max: mainstay_store::COMMIT_QUEUE_MAX,
            read_queue_max: mainstay_store::READ_QUEUE_MAX,
            busy_timeout_ms: mainstay_store::BUSY_TIMEOUT_DEFAULT_MS,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            root_dir: "/var/lib/mainstay".into(),
            state_dir: "/run/mainstay".into(),
            admin_socket: "/run/mainstay/admin.sock".into(),
            cgroup_parent: "/mainstay".into(),
            shims: ShimLifetime::default(),
            shim_program: None,
            oom_score_adj: OomScorePolicy::default(),
            cdi_dirs: cdi::DIRECTORIES.map(PathBuf::from).into(),
            user_namespaces: UserNamespaces::default(),
            timeouts: Timeouts::default(),
            store: StoreLimits::default(),
            images: ImageSettings::default(),
            audit: AuditSettings::default(),
            usage: UsageSettings::default(),
            metrics: MetricsSettings::default(),
            nri: NriSettings::default(),
            network: NetworkSettings::default(),
            handler: HandlerTable::default(),
            admin: Limits::default(),
            cri: CriSettings::default(),
        }
    }
}

impl Config {
    /// A configuration whose directories and cgroup all lie below one name, for a runtime beside others.
    pub fn beside(base: &Path, cgroup_parent: impl Into<String>) -> Self {
        let state_dir = base.join("state");
        Self {
            root_dir: base.join("root"),
            network: NetworkSettings::beside(&state_dir),
            state_dir,
            admin_socket: base.join("state/admin.sock"),
            cgroup_parent: cgroup_parent.into(),
            // The usual places are those of the daemon.
            nri: NriSettings {
                enable: false,
                socket: base.join("state/nri.sock"),
                plugin_dir: base.join("nri/plugins"),
                plugin_config_dir: base.join("nri/conf.d"),
                ..NriSettings::default()
            },
            ..Self::default()
        }
    }

    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let read = |source| ConfigError::Read { path: path.into(), source };
        let mut text = String::new();
        // What has no end, as /dev/zero, is refused like what is too long.
        let file = File::open(path).map_err(read)?;
        let length = file.take(CONFIG_LENGTH_MAX + 1).read_to_string(&mut text).map_err(read)?;
        if length as u64 > CONFIG_LENGTH_MAX {
            return Err(ConfigError::TooLarge { path: path.into() });
        }
        Self::parse(path, &text)
    }

    /// Reads and checks the text of a file; `path` is only for what errors say.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text).map_err(|error| explain(path, text, &error))?;
        config.check(path)?;
        Ok(config)
    }

    fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let absolute = [
            ("root_dir", Some(&self.root_dir)),
            ("state_dir", Some(&self.state_dir)),
            ("admin_socket", Some(&self.admin_socket)),
            ("shim_program", self.shim_program.as_ref()),
        ];
        let absolute = absolute.into_iter().filter_map(|(field, value)| Some((field, value?)));
        let absolute = absolute.chain(self.cdi_dirs.iter().map(|path| ("cdi_dirs", path)));
        let absolute = absolute.chain(self.images.paths()).chain(nri::paths(&self.nri));
        for (field, value) in absolute.chain(self.network.paths()) {
            if !value.is_absolute() {
                return Err(ConfigError::Value {
                    path: path.into(),
                    field: field.to_owned(),
                    value: value.display().to_string(),
                    expected: "an absolute path".into(),
                });
            }
        }
        match self.zero_limit() {
            None => self.check_sections(path),
            Some(field) => {
                let (value, expected) = ("0".to_owned(), "a number above 0".into());
                Err(ConfigError::Value { path: path.into(), field, value, expected })
            }
        }
    }

    fn check_sections(&self, path: &Path) -> Result<(), ConfigError> {
        let ids = self.user_namespaces.fault();
        let ids = ids.map(|(key, value, expected)| ("user_namespaces", key, value.to_string(), expected));
        let metrics = || self.metrics.fault().map(|(key, value, expected)| ("metrics", key, value, expected));
        let fault = ids
            .or_else(metrics)
            .map(|(section, key, value, expected)| (format!("{section}.{key}"), value, Cow::from(expected)));
        let network = || self.network.fault().map(|(field, value, expected)| (field, value, expected.into()));
        let cri =
            || self.cri.fault().map(|(key, value, expected)| (format!("cri.{key}"), value, expected.into()));
        let nri =
            || self.nri.fault().map(|(key, value, expected)| (format!("nri.{key}"), value, expected.into()));
        let handler = || {
            self.handler
                .fault()
                .map(|(key, value, expected)| (format!("handler.{key}"), value, expected.into()))
        };
        let fault = fault.or_else(network).or_else(handler).or_else(cri).or_else(nri);
        let Some((field, value, expected)) = fault else { return Ok(()) };
        Err(ConfigError::Value { path: path.into(), field, value, expected })
    }

    /// A time-out or limit that is 0, with its section. Nothing works with one.
    fn zero_limit(&self) -> Option<String> {
        let table = toml::Table::try_from(self).ok()?;
        let sections = table.iter().filter_map(|(name, value)| Some((name, value.as_table()?)));
        let mut limits =
            sections.flat_map(|(section, table)| table.iter().map(move |(key, value)| (section, key, value)));
        let (section, key, _) = limits.find(|(section, key, value)| {
            let off = match section.as_str() {
                "images" => images::ZERO_IS_OFF.contains(&key.as_str()),
                "audit" => key.as_str() == "interval_ms",
                "usage" => key.as_str() == "disk_interval_ms",
                _ => false,
            };
            value.as_integer() == Some(0) && !off
        })?;
        Some(format!("{section}.{key}"))
    }

    /// The default configuration as a commented file.
    pub fn default_text() -> String {
        let Config {
            root_dir,
            state_dir,
            admin_socket,
            cgroup_parent,
            cdi_dirs,
            user_namespaces,
            timeouts,
            store,
            images,
            audit,
            usage,
            metrics,
            nri,
            network,
            admin,
            cri,
            ..
        } = Self::default();
        format!(
            "# Configuration of the Mainstay daemon. Every key is shown with its default.\n\
             # Check a file with `mainstay config check FILE`.\n\
             \n\
             # What lasts: the store, logs, writable layers. Made with mode 0700.\n\
             root_dir = {root_dir:?}\n\
             \n\
             # What a reboot may take: sockets, bundles, exit records. Made with mode 0700.\n\
             state_dir = {state_dir:?}\n\
             \n\
             # The unix socket of the admin RPC, mode 0600. Only root and the daemon's own user may use it.\n\
             admin_socket = {admin_socket:?}\n\
             \n\
             # The cgroup below which all pods are. It is made when it is not there, and removed when the daemon\n\
             # ends and no pod is in it: limits for all pods together belong on a cgroup above it.\n\
             cgroup_parent = {cgroup_parent:?}\n\
             \n\
             # \"outlive\": containers run on when the daemon ends, and the next one adopts them.\n\
             # \"with_runtime\": they end with it, however it ends.\n\
             shims = \"outlive\"\n\
             \n\
             # The program that is started as shim. The daemon's own program when not given.\n\
             # shim_program = \"/usr/local/bin/mainstay\"\n\
             \n\
             # What is done with an oom_score_adj that the machine forbids (lowering it needs\n\
             # CAP_SYS_RESOURCE): \"clamp\" uses the nearest allowed value, \"refuse\" does not start.\n\
             oom_score_adj = \"clamp\"\n\
             \n\
             # Where the files are that say what devices of the Container Device Interface (CDI) are, as vendors and\n\
             # their plugins write them. A device of a later directory goes before one of an earlier. []: there are none.\n\
             cdi_dirs = {cdi_dirs:?}\n\
             \n\
             # Which ids of the host are given to pods with a user namespace (`--userns auto`): so many from the\n\
             # first on, and how many of them each pod gets. Nothing else on the machine may use them. Another runtime\n\
             # beside this one should have ids of its own; ranges in which its processes run are passed over.\n\
             [user_namespaces]\n{}\n\
             # How long the supervisor waits for shims and for the machine, in milliseconds.\n\
             [timeouts]\n{}\n\
             # Limits of the store. The journal keeps so many entries, and fewer when the database would take\n\
             # more bytes (records included; the newest 4,096 entries stay in any case). Then requests that may wait.\n\
             [store]\n{}\n\
             {}\n\
             # How often the machine is compared with the records in the background, in milliseconds (0: never). What\n\
             # is found is in the metrics and in the journal; nothing is repaired but by `mainstay audit --repair`.\n\
             [audit]\n{}\n\
             # While somebody asks what containers use, their files are counted in the background, one container after\n\
             # the other: the time between two counts of one, in milliseconds (0: never).\n\
             [usage]\n{}\n\
             # Metrics in the format of Prometheus, under /metrics.\n\
             [metrics]\n\
             # A unix socket, mode 0600: metrics.sock beside admin_socket when not given, none when \"\".\n\
             # socket = \"/run/mainstay/metrics.sock\"\n\
             # A loopback address for scrapers that know no unix sockets; everybody on the machine may read there. None\n\
             # when not given.\n\
             # listen = \"127.0.0.1:9479\"\n\
             # How many scrapers at once, and the time that one has, in milliseconds.\n\
             {}\n\
             {}\n\
             {}\n\
             {}\n\
             # Limits of the admin RPC, for each connection but for the first.\n\
             [admin]\n{}\n\
             {}",
            section(&user_namespaces),
            section(&timeouts),
            section(&store),
            images.text(),
            section(&audit),
            section(&usage),
            section(&metrics),
            nri::text(&nri),
            network.text(),
            HandlerTable::text(),
            section(&admin),
            cri.text(),
        )
    }
}

impl fmt::Display for Config {
    /// The configuration as TOML, without comments.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&toml::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// A section of numbers as TOML.
fn section(values: &impl Serialize) -> String {
    // Structs of numbers always have a form in TOML.
    toml::to_string(values).unwrap_or_default()
}

/// Says where a text is wrong, and which key was probably meant.
fn explain(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let start = error.span().map_or(0, |span| span.start).min(text.len());
    let line = text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1;
    let message = error.message();
    let path = path.to_path_buf();
    let mut quoted = message.split('`').skip(1).step_by(2);
    match (message.starts_with("unknown field"), quoted.next()) {
        (true, Some(key)) => {
            let nearest = quoted
                .map(|known| (strsim::jaro_winkler(key, known), known))
                .filter(|(likeness, _)| *likeness >= KEY_LIKENESS_MIN)
                .max_by(|(a, _), (b, _)| a.total_cmp(b))
                .map(|(_, known)| known.to_owned());
            ConfigError::UnknownKey { path, line, key: key.to_owned(), nearest }
        }
        _ => {
            let message = message.lines().collect::<Vec<_>>().join(" ");
            let message = ["expected u64", "expected usize"]
                .iter()
                .fold(message, |message, number| message.replace(number, "expected a whole number"));
            let message = match key_before(text, start) {
                Some(key) => format!("{key}: {message}"),
                None => message,
            };
            ConfigError::Text { path, line, message }
        }
    }
}

/// The key whose value begins at `start`.
fn key_before(text: &str, start: usize) -> Option<&str> {
    let (key, between) = text[..start].lines().last()?.split_once('=')?;
    between.trim().is_empty().then_some(key.trim())
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|n| format!("; did you mean {n:?}?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("c.toml"), text).map_err(|e| e.to_string())
    }

    #[test]
    fn an_empty_file_is_the_default() {
        assert_eq!(parse("").expect("empty is fine"), Config::default());
    }

    #[test]
    fn the_commented_default_is_the_default_and_names_every_key() {
        let text = Config::default_text();
        assert_eq!(parse(&text).expect("our own text"), Config::default());
        let images = ImageSettings {
            directory: Some("/x".into()),
            docker_config: Some("/x".into()),
            ..ImageSettings::default()
        };
        let metrics = MetricsSettings {
            socket: Some("/x".into()),
            listen: Some(([127, 0, 0, 1], 1).into()),
            ..MetricsSettings::default()
        };
        let cri = CriSettings { socket: Some("/x".into()), ..CriSettings::default() };
        let all =
            Config { shim_program: Some("/x".into()), images, metrics, cri, ..Config::default() }.to_string();
        for key in all.lines().filter_map(|line| line.split_once(" = ")).map(|(key, _)| key) {
            assert!(text.contains(&format!("{key} = ")), "{key} is missing in the commented default");
        }
    }

    #[rstest]
    #[case("\nrootdir = \"/x\"\n", "c.toml, line 2: unknown key \"rootdir\"; did you mean \"root_dir\"?")]
    #[case("zzz = 1", "c.toml, line 1: unknown key \"zzz\"")]
    #[case("[timeouts]\nlaunch = 1", "c.toml, line 2: unknown key \"launch\"; did you mean \"launch_ms\"?")]
    #[case(
        "[store]\nread_queue_max = 0",
        "c.toml: store.read_queue_max: \"0\" is not valid; expected a number above 0"
    )]
    #[case(
        "[user_namespaces]\nids_per_pod = 300000000",
        "c.toml: user_namespaces.ids_per_pod: \"300000000\" is not valid; expected at least 1, and at most host_ids"
    )]
    #[case(
        "[images]\ndownloads_max = 0",
        "c.toml: images.downloads_max: \"0\" is not valid; expected a number above 0"
    )]
    #[case(
        "[images]\ndirectory = \"x\"",
        "c.toml: images.directory: \"x\" is not valid; expected an absolute path"
    )]
    #[case(
        "[metrics]\nconnections_max = 0",
        "c.toml: metrics.connections_max: \"0\" is not valid; expected a number above 0"
    )]
    #[case(
        "[metrics]\nsocket = \"x\"",
        "c.toml: metrics.socket: \"x\" is not valid; expected an absolute path, or \"\" for none"
    )]
    #[case("[nri]\nsocket = \"x\"", "c.toml: nri.socket: \"x\" is not valid; expected an absolute path")]
    #[case(
        "[nri]\nstrikes_max = 0",
        "c.toml: nri.strikes_max: \"0\" is not valid; expected a number above 0"
    )]
    #[case(
        "[nri]\nrequired = [\"policy\"]",
        "c.toml, line 2: required: the plugin \"policy\" is not valid; expected two digits, '-' and a name"
    )]
    #[case(
        "[network]\nipv4 = \"10.89.0.1/16\"",
        "c.toml: network.ipv4: \"10.89.0.1/16\" is not valid; expected the first address of the range: 10.89.0.0/16"
    )]
    #[case(
        "[network]\nipv4 = \"none\"",
        "c.toml: network.ipv4: \"none\" is not valid; expected a range here or as network.ipv6"
    )]
    #[case(
        "[network]\ndefault = \"default\"",
        "c.toml: network.default: \"default\" is not valid; expected builtin, cni, none or host"
    )]
    #[case(
        "[network]\ncni_cache_dir = \"x\"",
        "c.toml: network.cni_cache_dir: \"x\" is not valid; expected an absolute path"
    )]
    #[case(
        "[cri.streaming]\naddress = \"0.0.0.0:10010\"",
        "c.toml: cri.streaming.address: \"0.0.0.0:10010\" is not valid; expected a loopback address, such as 127.0.0.1:0, or one with cri.streaming.tls"
    )]
    #[case(
        "[cri]\nsocket = \"x\"",
        "c.toml: cri.socket: \"x\" is not valid; expected an absolute path, or \"\" for none"
    )]
    #[case(
        "[handler.\"a b\"]",
        "c.toml, line 1: handler: \"a b\" is not valid; expected 1 to 63 lower-case letters, digits and '-', as in the name of a RuntimeClass"
    )]
    #[case("cdi_dirs = [\"x\"]", "c.toml: cdi_dirs: \"x\" is not valid; expected an absolute path")]
    #[case(
        "[nri]\nrequest_timeout_ms = 12000",
        "c.toml: nri.request_timeout_ms: \"12000\" is not valid; expected at most nri.event_timeout_ms, which is 10000"
    )]
    #[case(
        "[nri]\nevent_timeout_ms = 12000\n[nri.plugins.10-a]\nrequest_timeout_ms = 12001",
        "c.toml: nri.plugins.10-a.request_timeout_ms: \"12001\" is not valid; expected at most nri.event_timeout_ms, which is 12000"
    )]
    #[case(
        "[nri]\nevent_timeout_ms = 20001",
        "c.toml: nri.event_timeout_ms: \"20001\" is not valid; expected at most 20000: what waits for plugins waits no longer"
    )]
    #[case("root_dir = \"x\"", "c.toml: root_dir: \"x\" is not valid; expected an absolute path")]
    #[case(
        "[timeouts]\nlaunch_ms = \"a\"",
        "c.toml, line 2: launch_ms: invalid type: string \"a\", expected a whole number"
    )]
    #[case(
        "shims = \"outlve\"",
        "c.toml, line 1: shims: unknown variant `outlve`, expected `outlive` or `with_runtime`"
    )]
    fn says_what_is_wrong(#[case] text: &str, #[case] message: &str) {
        assert_eq!(parse(text).expect_err("wrong"), message);
    }

    #[rstest]
    #[case("a = 1\nshims = 3", "line 1")]
    #[case("\n\nshims = 3", "line 3")]
    #[case("shims = \"never\"", "outlive")]
    #[case("root_dir = [", "line 1")]
    fn names_the_line(#[case] text: &str, #[case] part: &str) {
        let error = parse(text).expect_err("wrong");
        assert!(error.contains(part), "{error}");
    }
}
