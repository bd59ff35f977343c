//! What another shim tells unasked.
//!
//! Owns: the service that it finds at `TTRPC_ADDRESS`, and what an event means. Never: trusts one alone: events are hints, may
//! come twice, late, or about nobody; who hears them knows what to make of that.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream;
use mainstay_task_api::convert::ProcessKey;
use mainstay_task_api::events::{Envelope, Events, ForwardRequest, TaskExit, TaskOOM, create_events};
use mainstay_task_api::well_known_types::empty::Empty;
use mainstay_task_api::{EVENT_TYPE_PREFIX, Message};
use ttrpc::r#async::TtrpcContext;
use ttrpc::asynchronous::transport::Listener;

use crate::door::Door;
use crate::failure::Failure;
use crate::sockets::accept;

/// What an event says that matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A process has ended.
    Exit {
        /// Which.
        process: ProcessKey,
        /// Its number, as the shim says it.
        pid: u32,
        /// As a shell would say it.
        status: u32,
    },
    /// The kernel's out-of-memory killer was in a container.
    Oom {
        /// Which.
        process: ProcessKey,
    },
    /// Something that is known from the answers.
    Other,
}

/// Serves the socket for events for as long as the server lives.
pub(super) async fn serve(path: &Path, door: Door) -> Result<ttrpc::r#async::Server, Failure> {
    let failed = |doing| move |source| Failure::File { path: path.to_owned(), doing, source };
    let socket = UnixListener::bind(path).map_err(failed("bound"))?;
    socket.set_nonblocking(true).map_err(failed("served"))?;
    let socket = tokio::net::UnixListener::from_std(socket).map_err(failed("served"))?;
    let connections = stream::unfold(socket, |socket| async {
        let connection = accept(&socket).await;
        Some((std::io::Result::Ok(connection), socket))
    });
    let mut server = ttrpc::r#async::Server::new()
        .add_listener(Listener::new(connections))
        .register_service(create_events(Arc::new(EventsService { door })));
    server.start().await.map_err(std::io::Error::other).map_err(failed("served"))?;
    Ok(server)
}

struct EventsService {
    door: Door,
}

#[async_trait]
impl Events for EventsService {
    async fn forward(&self, _: &TtrpcContext, request: ForwardRequest) -> ttrpc::Result<Empty> {
        // One that says nothing of use is as good as none.
        let event = request.envelope.as_ref().and_then(read).unwrap_or(Event::Other);
        if event != Event::Other {
            self.door
                .ask(move |shim| async move {
                    if let Some(backend) = shim.backend().task_shim() {
                        backend.hear(&shim, event);
                    }
                    Ok(())
                })
                .await?;
        }
        Ok(Empty::default())
    }
}

/// Reads an event; none when it is not what its topic says.
fn read(envelope: &Envelope) -> Option<Event> {
    let any = envelope.event.as_ref()?;
    match any.type_url.rsplit('/').next()?.strip_prefix(EVENT_TYPE_PREFIX)? {
        "TaskExit" => {
            let exit = TaskExit::parse_from_bytes(&any.value).ok()?;
            // PID 1 goes by its container's name.
            let exec = if exit.id == exit.container_id { "" } else { exit.id.as_str() };
            Some(Event::Exit {
                process: ProcessKey::parse(&exit.container_id, exec).ok()?,
                pid: exit.pid,
                status: exit.exit_status,
            })
        }
        "TaskOOM" => {
            let oom = TaskOOM::parse_from_bytes(&any.value).ok()?;
            Some(Event::Oom { process: ProcessKey::parse(&oom.container_id, "").ok()? })
        }
        _ => Some(Event::Other),
    }
}

#[cfg(test)]
mod tests {
    use mainstay_task_api::MessageField;
    use mainstay_task_api::well_known_types::any::Any;

    use super::*;

    fn envelope(kind: &str, message: &impl Message) -> Envelope {
        let value = message.write_to_bytes().expect("small");
        let any = Any { type_url: kind.to_owned(), value, ..Default::default() };
        Envelope { event: MessageField::some(any), ..Default::default() }
    }

    fn exit(container: &str, id: &str) -> TaskExit {
        TaskExit {
            container_id: container.into(),
            id: id.into(),
            pid: 12,
            exit_status: 7,
            ..Default::default()
        }
    }

    #[test]
    fn an_exit_is_that_of_the_container_or_of_an_exec() {
        for (id, exec) in [("web", ""), ("", ""), ("probe", "probe")] {
            let read = read(&envelope("containerd.events.TaskExit", &exit("web", id)));
            let Some(Event::Exit { process, pid: 12, status: 7 }) = read else { panic!("{read:?}") };
            assert_eq!(process, ProcessKey::parse("web", exec).expect("good ids"));
        }
    }

    #[test]
    fn what_cannot_be_read_is_nothing() {
        assert_eq!(read(&Envelope::default()), None);
        assert_eq!(read(&envelope("containerd.events.TaskExit", &exit("../web", ""))), None);
        assert_eq!(read(&envelope("else.TaskExit", &exit("web", ""))), None);
        let mut damaged = envelope("containerd.events.TaskExit", &exit("web", ""));
        damaged.event.as_mut().expect("there").value = vec![0xff; 3];
        assert_eq!(read(&damaged), None);
        let other = envelope("containerd.events.TaskCreate", &TaskOOM::default());
        assert_eq!(read(&other), Some(Event::Other));
    }
}
