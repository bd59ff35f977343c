//! Making, starting and deleting what another shim makes.
//!
//! Making: bundle prepared, its root mounted in this mount namespace (which that shim shares) → `start` again, by which shims of
//! the older API learn of the container → streams → Create → adopted. Undoing: Delete, or the program's `delete` where the
//! shim does not do it any more → streams → root unmounted.
//!
//! Owns: these steps. Never: makes the cgroup or the log; leaves a root mounted whose container is gone.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use mainstay_cgroups::Cgroup;
use mainstay_launch::{ContainerBundle, ROOTFS_DIRECTORY};
use mainstay_task_api::streams::Terminal;
use mainstay_task_api::task as wire;
use mainstay_task_api::well_known_types::empty::Empty;
use oci_spec::runtime::LinuxNamespaceType;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::time::{Instant, timeout};

use super::answer::TaskVersion;
use super::end::End;
use super::external::External;
use super::launch::Launch;
use super::streams::Made;
use super::{Served, TaskShim, bundle};
use crate::backend::Parts;
use crate::container::Container;
use crate::create::TASK_CREATE_MS;
use crate::errand;
use crate::failure::Failure;
use crate::identity::Identity;
use crate::logger;
use crate::process::Process;
use crate::run::FAILED_START_REAP_MS;
use crate::shim::Shim;
use crate::stdin::StdinMode;
use crate::task::Input;

/// What is refused: the root of a user namespace could not get to the bundle, which is for the host's root alone.
pub(super) const USER_NAMESPACE: &str = "a user namespace behind another shim";
/// How long a shim may take to start a process, in milliseconds: less than the supervisor gives this one.
pub(super) const SHIM_START_MS: u64 = 9_000;
/// How long it may take to register an exec, or to close an input, in milliseconds.
pub(super) const SHIM_EXEC_MS: u64 = 4_000;
/// How long it may take to delete something, in milliseconds: it may wait for the last of the output.
pub(super) const SHIM_TASK_DELETE_MS: u64 = 6_000;

impl TaskShim {
    /// See [`crate::backend::Backend::set_up`].
    pub(in crate::backend) async fn set_up(
        self: &Rc<Self>,
        shim: &Rc<Shim>,
        container: &Rc<Container>,
        parts: Parts,
    ) -> Result<(), Failure> {
        let Parts { mut spec, root } = parts;
        if spec.linux().as_ref().is_some_and(has_user_namespace) {
            return Err(Failure::Unsupported { what: USER_NAMESPACE });
        }
        // One for all of it, so that whoever waits hears the reason and not that nobody answered.
        let end = End::in_ms(TASK_CREATE_MS);
        let mut by = self.any_living()?;
        let served = Served { by: by.clone(), streams: None };
        self.served.borrow_mut().insert(container.id.clone(), served);
        bundle::note_pod(&mut spec, shim.arguments.sandbox.as_str());
        let cgroup = container.cgroup.path().to_string();
        let prepared = ContainerBundle {
            spec: &spec,
            directory: &container.bundle,
            root: &root,
            cgroup: Path::new(&cgroup),
        };
        let preparing = errand::done(mainstay_launch::mount_bundle(prepared)?);
        let limit = Duration::from_millis(TASK_CREATE_MS);
        let prepared = timeout(limit, preparing).await.map_err(|_| Failure::Deadline {
            what: format!("mounting the root of container {}", container.id),
            after_ms: TASK_CREATE_MS,
            place: String::new(),
        });
        prepared??.iter().for_each(|warning| logger::warning!("container {}: {warning}", container.id));
        if by.client.version() == TaskVersion::V2 {
            by = self.start_for(shim, container.id.as_str(), &container.bundle, end).await?;
            self.serve(container, |served| served.by = by.clone());
        }
        let (names, streams) = self.streams(&container.init)?;
        let request = wire::CreateTaskRequest {
            id: container.id.as_str().to_owned(),
            bundle: container.bundle.to_string_lossy().into_owned(),
            terminal: container.init.terminal == Terminal::Yes,
            stdin: names.stdin,
            stdout: names.stdout,
            stderr: names.stderr,
            options: self.settings.any(&self.home.runtime_root()).into(),
            ..Default::default()
        };
        let created =
            by.task::<wire::CreateTaskResponse>("Create", &request, end.left_ms(TASK_CREATE_MS)).await;
        let connected = streams.connect(&container.init, Made::from(&created))?;
        self.serve(container, |served| served.streams = Some(connected));
        self.adopt(shim, container, &container.init, created?.pid)?;
        // Reports are never refused.
        let _ = container.init.apply(Input::Prepared);
        self.expect_end(shim, &container.init, &by);
        follow_stdin(&container.init, &by);
        match container.init.initial_size() {
            // Not every runtime looks at the size in the spec.
            Some(size) if container.init.terminal == Terminal::Yes => {
                self.resize(&container.init, size).await
            }
            _ => Ok(()),
        }
    }

