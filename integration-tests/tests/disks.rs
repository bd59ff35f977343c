//! Disks that are full, broken, read-only or gone under a whole daemon: what is new is refused in words that name the place,
//! stopping, removing and reading go on, no container waits for its log, and all of it heals.

use std::fs;
use std::path::{Path, PathBuf};

use mainstay::{
    Access, ContainerPhase, ContainerSpec, Error, Follow, Mount, Repair, SandboxPhase, SandboxSpec, Seq, What,
};
use mainstay_admin::Client;
use mainstay_integration_tests::{Daemon, Disk, World, script_spec, wait, world};
use mainstay_messages::admin::{IfRunning, Item, Object, Reference, StreamRequest};
use mainstay_messages::event::Event;
use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};

/// Room for a store, its log and some pods, in mebibytes.
const DISK_MEBIBYTES: u64 = 16;
/// Pods that are made at most until a full disk refuses one: the store has some room in its own files.
const PODS_UNTIL_FULL_MAX: usize = 500;
/// What a container writes to a log for which there is no room, in bytes.
const FLOOD_BYTES: u64 = 40_000_000;

/// A daemon that is asked by name.
struct Node {
    daemon: Daemon,
    client: Client,
}

impl Node {
    async fn start(world: &World) -> Self {
        let daemon = Daemon::start(world, &[]).await;
        let client = Client::connect(daemon.socket()).await.expect("it listens");
        Self { daemon, client }
    }

    async fn pod(&self, name: &str) -> mainstay::Result<()> {
        let spec = SandboxSpec::new(name.parse().expect("a good name"));
        wait::finish("an answer", self.client.run_sandbox(spec)).await.map(drop)
    }

    async fn create(&self, pod: &str, spec: ContainerSpec) -> mainstay::Result<()> {
        wait::finish("an answer", self.client.create_container(of(pod), spec)).await.map(drop)
    }

    async fn start_container(&self, name: &str) -> mainstay::Result<()> {
        wait::finish("an answer", self.client.start_container(of(name))).await
    }

    async fn run(&self, pod: &str, name: &str, script: &str) {
        self.create(pod, script_spec(name, script)).await.expect("created");
        self.start_container(&format!("{pod}/{name}")).await.expect("started");
    }

    async fn stop(&self, container: &str) -> mainstay::Result<()> {
        wait::finish("an answer", self.client.stop_container(of(container), None, Some(0))).await
    }

    async fn remove(&self, container: &str) -> mainstay::Result<()> {
        wait::finish("an answer", self.client.remove_container(of(container), IfRunning::Refuse)).await
    }

    async fn stop_pod(&self, pod: &str) -> mainstay::Result<()> {
        wait::finish("an answer", self.client.stop_sandbox(of(pod), Some(0))).await
    }

    async fn remove_pod(&self, pod: &str) -> mainstay::Result<()> {
        wait::finish("an answer", self.client.remove_sandbox(of(pod))).await
    }

    async fn id_of(&self, pod: &str) -> String {
        let pods = self.client.list_sandboxes().await.expect("listed");
        let own = pods.iter().find(|each| each.record.spec.name.as_str() == pod);
        own.expect("listed").record.id.to_string()
    }

    /// The phase of a pod, if it is listed.
    async fn pod_phase(&self, name: &str) -> Option<SandboxPhase> {
        let pods = self.client.list_sandboxes().await.expect("listed");
        pods.iter().find(|pod| pod.record.spec.name.as_str() == name).map(|pod| pod.record.phase)
    }

    /// The phase of a container, if it is listed.
    async fn phase(&self, name: &str) -> Option<ContainerPhase> {
        let containers = self.client.list_containers().await.expect("listed");
        let own = |record: &mainstay::ContainerSpec| record.name.as_str() == name;
        containers.iter().find(|each| own(&each.record.spec)).map(|each| each.record.phase)
    }

    /// The journal.
    async fn events(&self) -> Vec<Event> {
        let request = StreamRequest::Events { after: Seq(0), follow: Follow::No, object: None };
        let mut stream = self.client.open(request).await.expect("opened");
        let mut events = Vec::new();
        while let Some(item) = wait::finish("an event", stream.next()).await {
            if let Item::Event(event) = item {
                events.push(event);
            }
        }
        events
    }

