//! The link to a plugin as a line of its actor.
//!
//! Owns: which call of the link serves which request, and what its failures mean. Never: keeps anything.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use mainstay_nri_api::{Container, ContainerUpdate, Event, EventMask, PodSandbox, StopContainerRequest};

use crate::line::{Line, Reply, Request, Trouble};
use crate::link::{CallError, ContainerNotice, Link, PodNotice, SynchronizeError};

/// See the module.
pub(crate) struct Wire {
    pub(crate) link: Link,
    /// Time for one part of what there is.
    pub(crate) part: Duration,
}

impl Line for Wire {
    fn events(&self) -> EventMask {
        self.link.events()
    }

    fn call(&self, request: Request, limit_ms: u64) -> BoxFuture<'static, Result<Reply, Trouble>> {
        let link = self.link.clone();
        async move { call(&link, request, Duration::from_millis(limit_ms)).await.map_err(trouble) }.boxed()
    }

    fn synchronize(
        &self,
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    ) -> BoxFuture<'static, Result<Vec<ContainerUpdate>, Trouble>> {
        let (link, part) = (self.link.clone(), self.part);
        async move {
            link.synchronize(pods, containers, part).await.map_err(|error| match error {
                SynchronizeError::Call(error) => trouble(error),
                error @ (SynchronizeError::Oversized(_) | SynchronizeError::NoParts { .. }) => {
                    Trouble::Gone(error.to_string())
                }
            })
        }
        .boxed()
    }

    fn ended(&self) -> BoxFuture<'static, String> {
        // Who waits for the end must not keep the connection.
        let closing = self.link.closing();
        async move { closing.closed().await.to_string() }.boxed()
    }

    fn close(&self, reason: &str) {
        self.link.close(reason);
    }

    fn pid(&self) -> Option<u32> {
        self.link.peer().pid.and_then(|pid| u32::try_from(pid).ok())
    }
}

async fn call(link: &Link, request: Request, limit: Duration) -> Result<Reply, CallError> {
    match request {
        Request::Pod(event, pod) => {
            let notice = match event {
                Event::RUN_POD_SANDBOX => PodNotice::Run,
                Event::STOP_POD_SANDBOX => PodNotice::Stop,
                Event::REMOVE_POD_SANDBOX => PodNotice::Remove,
                Event::POST_UPDATE_POD_SANDBOX => PodNotice::PostUpdate,
                _ => return Ok(Reply::Done),
            };
            link.pod_notice(notice, pod, limit).await.map(|()| Reply::Done)
        }
        Request::Container(event, pod, container) => {
            let notice = match event {
                Event::STOP_CONTAINER => {
                    let request = StopContainerRequest {
                        pod: Some(pod).into(),
                        container: Some(container).into(),
                        ..Default::default()
                    };
                    return link.stop_container(&request, limit).await.map(Reply::Stopped);
                }
                Event::POST_CREATE_CONTAINER => ContainerNotice::PostCreate,
                Event::START_CONTAINER => ContainerNotice::Start,
                Event::POST_START_CONTAINER => ContainerNotice::PostStart,
                Event::POST_UPDATE_CONTAINER => ContainerNotice::PostUpdate,
                Event::REMOVE_CONTAINER => ContainerNotice::Remove,
                _ => return Ok(Reply::Done),
            };
            link.container_notice(notice, pod, container, limit).await.map(|()| Reply::Done)
        }
        Request::UpdatePod(request) => {
            let pod = request.pod.unwrap_or_default();
            let overhead = request.overhead_linux_resources.unwrap_or_default();
            let resources = request.linux_resources.unwrap_or_default();
            link.update_pod_sandbox(pod, overhead, resources, limit).await.map(|()| Reply::Done)
        }
        Request::Create(request) => link.create_container(&request, limit).await.map(Reply::Created),
        Request::Update(request) => link.update_container(&request, limit).await.map(Reply::Updated),
        Request::Validate(request) => {
            link.validate_container_adjustment(&request, limit).await.map(Reply::Validated)
        }
    }
}

fn trouble(error: CallError) -> Trouble {
    match error {
        CallError::Refused { reason, .. } => Trouble::Refused(reason),
        CallError::Gone { reason, .. } => Trouble::Gone(reason.to_string()),
        CallError::Unknown { .. }
        | CallError::Late { .. }
        | CallError::Garbage { .. }
        | CallError::TooLong { .. } => Trouble::Silent(error.to_string()),
    }
}
