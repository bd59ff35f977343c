//! What containerd is told unasked.
//!
//! Owns: the queue, and sending it in its order. Never: holds anything up: a containerd that is down or slow costs events, and
//! what it missed it learns by asking.
//!
//! ```text
//!  tell ──▶ waiting (at most EVENTS_WAITING_MAX, then the oldest is lost) ──▶ Forward ── not taken for EVENT_TRY_MS ──▶ lost
//! ```

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use mainstay_messages::Timestamp;
use mainstay_task_api::convert::wire_timestamp;
use mainstay_task_api::events::{Envelope, EventsClient, ForwardRequest};
use mainstay_task_api::well_known_types::any::Any;
use mainstay_task_api::{EVENT_TYPE_PREFIX, Message, MessageField};
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use ttrpc::r#async::Client;
use ttrpc::r#async::transport::Socket;
use ttrpc::context;

use crate::logger;

/// The most events that wait to be taken. An exit storm of a full pod has fewer.
const EVENTS_WAITING_MAX: usize = 4_096;
/// How old an event may become, in milliseconds; a containerd that is still not there then has missed it: as long as a containerd takes to be restarted.
const EVENT_TRY_MS: u64 = 60_000;
/// How long one try may take, in milliseconds, a new connection counted.
const FORWARD_MS: u64 = 5_000;
/// Time between two tries, in milliseconds.
const EVENT_PAUSE_MS: u64 = 250;

/// What kind of event it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    Create,
    Start,
    ExecAdded,
    ExecStarted,
    Exit,
    Delete,
    Oom,
    Paused,
    Resumed,
}

impl Topic {
    fn topic(self) -> &'static str {
        match self {
            Self::Create => "/tasks/create",
            Self::Start => "/tasks/start",
            Self::ExecAdded => "/tasks/exec-added",
            Self::ExecStarted => "/tasks/exec-started",
            Self::Exit => "/tasks/exit",
            Self::Delete => "/tasks/delete",
            Self::Oom => "/tasks/oom",
            Self::Paused => "/tasks/paused",
            Self::Resumed => "/tasks/resumed",
        }
    }

    /// The name of its message.
    fn message(self) -> &'static str {
        match self {
            Self::Create => "TaskCreate",
            Self::Start => "TaskStart",
            Self::ExecAdded => "TaskExecAdded",
            Self::ExecStarted => "TaskExecStarted",
            Self::Exit => "TaskExit",
            Self::Delete => "TaskDelete",
            Self::Oom => "TaskOOM",
            Self::Paused => "TaskPaused",
            Self::Resumed => "TaskResumed",
        }
    }
}

#[derive(Clone, Debug)]
struct Event {
    topic: Topic,
    at: Timestamp,
    since: Instant,
    value: Vec<u8>,
}

/// The events that are to be sent.
#[derive(Debug)]
pub(super) struct Events {
    namespace: String,
    waiting: RefCell<VecDeque<Event>>,
    /// Told when there is an event, and when there is none any more.
    changed: Notify,
}

impl Events {
    pub(super) fn new(namespace: String) -> Rc<Self> {
        Rc::new(Self { namespace, waiting: RefCell::default(), changed: Notify::new() })
    }

    /// Adds one.
    pub(super) fn tell(&self, topic: Topic, event: &impl Message) {
        // Texts and numbers of this process: they are always written.
        let Ok(value) = event.write_to_bytes() else { return };
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= EVENTS_WAITING_MAX
            && let Some(oldest) = waiting.pop_front()
        {
            logger::warning!("too many events wait for containerd: one of {} is lost", oldest.topic.topic());
        }
        waiting.push_back(Event { topic, at: logger::now(), since: Instant::now(), value });
        self.changed.notify_waiters();
    }

    /// Waits until all are sent or lost.
    pub(super) async fn sent(&self) {
        while !self.waiting.borrow().is_empty() {
            // There is one thread, so nothing happens between the look and the wait.
            self.changed.notified().await;
        }
    }

    async fn first(&self) -> Event {
        loop {
            let first = self.waiting.borrow().front().cloned();
            if let Some(event) = first {
                return event;
            }
            // As above.
            self.changed.notified().await;
        }
    }