    /// How much of its output a log holds.
    async fn logged(&self, container: &str) -> usize {
        let request =
            StreamRequest::Logs { container: of(container), follow: Follow::No, tail: None, since: None };
        let mut stream = self.client.open(request).await.expect("opened");
        let mut lines = 0;
        while let Some(item) = wait::finish("a line", stream.next()).await {
            lines += usize::from(matches!(item, Item::Log(_)));
        }
        lines
    }

    /// Pods are made until one is refused; answers why.
    async fn refused(&self) -> Error {
        for n in 0..PODS_UNTIL_FULL_MAX {
            if let Err(error) = self.pod(&format!("p{n}")).await {
                return error;
            }
        }
        panic!("{PODS_UNTIL_FULL_MAX} pods fit on a disk without room");
    }

    /// Bytes of output that a container's log lacks so far.
    async fn lost(&self, container: &str) -> u64 {
        let stats = self.client.stats(Some(of(container))).await.expect("measured");
        stats[0].stats.as_ref().expect("measured").log_bytes_lost
    }

    /// The same, as the journal has it once the container has ended.
    async fn journalled_loss(&self, container: &str) -> u64 {
        let mut losses = Vec::new();
        for event in self.client.explain(of(container)).await.expect("explained") {
            if let What::OutputLost { bytes } = event.what {
                losses.push(bytes);
            }
        }
        assert_eq!(losses.len(), 1, "it is said once: {losses:?}");
        losses[0]
    }

    /// Removes what there is, and looks for what is left.
    async fn finish(mut self, world: &World) {
        for pod in self.client.list_sandboxes().await.expect("listed") {
            let name = pod.record.spec.name.as_str().to_owned();
            self.remove_pod(&name).await.expect("removed");
        }
        let findings = wait::finish("an audit", self.client.audit(Repair::No)).await.expect("it looks");
        assert!(findings.is_empty(), "{findings:#?}");
        world.assert_nothing_left().await;
        self.daemon.kill();
    }
}

fn of(name: &str) -> Reference {
    Reference(name.to_owned())
}

/// A directory of the host at the same place in a container.
fn shared(path: &Path) -> Mount {
    Mount::bind(path, path, Access::ReadWrite)
}

/// An error that names a place and says what to do about it.
fn assert_says(error: &Error, place: &Path, remedy: &str) {
    let text = error.to_string();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(text.contains(&*place.to_string_lossy()) && text.contains(remedy), "{text}");
}

/// A removal on a full disk removes everything, and says when the store could not write that down: it does later, by itself.
fn assert_removed(world: &World, outcome: mainstay::Result<()>, what: &str) {
    if let Err(error) = outcome {
        assert_says(&error, &root_of(world).join("store.db"), what);
    }
}

fn root_of(world: &World) -> PathBuf {
    world.path().join("root")
}

fn state_of(world: &World) -> PathBuf {
    world.path().join("state")
}

fn disk_at(world: &World, at: &Path) -> Option<Disk> {
    Disk::mount(&world.path().join("disk.img"), at, DISK_MEBIBYTES)
}

/// The journal has the end of each of these containers once.
fn assert_ended_once(events: &[Event], names: &[&str]) {
    let created = |event: &&Event| matches!(event.what, What::ContainerCreated);
    assert!(events.iter().filter(created).count() >= names.len());
    let mut ends = std::collections::BTreeMap::new();
    for event in events {
        if let What::ContainerExited { .. } = event.what {
            *ends.entry(event.subject.container.clone()).or_insert(0) += 1;
        }
    }
    assert!(ends.values().all(|count| *count == 1), "{ends:?}");
}

