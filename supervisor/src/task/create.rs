//! Create-container: the steps that make a container's files and task, and what undoes each. Removing a container is this
//! saga undone ([`super::delete`]).

use std::cell::{OnceCell, RefCell};
use std::io;
use std::path::Path;
use std::rc::Rc;

use mainstay_messages::error::Kind;
use mainstay_messages::record::{ContainerRecord, SandboxRecord};
use mainstay_messages::router::TaskKey;
use mainstay_messages::spec::{ContainerPid, Privilege, Terminal};
use mainstay_messages::supervisor::{CreateTask, TaskKnowledge, TaskMade, TaskState, TaskStatus};
use mainstay_messages::{Error, ProcessIdentity, Result};
use mainstay_task_api::task::{CreateTaskRequest, Mount};
use oci_spec::runtime::{LinuxResources, Spec};

use super::delete::{self, Remains, Was};
use super::{Making, call, known, log_value, process_key, query, start_failed, stdin_value};
use crate::cdi;
use crate::cgroup;
use crate::disks;
use crate::files::{self, Root};
use crate::handlers::{Runner, handler_name};
use crate::hooks;
use crate::host::{DEV, UPLINK_RESOLVER, device_nodes, name_file, named_devices};
use crate::identity::{PidNamespace, identity_of, user_of};
use crate::lsm::{AppArmorFacts, SelinuxFacts};
use crate::machine::Machine;
use crate::movement::Movement;
use crate::oci::{self, PodNamespaces, Surroundings};
use crate::relabel;
use crate::saga::{Progress, Saga, Step};
use crate::shim::Shim;
use crate::state::Begun;
use crate::user_namespaces;
use crate::volumes;

/// The version of the extension since which a shim sets AppArmor profiles and SELinux labels.
const LABELS_PROTOCOL: u32 = 3;

/// See the module.
pub(crate) static CREATE_CONTAINER: Saga<Creation, Remains> = Saga {
    name: "create-container",
    steps: &[
        Step {
            // Before anything is made of it: plugins may change all of it. They hear of its end when nothing is left.
            name: "hook",
            act: |creation| Box::pin(hooks::create_container(creation)),
            undo: Some(|remains| Box::pin(hooks::container_is_gone(remains))),
            undone_after: &["bundle", "layer", "log", "task"],
        },
        Step {
            name: "bundle",
            act: |creation| Box::pin(make_bundle(creation)),
            undo: Some(|remains| Box::pin(delete::remove_bundle(remains))),
            // Its exit record is there.
            undone_after: &["task"],
        },
        Step {
            name: "layer",
            act: |creation| Box::pin(make_layer(creation)),
            undo: Some(|remains| Box::pin(delete::remove_layer(remains))),
            undone_after: &["task"],
        },
        Step {
            name: "volumes",
            act: |creation| Box::pin(fill_volumes(creation)),
            // They are in the directory of the layer.
            undo: None,
            undone_after: &[],
        },
        Step {
            name: "log",
            act: |creation| Box::pin(make_log_directory(creation)),
            undo: Some(|remains| Box::pin(delete::remove_logs(remains))),
            undone_after: &["task"],
        },
        Step {
            name: "task",
            act: |creation| Box::pin(make_task(creation)),
            undo: Some(|remains| Box::pin(delete::remove_task(remains))),
            undone_after: &[],
        },
    ],
};

/// A container that is being made.
pub(crate) struct Creation {
    making: Making,
    remains: Remains,
    shim: Rc<Shim>,
    asked: ContainerRecord,
    /// With what plugins have changed.
    adjusted: OnceCell<ContainerRecord>,
    pod: SandboxRecord,
    namespaces: PodNamespaces,
    other_pid: Option<PidNamespace>,
    root: RefCell<Option<Root>>,
    process: OnceCell<ProcessIdentity>,
}

impl AsRef<Remains> for Creation {
    fn as_ref(&self) -> &Remains {
        &self.remains
    }
}

impl Creation {
    /// What is made, with what plugins have changed of it so far.
    pub fn record(&self) -> &ContainerRecord {
        self.adjusted.get().unwrap_or(&self.asked)
    }

    /// Its pod.
    pub fn pod(&self) -> &SandboxRecord {
        &self.pod
    }

