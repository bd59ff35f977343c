//! Requests and responses of the admin RPC. They are types of its own: internal messages never go on the
//! wire. How frames carry them is specified in the admin crate (`runtime/admin/PROTOCOL.md`).
//!
//! Objects are named by [`Reference`]s, which the daemon resolves: an id, the unique beginning of one, or a
//! name (`POD`, `POD/CONTAINER`, or a container's name alone where only one has it).

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::audit::{Finding, Repair};
use crate::error::Result;
use crate::event::{Bearer, Event, Seq};
use crate::id::{ContainerId, ExecId, SandboxId};
use crate::image::{Collected, Damage, Image, ImageId, ImageName, PullProgress, PullSpec, Removed};
use crate::plugin::PluginStatus;
use crate::process::{Exit, Signal};
use crate::record::{ContainerSnapshot, ExecSnapshot, SandboxSnapshot};
use crate::sandbox::SandboxChange;
use crate::shim::ShimStatus;
use crate::spec::{ContainerSpec, ExecSpec, Resources, SandboxSpec, WindowSize};
use crate::supervisor::{DiskUsage, Stats};
use crate::time::Timestamp;

/// An object as a person names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reference(pub String);

/// A frame from client to daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientFrame {
    /// Chosen by the client, not in use on this connection.
    pub request: u64,
    /// What it says.
    pub body: ClientBody,
}

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientBody {
    /// A request with one answer.
    Call(Request),
    /// A request whose answer is a stream.
    Open(StreamRequest),
    /// Something for an open stream.
    Input(Input),
    /// The client is no longer interested. The operation itself goes on.
    Cancel,
}

/// A frame from daemon to client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFrame {
    /// That of the client frame that it answers; 0 when the daemon could not read one.
    pub request: u64,
    /// What it says.
    pub body: ServerBody,
}

/// What the daemon says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerBody {
    /// The answer to a call.
    Reply(Result<Response>),
    /// An item of a stream.
    Item(Item),
    /// The end of a stream, or why it could not be opened.
    End(Result<End>),
}

/// A request with one answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Who is there? → [`Response::Version`]
    Version,
    /// → [`Response::Sandbox`]
    RunSandbox(Box<SandboxSpec>),
    /// → [`Response::Done`]
    StopSandbox {
        /// The pod.
        sandbox: Reference,
        /// Grace, in milliseconds.
        grace_ms: Option<u64>,
    },
    /// → [`Response::Done`]
    RemoveSandbox {
        /// The pod.
        sandbox: Reference,
    },
    /// → [`Response::Sandboxes`]
    ListSandboxes,
    /// → [`Response::Container`]
    CreateContainer {
        /// The pod.
        sandbox: Reference,
        /// What is asked for.
        spec: Box<ContainerSpec>,
    },
    /// → [`Response::Done`]
    StartContainer {
        /// The container.
        container: Reference,
    },
    /// → [`Response::Done`], when it has ended
    StopContainer {
        /// The container.
        container: Reference,
        /// The signal.
        signal: Option<Signal>,
        /// Grace, in milliseconds.
        grace_ms: Option<u64>,
    },
    /// → [`Response::Done`]
    KillContainer {
        /// The container.
        container: Reference,
        /// The signal.
        signal: Signal,
    },
    /// → [`Response::Done`]
    RemoveContainer {
        /// The container.
        container: Reference,
        /// What to do when it runs.
        running: IfRunning,
    },
    /// → [`Response::Containers`]
    ListContainers,
    /// A pod, container or exec → [`Response::Object`]
    Inspect {
        /// The object.
        object: Reference,
    },
    /// → [`Response::Exited`], when it has ended
    Wait {
        /// The container.
        container: Reference,
    },
    /// → [`Response::Stats`]
    Stats {
        /// The container; all that run when not given.
        container: Option<Reference>,
    },
    /// The whole life of a pod or container → [`Response::Events`]
    Explain {
        /// The pod or container; it may be gone.
        object: Reference,
    },
    /// → [`Response::Done`]
    ReopenLog {
        /// The container.
        container: Reference,
    },
    /// → [`Response::Done`]
    Resize {
        /// The container.
        container: Reference,
        /// The exec; none for PID 1.
        exec: Option<ExecId>,
        /// The new size.
        size: WindowSize,
    },
    /// → [`Response::Done`]
    KillExec {
        /// The container.
        container: Reference,
        /// The exec.
        exec: ExecId,
        /// The signal.
        signal: Signal,
    },
    /// → [`Response::Done`], when all of it stands still
    PauseContainer {
        /// The container.
        container: Reference,
    },
    /// → [`Response::Done`]
    ResumeContainer {
        /// The container.
        container: Reference,
    },
    /// → [`Response::Done`]
    UpdateContainer {
        /// The container.
        container: Reference,
        /// The limits that change.
        change: Box<Resources>,
    },
    /// The machine beside the records → [`Response::Findings`]
    Audit {
        /// Whether what differs is cleaned up.
        repair: Repair,
    },
    /// → [`Response::Images`]
    ListImages,
    /// → [`Response::Images`], with one
    InspectImage {
        /// The image.
        image: ImageName,
    },
    /// → [`Response::ImageRemoved`]
    RemoveImage {
        /// A name, which is taken from its image; or an id, with all names of it.
        image: ImageName,
    },
    /// Gives back the room of what no image and no container needs → [`Response::ImagesCollected`]
    CollectImages,
    /// Reads all blobs and layers of an image, or of all, against their digests → [`Response::ImagesVerified`]
    VerifyImages {
        /// The image; all when not given.
        image: Option<ImageName>,
    },
    /// Those who have or had a name, the newest first, at most 64 → [`Response::Bearers`]
    WhoHad {
        /// A name, or `POD/NAME`.
        name: Reference,
    },
    /// What the daemon counts, as a scraper gets it → [`Response::Metrics`]
    Metrics {
        /// In which format.
        format: MetricsFormat,
    },
    /// Counts what a container has on the disk → [`Response::DiskUsage`]
    DiskUsage {
        /// The container.
        container: Reference,
    },
    /// → [`Response::Plugins`]
    ListPlugins,
    /// Ends the connection of a plugin: one that the daemon has started is started again, another one may come again by
    /// itself → [`Response::Done`]
    RestartPlugin {
        /// Its name with its index, as in `10-logger`.
        plugin: String,
    },
    /// → [`Response::Done`]
    UpdateSandbox {
        /// The pod.
        sandbox: Reference,
        /// What changes of it.
        change: Box<SandboxChange>,
    },
    /// → [`Response::Shims`]
    ListShims,
}

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricsFormat {
    /// That of Prometheus.
    Prometheus,
    /// OpenMetrics.
    OpenMetrics,
}