/// The file system of the store, the layers and the logs is full. Nothing new comes into being, and what there is can still be
/// ended and removed: on a full disk that is the way out. And nobody has to restart anything when there is room again.
#[tokio::test]
async fn a_full_root_directory_refuses_what_is_new_and_heals() {
    let world = world!();
    let Some(disk) = disk_at(&world, &root_of(&world)) else { return };
    let node = Node::start(&world).await;
    node.pod("kept").await.expect("room");
    node.run("kept", "a", "exec sleep 1000").await;
    node.run("kept", "b", "while :; do echo line; sleep 0.05; done").await;
    node.pod("other").await.expect("room");
    node.run("other", "c", "exec sleep 1000").await;
    wait::until_async("it logs", async || node.logged("kept/b").await > 0).await;

    let other = node.id_of("other").await;

    disk.fill();
    let error = node.refused().await;
    assert_says(&error, &root_of(&world), "make room");
    let again = node.create("kept", script_spec("d", "exit 0")).await.expect_err("there is no room");
    assert_says(&again, &root_of(&world), "make room");
    assert_eq!(node.phase("d").await, None, "what was refused is not listed");

    // What reads goes on.
    assert_eq!(node.pod_phase("kept").await, Some(SandboxPhase::Ready));
    assert!(matches!(node.client.inspect(of("kept/a")).await.expect("shown"), Object::Container { .. }));
    assert!(node.logged("kept/b").await > 0);
    assert!(!node.events().await.is_empty());
    // So does what ends.
    node.stop("kept/a").await.expect("stopped");
    assert_eq!(node.phase("a").await, Some(ContainerPhase::Exited));
    let removed = node.remove("kept/a").await;
    assert_removed(&world, removed, "all but its record is gone");
    node.stop_pod("other").await.expect("stopped");
    let removed = node.remove_pod("other").await;
    assert_removed(&world, removed, "all but its record is gone");
    let directories = world.ledger().directories;
    assert!(!directories.iter().any(|path| path.ends_with(&other)), "nothing of it is left: {directories:?}");
    wait::until_async("what it says is lost, and counted", async || node.lost("kept/b").await > 0).await;

    disk.relieve();
    let before = node.logged("kept/b").await;
    wait::until_async("the log goes on", async || node.logged("kept/b").await > before).await;
    wait::until_async("pods are made again", async || {
        matches!(node.pod("new").await, Ok(()) | Err(Error::NameTaken { .. }))
    })
    .await;
    node.run("new", "e", "exit 3").await;
    wait::until_async("the journal has caught up", async || {
        let removed = |what: &What| matches!(what, What::SandboxRemoved | What::ContainerRemoved);
        node.events().await.iter().filter(|event| removed(&event.what)).count() >= 3
    })
    .await;
    let Node { mut daemon, .. } = node;
    daemon.kill();
    let node = Node::start(&world).await;
    assert_eq!(node.phase("b").await, Some(ContainerPhase::Running));
    assert_eq!((node.phase("a").await, node.pod_phase("other").await), (None, None));
    node.stop("kept/b").await.expect("stopped");
    wait::until_async("the loss is in the journal", async || {
        let life = node.client.explain(of("kept/b")).await.expect("explained");
        life.iter().any(|event| matches!(event.what, What::OutputLost { .. }))
    })
    .await;
    assert_ended_once(&node.events().await, &["a", "b", "c"]);
    node.finish(&world).await;
}

/// How a disk is lost while it is in use.
#[derive(Clone, Copy, Debug)]
enum Loss {
    ReadOnly,
    Broken,
}

impl Loss {
    fn befall(self, disk: &Disk) {
        match self {
            Self::ReadOnly => disk.turn_read_only(),
            Self::Broken => disk.break_down(),
        }
    }
}

/// The disk of the store broke, or the kernel made it read-only after an error in it. Pods run on, and are stopped; after the
/// repair, which no open file survives, a daemon that is started again has them all, with what happened meanwhile.
#[rstest]
#[case::read_only(Loss::ReadOnly)]
#[case::broken(Loss::Broken)]
#[tokio::test]
async fn a_lost_root_directory_refuses_what_is_new(#[case] loss: Loss) {
    let world = world!();
    let Some(disk) = disk_at(&world, &root_of(&world)) else { return };
    let node = Node::start(&world).await;
    node.pod("kept").await.expect("room");
    node.run("kept", "a", "exec sleep 1000").await;
    node.run("kept", "b", "exec sleep 1000").await;
    loss.befall(&disk);

    let error = node.pod("new").await.expect_err("it cannot be recorded");
    assert_says(&error, &root_of(&world), "read-only");
    let error = node.create("kept", script_spec("d", "exit 0")).await.expect_err("it cannot be recorded");
    assert_says(&error, &root_of(&world), "read-only");
    assert_eq!(node.pod_phase("kept").await, Some(SandboxPhase::Ready));
    assert!(matches!(node.client.inspect(of("kept/a")).await.expect("shown"), Object::Container { .. }));
    node.stop("kept/a").await.expect("stopped");
    assert_eq!(node.phase("a").await, Some(ContainerPhase::Exited));
    assert_eq!(node.phase("b").await, Some(ContainerPhase::Running));

    let Node { mut daemon, .. } = node;
    daemon.kill();
    disk.repair();
    let node = Node::start(&world).await;
    assert_eq!(node.pod_phase("kept").await, Some(SandboxPhase::Ready));
    assert_eq!(node.phase("b").await, Some(ContainerPhase::Running));
    wait::until_async("the end of the other one is known", async || {
        node.phase("a").await == Some(ContainerPhase::Exited)
    })
    .await;
    node.pod("new").await.expect("it works again");
    assert_ended_once(&node.events().await, &["a"]);
    node.finish(&world).await;
}

