//! A shim that fails as it is told to, behind a pod. Whatever it does: each call ends in bounded time, every process that was
//! started has one terminal fact, removal works while the fault is there, nothing is left, and the same pod can be made again.

use std::time::Duration;

use mainstay::{
    ContainerId, Error, Exit, ExitStatus, HandlerSettings, IfRunning, Runtime, SandboxId, UnknownReason,
};
use mainstay_integration_tests::{Shorthand, World, script_spec, wait};
use mainstay_shim_testing::Place;
use rstest::rstest;

use crate::stage::{configured, journalled, pod_spec};

const PROGRAM: &str = env!("CARGO_BIN_EXE_mainstay-under-test");
const FAULT_SHIM: &str = env!("CARGO_BIN_EXE_containerd-shim-fault-v2");
/// How long the whole life of a pod may take whose shim hangs in one call, in milliseconds: more than the limits of the calls
/// together.
const LIFE_MS: u64 = 240_000;
/// What the container ends with.
const CODE: u32 = 7;

struct Stage {
    // Before the world: its shims end first.
    place: Place,
    world: World,
    runtime: Runtime,
}

impl Stage {
    async fn take() -> Option<Self> {
        let world = World::new(PROGRAM)?;
        let place = Place::make(&world.path().join("fault"), FAULT_SHIM.as_ref());
        let shim = Some(place.program().to_string_lossy().into_owned());
        let settings = HandlerSettings { shim, ..HandlerSettings::default() };
        let runtime = Runtime::start(configured(&world, settings)).await.expect("the runtime starts");
        Some(Self { place, world, runtime })
    }

    async fn pod(&self) -> Result<SandboxId, Error> {
        self.runtime.run_sandbox(pod_spec("p")).await
    }

    /// A pod and a container from nothing to its end.
    async fn life(&self, script: &str) -> Result<Exit, Error> {
        let pod = self.pod().await?;
        let container = self.runtime.create_container(&pod, script_spec("c", script)).await?;
        self.runtime.start_container(&container).await?;
        self.runtime.wait(&container).await
    }

    fn containers(&self) -> Vec<ContainerId> {
        self.runtime.containers().iter().map(|one| one.record.id.clone()).collect()
    }

    /// Whether the shim was asked at all: a fault that is never met proves nothing.
    fn assert_met(&self, call: &str) {
        assert!(self.place.count(call) > 0, "{call} was never asked for: {:?}", self.place.calls());
    }

    /// Removes what there is while the fault lasts, checks the promises, and makes the same pod again without it.
    async fn endure(self) {
        self.endure_having_met(&[]).await;
    }

    /// The same, and these calls must have been met by then.
    async fn endure_having_met(self, met: &[&str]) {
        let containers = self.containers();
        // First the containers, and then the pod: a pod that goes as a whole asks its shim for less.
        for container in &containers {
            let removed = self.runtime.remove_container(container, IfRunning::Kill);
            // It may well be refused, or take too long for one that is asked; the pod's removal may not.
            drop(within("an answer", removed).await);
        }
        for pod in self.runtime.sandboxes() {
            within("the pod is removed", self.runtime.remove_sandbox(&pod.record.id)).await.expect("removed");
        }
        for container in &containers {
            let exits = journalled(&self.runtime, container).await;
            assert_eq!(exits.len(), 1, "one terminal fact: {exits:?}");
        }
        self.world.assert_nothing_left().await;
        met.iter().for_each(|call| self.assert_met(call));
        wait::until("no shim is left", || self.place.running().is_empty().then_some(())).await;
        self.place.plan(&[]);
        let exit =
            within("the same pod again", self.life("exit 3")).await.expect("it is as if nothing had been");
        assert_eq!(exit.code(), 3, "{exit}");
        let Self { place, world, runtime } = self;
        world.finish(runtime).await;
        assert_eq!(place.running(), Vec::<u32>::new());
    }
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_millis(LIFE_MS), work).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {LIFE_MS} ms"),
    }
}

/// What a fault may come to: the truth, or that nobody knows it.
fn is_honest(exit: &Exit) -> bool {
    exit.code() == CODE || matches!(exit.status, ExitStatus::Unknown { .. } | ExitStatus::StartError { .. })
}

#[rstest]
#[tokio::test]
async fn a_start_that_goes_wrong(
    #[values(
        "start=rubbish",
        "start=nothing",
        "start=long",
        "start=exit:3",
        "start=hang",
        "serve=die",
        "serve=deaf",
        "serve=close"
    )]
    plan: &str,
) {
    let Some(stage) = Stage::take().await else { return };
    stage.place.plan(&[plan]);
    let error = within("a refusal", stage.life("exit 7")).await.expect_err("there is no shim");
    assert!(error.to_string().contains("containerd-shim-fault-v2"), "it names the program: {error}");
    stage.endure().await;
}

