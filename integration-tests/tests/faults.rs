//! Every step of every saga and every durable write is made to fail, done twice, made to hang, and is where the daemon is
//! killed. The list of points comes from the code, so a step that is added is struck without anybody thinking of it.
//!
//! After each blow the same request is made again, until it works, and so on to the end of a whole life. Then nothing may be
//! left, and what happened in between may be in the journal once.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mainstay::faults::{FAULTS_DIRECTORY, HELD, points, shim_points};
use mainstay::{ContainerPhase, Error, Network, PortMapping, Protocol, SandboxPhase, SandboxSpec, What};
use mainstay_admin::Client;
use mainstay_integration_tests::net::Internet;
use mainstay_integration_tests::{Daemon, World, script_spec, wait, world};
use mainstay_messages::admin::{IfRunning, Reference};
use mainstay_messages::spec::{HostEntry, UserNamespace};
use mainstay_nri_plugin::faults::{Faults, Obedient};
use mainstay_nri_plugin::{Door, Identity, Options, run};
use tokio::task::JoinHandle;

/// Phases that no record in the store ever has: readers alone see them.
const NEVER_WRITTEN: [&str; 4] = [
    "commit.sandbox-unknown.before",
    "commit.sandbox-unknown.after",
    "commit.container-unknown.before",
    "commit.container-unknown.after",
];
/// What makes a launch fail at its end, and a creation.
const FAILURES: [(&str, &str); 2] =
    [("run-pod", "run-pod.hook.after"), ("create-container", "create-container.task.after")];
/// The code of a container that was stopped without grace, and of one whose end nobody saw.
const KILLED: u32 = 137;
const UNKNOWN: u32 = 255;
/// The plugin that hears of all.
const WITNESS: &str = "10-witness";
/// How long the same request is repeated, in milliseconds.
const REPEAT_MS: u64 = 30_000;
/// Time between two repetitions, in milliseconds.
const AGAIN_MS: u64 = 10;

/// The requests of a life, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    RunPod,
    CreateContainer,
    StartContainer,
    StopContainer,
    RemoveContainer,
    StopPod,
    RemovePod,
}

const LIFE: [Request; 7] = [
    Request::RunPod,
    Request::CreateContainer,
    Request::StartContainer,
    Request::StopContainer,
    Request::RemoveContainer,
    Request::StopPod,
    Request::RemovePod,
];

impl Request {
    /// Whether an error says that the same request, made earlier, has done it.
    fn is_done_by(self, error: &Error) -> bool {
        match (self, error) {
            (Self::RunPod | Self::CreateContainer, _) => false,
            (Self::StartContainer, Error::WrongPhase { phase, .. }) => phase == "running",
            (Self::StartContainer, _) => false,
            (_, error) => matches!(error, Error::NotFound { .. }),
        }
    }

    /// Makes it once, for a pod of this name.
    async fn ask(self, client: &Client, pod: &str) -> mainstay::Result<()> {
        let container = || Reference(format!("{pod}/c"));
        let pod = || Reference(pod.to_owned());
        match self {
            Self::RunPod => {
                let mut spec = SandboxSpec::new(pod().0.parse().expect("a good name"));
                let address = "10.0.0.7".parse().expect("an address");
                // So that its containers have a file of their own for it.
                spec.names.hosts = vec![HostEntry { name: "db".to_owned(), address }];
                // So that there is a file with its ids.
                spec.user_namespace = UserNamespace::Auto;
                spec.network = Network::Builtin;
                spec.ports = vec![PortMapping {
                    protocol: Protocol::Tcp,
                    host_ip: None,
                    host_port: 8_000 + u16::from(spec.name.as_str().as_bytes()[0]),
                    pod_port: 80,
                }];
                client.run_sandbox(spec).await.map(drop)
            }
            Self::CreateContainer => {
                client.create_container(pod(), script_spec("c", "exec sleep 1000")).await.map(drop)
            }
            Self::StartContainer => client.start_container(container()).await,
            Self::StopContainer => client.stop_container(container(), None, Some(0)).await,
            Self::RemoveContainer => client.remove_container(container(), IfRunning::Refuse).await,
            Self::StopPod => client.stop_sandbox(pod(), Some(0)).await,
            Self::RemovePod => client.remove_sandbox(pod()).await,
        }
    }
}

