//! What the actors need from outside: a durable store, the supervisor, a source of images, a clock, ids. The
//! runtime connects them. Nothing here knows SQL, ttrpc, HTTP or processes.

use std::sync::Arc;

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Handler, Recipient};
use futures::future::BoxFuture;
use mainstay_messages::error::Kind;
use mainstay_messages::event::{Bearer, Event, Seq};
use mainstay_messages::id::ID_BYTES;
use mainstay_messages::image::{ImageId, PullSpec};
use mainstay_messages::journal::{Commit, Committed};
use mainstay_messages::record::{ContainerRecord, SandboxRecord};
use mainstay_messages::supervisor::{
    AdoptShim, CreateTask, DeleteTask, FreezeTask, LaunchShim, MeasureShim, MeasureTask, QueryTask,
    ReopenTaskLog, ResizeTask, SignalTask, StartExecTask, StartTask, StopShim, UpdatePod, UpdateTask,
};
use mainstay_messages::{ContainerId, Name, Result, SandboxId, Timestamp};

use crate::image::ProgressSink;

/// The most bearers of a name that are told apart.
pub const BEARERS_MAX: usize = 64;

/// The durable store, as the actors need it.
pub trait Store: Send + Sync + 'static {
    /// Writes all of it or nothing; answers when it is durable. Commits of one caller become durable, and are
    /// answered, in the order of the calls.
    fn commit(&self, commit: Commit) -> BoxFuture<'static, Result<Committed>>;

    /// Everything that is kept, for the start of the runtime.
    fn load(&self) -> BoxFuture<'static, Result<Loaded>>;

    /// One container's record, if there is one.
    fn load_container(&self, id: &ContainerId) -> BoxFuture<'static, Result<Option<ContainerRecord>>>;

    /// One sandbox's record, if there is one.
    fn load_sandbox(&self, id: &SandboxId) -> BoxFuture<'static, Result<Option<SandboxRecord>>>;

    /// Events with a number above `after`, at most `limit`, in order.
    fn events(&self, query: EventQuery) -> BoxFuture<'static, Result<EventPage>>;

    /// Those who have or had a name, the newest first, at most [`BEARERS_MAX`]. One that is gone is known as long as there are
    /// events of it.
    fn bearers(&self, name: &Name) -> BoxFuture<'static, Result<Vec<Bearer>>>;
}

/// What a store held when it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The sandboxes.
    pub sandboxes: Vec<SandboxRecord>,
    /// The containers.
    pub containers: Vec<ContainerRecord>,
    /// Rows that cannot be read. They are listed as Unknown, never skipped and never fatal (P5).
    pub damaged: Vec<Damaged>,
    /// The number of the last event.
    pub last: Seq,
    /// The boot id of the run that last wrote to the store.
    pub boot_id: Option<String>,
}

/// A row that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// What it was.
    pub kind: Kind,
    /// Its id, as far as it can be read.
    pub id: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Which events are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventQuery {
    /// Only those with a higher number.
    pub after: Seq,
    /// At most so many.
    pub limit: usize,
    /// Only those about this object; all when not given.
    pub subject: Option<EventFilter>,
}

/// The object that events are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventFilter {
    /// A sandbox and everything in it.
    Sandbox(SandboxId),
    /// A container and its execs.
    Container(ContainerId),
}

/// A piece of the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPage {
    /// The events, in order.
    pub events: Vec<Event>,
    /// The oldest event that is still kept: those below it were trimmed.
    pub first_kept: Seq,
    /// The newest event.
    pub last: Seq,
}

/// The wall clock. Durations are measured with the monotonic clock of tokio, which tests can pause.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// A source of random bytes for ids.
pub trait Ids: Send + Sync + 'static {
    /// Bytes that nobody has had before.
    fn random(&self) -> [u8; ID_BYTES];
}

/// Where images come from, and where they are kept.
///
/// The futures are polled on the thread of the actors, so heavy work is done elsewhere. One that is dropped is
/// cancelled: its connections are closed within [`crate::image::CANCEL_MAX_MS`], and what it has got is kept
/// for the next try. All that goes on is told to `events` as it happens: by this a pull is judged alive (P8).
pub trait ImageSource: Send + Sync + 'static {
    /// Asks the registry what the name means, with the credentials of this caller. An answer proves that the
    /// caller may have the image.
    fn resolve(&self, spec: PullSpec, events: ProgressSink) -> BoxFuture<'static, Result<ResolvedImage>>;

    /// Fetches what is not here yet, unpacks it, makes it durable, and records it under its name last.
    fn fetch(&self, wanted: Arc<ResolvedImage>, events: ProgressSink) -> BoxFuture<'static, Result<ImageId>>;

    /// Records an image that was just fetched under the name of another caller.
    fn name(&self, wanted: Arc<ResolvedImage>, image: ImageId) -> BoxFuture<'static, Result<()>>;
}

