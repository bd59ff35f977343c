//! A shim that is none: a process that sleeps, and a socket on which is said what a shim once said.

use std::collections::BTreeMap;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use mainstay_messages::record::{SandboxRecord, ShimRecord};
use mainstay_messages::{ProcessIdentity, SandboxId};
use mainstay_supervisor::identity::{Fate, boot_id, fate, identity_of};

use crate::world::{World, wire};

/// A status of ttrpc for a method that the shim does not have.
const INVALID_ARGUMENT: u64 = 3;
/// Field `pid` of InfoResponse.
const INFO_PID: u64 = 4;
/// Field `protocol` of InfoResponse.
const INFO_PROTOCOL: u64 = 1;
/// Field `oldest_protocol` of InfoResponse.
const INFO_OLDEST: u64 = 6;

/// What is said to each method.
pub type Answers = BTreeMap<&'static str, Vec<u8>>;
type Questions = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// See the module. Killed when dropped.
pub struct FalseShim {
    child: Mutex<Child>,
    process: ProcessIdentity,
    sandbox: SandboxId,
    asked: Questions,
}

impl FalseShim {
    /// Starts it for a pod, in the pod's directory.
    pub fn start(world: &World, sandbox: &str, mut answers: Answers) -> Self {
        let sandbox: SandboxId = sandbox.parse().expect("a good id");
        world.directories.prepare().expect("made");
        std::fs::create_dir_all(world.directories.bundles(&sandbox)).expect("made");
        let child = Command::new("sleep").arg("1000000").spawn().expect("started");
        let process = identity_of(child.id()).expect("it runs");
        // The number of this process and not of the one that was recorded: of two the last counts.
        let info = answers.get_mut("Info").expect("every shim says who it is");
        info.extend(wire::number_field(INFO_PID, u64::from(process.pid)));
        let listener = UnixListener::bind(world.directories.shim_socket(&sandbox)).expect("bound");
        let asked = Questions::default();
        let questions = Arc::clone(&asked);
        // They end with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (questions, mut answers) = (Arc::clone(&questions), answers.clone());
                std::thread::spawn(move || serve(stream, &questions, &mut answers));
            }
        });
        Self { child: Mutex::new(child), process, sandbox, asked }
    }

    /// Its record, as the store has it.
    pub fn record(&self, world: &World) -> ShimRecord {
        let socket = world.directories.shim_socket(&self.sandbox);
        ShimRecord { process: self.process.clone(), socket, protocol: 1, ids: None }
    }

    /// What it was asked so far, method and bytes.
    pub fn asked(&self) -> Vec<(String, String)> {
        let asked = self.asked.lock().expect("no test panics with it");
        asked.iter().map(|(method, bytes)| (method.clone(), wire::to_hex(bytes))).collect()
    }

    /// Whether it was asked this.
    pub fn was_asked(&self, method: &str, bytes: &[u8]) -> bool {
        self.asked().contains(&(method.to_owned(), wire::to_hex(bytes)))
    }

    /// Whether its process has ended.
    pub fn has_ended(&self) -> bool {
        fate(&self.process).expect("readable") == Fate::Ended
    }
}

