//! Making a container's task: files first, then the shim's part, all undone when a step fails.

use std::io;
use std::path::Path;
use std::rc::Rc;

use mainstay_messages::error::Kind;
use mainstay_messages::record::{ContainerRecord, SandboxRecord};
use mainstay_messages::spec::{Privilege, Terminal};
use mainstay_messages::supervisor::CreateTask;
use mainstay_messages::{Error, ProcessIdentity, Result};
use mainstay_task_api::task::{CreateTaskRequest, DeleteRequest, Mount};
use oci_spec::runtime::LinuxResources;

use super::{call, known, log_value, process_key, remove_directly, start_failed, stdin_value};
use crate::cgroup;
use crate::files::{self, Root};
use crate::host::{DEV, device_nodes};
use crate::identity::identity_of;
use crate::link::CallError;
use crate::machine::Machine;
use crate::oci::{self, PodNamespaces, Surroundings};
use crate::shim::Shim;
use crate::state::Begun;

/// Sets up PID 1 of a container.
pub(crate) async fn create(shim: Rc<Shim>, message: CreateTask) -> Result<ProcessIdentity> {
    shim.alive()?;
    let CreateTask { record, sandbox } = message;
    let namespaces = shim.namespaces(&sandbox.spec).await?;
    let log = log_value(&record.log_path)?;
    let process = process_key(&record.id, None);
    // Else the undoing of this creation would take away what an earlier one has made.
    if shim.ledger.borrow_mut().begun(process.clone()) == Begun::Known {
        return Err(known(Kind::Container, &record.id, "create"));
    }
    let made = async {
        let root = prepare(&shim, &record, sandbox, namespaces).await?;
        let request = request(&shim.machine, &record, &root, log)?;
        let call = call(&shim, "the creation", &record.id, shim.machine.settings.timeouts.create_ms);
        let created =
            shim.link.call(call, async |services, context| services.task.create(context, &request).await);
        let pid = created.await.map_err(start_failed)?.pid;
        identity(&shim.machine, pid)
    };
    let made = made.await;
    if made.is_err() {
        shim.ledger.borrow_mut().withdrawn(&process);
        undo(&shim, &record).await;
    }
    made
}

/// Works out the spec, checks that the machine can honour it, and makes bundle and layer.
async fn prepare(
    shim: &Shim,
    record: &ContainerRecord,
    sandbox: SandboxRecord,
    namespaces: PodNamespaces,
) -> Result<Root> {
    let what = format!("the making of files for container {}", record.id);
    let record = record.clone();
    let work = move |machine: &Machine| {
        let mut host = machine.host.clone();
        if record.spec.security.privilege == Privilege::Privileged {
            host.devices = device_nodes(Path::new(DEV));
        }
        let pod_cgroup = machine.pod_cgroup(&sandbox.id)?.to_string();
        let around = Surroundings {
            pod: &namespaces,
            host: &host,
            oom_score: machine.settings.oom_score,
            pod_cgroup: &pod_cgroup,
        };
        let spec = oci::container_spec(&record, &sandbox, around)?;
        let limits = spec.linux().as_ref().and_then(|linux| linux.resources().as_ref());
        check_limits(machine, limits)?;
        files::check_sources(&record)?;
        files::prepare_container(&machine.directories, &record, &spec)
    };
    shim.machine.blocking(what, work).await
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
            let lower = text("rootfs", lower)?;
            if lower.contains(':') {
                // It separates layers.
                return Err(Error::invalid("rootfs", format!("{lower:?}"), "a path without ':'"));
            }
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

/// Takes away what a creation that failed has left. What cannot be taken away now is left to the removal of the
/// container, which does the same again.
async fn undo(shim: &Shim, record: &ContainerRecord) {
    let request = DeleteRequest { id: record.id.as_str().to_owned(), ..Default::default() };
    let call = call(shim, "the removal", &record.id, shim.machine.settings.timeouts.kill_by_shim_ms);
    let deleted =
        shim.link.call(call, async |services, context| services.task.delete(context, &request).await).await;
    match deleted {
        Ok(_) | Err(CallError::Apart { .. }) => {}
        Err(error) if error.is_not_found() => {}
        Err(error) => {
            tracing::warn!(container = %record.id, ?error, "the shim has not removed a failed task")
        }
    }
    if let Err(error) = remove_directly(&shim.machine, &record.sandbox, &record.id).await {
        tracing::warn!(container = %record.id, %error, "a failed creation left something behind");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::Directories;

    #[test]
    fn an_overlay_names_its_directories() {
        let layer = Directories::new("/run/m", "/lib/m").layer(&"box".parse().expect("a good id"));
        let mount = root_mount(&Root::Overlay { lower: "/".into(), layer: layer.clone() }).expect("good");
        assert_eq!(mount.type_, "overlay");
        assert_eq!(
            mount.options,
            ["lowerdir=/", "upperdir=/lib/m/layers/box/upper", "workdir=/lib/m/layers/box/work"]
        );
        let error =
            root_mount(&Root::Overlay { lower: "/a:b".into(), layer }).expect_err("two layers").to_string();
        assert!(error.starts_with("rootfs"), "{error}");
    }
}
