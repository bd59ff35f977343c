//! Creating a container, and registering an exec, as containerd asks for it.
//!
//! Owns: what its requests say otherwise than our supervisor's: the bundle, the root, the streams, the cgroup. Never: makes a
//! process, which `create` and `run` do for both.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use mainstay_cgroups::{Cgroup, CgroupPath, Occupancy, default_device_rules};
use mainstay_messages::ContainerId;
use mainstay_task_api::convert::ProcessKey;
use mainstay_task_api::streams::Terminal;
use mainstay_task_api::task::{CreateTaskRequest, ExecProcessRequest};
use oci_spec::runtime::{LinuxNamespaceType, Spec};

use super::bundle;
use super::face::Face;
use super::oom;
use super::rootfs::Root;
use super::streams::Streams;
use crate::container::{Container, read_spec};
use crate::create::{Plan, make};
use crate::failure::Failure;
use crate::output::{Output, WithoutClient};
use crate::process::{Process, StreamNames};
use crate::run;
use crate::shim::Shim;
use crate::stdin::{Stdin, StdinMode};

/// Creates a container; answers with the process id of its PID 1.
pub(super) async fn create(
    shim: &Rc<Shim>,
    face: &Rc<Face>,
    request: &CreateTaskRequest,
) -> Result<u32, Failure> {
    let key = ProcessKey::parse(&request.id, "")?;
    refuse_what_is_not_offered(request)?;
    let bundle = bundle_of(request)?;
    let mut spec = read_spec(&bundle)?;
    allow_default_devices(&mut spec);
    let cgroup = Cgroup::open(&shim.layout, &cgroup_of(face, &key.container, &spec)?);
    must_be_free(&cgroup)?;
    refuse_user_namespace(&spec)?;
    let names = StreamNames {
        stdin: request.stdin.clone(),
        stdout: request.stdout.clone(),
        stderr: request.stderr.clone(),
    };
    let (init, streams) = process(shim, key.clone(), names, request.terminal)?;
    let container = Container::new(key.container, bundle.clone(), cgroup, init.clone(), shim.backend());
    shim.add_container(container.clone())?;
    let prepared = async {
        // Before the cgroup is made, so that `delete` knows it whatever becomes of this shim.
        bundle::note_cgroup(&bundle, container.cgroup.path()).map_err(file(&bundle, "written to"))?;
        streams.open(&init.output, &request.id, &face.namespace).await?;
        streams.feed(&init.stdin)?;
        let of_spec = spec.root().as_ref().map(|root| root.path().as_path());
        let mounted = Root::mount(&bundle, &request.rootfs, of_spec).await?;
        // Somebody may have come into it meanwhile. From here to its making nothing waits.
        must_be_free(&container.cgroup)?;
        Ok(mounted)
    };
    let (root, source) = match prepared.await {
        Ok(prepared) => prepared,
        Err(failure) => {
            // It was not made: who is in it by now is none of ours, and must not be killed by `delete`.
            bundle::forget_cgroup(&bundle);
            let_go(&init);
            shim.remove_container(&container);
            return Err(failure);
        }
    };
    let made = make(shim.clone(), container.clone(), Plan { spec, root: source, log: None }).await;
    // The container has it in its own mount namespace by now, or will never have it.
    drop(root);
    let pid = made.inspect_err(|_| let_go(&init))?;
    oom::begin(face, &container);
    bundle::note_pid(&bundle, pid).unwrap_or_else(|error| {
        crate::logger::warning!("container {}: its process id is not in its bundle: {error}", request.id);
    });
    Ok(pid)
}

/// Registers an exec.
pub(super) async fn register_exec(
    shim: &Rc<Shim>,
    face: &Face,
    request: &ExecProcessRequest,
) -> Result<ProcessKey, Failure> {
    let (container, key, program) = run::admit_exec(shim, request)?;
    let names = StreamNames {
        stdin: request.stdin.clone(),
        stdout: request.stdout.clone(),
        stderr: request.stderr.clone(),
    };
    let (process, streams) = process(shim, key.clone(), names, request.terminal)?;
    process.set_program(program);
    run::enter_exec(&container, process.clone())?;
    let opened = async {
        streams.open(&process.output, &request.exec_id, &face.namespace).await?;
        streams.feed(&process.stdin)
    };
    if let Err(failure) = opened.await {
        process.drop_unstarted();
        if let Some(exec) = &key.exec {
            container.remove_exec(exec);
        }
        return Err(failure);
    }
    Ok(key)
}

fn process(
    shim: &Shim,
    key: ProcessKey,
    names: StreamNames,
    terminal: bool,
) -> Result<(Rc<Process>, Streams), Failure> {
    let terminal = if terminal { Terminal::Yes } else { Terminal::No };
    let streams = Streams::parse(&names, terminal)?;
    let stdin = if streams.has_stdin() { StdinMode::Open } else { StdinMode::Null };
    let output = Output::new(shim.scratch.clone(), WithoutClient::Flow);
    Ok((Process::new(key, names, terminal, output, Stdin::new(stdin)), streams))
}

/// Closes the streams of a process that has not come to be.
fn let_go(process: &Process) {
    process.output.finish_now();
    process.stdin.close();
}

fn bundle_of(request: &CreateTaskRequest) -> Result<PathBuf, Failure> {
    let path = Path::new(&request.bundle);
    let proper = path.is_absolute() && !path.components().any(|part| part == std::path::Component::ParentDir);
    if proper {
        // As the working directory of this shim is told: what lies below it is looked up here and not on the host.
        return std::fs::canonicalize(path).map_err(file(path, "found"));
    }
    Err(Failure::Invalid {
        field: "bundle",
        value: format!("{:?}", request.bundle),
        expected: "an absolute path without \"..\"",
    })
}