/// What a name means, to a caller who may have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedImage {
    /// What was asked for, and who asked.
    pub spec: PullSpec,
    /// The name, whole: `docker.io/library/busybox:latest`.
    pub name: String,
    /// Host and path of the name: what the credentials are for.
    pub repository: String,
    /// What the name leads to: the manifest, or an index that it was chosen from.
    pub target: ImageDocument,
    /// The manifest of the image for the platform.
    pub manifest: ImageDocument,
    /// The platform, as in `linux/amd64`.
    pub platform: String,
}

/// A manifest, or an index of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageDocument {
    /// Its digest.
    pub digest: String,
    /// Its media type.
    pub media_type: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The supervisor, as the actors need it: where each of its messages goes.
#[derive(Clone)]
pub struct Supervisor {
    /// Starts the shim of a pod.
    pub launch_shim: Recipient<LaunchShim>,
    /// Finds the shim of a pod again.
    pub adopt_shim: Recipient<AdoptShim>,
    /// Ends the shim of a pod.
    pub stop_shim: Recipient<StopShim>,
    /// Measures a pod.
    pub measure_shim: Recipient<MeasureShim>,
    /// Sets up a container's PID 1.
    pub create_task: Recipient<CreateTask>,
    /// Lets it run.
    pub start_task: Recipient<StartTask>,
    /// Sends a signal.
    pub signal_task: Recipient<SignalTask>,
    /// Removes a task.
    pub delete_task: Recipient<DeleteTask>,
    /// Runs another process in a container.
    pub start_exec: Recipient<StartExecTask>,
    /// Changes the size of a terminal.
    pub resize_task: Recipient<ResizeTask>,
    /// Opens a container's log again.
    pub reopen_log: Recipient<ReopenTaskLog>,
    /// Measures a container.
    pub measure_task: Recipient<MeasureTask>,
    /// Asks what is known of a process.
    pub query_task: Recipient<QueryTask>,
    /// Freezes a container, or lets it go on.
    pub freeze_task: Recipient<FreezeTask>,
    /// Changes the limits of a container.
    pub update_task: Recipient<UpdateTask>,
    /// Changes the limits of a pod.
    pub update_pod: Recipient<UpdatePod>,
}

impl Supervisor {
    /// All of them at one actor.
    pub fn of<A>(addr: &Addr<A>) -> Self
    where
        A: Actor
            + Handler<LaunchShim>
            + Handler<AdoptShim>
            + Handler<StopShim>
            + Handler<MeasureShim>
            + Handler<CreateTask>
            + Handler<StartTask>
            + Handler<SignalTask>
            + Handler<DeleteTask>
            + Handler<StartExecTask>
            + Handler<ResizeTask>
            + Handler<ReopenTaskLog>
            + Handler<MeasureTask>
            + Handler<QueryTask>
            + Handler<FreezeTask>
            + Handler<UpdateTask>
            + Handler<UpdatePod>,
        A::Context: ToEnvelope<A, LaunchShim>
            + ToEnvelope<A, AdoptShim>
            + ToEnvelope<A, StopShim>
            + ToEnvelope<A, MeasureShim>
            + ToEnvelope<A, CreateTask>
            + ToEnvelope<A, StartTask>
            + ToEnvelope<A, SignalTask>
            + ToEnvelope<A, DeleteTask>
            + ToEnvelope<A, StartExecTask>
            + ToEnvelope<A, ResizeTask>
            + ToEnvelope<A, ReopenTaskLog>
            + ToEnvelope<A, MeasureTask>
            + ToEnvelope<A, QueryTask>
            + ToEnvelope<A, FreezeTask>
            + ToEnvelope<A, UpdateTask>
            + ToEnvelope<A, UpdatePod>,
    {
        Self {
            launch_shim: addr.clone().recipient(),
            adopt_shim: addr.clone().recipient(),
            stop_shim: addr.clone().recipient(),
            measure_shim: addr.clone().recipient(),
            create_task: addr.clone().recipient(),
            start_task: addr.clone().recipient(),
            signal_task: addr.clone().recipient(),
            delete_task: addr.clone().recipient(),
            start_exec: addr.clone().recipient(),
            resize_task: addr.clone().recipient(),
            reopen_log: addr.clone().recipient(),
            measure_task: addr.clone().recipient(),
            query_task: addr.clone().recipient(),
            freeze_task: addr.clone().recipient(),
            update_task: addr.clone().recipient(),
            update_pod: addr.clone().recipient(),
        }
    }
}

/// The ports that every actor of the runtime shares.
#[derive(Clone)]
pub struct Ports {
    /// The durable store.
    pub store: Arc<dyn Store>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The source of ids.
    pub ids: Arc<dyn Ids>,
}