impl Drop for FalseShim {
    fn drop(&mut self) {
        if let Ok(child) = self.child.get_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Answers one client, until it goes. Exits are told once; the next question for them is not answered.
fn serve(mut stream: UnixStream, questions: &Questions, answers: &mut Answers) {
    while let Ok(asked) = wire::read_request(&mut stream) {
        questions.lock().expect("no test panics with it").push((asked.method.clone(), asked.payload));
        let said = match asked.method.as_str() {
            "NextExits" => match answers.remove("NextExits") {
                Some(exits) => Ok(exits),
                None => continue,
            },
            "Kill" | "Delete" => Ok(Vec::new()),
            method => answers
                .get(method)
                .cloned()
                .ok_or_else(|| (INVALID_ARGUMENT, format!("/{}/{method} does not exist", asked.service))),
        };
        if wire::write_answer(&mut stream, asked.stream, &said).is_err() {
            return;
        }
    }
}

/// What a shim of one version said, and what its pod's directory held.
pub struct Recording(PathBuf);

impl Recording {
    /// The one of version 1.
    pub fn version_1() -> Self {
        Self(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upgrade/version-1"))
    }

    /// A file of it.
    pub fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// What was asked.
    pub fn asked(&self, question: &str) -> Vec<u8> {
        wire::from_hex(&String::from_utf8_lossy(&self.file(&format!("{question}.asked.hex"))))
    }

    fn said(&self, question: &str) -> Vec<u8> {
        wire::from_hex(&String::from_utf8_lossy(&self.file(&format!("{question}.said.hex"))))
    }

    /// The method of a question.
    pub fn method(question: &str) -> &'static str {
        match question {
            "info" => "Info",
            "tasks" => "Tasks",
            "next_exits" => "NextExits",
            other => panic!("no question {other}"),
        }
    }

    /// All that it said.
    pub fn answers(&self) -> Answers {
        ["info", "tasks", "next_exits"].map(|question| (Self::method(question), self.said(question))).into()
    }

    /// What a shim would say of itself that speaks these versions.
    pub fn info_of(&self, newest: u64, oldest: u64) -> Vec<u8> {
        let versions = [wire::number_field(INFO_PROTOCOL, newest), wire::number_field(INFO_OLDEST, oldest)];
        [self.said("info"), versions.concat()].concat()
    }

    /// The process of a container, as if it were of this boot.
    pub fn process(&self, container: &str) -> ProcessIdentity {
        let text = String::from_utf8(self.file("processes.txt")).expect("text");
        let line = text.lines().find_map(|line| line.strip_prefix(container)).expect("recorded");
        let mut numbers =
            line.split_ascii_whitespace().map(|number| number.parse::<u64>().expect("a number"));
        let (pid, start_ticks) = (numbers.next().expect("a pid"), numbers.next().expect("a start time"));
        ProcessIdentity { pid: pid as u32, start_ticks, boot_id: boot_id().expect("readable") }
    }

    /// When the container that has ended did.
    pub fn exit_at(&self) -> u64 {
        String::from_utf8_lossy(&self.file("exit-at.txt")).trim().parse().expect("a number")
    }

    /// Asks a shim that runs a container `web` and has one `done` that has ended, and keeps what it says.
    pub fn make(world: &World, sandbox: &SandboxRecord, to: &Path) {
        use mainstay_task_api::Message;
        use mainstay_task_api::extension::{NextExitsRequest, ProcessKey, TasksResponse};
        use mainstay_task_api::task::{DeleteRequest, KillRequest};

        let keep = |name: &str, bytes: &[u8]| std::fs::write(to.join(name), bytes).expect("written");
        let keep_hex = |name: &str, bytes: &[u8]| keep(name, format!("{}\n", wire::to_hex(bytes)).as_bytes());
        let mut stream = UnixStream::connect(world.directories.shim_socket(&sandbox.id)).expect("it listens");
        let from_the_start = NextExitsRequest { from_the_start: true, ..Default::default() };
        let questions = [
            ("info", Vec::new()),
            ("tasks", Vec::new()),
            ("next_exits", from_the_start.write_to_bytes().expect("small")),
        ];
        for (question, bytes) in questions {
            let said = wire::ask(&mut stream, "mainstay.shim.v1.Extension", Self::method(question), &bytes);
            keep_hex(&format!("{question}.asked.hex"), &bytes);
            keep_hex(&format!("{question}.said.hex"), &said);
            if question == "tasks" {
                let tasks = TasksResponse::parse_from_bytes(&said).expect("its own words");
                let line = |process: &mainstay_task_api::extension::ProcessState| {
                    format!("{} {} {}\n", process.process.container, process.pid, process.start_ticks)
                };
                keep("processes.txt", tasks.processes.iter().map(line).collect::<String>().as_bytes());
                let ended =
                    tasks.processes.iter().find_map(|process| process.exit.as_ref()).expect("one has ended");
                keep("exit-at.txt", format!("{}\n", ended.at_ns).as_bytes());
            }
        }
        let done = ProcessKey { container: "done".to_owned(), ..Default::default() };
        let acknowledge = NextExitsRequest { acknowledged: vec![done], ..Default::default() };
        keep_hex("acknowledge.asked.hex", &acknowledge.write_to_bytes().expect("small"));
        let kill = KillRequest { id: "web".to_owned(), signal: 9, all: true, ..Default::default() };
        keep_hex("kill.asked.hex", &kill.write_to_bytes().expect("small"));
        let delete = DeleteRequest { id: "done".to_owned(), ..Default::default() };
        keep_hex("delete.asked.hex", &delete.write_to_bytes().expect("small"));
        for (name, path) in [
            ("pod.json", world.directories.pod_record(&sandbox.id)),
            ("shim.json", world.directories.shim_identity(&sandbox.id)),
            (
                "container.json",
                world.directories.container_record(&sandbox.id, &"done".parse().expect("a good id")),
            ),
        ] {
            keep(name, &std::fs::read(path).expect("it is there"));
        }
        let exit = world.directories.bundle(&sandbox.id, &"done".parse().expect("a good id")).join("exit");
        keep_hex("exit.hex", &std::fs::read(exit).expect("it is there"));
    }
}