fn refuse_what_is_not_offered(request: &CreateTaskRequest) -> Result<(), Failure> {
    if !request.checkpoint.is_empty() || !request.parent_checkpoint.is_empty() {
        return Err(Failure::Unsupported { what: "restoring a checkpoint" });
    }
    match request.options.as_ref() {
        Some(options) if !options.value.is_empty() => Err(Failure::Invalid {
            field: "options",
            value: format!("type {:?}", options.type_url),
            expected: "none: Mainstay's shim has no options",
        }),
        _ => Ok(()),
    }
}

/// A user namespace changes who owns the root, and containerd has its own ways to see to that.
fn refuse_user_namespace(spec: &Spec) -> Result<(), Failure> {
    let namespaces = spec.linux().as_ref().and_then(|linux| linux.namespaces().as_ref());
    match namespaces.is_some_and(|all| all.iter().any(|one| one.typ() == LinuxNamespaceType::User)) {
        true => Err(Failure::Unsupported { what: "a user namespace under containerd" }),
        false => Ok(()),
    }
}

/// A spec that lists devices means: besides those that every container may use. Our supervisor names these too; containerd
/// leaves them to the runtime, and a pause container has nothing but "deny all".
fn allow_default_devices(spec: &mut Spec) {
    let resources = spec.linux_mut().as_mut().and_then(|linux| linux.resources_mut().as_mut());
    let devices = resources.and_then(|resources| resources.devices_mut().as_mut());
    if let Some(devices) = devices.filter(|devices| !devices.is_empty()) {
        devices.extend(default_device_rules());
    }
}

/// The container's cgroup: what the spec names, else NAMESPACE/ID.
fn cgroup_of(face: &Face, id: &ContainerId, spec: &Spec) -> Result<CgroupPath, Failure> {
    let named = spec.linux().as_ref().and_then(|linux| linux.cgroups_path().as_ref());
    let named = named.and_then(|path| path.to_str()).unwrap_or_default();
    let path = match named {
        "" => format!("/{}/{id}", face.namespace),
        path if path.starts_with('/') => path.to_owned(),
        path => format!("/{path}"),
    };
    let expected = match named.split(':').count() {
        3 if !named.starts_with('/') => {
            "a path of directories: units of systemd (SLICE:PREFIX:NAME) are not supported, and SystemdCgroup must be off"
        }
        _ => "a path of names of letters, digits and \"_-.:@+\", below the root",
    };
    let invalid = || Failure::Invalid { field: "linux.cgroupsPath", value: format!("{named:?}"), expected };
    if named.split(':').count() == 3 && !named.starts_with('/') {
        return Err(invalid());
    }
    CgroupPath::parse(&path).map_err(|_| invalid())
}

/// What is in the cgroup of a container is killed with it.
fn must_be_free(cgroup: &Cgroup) -> Result<(), Failure> {
    if cgroup.occupancy()? == Occupancy::Empty {
        return Ok(());
    }
    Err(Failure::Invalid {
        field: "linux.cgroupsPath",
        value: format!("{:?}", cgroup.path().to_string()),
        expected: "a cgroup in which no process is: it is to be this container's alone",
    })
}

fn file(path: &Path, doing: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |source| Failure::File { path: path.to_owned(), doing, source }
}

#[cfg(test)]
mod tests {
    use super::super::events::Events;
    use super::*;

    fn cgroup(path: &str) -> Result<String, Failure> {
        let face = Face::new("k8s.io".to_owned(), "/bundle".into(), Events::new("k8s.io".to_owned()));
        let spec = serde_json::json!({ "ociVersion": "1.1.0", "linux": { "cgroupsPath": path } });
        let spec = serde_json::from_value(spec).expect("a spec");
        cgroup_of(&face, &"web".parse().expect("good"), &spec).map(|path| path.to_string())
    }

    #[test]
    fn the_cgroup_is_what_the_spec_names() {
        assert_eq!(cgroup("/default/web").expect("good"), "/default/web");
        assert_eq!(cgroup("kubepods/pod1/web").expect("good"), "/kubepods/pod1/web");
        assert_eq!(cgroup("").expect("good"), "/k8s.io/web");
    }

    /// The pause container of CRI could not open its /dev/null.
    #[test]
    fn a_list_of_devices_is_besides_the_default_ones() {
        let spec = |devices: serde_json::Value| {
            let spec = serde_json::json!({ "ociVersion": "1.1.0", "linux": { "resources": { "devices": devices } } });
            let mut spec = serde_json::from_value(spec).expect("a spec");
            allow_default_devices(&mut spec);
            let resources = spec.linux().as_ref().and_then(|linux| linux.resources().clone()).expect("kept");
            resources.devices().clone().unwrap_or_default().len()
        };
        assert_eq!(spec(serde_json::json!([])), 0, "nothing is restricted");
        assert_eq!(
            spec(serde_json::json!([{ "allow": false, "access": "rwm" }])),
            1 + default_device_rules().len()
        );
    }

    #[test]
    fn what_is_no_directory_is_refused() {
        let systemd = cgroup("system.slice:cri-containerd:web").expect_err("a unit").sentence();
        assert!(systemd.contains("SystemdCgroup"), "{systemd}");
        for bad in ["/", "/a/../b", "/../web"] {
            assert!(matches!(cgroup(bad), Err(Failure::Invalid { field: "linux.cgroupsPath", .. })), "{bad}");
        }
    }
}