/// A world whose daemon is struck.
struct Battlefield {
    world: World,
    daemon: RefCell<Daemon>,
    faults: PathBuf,
    /// What a plugin has heard that comes again to every daemon.
    plugin: Faults,
    task: JoinHandle<()>,
    /// Where the daemon is.
    internet: Internet,
}

impl Drop for Battlefield {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A fault that is set.
struct Blow(PathBuf);

impl Blow {
    /// Whether it has happened.
    fn has_fallen(&self) -> bool {
        !self.0.exists()
    }

    /// The file that is there while it holds somebody.
    fn held(&self) -> PathBuf {
        let mut held = self.0.clone().into_os_string();
        held.push(HELD);
        held.into()
    }
}

impl Battlefield {
    async fn new(world: World) -> Self {
        let internet = Internet::enter();
        // A plugin without which nothing is made: so each life passes the points of hooks.
        let world = world.with(|config| {
            config.nri.enable = true;
            config.nri.required = vec![WITNESS.parse().expect("a good name")];
        });
        let faults = world.path().join("faults");
        fs::create_dir(&faults).expect("made");
        let daemon = Daemon::start(&world, &[(FAULTS_DIRECTORY, faults.clone())]).await;
        let (socket, plugin) = (world.config().nri.socket, Faults::default());
        let heard = plugin.clone();
        let task = tokio::spawn(async move {
            loop {
                // A daemon that is killed while it registers may look like one that refuses it: it comes again all the same.
                let mut options = Options::new(Identity::new("10", "witness"), Door::Socket(socket.clone()));
                options.faults = heard.clone();
                if let Err(error) = run(Obedient, options).await {
                    println!("the plugin comes again: {error}");
                }
                tokio::time::sleep(Duration::from_millis(AGAIN_MS)).await;
            }
        });
        Self { world, daemon: RefCell::new(daemon), faults, plugin, task, internet }
    }

    fn set(&self, point: &str, fault: &str) -> Blow {
        let file = self.faults.join(point);
        fs::write(&file, fault).expect("written");
        Blow(file)
    }

    async fn client(&self) -> mainstay::Result<Client> {
        let socket = self.daemon.borrow().socket().to_owned();
        Client::connect(socket).await
    }

    /// Waits for the end of the daemon that was killed, and starts another one.
    async fn follow(&self) {
        wait::until("the daemon that does not answer has ended", || {
            self.daemon.borrow_mut().has_ended().then_some(())
        })
        .await;
        let next = Daemon::start(&self.world, &[(FAULTS_DIRECTORY, self.faults.clone())]).await;
        self.daemon.replace(next);
    }

    /// Makes a request until it works, and answers how often that was.
    async fn persist(&self, request: Request, pod: &str) -> u32 {
        let end = Instant::now() + Duration::from_millis(REPEAT_MS);
        let mut absences = 0;
        for attempt in 1.. {
            let outcome = match self.client().await {
                Ok(client) => wait::finish("an answer", request.ask(&client, pod)).await,
                Err(error) => Err(error),
            };
            match outcome {
                Ok(()) => return attempt - absences,
                Err(error) if request.is_done_by(&error) => return attempt - absences,
                Err(Error::InProgress { .. } | Error::Terminating { .. }) => {}
                // It has not come again to this daemon yet.
                Err(Error::HookFailed { reason, .. }) if reason.contains("not connected") => absences += 1,
                Err(Error::Unavailable { reason, .. }) if reason.contains("a test wants it to fail") => {}
                Err(Error::Unavailable { .. }) => self.follow().await,
                Err(other) => panic!("{request:?}, attempt {attempt}: {other}"),
            }
            assert!(Instant::now() < end, "{request:?} still does not work after {attempt} attempts");
            tokio::time::sleep(Duration::from_millis(AGAIN_MS)).await;
        }
        unreachable!("attempts do not end")
    }

    /// A whole life, each request made until it works. Answers how many of them did not work.
    async fn live(&self, pod: &str) -> u32 {
        self.live_to(pod, KILLED).await
    }

    /// The same, with an end of the container that shows as this code.
    async fn live_to(&self, pod: &str, code: u32) -> u32 {
        let mut repeated = 0;
        let mut id = None;
        for request in LIFE {
            let attempts = self.persist(request, pod).await;
            repeated += attempts - 1;
            if request == Request::StartContainer {
                id = Some(self.assert_complete(pod).await);
            }
        }
        self.assert_told_once(&id.expect("it was started"), code).await;
        repeated
    }