    /// What is there of it so far.
    pub fn remains(&self) -> &Remains {
        &self.remains
    }

    /// What plugins have made of it; empty until they were asked.
    pub fn adjusted(&self) -> &OnceCell<ContainerRecord> {
        &self.adjusted
    }
}

impl Progress for Creation {
    fn at(&self, step: &'static str) {
        self.making.at(step);
    }
}

/// Sets up PID 1 of a container. When it fails, nothing is left, or its deletion finds it.
///
/// It is under way from this call on, so that whoever asks about the container next does not hear that it is not known.
pub(crate) fn create(
    shim: Rc<Shim>,
    message: CreateTask,
) -> impl Future<Output = Result<TaskMade>> + 'static {
    let process = process_key(&message.record.id, None);
    let making = shim.alive().and_then(|()| shim.makings.begin(process, "create", "wait for its turn"));
    async move { make(shim, message, making?).await }
}

async fn make(shim: Rc<Shim>, message: CreateTask, making: Making) -> Result<TaskMade> {
    let CreateTask { record, sandbox } = message;
    let id = record.id.clone();
    // First of all, so that a removal that is asked for from now on comes after it.
    let remains = Remains::of(&shim.machine, &sandbox.id, &id, Some(Rc::clone(&shim)), Was::Failed).await?;
    making.at("prepare");
    let namespaces = shim.namespaces(&sandbox.spec).await?;
    let other_pid = other_pid(&shim, &record).await?;
    // Else the undoing of this creation would take away what an earlier one has made.
    if shim.ledger.borrow_mut().begun(process_key(&id, None)) == Begun::Known {
        return Err(known(Kind::Container, &id, "create"));
    }
    let (root, made) = (RefCell::default(), OnceCell::new());
    let creation = Creation {
        making,
        remains,
        shim: Rc::clone(&shim),
        asked: record,
        adjusted: OnceCell::new(),
        pod: sandbox,
        namespaces,
        other_pid,
        root,
        process: made,
    };
    let (created, report) = CREATE_CONTAINER.run(&creation).await;
    shim.machine.note_container(&shim.sandbox, &id, report);
    if created.is_err() {
        shim.ledger.borrow_mut().disowned(&process_key(&id, None));
    }
    created?;
    let process = creation.process.get().cloned();
    let process = process.ok_or_else(|| Error::internal("a creation", "it has no process"))?;
    hooks::container_created(&creation, &process);
    let user = user_of(&process, creation.namespaces.ids.as_ref());
    Ok(TaskMade { process, adjustment: creation.record().adjustment.clone(), user })
}

/// The pid namespace of the container of the pod that this one names, held until this one is made.
async fn other_pid(shim: &Rc<Shim>, record: &ContainerRecord) -> Result<Option<PidNamespace>> {
    let ContainerPid::Container { container } = &record.spec.pid else { return Ok(None) };
    let task = TaskKey { sandbox: shim.sandbox.clone(), container: container.clone(), exec: None };
    let refused = |why: &str| {
        Error::invalid(
            "pid",
            format!("container {container}"),
            format!("a running container of the same pod ({why})"),
        )
    };
    match query(Rc::clone(shim), task).await? {
        TaskKnowledge::Known(TaskState { process: Some(process), status, .. }) => match status {
            TaskStatus::Running | TaskStatus::Paused => {
                PidNamespace::open(&process).map(Some).map_err(|error| refused(&error.to_string()))
            }
            TaskStatus::Created => Err(refused("it is not started")),
            TaskStatus::Exited(_) => Err(refused("it has ended")),
        },
        TaskKnowledge::Known(_) | TaskKnowledge::NotKnown | TaskKnowledge::ShimGone => {
            Err(refused("the pod has none of this id"))
        }
    }
}

