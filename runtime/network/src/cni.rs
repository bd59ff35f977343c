//! Pod networks by CNI plugins, for those who configure them (specification 0.4.0 to 1.1.0).
//!
//! [`Cni`] runs the plugins of the first list of a directory. It owns the records: which pod was given to which list, with
//! which arguments, and what came of it. A record is written before the first ADD and removed after every DEL has worked, and
//! DEL runs the list that ADD ran, whatever has become of the file. It never decides when to ask again: its caller does, for
//! as long as there is a record.
//!
//! ```text
//!            ADD begins           ADD worked
//!   (none) ──────────► intended ────────────► attached ──┐
//!                         │  ADD failed: stays           │ DEL, each plugin once per try, last one first
//!                         └───────────────┬──────────────┘
//!                                         ▼
//!                     every DEL worked? ── no: record stays, error names the plugin
//!                                         └ yes: (none)
//! ```
//!
//! A record is a sealed frame (see `mainstay_messages::codec`), magic `MNCN`, version 1, in a file named like the pod. Calls
//! block until the plugins have ended or were killed at their deadline. Plugins run in the network namespace of the caller.

mod cache;
mod config;
mod error;
mod plugin;
mod record;
mod result;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use mainstay_messages::{SandboxId, Timestamp};
use serde_json::{Value, json};

pub use self::cache::CachedResult;
use self::config::NetworkList;
pub use self::config::{CONFIG_LENGTH_MAX, VERSIONS};
pub use self::error::CniError;
use self::plugin::Call;
pub use self::plugin::OUTPUT_LENGTH_MAX;
pub use self::record::CniRecord;
use self::record::Records;
pub use self::result::{CniAddress, CniResult};
use crate::spec::{POD_LINK, PortMapping};

/// Where things are.
#[derive(Clone, Debug)]
pub struct CniSettings {
    /// The directory of the configuration, usually `/etc/cni/net.d`. It is read anew for each pod.
    pub conf_dir: PathBuf,
    /// The directories of the plugins, usually `/opt/cni/bin` or `/usr/lib/cni`.
    pub plugin_dirs: Vec<PathBuf>,
    /// The directory of the records.
    pub directory: PathBuf,
    /// Where other programs look for what pods were given, usually `/var/lib/cni`.
    pub cache_dir: PathBuf,
    /// How long one plugin may run.
    pub timeout: Duration,
    /// How long all plugins of a list may run together. Each has what those before it have left of it; of a DEL, in which all have
    /// their turn whatever became of the others, an equal share of that.
    pub chain_timeout: Duration,
}

/// What a pod asks for. Each goes to the plugins that say they can do it.
#[derive(Clone, Debug, Default)]
pub struct CniRequest {
    /// Ports of the host that lead to the pod (capability `portMappings`).
    pub ports: Vec<PortMapping>,
    /// Other capabilities by name: `bandwidth`, `ips`, `mac`, `dns` and what else plugins know.
    pub capabilities: serde_json::Map<String, Value>,
    /// Arguments for `CNI_ARGS`, such as `K8S_POD_NAME`.
    pub args: Vec<(String, String)>,
}

/// Runs plugins and keeps the records.
#[derive(Debug)]
pub struct Cni {
    settings: CniSettings,
    records: Records,
    busy: Mutex<BTreeSet<SandboxId>>,
}

/// The time that the plugins of a list have together.
#[derive(Clone, Copy, Debug)]
struct Clock {
    ends: Instant,
    one: Duration,
}

impl Clock {
    /// What the next one has, when nobody after it needs any.
    fn rest(self) -> Duration {
        self.share_of(1)
    }

    /// What each of so many has that are left.
    fn share_of(self, plugins: usize) -> Duration {
        let left = self.ends.saturating_duration_since(Instant::now());
        // A list has few plugins; one for which nothing is left is killed at once and named.
        (left / u32::try_from(plugins).unwrap_or(u32::MAX).max(1)).min(self.one)
    }
}

/// Keeps every other call from a pod until it is dropped.
struct Turn<'a> {
    cni: &'a Cni,
    pod: &'a SandboxId,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.cni.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(self.pod);
    }
}

impl Cni {
    /// Reads the records. Runs nothing.
    pub fn open(settings: CniSettings) -> Result<Self, CniError> {
        let records = Records::open(&settings.directory)?;
        Ok(Self { settings, records, busy: Mutex::new(BTreeSet::new()) })
    }