/// The tmpfs of the state directory is full: bundles and exit records have no room there.
#[tokio::test]
async fn a_full_state_directory_refuses_what_is_new_and_heals() {
    let world = world!();
    let Some(disk) = disk_at(&world, &state_of(&world)) else { return };
    let node = Node::start(&world).await;
    node.pod("kept").await.expect("room");
    node.run("kept", "a", "exec sleep 1000").await;
    node.create("kept", script_spec("b", "exit 7")).await.expect("room");
    disk.fill();

    let error = node.refused().await;
    assert_says(&error, &state_of(&world), "make room");
    let error = node.create("kept", script_spec("d", "exit 0")).await.expect_err("there is no room");
    assert_says(&error, &state_of(&world), "make room");
    assert_eq!(node.phase("d").await, None, "what was refused is not listed");
    // It was made before, so that it needs no room but for its exit record, which is not waited for.
    node.start_container("kept/b").await.expect("started");
    let exit = wait::finish("its exit", node.client.wait(of("kept/b"))).await.expect("known");
    assert_eq!(exit.code(), 7);
    node.stop("kept/a").await.expect("stopped");
    node.remove("kept/a").await.expect("removed");
    assert_eq!(node.pod_phase("kept").await, Some(SandboxPhase::Ready));

    disk.relieve();
    node.pod("new").await.expect("it works again");
    node.run("new", "e", "exit 3").await;
    node.finish(&world).await;
}

/// The state directory cannot be written any more. What runs there can be stopped; what cannot be removed is said and stays
/// listed, and goes when that is possible again, by itself: nobody has to ask a second time.
#[tokio::test]
async fn a_read_only_state_directory_lets_everything_be_stopped() {
    let world = world!();
    let Some(disk) = disk_at(&world, &state_of(&world)) else { return };
    let node = Node::start(&world).await;
    node.pod("kept").await.expect("room");
    node.run("kept", "a", "exec sleep 1000").await;
    node.run("kept", "b", "exec sleep 1000").await;
    disk.turn_read_only();

    let error = node.pod("new").await.expect_err("it has no directory");
    assert_says(&error, &state_of(&world), "writable");
    let error = node.create("kept", script_spec("d", "exit 0")).await.expect_err("it has no bundle");
    assert_says(&error, &state_of(&world), "writable");
    node.stop("kept/a").await.expect("stopped");
    assert_eq!(node.phase("a").await, Some(ContainerPhase::Exited));
    assert_eq!(node.phase("b").await, Some(ContainerPhase::Running));
    assert!(!node.events().await.is_empty());
    let error = node.remove("kept/a").await.expect_err("its bundle cannot be removed");
    assert_says(&error, &state_of(&world), "writable");

    disk.repair();
    // The shim has the broken file system among its own mounts; whoever replaces that has to end the shim.
    for shim in world.ledger().shims {
        let pid = Pid::from_raw(shim.cast_signed()).expect("a process id");
        kill_process(pid, Signal::KILL).expect("it is there");
    }
    wait::until_async("what was to be removed is gone", async || node.phase("a").await.is_none()).await;
    node.remove_pod("kept").await.expect("removed");
    node.pod("new").await.expect("it works again");
    node.finish(&world).await;
}

/// How a log file is lost while a container writes.
#[derive(Clone, Copy, Debug)]
enum LogLoss {
    Full,
    Disk(Loss),
    Deleted,
}