    /// One pod of this name is ready, with one container that runs, once. Answers the container's id.
    async fn assert_complete(&self, pod: &str) -> String {
        let client = self.client().await.expect("it listens");
        let pods = client.list_sandboxes().await.expect("listed");
        let pods: Vec<_> = pods.iter().filter(|shown| shown.record.spec.name.as_str() == pod).collect();
        let [pod] = pods[..] else { panic!("one pod: {pods:#?}") };
        assert_eq!(pod.record.phase, SandboxPhase::Ready);
        let containers = client.list_containers().await.expect("listed");
        let own: Vec<_> = containers.iter().filter(|shown| shown.record.sandbox == pod.record.id).collect();
        let [container] = own[..] else { panic!("one container: {own:#?}") };
        assert_eq!(container.record.phase, ContainerPhase::Running);
        let ledger = self.world.ledger();
        let shims = ledger.shims.iter().filter(|shim| runs_for(**shim, pod.record.id.as_str()));
        assert_eq!(shims.count(), 1, "one shim: {ledger:#?}");
        let here = container.record.id.as_str();
        let groups: BTreeSet<_> =
            ledger.cgroups.iter().filter(|path| path.ends_with(here)).map(|path| processes(path)).collect();
        assert!(groups.iter().all(|inside| inside.len() <= 1), "one process: {groups:?}");
        here.to_owned()
    }

    /// The journal has one end of the container, and it is the true one.
    async fn assert_told_once(&self, container: &str, code: u32) {
        let client = self.client().await.expect("it listens");
        let life = client.explain(Reference(container.to_owned())).await.expect("explained");
        let ends: Vec<_> = life
            .iter()
            .filter_map(|event| match &event.what {
                What::ContainerExited { exit } => Some(exit.code()),
                _ => None,
            })
            .collect();
        assert_eq!(ends, [code], "{life:#?}");
    }

    /// Nothing is left, of any pod.
    async fn assert_empty(&self) {
        let client = self.client().await.expect("it listens");
        assert_eq!(client.list_sandboxes().await.expect("listed"), []);
        assert_eq!(client.list_containers().await.expect("listed"), []);
        self.world.assert_nothing_left().await;
        self.assert_told_of_ends().await;
        let links = self.internet.links();
        assert!(links.iter().all(|link| ["lo", "up0", "mainstay0"].contains(&link.as_str())), "{links:?}");
        let rules = self.internet.rules();
        assert!(!rules.contains("dnat ip"), "{rules}");
    }

