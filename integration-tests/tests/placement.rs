//! Pods that are not all the runtime's own: in a cgroup of somebody else's, or with the host's IPC.

use std::fs;
use std::path::Path;

use mainstay::{
    CgroupParent, Error, IpcMode, PodIdentity, Repair, Runtime, SandboxId, SandboxPhase, SandboxSpec,
    Shutdown,
};
use mainstay_integration_tests::ledger::{Ledger, cgroup_tops};
use mainstay_integration_tests::{Shorthand, World, says, wait, world};
use rustix::process::{Pid, Signal, kill_process};

/// A cgroup that is not the runtime's. Killed and removed at the end.
struct Foreign(String);

impl Foreign {
    fn beside(world: &World) -> Self {
        Self(format!("{}-foreign", world.cgroup()))
    }

    fn parent(&self) -> CgroupParent {
        format!("{}/burstable/pod1", self.0).parse().expect("good")
    }

    fn ledger(&self) -> Ledger {
        Ledger::take(Path::new("/nonexistent"), &self.0)
    }

    /// The pods' groups that are in it.
    fn holds(&self) -> usize {
        let tops = cgroup_tops(self.parent().as_str());
        let inner = tops.iter().flat_map(|top| fs::read_dir(top).into_iter().flatten().flatten());
        inner.filter(|entry| entry.path().is_dir()).count()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        for pid in self.ledger().processes {
            let _ = kill_process(Pid::from_raw(pid.cast_signed()).expect("a process id"), Signal::KILL);
        }
        for path in self.ledger().cgroups.iter().rev() {
            let _ = fs::remove_dir(path);
        }
    }
}

fn spec(name: &str, change: impl FnOnce(&mut SandboxSpec)) -> SandboxSpec {
    let mut spec = SandboxSpec::new(name.parse().expect("a name"));
    change(&mut spec);
    spec
}

async fn pod(runtime: &Runtime, spec: SandboxSpec) -> SandboxId {
    wait::finish("a pod runs", runtime.run_sandbox(spec)).await.expect("it runs")
}

async fn assert_clean(runtime: &Runtime) {
    let findings = wait::finish("an audit", runtime.audit(Repair::No)).await.expect("it looks");
    assert!(findings.is_empty(), "{findings:#?}");
}

/// Whoever accounts for pods (kubelet does) finds them where it said they should be. They outlive the runtime there, are found
/// again, also when the store is lost, are killed with their shim, and leave nothing but what was somebody else's.
#[tokio::test]
async fn a_pod_in_a_cgroup_of_somebody_else_is_kept_like_any_other() {
    let world = world!();
    let foreign = Foreign::beside(&world);
    let runtime = world.start().await;
    let parent = Some(foreign.parent());
    let one = pod(&runtime, spec("one", |spec| spec.cgroup_parent = parent.clone())).await;
    let runs = runtime.started(&one, "runs", "exec sleep 1000").await;
    let place = says(&runtime, &runs, "cat /proc/1/cgroup").await;
    assert!(!place.contains(foreign.0.as_str()), "a container sees its own cgroup as the root: {place}");
    let pid = runtime.container(&runs).expect("listed").record.process.clone().expect("it runs").pid;
    let place = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("readable");
    assert!(place.contains(&format!("{}/{one}/{runs}", foreign.parent())), "{place}");
    assert!(runtime.stats(&runs).await.expect("measured").memory_usage_bytes.is_some_and(|bytes| bytes > 0));
    assert_clean(&runtime).await;

    // The store goes too: the pod's own directory knows where it is.
    runtime.close(Shutdown::LeaveRunning).await.expect("closed");
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(world.path().join(format!("root/store.db{suffix}")));
    }
    let runtime = world.start().await;
    wait::until("the pod is adopted", || {
        (runtime.sandbox(&one).ok()?.record.phase == SandboxPhase::Ready).then_some(())
    })
    .await;
    assert_eq!(says(&runtime, &runs, "echo hello").await, "hello");
    assert_clean(&runtime).await;

    // Another one beside it, whose shim dies: nothing of it runs on, and nothing of its neighbour ends.
    let two = pod(&runtime, spec("two", |spec| spec.cgroup_parent = parent)).await;
    let dies = runtime.started(&two, "dies", "exec sleep 1000").await;
    let shim = runtime.sandbox(&two).expect("listed").record.shim.clone().expect("a shim").process.pid;
    kill_process(Pid::from_raw(shim.cast_signed()).expect("a process id"), Signal::KILL)
        .expect("it is there");
    runtime.exit_of(&dies).await;
    assert_eq!(says(&runtime, &runs, "echo hello").await, "hello");
    runtime.remove_sandbox(&two).await.expect("removed");
    runtime.remove_sandbox(&one).await.expect("removed");
    assert_eq!(foreign.holds(), 0, "nothing of a pod is left: {:#?}", foreign.ledger());
    assert!(!cgroup_tops(foreign.parent().as_str()).is_empty(), "what is not ours stays");
    world.finish(runtime).await;
}