/// Works out the spec, checks that the machine can honour it, and makes the bundle.
async fn make_bundle(creation: &Creation) -> Result<()> {
    let what = format!("the making of files for container {}", creation.record().id);
    let (record, pod) = (creation.record().clone(), creation.pod.clone());
    let namespaces = creation.namespaces.clone();
    let other_pid = creation.other_pid.as_ref().map(PidNamespace::path);
    let protocol = creation.shim.link.protocol();
    let work = move |machine: &Machine| {
        let mut host = machine.host.clone();
        if namespaces.ids.is_some() && record.spec.rootfs.has_layer() {
            user_namespaces::check_layers(machine.host.kernel)?;
        }
        if record.spec.security.privilege == Privilege::Privileged {
            host.devices = device_nodes(Path::new(DEV));
        }
        host.named_devices = named_devices(&record.spec.devices)?;
        host.disks = disks::numbers(&record.spec.resources.block_io)?;
        host.cdi = cdi::edits(&cdi_devices(&record), &machine.settings.cdi_dirs)?;
        host.apparmor = AppArmorFacts::detect();
        host.selinux = SelinuxFacts::detect();
        host.resolver = name_file("/etc/resolv.conf");
        host.uplink_resolver = name_file(UPLINK_RESOLVER);
        host.hosts = name_file("/etc/hosts");
        let pod_cgroup = machine.pod_cgroup(&pod.id)?.to_string();
        let layer = machine.directories.layer(&record.id);
        let around = Surroundings {
            layer: &layer,
            pod: &namespaces,
            host: &host,
            oom_score: machine.settings.oom_score,
            pod_cgroup: &pod_cgroup,
            other_pid: other_pid.as_deref(),
        };
        let spec = oci::container_spec(&record, &pod, around)?;
        if protocol < LABELS_PROTOCOL && has_label(&spec) {
            let reason = "the shim of its pod is of an older version, which would run it without".to_owned();
            return Err(Error::Unsupported {
                setting: "an AppArmor profile or SELinux label".to_owned(),
                reason,
            });
        }
        let handler = pod.spec.handler.as_ref();
        if let Some(program) = machine.settings.handlers.runner(handler).ok().and_then(Runner::runtime) {
            machine.runtimes.check(handler_name(handler), &program, &machine.layout, &spec)?;
        }
        let limits = spec.linux().as_ref().and_then(|linux| linux.resources().as_ref());
        check_limits(machine, limits)?;
        files::check_sources(&record)?;
        if let Some(label) = host.selinux.label(&record.spec.security) {
            relabel::relabel(&record.spec.mounts, &label)?;
        }
        let names = oci::name_files(&record, &pod, &host);
        files::make_bundle(&machine.directories, &record, &spec, &names)
    };
    creation.remains.turn.blocking(what, work).await
}

async fn make_layer(creation: &Creation) -> Result<()> {
    let what = format!("the making of a layer for container {}", creation.record().id);
    let (record, ids) = (creation.record().clone(), creation.namespaces.ids.clone());
    let work = move |machine: &Machine| files::make_layer(&machine.directories, &record, ids.as_ref());
    let root = creation.remains.turn.blocking(what, work).await?;
    creation.root.replace(Some(root));
    Ok(())
}

/// Copies what the image has where the container has volumes.
async fn fill_volumes(creation: &Creation) -> Result<()> {
    if creation.record().spec.rootfs.volumes().is_empty() {
        return Ok(());
    }
    let what = format!("the filling of volumes for container {}", creation.record().id);
    let record = creation.record().clone();
    let silence_ms = creation.remains.machine.settings.timeouts.files_ms;
    let movement = Movement::default();
    let moving = movement.clone();
    let work = move |machine: &Machine| volumes::fill(&machine.directories, &record, &moving);
    creation.remains.turn.blocking_while_moving(what, silence_ms, &movement, work).await
}

async fn make_log_directory(creation: &Creation) -> Result<()> {
    let what = format!("the making of a log directory for container {}", creation.record().id);
    let record = creation.record().clone();
    let work = move |machine: &Machine| files::make_logs(&machine.directories, &record);
    creation.remains.turn.blocking(what, work).await
}

/// Has the shim make the cgroup, the log and the process.
async fn make_task(creation: &Creation) -> Result<()> {
    if creation.process.get().is_some() {
        return Ok(());
    }
    let (shim, record) = (&creation.shim, creation.record());
    let root = creation.root.borrow().clone();
    let root = root.ok_or_else(|| Error::internal("a creation", "it has no root"))?;
    let request = request(&shim.machine, record, &root, log_value(&record.log_path)?)?;
    let call = call(shim, "the creation", &record.id, shim.machine.settings.timeouts.create_ms);
    let created =
        shim.link.call(call, async |services, context| services.task.create(context, &request).await);
    let pid = created.await.map_err(start_failed)?.pid;
    let identity = identity(&shim.machine, pid)?;
    shim.learned(&record.id, identity.clone());
    // Empty, as this step has just seen.
    let _ = creation.process.set(identity);
    Ok(())
}