/// What removing does with a container that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IfRunning {
    /// Refuse.
    Refuse,
    /// Kill it first.
    Kill,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// It is done.
    Done,
    /// The daemon.
    Version(VersionInfo),
    /// A new pod.
    Sandbox(SandboxId),
    /// A new container.
    Container(ContainerId),
    /// All pods.
    Sandboxes(Vec<SandboxSnapshot>),
    /// All containers.
    Containers(Vec<ContainerSnapshot>),
    /// One object.
    Object(Box<Object>),
    /// How it ended.
    Exited(Exit),
    /// What containers use.
    Stats(Vec<ContainerStats>),
    /// Journal entries, in order.
    Events(Vec<Event>),
    /// What an audit has found: leaks, then ghosts.
    Findings(Vec<Finding>),
    /// Images.
    Images(Vec<Image>),
    /// What removing an image has done.
    ImageRemoved(Removed),
    /// What a collection of garbage has done.
    ImagesCollected(Collected),
    /// What is damaged. It was put out of use, so that a pull brings it again.
    ImagesVerified(Vec<Damage>),
    /// Those who have or had a name, the newest first. One that is gone is known as long as the journal has something of it.
    Bearers(Vec<Bearer>),
    /// Metrics, as text.
    Metrics(String),
    /// What a container has on the disk.
    DiskUsage(DiskUsage),
    /// Plugins: those that are connected, and those that are required and are not.
    Plugins(Vec<PluginStatus>),
    /// The shims that run, by the names of their pods.
    Shims(Vec<ShimStatus>),
}

/// One object, whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "it is boxed where it is used, in Response::Object")]
pub enum Object {
    /// A pod with its containers.
    Sandbox {
        /// The pod.
        sandbox: SandboxSnapshot,
        /// Its containers.
        containers: Vec<ContainerSnapshot>,
    },
    /// A container with its execs.
    Container {
        /// The container.
        container: ContainerSnapshot,
        /// Its execs: those that run and the last ones that ended.
        execs: Vec<ExecSnapshot>,
    },
    /// An exec.
    Exec(ExecSnapshot),
}

/// What a container uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStats {
    /// The container.
    pub container: ContainerId,
    /// Its name.
    pub name: String,
    /// What it uses, or why that could not be measured.
    pub stats: Result<Stats>,
}