/// A container floods its log while the disk of the log is full, breaks, turns read-only, or somebody deletes the directory to
/// make room. It never waits; what is not in the log is counted to the byte, and the log goes on when it can.
#[rstest]
#[case::full(LogLoss::Full)]
#[case::read_only(LogLoss::Disk(Loss::ReadOnly))]
#[case::broken(LogLoss::Disk(Loss::Broken))]
#[case::deleted(LogLoss::Deleted)]
#[tokio::test]
async fn a_log_that_cannot_be_written_holds_nobody_up(#[case] loss: LogLoss) {
    let world = world!();
    let logs = world.path().join("logs");
    let Some(disk) = disk_at(&world, &logs) else { return };
    let node = Node::start(&world).await;
    node.pod("p").await.expect("room");
    let gate = world.path().join("gate");
    fs::create_dir(&gate).expect("made");
    let script = format!(
        "echo first; until [ -e {0}/go ]; do sleep 0.02; done; line=$(printf '%0999d' 0); \
         yes $line | head -c {FLOOD_BYTES}; touch {0}/flooded; \
         until [ -e {0}/on ]; do echo more; sleep 0.02; done; echo last",
        gate.display()
    );
    let mut spec = script_spec("c", &script);
    let directory = logs.join("pod");
    let log = directory.join("c.log");
    spec.log_path = Some(log.clone());
    spec.mounts.push(shared(&gate));
    node.create("p", spec).await.expect("created");
    node.start_container("p/c").await.expect("started");
    wait::until_async("it logs", async || node.logged("p/c").await > 0).await;

    match loss {
        LogLoss::Full => disk.fill(),
        LogLoss::Disk(loss) => loss.befall(&disk),
        LogLoss::Deleted => fs::remove_dir_all(&directory).expect("deleted"),
    }
    fs::write(gate.join("go"), "").expect("written");
    wait::until("the flood is over", || gate.join("flooded").exists().then_some(())).await;
    wait::until_async("what is lost is counted", async || node.lost("p/c").await >= FLOOD_BYTES / 2).await;
    // Others are not touched by it.
    node.run("p", "other", "echo hello").await;
    wait::finish("its exit", node.client.wait(of("p/other"))).await.expect("known");
    assert_eq!(node.logged("p/other").await, 1);

    match loss {
        LogLoss::Full => disk.relieve(),
        LogLoss::Disk(_) => disk.repair(),
        LogLoss::Deleted => fs::create_dir(&directory).expect("made"),
    }
    let ends_with = |text: &str| fs::read_to_string(&log).is_ok_and(|log| log.trim_end().ends_with(text));
    wait::until("the log goes on", || ends_with("more").then_some(())).await;
    fs::write(gate.join("on"), "").expect("written");
    let exit = wait::finish("its exit", node.client.wait(of("p/c"))).await.expect("known");
    assert_eq!(exit.code(), 0);
    assert!(ends_with("last"), "the last line is there");
    let lost = node.journalled_loss("p/c").await;
    assert!(lost >= FLOOD_BYTES / 2);
    if let LogLoss::Full = loss {
        let text = fs::read_to_string(&log).expect("readable");
        let mores = text.lines().filter(|line| line.ends_with("more")).count() as u64;
        let kept: u64 = text.lines().map(|line| line.len() as u64 - 40 + 1).sum();
        let said = "first\n".len() as u64 + FLOOD_BYTES + "last\n".len() as u64;
        // What was said between the flood and now, and is lost, is whole lines of it.
        let between = kept + lost - said;
        assert_eq!(between % "more\n".len() as u64, 0, "{kept} bytes are there, {lost} are counted");
        assert!(between >= mores * "more\n".len() as u64);
    }
    fs::remove_dir_all(&directory).expect("removed");
    node.finish(&world).await;
}

/// A node comes up with a full disk, as one does that was restarted because it was full. The daemon has to come up too: it is
/// needed to make room.
#[tokio::test]
async fn a_daemon_starts_on_full_disks() {
    let world = world!();
    let Some(root) = disk_at(&world, &root_of(&world)) else { return };
    let image = world.path().join("state.img");
    let Some(state) = Disk::mount(&image, &state_of(&world), DISK_MEBIBYTES) else { return };
    let node = Node::start(&world).await;
    node.pod("kept").await.expect("room");
    node.run("kept", "a", "exec sleep 1000").await;
    let Node { mut daemon, .. } = node;
    root.fill();
    state.fill();
    daemon.kill();
    let node = Node::start(&world).await;
    assert_eq!(node.phase("a").await, Some(ContainerPhase::Running));
    let error = node.refused().await;
    assert_says(&error, world.path(), "make room");
    node.stop("kept/a").await.expect("stopped");
    let removed = node.remove_pod("kept").await;
    assert_removed(&world, removed, "all but its record is gone");
    root.relieve();
    state.relieve();
    node.pod("new").await.expect("it works again");
    node.finish(&world).await;
}