#[rstest]
#[tokio::test]
async fn an_answer_of_start_in_each_form(
    #[values("plain", "json", "protobuf")] form: &str,
    #[values("v2", "v3")] version: &str,
    #[values("yes", "no")] sandbox: &str,
) {
    if (form, version) == ("plain", "v3") {
        // A plain address means version 2.
        return;
    }
    let Some(stage) = Stage::take().await else { return };
    let lines = [format!("start={form}"), format!("task={version}"), format!("sandbox={sandbox}")];
    stage.place.plan(&lines.each_ref().map(String::as_str));
    let exit = within("a life", stage.life("exit 7")).await.expect("nothing is wrong");
    assert_eq!(exit.code(), CODE, "{exit}");
    stage.endure().await;
}

#[rstest]
#[tokio::test]
async fn a_call_that_goes_wrong(
    #[values("Create", "Start", "Wait", "Delete", "Shutdown", "Connect")] call: &str,
    #[values(
        "refuse:the plan says so",
        "unknown",
        "hang",
        "die",
        "hang-after",
        "die-after",
        "late:700",
        "twice",
        "garbage",
        "noise",
        "pid:1"
    )]
    fault: &str,
) {
    let Some(stage) = Stage::take().await else { return };
    stage.place.plan(&[&format!("{call}={fault}")]);
    let is_harmless = fault == "twice" || fault.starts_with("late") || ["Delete", "Shutdown"].contains(&call);
    match within("a life", stage.life("sleep 0.1; exit 7")).await {
        Ok(exit) if is_harmless => assert_eq!(exit.code(), CODE, "{exit}"),
        Ok(exit) => assert!(is_honest(&exit), "{exit}"),
        Err(error) => assert!(!is_harmless, "{error}"),
    }
    stage.endure_having_met(&[call]).await;
}

/// The same of calls on a container that runs.
#[rstest]
#[tokio::test]
async fn a_call_on_what_runs_that_goes_wrong(
    #[values("Exec", "Kill")] call: &str,
    #[values(
        "refuse:the plan says so",
        "unknown",
        "hang",
        "die",
        "hang-after",
        "die-after",
        "late:700",
        "twice",
        "garbage",
        "noise"
    )]
    fault: &str,
) {
    let Some(stage) = Stage::take().await else { return };
    let pod = within("a pod", stage.pod()).await.expect("a pod");
    let container = stage.runtime.started(&pod, "c", "setsid sleep 1000 & exec sleep 1000").await;
    stage.place.plan(&[&format!("{call}={fault}")]);
    let spec = mainstay::ExecSpec::new(["sh", "-c", "exit 5"]);
    let output = within("an answer", stage.runtime.exec_output(&container, spec)).await;
    if call != "Exec" || fault == "twice" || fault.starts_with("late") {
        assert_eq!(output.expect("it ran").exit.code(), 5);
    }
    let stop = mainstay::StopOptions { signal: None, grace: Some(Duration::ZERO) };
    within("a stop", stage.runtime.stop_container(&container, stop)).await.expect("stopped");
    let exit = within("its end is told", stage.runtime.wait(&container)).await.expect("a terminal fact");
    assert!(exit.code() == 137 || matches!(exit.status, ExitStatus::Unknown { .. }), "{exit}");
    // A kill may well go past the shim, by cgroup.
    let met: &[&str] = if call == "Exec" { &["Exec"] } else { &[] };
    stage.endure_having_met(met).await;
}

/// The same of the sandbox API.
#[rstest]
#[tokio::test]
async fn a_call_of_the_sandbox_api_that_goes_wrong(
    #[values("CreateSandbox", "StartSandbox", "StopSandbox", "ShutdownSandbox")] call: &str,
    #[values("refuse:the plan says so", "unknown", "hang", "die", "late:700", "twice", "garbage", "noise")]
    fault: &str,
) {
    let Some(stage) = Stage::take().await else { return };
    stage.place.plan(&["start=json", "task=v3", "sandbox=yes", &format!("{call}={fault}")]);
    match within("a life", stage.life("exit 7")).await {
        Ok(exit) => assert!(is_honest(&exit), "{exit}"),
        Err(error) => assert!(fault != "twice" && !fault.starts_with("late"), "{error}"),
    }
    stage.endure_having_met(&[call]).await;
}

/// A process that has nothing to do with a shim. It ends with the test.
struct Stranger(std::process::Child);