    /// Takes out the one that was the first: it may have been lost for want of room meanwhile.
    fn done_with(&self, event: &Event) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.front().is_some_and(|first| first.at == event.at && first.value == event.value) {
            waiting.pop_front();
        }
        self.changed.notify_waiters();
    }

    fn request(&self, event: Event) -> ForwardRequest {
        let any = Any {
            type_url: format!("{EVENT_TYPE_PREFIX}{}", event.topic.message()),
            value: event.value,
            ..Any::default()
        };
        let envelope = Envelope {
            timestamp: MessageField::some(wire_timestamp(event.at)),
            namespace: self.namespace.clone(),
            topic: event.topic.topic().to_owned(),
            event: MessageField::some(any),
            ..Envelope::default()
        };
        ForwardRequest { envelope: MessageField::some(envelope), ..ForwardRequest::default() }
    }
}

/// Sends events for as long as the shim lives.
pub(super) async fn send(events: Rc<Events>, address: String) {
    let path = path_of(&address);
    let mut client = None;
    loop {
        let event = events.first().await;
        while let Err(error) = forward(&mut client, &path, events.request(event.clone())).await {
            if event.since.elapsed() >= Duration::from_millis(EVENT_TRY_MS) {
                logger::warning!(
                    "containerd does not take an event of {}, which is lost: {error}",
                    event.topic.topic()
                );
                break;
            }
            tokio::time::sleep(Duration::from_millis(EVENT_PAUSE_MS)).await;
        }
        events.done_with(&event);
    }
}

/// One try, over a new connection where the last one has failed.
async fn forward(
    client: &mut Option<EventsClient>,
    path: &Path,
    request: ForwardRequest,
) -> Result<(), String> {
    let limit = Duration::from_millis(FORWARD_MS);
    let connected = client.take();
    let told = async {
        let connected = match connected {
            Some(connected) => connected,
            None => connect(path).await.map_err(|error| format!("connecting to {path:?}: {error}"))?,
        };
        let context = context::with_timeout(i64::try_from(limit.as_nanos()).unwrap_or(i64::MAX));
        connected.forward(context, &request).await.map_err(|error| error.to_string())?;
        Ok::<_, String>(connected)
    };
    match timeout(limit, told).await {
        Ok(told) => {
            *client = Some(told?);
            Ok(())
        }
        Err(_) => Err(format!("no answer within {FORWARD_MS} ms")),
    }
}

/// Connects without holding up the shim's only thread, which ttrpc's own way would do.
async fn connect(path: &Path) -> io::Result<EventsClient> {
    let stream = UnixStream::connect(path).await?;
    Ok(EventsClient::new(Client::new(Socket::new(stream))))
}

/// The socket of an address, with or without a scheme. One that begins with "@" is in the abstract namespace.
fn path_of(address: &str) -> PathBuf {
    let path = address.strip_prefix("unix://").unwrap_or(address);
    match path.strip_prefix('@') {
        Some(name) => format!("\0{name}").into(),
        None => path.into(),
    }
}

#[cfg(test)]
mod tests {
    use mainstay_task_api::events::TaskOOM;

    use super::super::socket::without_room;
    use super::*;

    /// A containerd that was stopped, so that nobody took its connections, held up the whole shim: connecting to a socket
    /// whose queue is full waited on the only thread, and no limit of time could end that.
    #[tokio::test]
    async fn a_containerd_that_takes_no_connections_holds_nothing_up() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("c.sock");
        let _full = without_room(&path);
        forward(&mut None, &path, ForwardRequest::default()).await.expect_err("nobody takes it");
    }

    #[test]
    fn an_address_may_have_a_scheme() {
        for address in ["/run/c.sock", "unix:///run/c.sock"] {
            assert_eq!(path_of(address), Path::new("/run/c.sock"));
        }
        assert_eq!(path_of("unix://@name"), Path::new("\0name"));
    }

    /// A containerd that never comes back must not fill the shim.
    #[test]
    fn the_oldest_is_lost_when_nobody_takes_them() {
        let events = Events::new("default".to_owned());
        for number in 0..=EVENTS_WAITING_MAX {
            events.tell(Topic::Oom, &TaskOOM { container_id: number.to_string(), ..Default::default() });
        }
        let waiting = events.waiting.borrow();
        assert_eq!(waiting.len(), EVENTS_WAITING_MAX);
        let first = TaskOOM::parse_from_bytes(&waiting[0].value).expect("an event");
        assert_eq!(first.container_id, "1");
    }

    #[test]
    fn an_event_is_what_the_interface_says() {
        let events = Events::new("k8s.io".to_owned());
        let event = Event { topic: Topic::Oom, at: Timestamp(5), since: Instant::now(), value: vec![] };
        let envelope = events.request(event).envelope.unwrap_or_default();
        assert_eq!((envelope.namespace.as_str(), envelope.topic.as_str()), ("k8s.io", "/tasks/oom"));
        assert_eq!(envelope.event.type_url, "containerd.events.TaskOOM");
    }
}