/// A disk that can only be read is no place for a store: one sentence says which directory it is.
#[rstest]
#[case::root(root_of)]
#[case::state(state_of)]
#[tokio::test]
async fn a_daemon_says_which_directory_cannot_be_written(#[case] place: fn(&World) -> PathBuf) {
    let world = world!();
    let at = place(&world);
    let Some(disk) = disk_at(&world, &at) else { return };
    disk.mount_read_only();
    let said = Daemon::refusal(&world).await;
    assert_eq!(said.trim().lines().count(), 1, "{said}");
    assert!(said.contains(&*at.to_string_lossy()) && said.contains("Read-only"), "{said}");
}

/// A shim that has no descriptors left, or no disk, called that a start error of the container, which then stood in the list as
/// exited. It is the machine that is short of something: nothing is left, and the same request works later.
#[tokio::test]
async fn a_shim_without_descriptors_does_not_blame_the_container() {
    let world = world!();
    let node = Node::start(&world).await;
    node.pod("p").await.expect("made");
    let shim = world.ledger().shims.into_iter().next().expect("a shim");
    let open = fs::read_dir(format!("/proc/{shim}/fd")).expect("listed").count() as u64;
    let before = limit_files(shim, open);
    let error = node.create("p", script_spec("c", "exit 5")).await.expect_err("it has none left");
    assert!(error.to_string().contains("RLIMIT_NOFILE"), "{error}");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    wait::until_async("nothing is left of it", async || node.phase("c").await.is_none()).await;
    limit_files(shim, before);
    node.run("p", "c", "exit 5").await;
    let exit = wait::finish("its exit", node.client.wait(of("p/c"))).await.expect("known");
    assert_eq!(exit.code(), 5);
    node.finish(&world).await;
}

/// Sets how many descriptors a process may have; answers how many it might have before.
fn limit_files(pid: u32, current: u64) -> u64 {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let pid = Pid::from_raw(pid.cast_signed());
    let now = rustix::process::getrlimit(Resource::Nofile);
    let limit = Rlimit { current: Some(current), maximum: now.maximum };
    prlimit(pid, Resource::Nofile, limit).expect("limited").current.expect("a limit")
}

/// The file system of a log hangs instead of failing, as a network file system does whose server is gone. The shim of that pod
/// hangs with it: it has one thread. Nobody else does, what runs in the pod is stopped without it, and what could not be done
/// is done when the file system goes on.
#[tokio::test]
async fn a_log_that_hangs_holds_up_its_own_pod_alone() {
    let world = world!();
    let logs = world.path().join("logs");
    let Some(disk) = disk_at(&world, &logs) else { return };
    let node = Node::start(&world).await;
    node.pod("hung").await.expect("made");
    let mut spec = script_spec("c", "while :; do echo line; sleep 0.01; done");
    spec.log_path = Some(logs.join("c.log"));
    node.create("hung", spec).await.expect("created");
    node.start_container("hung/c").await.expect("started");
    let shim = world.ledger().shims.into_iter().next().expect("a shim");
    disk.freeze();
    wait::until("the shim hangs in the kernel", || is_in_kernel(shim).then_some(())).await;

    node.pod("other").await.expect("made");
    node.run("other", "o", "echo hello; exit 3").await;
    let exit = wait::finish("its exit", node.client.wait(of("other/o"))).await.expect("known");
    assert_eq!((exit.code(), node.logged("other/o").await), (3, 1));
    assert_eq!(node.phase("c").await, Some(ContainerPhase::Running), "reading goes on");
    let client = Client::connect(node.daemon.socket()).await.expect("it listens");
    let removal = client.remove_sandbox(of("hung"));
    let mut removal = std::pin::pin!(removal);
    let early = wait::until_or("nothing runs in the pod", &mut removal, || {
        // The shim of a pod is in its cgroup, or not, as its pod's settings say.
        world.ledger().processes.iter().all(|pid| is_shim(*pid))
    })
    .await;
    if let Some(early) = early {
        early.expect_err("its shim cannot end");
    }
    node.remove_pod("other").await.expect("removed");

    disk.thaw();
    wait::until_async("what was to be removed is gone", async || node.pod_phase("hung").await.is_none())
        .await;
    fs::remove_file(logs.join("c.log")).expect("removed");
    node.finish(&world).await;
}

/// Whether a process waits for something in the kernel that no signal ends.
fn is_in_kernel(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('D'))
}

fn is_shim(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default().starts_with(b"mainstay-shim")
}