    /// Runs ADD of each plugin. A pod that is attached is not given to the plugins again: they need not bear it. One whose ADD
    /// did not come to its end has to be detached first.
    pub fn attach(&self, pod: &SandboxId, netns: &Path, request: &CniRequest) -> Result<CniResult, CniError> {
        let _turn = self.turn(pod)?;
        if self.records.damaged().contains(pod) {
            return Err(CniError::Damaged { pod: pod.clone() });
        }
        if let Some(record) = self.record(pod) {
            let unfinished = || CniError::Unfinished { pod: pod.clone(), since: record.since };
            return CniResult::read(&record.network, record.result.as_deref().ok_or_else(unfinished)?);
        }
        let list = NetworkList::load(&self.settings.conf_dir)?;
        let args = request.args.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>();
        let mut record = CniRecord {
            pod: pod.clone(),
            since: Timestamp::from_system(SystemTime::now()),
            network: list.name.clone(),
            list: list.text.clone(),
            netns: netns.to_string_lossy().into_owned(),
            capabilities: Value::Object(capabilities(request)).to_string(),
            args: args.join(";"),
            result: None,
        };
        self.records.keep(&record)?;
        let mut previous = None;
        let clock = self.clock();
        for index in 0..list.plugins.len() {
            let answer = self.run(&list, index, &record, "ADD", previous.as_ref(), clock.rest())?;
            previous = Some(answer);
        }
        let result = previous.unwrap_or(Value::Null).to_string();
        let read = CniResult::read(&list.name, &result)?;
        record.result = Some(result);
        self.records.keep(&record)?;
        // It is for others: nothing of ours depends on it.
        if let Err(error) = cache::write(&self.settings.cache_dir, &record) {
            tracing::warn!(%pod, %error, "other programs are not told what the plugins gave the pod");
        }
        Ok(read)
    }

    /// Runs DEL of each plugin, the last one first, and forgets the pod when all have worked. A plugin that fails does not keep
    /// the others from being run. Fine for a pod that is not known. `netns` is a path of the namespace where that is still
    /// there; the one that ADD was given may lead somewhere else by now.
    pub fn detach(&self, pod: &SandboxId, netns: Option<&Path>) -> Result<(), CniError> {
        let _turn = self.turn(pod)?;
        let Some(mut record) =
            self.record(pod).map_or_else(|| self.substitute(pod), |record| Ok(Some(record)))?
        else {
            return Ok(());
        };
        // An empty one is the specification's way to say that the namespace is gone.
        record.netns = netns.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
        let list = NetworkList::parse(&record.list, Path::new("the record of the pod"))?;
        let previous = record.result.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let mut failure = None;
        let clock = self.clock();
        for index in (0..list.plugins.len()).rev() {
            // The index is how many come after this one.
            let timeout = clock.share_of(index + 1);
            if let Err(error) = self.run(&list, index, &record, "DEL", previous.as_ref(), timeout) {
                tracing::warn!(%pod, %error, "a plugin did not take back what it made");
                failure.get_or_insert(error);
            }
        }
        failure.map_or(Ok(()), Err)?;
        cache::remove(&self.settings.cache_dir, &record)?;
        self.records.release(pod)
    }

    /// What a pod was given; none for one that is not known, or whose ADD did not come to its end.
    pub fn attached(&self, pod: &SandboxId) -> Result<Option<CniResult>, CniError> {
        let Some(record) = self.record(pod) else { return Ok(None) };
        record.result.as_deref().map(|result| CniResult::read(&record.network, result)).transpose()
    }

    /// Runs CHECK of each plugin.
    pub fn check(&self, pod: &SandboxId) -> Result<(), CniError> {
        let _turn = self.turn(pod)?;
        let record = self.record(pod).ok_or_else(|| CniError::Unknown { pod: pod.clone() })?;
        let list = NetworkList::parse(&record.list, Path::new("the record of the pod"))?;
        if list.is_check_disabled {
            return Ok(());
        }
        let previous = record.result.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let clock = self.clock();
        (0..list.plugins.len()).try_for_each(|index| {
            self.run(&list, index, &record, "CHECK", previous.as_ref(), clock.rest()).map(drop)
        })
    }

    /// Whether a pod could be attached now: there is a list, its plugins are there, and, from version 1.1.0 on, they say so.
    pub fn status(&self) -> Result<(), CniError> {
        let list = NetworkList::load(&self.settings.conf_dir)?;
        let clock = self.clock();
        for index in 0..list.plugins.len() {
            plugin::find(&self.settings.plugin_dirs, list.kind(index))?;
            if list.has_status_and_gc() {
                self.call(&list, index, "STATUS", &Value::Null, None, &[], clock.rest())?;
            }
        }
        Ok(())
    }

    /// Tells plugins, from version 1.1.0 on, which pods there are, so that they take back what they have for others.
    pub fn collect_garbage(&self) -> Result<(), CniError> {
        let list = NetworkList::load(&self.settings.conf_dir)?;
        if !list.has_status_and_gc() || list.is_gc_disabled {
            return Ok(());
        }
        let valid: Vec<_> = self
            .list()
            .iter()
            .filter(|record| record.network == list.name)
            .map(|record| json!({ "containerID": record.pod.as_str(), "ifname": POD_LINK }))
            .collect();
        let extra = json!({ "cni.dev/valid-attachments": valid });
        let clock = self.clock();
        (0..list.plugins.len())
            .try_for_each(|index| self.call(&list, index, "GC", &extra, None, &[], clock.rest()).map(drop))
    }