    /// See [`crate::backend::Backend::let_run`].
    pub(in crate::backend) async fn let_run(
        self: &Rc<Self>,
        container: &Rc<Container>,
    ) -> Result<(), Failure> {
        let by = self.external_of(&container.id)?;
        let request = wire::StartRequest { id: container.id.as_str().to_owned(), ..Default::default() };
        match by.task::<wire::StartResponse>("Start", &request, SHIM_START_MS).await {
            Ok(_) => {
                // As above.
                let _ = container.init.apply(Input::Executed);
                Ok(())
            }
            Err(error) => {
                let failure = Failure::from(error);
                let _ = container.init.apply(Input::Failed { reason: failure.sentence() });
                // It must not run later, when nobody expects it any more.
                if let Err(failure) = container.kill_all() {
                    logger::error!("container {}: {}", container.id, failure.sentence());
                }
                let reaped = container.init.wait_ended();
                let _ = timeout(Duration::from_millis(FAILED_START_REAP_MS), reaped).await;
                Err(failure)
            }
        }
    }

    /// See [`crate::backend::Backend::tear_down`].
    pub(in crate::backend) async fn tear_down(
        &self,
        shim: &Rc<Shim>,
        container: &Rc<Container>,
        limit: Duration,
    ) {
        let served = self.served.borrow_mut().remove(&container.id);
        self.parked.borrow_mut().forget_container(&container.id);
        let by = served.as_ref().map(|served| served.by.clone());
        if let Some(by) = &by {
            let end = Instant::now() + limit;
            if !deleted(by, container, limit).await {
                let left = end.saturating_duration_since(Instant::now());
                self.clean_up(shim, container.id.as_str(), &container.bundle, left).await;
            }
        }
        drop(served);
        // Also while somebody else waits above: whoever asks for this may remove the bundle next, with what is mounted in it.
        let root = container.bundle.join(ROOTFS_DIRECTORY);
        match unmount(&root, UnmountFlags::DETACH) {
            // It is not mounted, or not any more.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(error) => logger::error!("{root:?} stays mounted: {error}"),
        }
        if let Some(by) = by {
            self.let_go(shim, &by).await;
        }
    }

    /// Has the program clean up what its shim does not, or no longer.
    pub(super) async fn clean_up(&self, shim: &Rc<Shim>, id: &str, bundle: &Path, limit: Duration) {
        let launch =
            Launch { program: &self.settings.program, home: &self.home, id, bundle, cgroup: &self.cgroup };
        if let Err(error) = launch.delete(shim, limit).await {
            logger::warning!("{id}: {}", logger::Chain(&error));
        }
    }

    /// Ends a shim that was started for a container and serves none any more. That of the pod ends with the pod.
    async fn let_go(&self, shim: &Shim, by: &Rc<External>) {
        let is_pods = by.id() == shim.arguments.sandbox.as_str();
        if is_pods || self.served.borrow().values().any(|served| Rc::ptr_eq(&served.by, by)) {
            return;
        }
        self.externals.borrow_mut().retain(|external| !Rc::ptr_eq(external, by));
        by.end_wholly().await;
    }