/// A pod whose shims end with their runtime takes the cgroup above it along, which must not be somebody else's.
#[tokio::test]
async fn what_ends_with_its_runtime_cannot_be_in_a_cgroup_of_somebody_else() {
    let world = world!().with(|config| config.shims = mainstay::config::ShimLifetime::WithRuntime);
    let foreign = Foreign::beside(&world);
    let runtime = world.start().await;
    let asked = runtime.run_sandbox(spec("p", |spec| spec.cgroup_parent = Some(foreign.parent()))).await;
    let error = asked.expect_err("refused");
    assert!(matches!(&error, Error::Unsupported { setting, .. } if setting == "cgroup_parent"), "{error}");
    assert!(runtime.sandboxes().is_empty());
    world.finish(runtime).await;
}

#[tokio::test]
async fn the_hosts_ipc_is_shared_where_it_is_asked_for() {
    let world = world!();
    let runtime = world.start().await;
    let own = pod(&runtime, spec("own", |_| {})).await;
    let own = runtime.started(&own, "c", "exec sleep 1000").await;
    let shared = pod(&runtime, spec("shared", |spec| spec.ipc = IpcMode::Host)).await;
    let shared = runtime.started(&shared, "c", "exec sleep 1000").await;
    let hosts = fs::read_link("/proc/self/ns/ipc").expect("readable").display().to_string();
    assert_ne!(says(&runtime, &own, "readlink /proc/self/ns/ipc").await, hosts);
    assert_eq!(says(&runtime, &shared, "readlink /proc/self/ns/ipc").await, hosts);
    let name = format!("mainstay-test-{}", std::process::id());
    says(&runtime, &shared, &format!("echo hello > /dev/shm/{name}")).await;
    let file = Path::new("/dev/shm").join(&name);
    let written = fs::read_to_string(&file);
    let _ = fs::remove_file(&file);
    assert_eq!(written.expect("the host's shared memory"), "hello\n");
    assert_clean(&runtime).await;
    world.finish(runtime).await;
}

/// The same pod may be asked for as often as an orchestrator likes; another one under its name is refused.
#[tokio::test]
async fn who_a_pod_is_to_an_orchestrator_is_part_of_what_it_is() {
    let world = world!();
    let runtime = world.start().await;
    let asked = |attempt| {
        spec("web", |spec| {
            let (name, namespace, uid) = ("Web".to_owned(), "shop".to_owned(), "u/1".to_owned());
            spec.identity = Some(PodIdentity { name, namespace, uid, attempt });
        })
    };
    let (first, again) = tokio::join!(runtime.run_sandbox(asked(0)), runtime.run_sandbox(asked(0)));
    let id = first.expect("it runs");
    assert_eq!(again, Ok(id.clone()), "joined");
    assert_eq!(runtime.run_sandbox(asked(0)).await, Ok(id.clone()), "and answered with the first's");
    let error = runtime.run_sandbox(asked(1)).await.expect_err("another one");
    assert!(matches!(error, Error::NameTaken { .. }), "{error}");
    assert_eq!(runtime.sandbox(&id).expect("listed").record.spec.identity, asked(0).identity);
    world.finish(runtime).await;
}