    /// Pods whose records cannot be read. Detaching one runs DEL of the list that there is now.
    pub fn damaged(&self) -> Vec<SandboxId> {
        self.records.damaged().into_iter().collect()
    }

    /// The files by which other programs are told what pods were given, with the path of the namespace that each names: also
    /// those of other runtimes.
    pub fn cached(&self) -> Result<Vec<CachedResult>, CniError> {
        cache::list(&self.settings.cache_dir)
    }

    /// Removes such files of a pod that has no record: those for a namespace with the name of `netns`, because another
    /// runtime's pod may have the same id. Fine when there are none, and for a pod with a record, which keeps its file.
    pub fn forget(&self, pod: &SandboxId, netns: &Path) -> Result<(), CniError> {
        let _turn = self.turn(pod)?;
        if self.record(pod).is_some() {
            return Ok(());
        }
        let is_its = |cached: &CachedResult| {
            cached.pod == pod.as_str() && Path::new(&cached.netns).file_name() == netns.file_name()
        };
        self.cached()?.into_iter().filter(is_its).try_for_each(|cached| cache::remove_file(&cached.path))
    }

    /// All records: pods that plugins may have something for.
    pub fn list(&self) -> Vec<CniRecord> {
        self.records.all()
    }

    fn run(
        &self,
        list: &NetworkList,
        index: usize,
        record: &CniRecord,
        command: &'static str,
        previous: Option<&Value>,
        timeout: Duration,
    ) -> Result<Value, CniError> {
        let capabilities: Value = serde_json::from_str(&record.capabilities).unwrap_or_default();
        let extra = list.runtime_config(index, &capabilities);
        let environment = [
            ("CNI_CONTAINERID", record.pod.as_str()),
            ("CNI_NETNS", &record.netns),
            ("CNI_IFNAME", POD_LINK),
            ("CNI_ARGS", &record.args),
        ];
        self.call(list, index, command, &extra, previous, &environment, timeout)
    }

    #[expect(clippy::too_many_arguments, reason = "a call of a plugin is all of them, made in two places")]
    fn call(
        &self,
        list: &NetworkList,
        index: usize,
        command: &'static str,
        extra: &Value,
        previous: Option<&Value>,
        environment: &[(&str, &str)],
        timeout: Duration,
    ) -> Result<Value, CniError> {
        let program = plugin::find(&self.settings.plugin_dirs, list.kind(index))?;
        let input = list.input(index, extra, previous);
        let directories = &self.settings.plugin_dirs;
        let call = Call { program: &program, command, directories, environment, timeout };
        call.run(&input.to_string())
    }

    /// A record in place of a damaged one: plugins know their pods by the id.
    fn substitute(&self, pod: &SandboxId) -> Result<Option<CniRecord>, CniError> {
        if !self.records.damaged().contains(pod) {
            return Ok(None);
        }
        let list = NetworkList::load(&self.settings.conf_dir)?;
        Ok(Some(CniRecord {
            pod: pod.clone(),
            since: Timestamp::from_system(SystemTime::now()),
            network: list.name,
            list: list.text,
            netns: String::new(),
            capabilities: "{}".into(),
            args: String::new(),
            result: None,
        }))
    }

    fn clock(&self) -> Clock {
        Clock { ends: Instant::now() + self.settings.chain_timeout, one: self.settings.timeout }
    }

    fn turn<'a>(&'a self, pod: &'a SandboxId) -> Result<Turn<'a>, CniError> {
        match self.busy.lock().unwrap_or_else(PoisonError::into_inner).insert(pod.clone()) {
            true => Ok(Turn { cni: self, pod }),
            false => Err(CniError::Busy { pod: pod.clone() }),
        }
    }

    fn record(&self, pod: &SandboxId) -> Option<CniRecord> {
        self.records.get(pod)
    }
}

fn capabilities(request: &CniRequest) -> serde_json::Map<String, Value> {
    let mut capabilities = request.capabilities.clone();
    if !request.ports.is_empty() {
        let mapping = |port: &PortMapping| {
            json!({
                "hostPort": port.host_port,
                "containerPort": port.pod_port,
                "protocol": port.protocol.to_string(),
                "hostIP": port.host_ip.map(|ip| ip.to_string()).unwrap_or_default(),
            })
        };
        capabilities.insert("portMappings".into(), request.ports.iter().map(mapping).collect());
    }
    capabilities
}