/// The devices that its spec names, and those that plugins have added.
fn cdi_devices(record: &ContainerRecord) -> Vec<String> {
    let mut names = record.spec.cdi_devices.clone();
    let added = record.adjustment.iter().flat_map(|adjustment| &adjustment.cdi_devices);
    names.extend(added.filter(|name| !record.spec.cdi_devices.contains(name)).cloned());
    names
}

fn has_label(spec: &Spec) -> bool {
    spec.process()
        .as_ref()
        .is_some_and(|process| process.apparmor_profile().is_some() || process.selinux_label().is_some())
}

fn check_limits(machine: &Machine, limits: Option<&LinuxResources>) -> Result<()> {
    limits.map_or(Ok(()), |limits| machine.layout.check(limits).map(drop).map_err(cgroup::error))
}

fn request(
    machine: &Machine,
    record: &ContainerRecord,
    root: &Root,
    log: String,
) -> Result<CreateTaskRequest> {
    let bundle = machine.directories.bundle(&record.sandbox, &record.id);
    Ok(CreateTaskRequest {
        id: record.id.as_str().to_owned(),
        bundle: text("state_dir", &bundle)?,
        rootfs: vec![root_mount(root)?],
        terminal: record.spec.process.terminal != Terminal::None,
        stdin: stdin_value(record.spec.stdin),
        stdout: log.clone(),
        stderr: log,
        ..Default::default()
    })
}

fn root_mount(root: &Root) -> Result<Mount> {
    let mut mount = Mount::default();
    match root {
        Root::Bind(path) => {
            mount.type_ = "bind".to_owned();
            mount.source = text("rootfs", path)?;
            mount.options = vec!["rbind".to_owned(), "rw".to_owned()];
        }
        Root::Overlay { lower, layer } => {
            let lower = lower.iter().map(|path| lower_text(path)).collect::<Result<Vec<_>>>()?.join(":");
            mount.type_ = "overlay".to_owned();
            mount.source = "overlay".to_owned();
            mount.options = vec![
                format!("lowerdir={lower}"),
                format!("upperdir={}", text("root_dir", &layer.upper)?),
                format!("workdir={}", text("root_dir", &layer.work)?),
            ];
        }
    }
    Ok(mount)
}

/// A lower directory. A colon separates it from the next one.
fn lower_text(path: &Path) -> Result<String> {
    let text = text("rootfs", path)?;
    if text.contains(':') {
        return Err(Error::invalid("rootfs", format!("{text:?}"), "a path without ':'"));
    }
    Ok(text)
}

/// Paths go to the shim as text.
fn text(field: &str, path: &Path) -> Result<String> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Error::invalid(field, format!("{path:?}"), "a path in UTF-8"))
}

/// The identity of the PID 1 that the shim has made. One that was killed since has no start time any more: 0 is no
/// other process's either.
fn identity(machine: &Machine, pid: u32) -> Result<ProcessIdentity> {
    match identity_of(pid) {
        Ok(identity) => Ok(identity),
        Err(error) if error.kind() == io::ErrorKind::NotFound && pid != 0 => {
            Ok(ProcessIdentity { pid, start_ticks: 0, boot_id: machine.boot_id.clone() })
        }
        Err(error) => Err(Error::internal(format!("the answer of the shim: process {pid}"), error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::Directories;

    #[test]
    fn an_overlay_names_its_directories() {
        let layer = Directories::new("/run/m", "/lib/m").layer(&"box".parse().expect("a good id"));
        let mount =
            root_mount(&Root::Overlay { lower: vec!["/top".into(), "/".into()], layer: layer.clone() })
                .expect("good");
        assert_eq!(mount.type_, "overlay");
        assert_eq!(
            mount.options,
            ["lowerdir=/top:/", "upperdir=/lib/m/layers/box/upper", "workdir=/lib/m/layers/box/work"]
        );
        let error = root_mount(&Root::Overlay { lower: vec!["/a:b".into()], layer })
            .expect_err("two layers")
            .to_string();
        assert!(error.starts_with("rootfs"), "{error}");
    }
}