    /// Ends the shims of the pod, whose containers have been deleted, for a bounded time.
    pub(in crate::backend) async fn end(&self) {
        let ends = self.living().map(|external| async move {
            external.end().await;
        });
        futures::future::join_all(ends).await;
    }

    fn any_living(&self) -> Result<Rc<External>, Failure> {
        if let Some(living) = self.living().next() {
            return Ok(living);
        }
        let last = self.externals.borrow().last().cloned();
        let (shim, reason) = last.map_or_else(
            || (self.settings.program.to_string_lossy().into(), "it was never started".to_owned()),
            |external| (external.name.clone(), external.death().unwrap_or_default()),
        );
        Err(super::CallError::Gone { shim, reason }.into())
    }

    fn serve(&self, container: &Container, change: impl FnOnce(&mut Served)) {
        if let Some(served) = self.served.borrow_mut().get_mut(&container.id) {
            change(served);
        }
    }

    /// Takes charge of a process that the shim says it has made. One that is not in the pod is nobody's that it may name; one
    /// that is not the container's own (a virtual machine is its shim's) is never signalled or reaped by this shim.
    pub(super) fn adopt(
        &self,
        shim: &Rc<Shim>,
        container: &Container,
        process: &Rc<Process>,
        pid: u32,
    ) -> Result<(), Failure> {
        let wrong = |pid| Failure::NoChild { process: process.key.clone(), pid };
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| wrong(0))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty());
        if container.cgroup.pids()?.contains(&pid) {
            process.adopted(Identity::of(pid), pidfd.ok());
            shim.add_process(process);
            return Ok(());
        }
        let ended = pidfd.is_err() || process.key.exec.is_some();
        if ended || Cgroup::open(&shim.layout, &shim.pod_cgroup()).pids()?.contains(&pid) {
            process.adopted(Identity { pid, start_ticks: 0 }, None);
            return Ok(());
        }
        Err(wrong(pid.as_raw_pid()))
    }
}

/// Whether processes are to be in a user namespace.
fn has_user_namespace(linux: &oci_spec::runtime::Linux) -> bool {
    let namespaces = linux.namespaces().as_deref().unwrap_or_default();
    namespaces.iter().any(|namespace| namespace.typ() == LinuxNamespaceType::User)
}

/// Has the shim close its side of an input when ours is closed.
pub(super) fn follow_stdin(process: &Rc<Process>, by: &Rc<External>) {
    if process.stdin.mode() == StdinMode::Null {
        return;
    }
    let (process, by) = (process.clone(), by.clone());
    tokio::task::spawn_local(async move {
        process.stdin.closed().await;
        if process.exit().is_some() {
            return;
        }
        let request = wire::CloseIORequest {
            id: process.key.container.as_str().to_owned(),
            exec_id: process.key.exec_text().to_owned(),
            stdin: true,
            ..Default::default()
        };
        if let Err(error) = by.task::<Empty>("CloseIO", &request, SHIM_EXEC_MS).await {
            logger::warning!("{}: {error}", process.key);
        }
    });
}

/// Has the shim delete a container; whether it did.
async fn deleted(by: &External, container: &Container, limit: Duration) -> bool {
    if by.death().is_some() {
        return false;
    }
    // A part of it is left for the program's own way.
    let limit_ms = u64::try_from(limit.as_millis() * 3 / 4).unwrap_or(u64::MAX).min(SHIM_TASK_DELETE_MS);
    let request = wire::DeleteRequest { id: container.id.as_str().to_owned(), ..Default::default() };
    match by.task::<wire::DeleteResponse>("Delete", &request, limit_ms).await {
        Ok(_) => true,
        Err(error) if error.is_not_found() => true,
        Err(error) => {
            logger::warning!("container {}: {error}", container.id);
            false
        }
    }
}