/// The daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionInfo {
    /// Its version.
    pub version: String,
    /// The version of this protocol.
    pub protocol: u16,
    /// Its process id.
    pub pid: u32,
    /// Where it keeps what lasts.
    pub root_dir: PathBuf,
    /// Where it keeps what a reboot may take.
    pub state_dir: PathBuf,
    /// When it was ready.
    pub started_at: Timestamp,
    /// What it counts, by name.
    pub counters: BTreeMap<String, u64>,
}

/// A request whose answer is a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamRequest {
    /// Run a process in a container → [`Item::ExecStarted`], then its output; ends with [`End::Exited`].
    Exec {
        /// The container.
        container: Reference,
        /// What to run.
        spec: Box<ExecSpec>,
    },
    /// Output of PID 1 from now on → output; ends with [`End::Exited`].
    Attach {
        /// The container.
        container: Reference,
        /// Whether input is sent.
        stdin: Attached,
        /// What happens when the client is slow.
        on_lag: OnLag,
    },
    /// The log → [`Item::Log`]; ends with [`End::Done`].
    Logs {
        /// The container.
        container: Reference,
        /// Whether to go on until the container has ended.
        follow: Follow,
        /// Only the last so many lines.
        tail: Option<u64>,
        /// Only lines from this time on.
        since: Option<Timestamp>,
    },
    /// The journal → [`Item::Event`], [`Item::Lagged`]; ends with [`End::Done`].
    Events {
        /// Only entries with a higher number.
        after: Seq,
        /// Whether to go on with what happens from now on.
        follow: Follow,
        /// Only those of this pod or container.
        object: Option<Reference>,
    },
    /// Bring an image here, or join whoever does → [`Item::Pull`]; ends with [`End::Images`]. It is given up when the last
    /// one who wants it has left.
    PullImage(Box<PullSpec>),
    /// Take images from an archive, which comes as [`Input::Stdin`] and [`Input::StdinEnd`] → [`Item::Pull`]; ends with
    /// [`End::Images`].
    ImportImages {
        /// The name that the image gets when the archive has one image without a name.
        name: Option<ImageName>,
    },
    /// Write images to an OCI archive → [`Item::Output`]; ends with [`End::Done`].
    ExportImages {
        /// The images.
        images: Vec<ImageName>,
    },
}

/// Whether a stream carries input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attached {
    /// It does.
    Yes,
    /// It does not.
    No,
}

/// What happens when whoever reads a container's output is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLag {
    /// The container waits: nothing is lost.
    Block,
    /// The reader is cut off: the container never waits.
    Detach,
}

/// Whether a stream ends with what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Follow {
    /// It ends.
    No,
    /// It goes on.
    Yes,
}

/// Something for an open stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// Bytes for standard input.
    Stdin(Vec<u8>),
    /// The end of standard input.
    StdinEnd,
    /// The terminal's new size.
    Resize(WindowSize),
}

/// An output stream of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Standard output, or a terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// An item of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// The stream is open; what follows is complete from here on.
    Opened,
    /// The exec runs.
    ExecStarted {
        /// Its id.
        exec: ExecId,
    },
    /// Output.
    Output {
        /// Which.
        stream: OutputStream,
        /// At most [`OUTPUT_CHUNK_MAX`] bytes.
        bytes: Vec<u8>,
    },
    /// A line of a log, or a piece of a long one.
    Log(LogRecord),
    /// A journal entry.
    Event(Event),
    /// Entries that were asked for are no longer kept.
    Lagged {
        /// The first missing one.
        from: Seq,
        /// The last missing one.
        to: Seq,
    },
    /// A pull got on.
    Pull(PullProgress),
}

/// The most bytes of output in one item.
pub const OUTPUT_CHUNK_MAX: usize = 65_536;

/// A line of a log, or a piece of a long one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRecord {
    /// When it was read from the process.
    pub at: Timestamp,
    /// Which stream.
    pub stream: OutputStream,
    /// Its bytes, without the newline.
    pub bytes: Vec<u8>,
    /// Whether the line ends here.
    pub ends: LineEnd,
}

/// Whether a record ends its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineEnd {
    /// A newline follows.
    Newline,
    /// The next record of the stream goes on with the line, or there is none.
    Continued,
}

/// The end of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// There is no more.
    Done,
    /// The process ended.
    Exited(Exit),
    /// The reader was too slow and was cut off; so many bytes of output are missing.
    CutOff {
        /// Bytes that were waiting for the reader.
        bytes: u64,
    },
    /// The images are here.
    Images(Vec<ImageId>),
}