impl Drop for Stranger {
    fn drop(&mut self) {
        // Dead already where the test has failed for that.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// P10: a shim that names the process of a stranger does not get it killed.
#[tokio::test]
async fn a_wrong_process_id_harms_no_stranger() {
    let Some(stage) = Stage::take().await else { return };
    let mut stranger = Stranger(std::process::Command::new("sleep").arg("1000").spawn().expect("it runs"));
    for call in ["Connect", "Create", "Start"] {
        stage.place.plan(&[&format!("{call}=pid:{}", stranger.0.id())]);
        let pod = within("a pod", stage.pod()).await.expect("a pod");
        let made =
            within("an answer", stage.runtime.create_container(&pod, script_spec("c", "sleep 1000"))).await;
        if let Ok(container) = made {
            let started = within("an answer", stage.runtime.start_container(&container)).await;
            drop(started);
            let killed = stage.runtime.kill_container(&container, mainstay::Signal::KILL);
            drop(within("an answer", killed).await);
        }
        within("the pod is removed", stage.runtime.remove_sandbox(&pod)).await.expect("removed");
        let lives = stranger.0.try_wait().expect("our child").is_none();
        assert!(lives, "{call}: a stranger was killed");
    }
    stage.endure().await;
}

#[rstest]
#[case::before_the_answer_of_start(&["exits=early"])]
#[case::twice(&["exits=twice"])]
#[case::never(&["exits=never"])]
#[case::never_and_no_answer_of_wait(&["exits=never", "Wait=hang"])]
#[case::with_no_answer_of_wait(&["Wait=hang"])]
#[case::after_delete(&["exits=late"])]
// P1: one of a process that runs was believed, and the real one came to nobody.
#[case::of_a_process_that_runs(&["exits=lies"])]
#[case::of_nobody(&["stray=50"])]
#[case::in_a_flood(&["stray=5000"])]
#[tokio::test]
async fn exit_events(#[case] plan: &[&str]) {
    let Some(stage) = Stage::take().await else { return };
    stage.place.plan(plan);
    let exit = within("a life", stage.life("exit 7")).await.expect("it ends");
    assert_eq!(exit.code(), CODE, "{exit}");
    stage.endure().await;
}

/// The shim dies while a container runs. Its processes are left, and end within 5 s, with one terminal fact each.
#[rstest]
#[case::and_leaves_its_processes(&[])]
#[case::and_takes_them_along(&["death=clean"])]
#[case::and_its_delete_fails(&["delete=fail"])]
#[case::and_its_delete_hangs(&["delete=hang"])]
#[tokio::test]
async fn a_shim_that_dies(#[case] plan: &[&str]) {
    let Some(stage) = Stage::take().await else { return };
    stage.place.plan(plan);
    let pod = within("a pod", stage.pod()).await.expect("a pod");
    let container = stage.runtime.started(&pod, "c", "setsid sleep 1000 & exec sleep 1000").await;
    let running = stage.place.running();
    assert!(!running.is_empty(), "a shim runs");
    stage.place.plan(&[&["Kill=die", "State=die", "Exec=die", "Pids=die"][..], plan].concat());
    drop(within("an answer", stage.runtime.exec_output(&container, mainstay::ExecSpec::new(["true"]))).await);
    let exit = within("its end is told", stage.runtime.wait(&container)).await.expect("a terminal fact");
    assert!(
        exit.code() == 137 || matches!(exit.status, ExitStatus::Unknown { reason: UnknownReason::ShimDied }),
        "{exit}"
    );
    let refused =
        within("an answer", stage.runtime.create_container(&pod, script_spec("late", "true"))).await;
    refused.expect_err("its shim is gone");
    stage.endure().await;
}

/// Each call hangs, and another pod is not touched by it (P9).
#[tokio::test]
async fn a_shim_that_hangs_harms_its_own_pod_alone() {
    let Some(stage) = Stage::take().await else { return };
    let pod = within("a pod", stage.pod()).await.expect("a pod");
    let container = stage.runtime.started(&pod, "c", "exec sleep 1000").await;
    let other = stage.runtime.pod("other").await;
    stage.place.plan(&["any=hang"]);
    let stuck = stage.runtime.exec_output(&container, mainstay::ExecSpec::new(["true"]));
    let others = async {
        for n in 0..5 {
            let one = stage.runtime.started(&other, &format!("c{n}"), &format!("exit {n}")).await;
            assert_eq!(stage.runtime.exit_of(&one).await.code(), n);
        }
    };
    let (stuck, ()) = within("both", async { tokio::join!(stuck, others) }).await;
    stuck.expect_err("nobody answers");
    let shims = wait::finish("a list", stage.runtime.shims()).await.expect("listed");
    assert_eq!(shims.len(), 2);
    within("a kill", stage.runtime.kill_container(&container, mainstay::Signal::KILL)).await.expect("killed");
    let exit = within("its end is told", stage.runtime.wait(&container)).await.expect("a terminal fact");
    assert!(exit.code() == 137 || matches!(exit.status, ExitStatus::Unknown { .. }), "{exit}");
    stage.endure().await;
}
