//! Events, as a client of whoever started the shim. Owns: their order and envelopes. Never: decides which are wrong.

use mainstay_task_api::events::{
    Envelope, EventsClient, ForwardRequest, TaskCreate, TaskDelete, TaskExecAdded, TaskExecStarted, TaskExit,
    TaskStart,
};
use mainstay_task_api::well_known_types::any::Any;
use mainstay_task_api::{EVENT_TYPE_PREFIX, Message, MessageField};
use tokio::sync::{mpsc, oneshot};

use crate::container::stamp;

/// How long one event may take, in nanoseconds.
const FORWARD_NS: i64 = 5_000_000_000;

/// An event of the Task API.
pub trait Event: Message {
    const TOPIC: &'static str;
}

macro_rules! events {
    ($($message:ident = $topic:literal),+ $(,)?) => {
        $(impl Event for $message {
            const TOPIC: &'static str = $topic;
        })+
    };
}

events! {
    TaskCreate = "/tasks/create",
    TaskStart = "/tasks/start",
    TaskExit = "/tasks/exit",
    TaskDelete = "/tasks/delete",
    TaskExecAdded = "/tasks/exec-added",
    TaskExecStarted = "/tasks/exec-started",
}

/// Sends events, one after the other.
#[derive(Clone, Debug)]
pub struct Publisher {
    queue: mpsc::UnboundedSender<Letter>,
    namespace: String,
}

#[derive(Debug)]
struct Letter {
    envelope: Envelope,
    sent: oneshot::Sender<()>,
}

impl Publisher {
    /// One that sends to an address; nobody hears it if there is none.
    pub fn start(address: Option<String>, namespace: String) -> Self {
        // Unbounded: what is sent is what a test has asked for.
        let (queue, letters) = mpsc::unbounded_channel();
        tokio::spawn(send_all(address, letters));
        Self { queue, namespace }
    }

    /// Queues an event. Await the answer to know that it was delivered or given up.
    pub fn publish<E: Event>(&self, event: &E) -> oneshot::Receiver<()> {
        let mut any = Any::new();
        any.type_url = format!("{EVENT_TYPE_PREFIX}{}", E::NAME);
        any.value = event.write_to_bytes().expect("events are small");
        let envelope = Envelope {
            timestamp: stamp(std::time::SystemTime::now()),
            namespace: self.namespace.clone(),
            topic: E::TOPIC.to_owned(),
            event: MessageField::some(any),
            ..Default::default()
        };
        let (sent, receiver) = oneshot::channel();
        // A sender that is gone drops the letter, and that ends the waiting.
        let _ = self.queue.send(Letter { envelope, sent });
        receiver
    }
}

async fn send_all(address: Option<String>, mut letters: mpsc::UnboundedReceiver<Letter>) {
    let mut client = None;
    while let Some(letter) = letters.recv().await {
        if client.is_none()
            && let Some(address) = &address
        {
            let address = if address.contains("://") { address.clone() } else { format!("unix://{address}") };
            client = ttrpc::r#async::Client::connect(&address).await.ok().map(EventsClient::new);
        }
        let Some(connected) = &client else { continue };
        let request = ForwardRequest { envelope: MessageField::some(letter.envelope), ..Default::default() };
        if connected.forward(ttrpc::context::with_timeout(FORWARD_NS), &request).await.is_err() {
            client = None;
        }
        let _ = letter.sent.send(());
    }
}