    /// Of what the plugin was told that it begins, it was told that it is gone.
    async fn assert_told_of_ends(&self) {
        let owed = || {
            let told = self.plugin.told();
            let of = |call: &str| -> BTreeSet<String> {
                let told = told.iter().filter(|told| told.call == call);
                told.map(|told| if told.container.is_empty() { &told.pod } else { &told.container })
                    .cloned()
                    .collect()
            };
            let pods = of("RunPodSandbox").is_subset(&of("RemovePodSandbox"));
            pods && of("CreateContainer").is_subset(&of("RemoveContainer"))
        };
        wait::until("the plugin is told of all ends", || owed().then_some(())).await;
    }
}

fn runs_for(shim: u32, pod: &str) -> bool {
    let line = fs::read(format!("/proc/{shim}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains(pod)
}

fn processes(cgroup: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The points that a life passes.
fn struck() -> impl Iterator<Item = String> {
    points().into_iter().chain(shim_points()).filter(|point| !NEVER_WRITTEN.contains(&point.as_str()))
}

/// Whether a life passes a point only when something fails.
fn needs_failure(point: &str) -> bool {
    point.starts_with("commit.sandbox-not-ready")
}

/// Whether a point is on the way forth of a saga.
fn is_act(point: &str) -> bool {
    !point.starts_with("commit.") && !point.contains(".undo.") && !is_of_shim(point)
}

/// Whether it is a shim that passes a point, and not the daemon.
fn is_of_shim(point: &str) -> bool {
    shim_points().iter().any(|other| other == point)
}

/// Strikes at each point in turn, in a life where nothing else happens, and at each undo also in one in which what it
/// undoes has failed.
async fn strike_everywhere(field: &Battlefield, fault: &str, applies: impl Fn(&str) -> bool) {
    let mut blows = 0;
    let mut repeated = 0;
    for point in struck().filter(|point| applies(point)) {
        let failures = FAILURES.iter().filter(|(saga, _)| {
            point.starts_with(saga) && point.contains(".undo.") || *saga == "run-pod" && needs_failure(&point)
        });
        let causes = failures.map(|(_, failure)| Some(*failure));
        let plain = (!needs_failure(&point)).then_some(None);
        for cause in plain.into_iter().chain(causes) {
            let began = Instant::now();
            let blow = field.set(&point, fault);
            let cause = cause.map(|failure| field.set(failure, "fail"));
            let failed = field.live("p").await;
            if fault == "fail" && is_act(&point) {
                assert_eq!(failed, 1, "{point}: once undone, the same request works at once");
            }
            repeated += failed;
            assert!(blow.has_fallen(), "{point} was never passed");
            assert!(cause.is_none_or(|cause| cause.has_fallen()), "{point}: its cause did not come");
            field.assert_empty().await;
            blows += 1;
            println!("{fault:6} {point:44} {:4} ms", began.elapsed().as_millis());
        }
    }
    println!("{blows} blows ({fault}); {repeated} requests had to be made again");
}

/// A store that answers a write with an error has not written it: what fails is always before it.
fn may_fail(point: &str) -> bool {
    !(point.starts_with("commit.") && point.ends_with(".after"))
}

/// Case 22 (crio#8790, crio#9097): a failure after the name was taken, or an undo that was given up, left it taken for ever.
#[tokio::test]
async fn every_point_may_fail() {
    let field = Battlefield::new(world!()).await;
    strike_everywhere(&field, "fail", may_fail).await;
}

#[tokio::test]
async fn every_step_may_be_taken_twice() {
    let field = Battlefield::new(world!()).await;
    strike_everywhere(&field, "repeat", |point| point.ends_with(".after") && !point.starts_with("commit."))
        .await;
}

/// Case 9 (cd#6860, cd#5015): the daemon died in the middle of a creation, and left a shim that nobody knew of.
#[tokio::test]
async fn the_daemon_may_be_killed_at_every_point() {
    let field = Battlefield::new(world!()).await;
    strike_everywhere(&field, "kill", |point| !is_of_shim(point)).await;
}

/// An exit that the shim has not written down dies with it, and the journal says that nobody saw it; one that it has is told
/// as it was.
#[tokio::test]
async fn a_shim_may_be_killed_at_its_writes() {
    let field = Battlefield::new(world!()).await;
    for point in shim_points() {
        let blow = field.set(&point, "kill");
        let code = if point.ends_with(".before") { UNKNOWN } else { KILLED };
        field.live_to("p", code).await;
        assert!(blow.has_fallen(), "{point} was never passed");
        field.assert_empty().await;
    }
}

/// Cases 20, 21 and 30 (cd#4604 and its many kin): a creation that hung outlived its caller, and every other attempt was told for hours that the
/// name was reserved. Here whoever comes meanwhile joins it or is told what is going on, nobody else waits, and it works as
/// soon as whatever hung goes on.
#[tokio::test]
async fn a_point_that_hangs_holds_up_nobody_else() {
    let field = Battlefield::new(world!()).await;
    let mut blows = 0;
    for point in struck().filter(|point| !needs_failure(point)) {
        let began = Instant::now();
        let blow = field.set(&point, "hang");
        for request in LIFE {
            let client = field.client().await.expect("it listens");
            let mut asked = Box::pin(request.ask(&client, "p"));
            let held = wait::until_or("an answer, or the hanging", &mut asked, || blow.held().exists()).await;
            if let Some(answer) = held {
                answer.unwrap_or_else(|error| panic!("{point}: {request:?}: {error}"));
                continue;
            }
            // The caller has no patience and leaves.
            drop(asked);
            drop(client);
            field.live("other").await;
            let impatient = field.client().await.expect("it listens");
            let early = request.ask(&impatient, "p");
            let release = async {
                wait::finish("others are answered", impatient.version()).await.expect("answered");
                fs::remove_file(blow.held()).expect("held");
            };
            let (early, ()) = futures::future::join(wait::finish("an answer", early), release).await;
            match early {
                Ok(()) | Err(Error::InProgress { .. } | Error::Terminating { .. }) => {}
                Err(error) if request.is_done_by(&error) => {}
                Err(error) => panic!("{point}: {request:?}: {error}"),
            }
            field.persist(request, "p").await;
        }
        assert!(blow.has_fallen(), "{point} was never passed");
        field.assert_empty().await;
        blows += 1;
        println!("hang   {point:44} {:4} ms", began.elapsed().as_millis());
    }
    println!("{blows} blows (hang)");
}
