//! What a plugin asks of the runtime.
//!
//! Owns: hearing its name, and passing on the updates that it asks for by itself, each with a way to answer it. Never:
//! updates a container, or keeps more requests than [`UPDATES_IN_FLIGHT_MAX`].

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use mainstay_nri_api::mux::{Closed, Closing};
use mainstay_nri_api::ttrpc::asynchronous::TtrpcContext;
use mainstay_nri_api::ttrpc::{self, Code, get_status};
use mainstay_nri_api::{
    ContainerUpdate, Empty, RegisterPluginRequest, RuntimeService, UpdateContainersRequest,
    UpdateContainersResponse,
};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::name::PluginName;

/// How many requests of one plugin may be unanswered at once; more are refused.
pub const UPDATES_IN_FLIGHT_MAX: usize = 16;
/// How many may be refused for that reason before the plugin is cut off: it does not listen.
pub const UPDATES_REFUSED_MAX: u32 = 1_000;
/// The longest version that is kept, in bytes.
const NRI_VERSION_MAX_BYTES: usize = 128;

/// A request of a plugin to update or evict containers.
#[derive(Debug)]
pub struct UpdateRequest {
    /// What it wants.
    pub request: UpdateContainersRequest,
    reply: oneshot::Sender<Result<Vec<ContainerUpdate>, String>>,
}

/// The requests of one plugin, in the order in which they came.
#[derive(Debug)]
pub struct Updates(mpsc::Receiver<UpdateRequest>);

/// A plugin's name, or what is wrong with it.
pub(super) struct Registration {
    pub name: Result<PluginName, String>,
    pub nri_version: Option<String>,
}

/// The service `Runtime`, for one plugin.
pub(super) struct RuntimeServer {
    /// What the plugin is called, whatever it says; for those that this runtime started.
    given: Option<PluginName>,
    registration: Mutex<Option<oneshot::Sender<Registration>>>,
    updates: Mutex<Option<mpsc::Sender<UpdateRequest>>>,
    in_flight: Semaphore,
    refused: AtomicU32,
    closing: Closing,
}

impl UpdateRequest {
    /// Answers it, with those updates that could not be done.
    pub fn done(self, failed: Vec<ContainerUpdate>) {
        // Nobody listens when the connection has ended meanwhile.
        let _ = self.reply.send(Ok(failed));
    }

    /// Refuses it.
    pub fn refuse(self, reason: impl Into<String>) {
        let _ = self.reply.send(Err(reason.into()));
    }
}

impl Updates {
    /// The next one; none when the connection has ended.
    pub async fn next(&mut self) -> Option<UpdateRequest> {
        self.0.recv().await
    }
}

impl RuntimeServer {
    pub fn new(given: Option<PluginName>, closing: Closing) -> (Self, oneshot::Receiver<Registration>) {
        let (sender, receiver) = oneshot::channel();
        let server = Self {
            given,
            registration: Mutex::new(Some(sender)),
            updates: Mutex::new(None),
            in_flight: Semaphore::new(UPDATES_IN_FLIGHT_MAX),
            refused: AtomicU32::new(0),
            closing,
        };
        (server, receiver)
    }

    /// From now on requests are passed on.
    pub fn serve_updates(&self) -> Updates {
        let (sender, receiver) = mpsc::channel(UPDATES_IN_FLIGHT_MAX);
        *locked(&self.updates) = Some(sender);
        Updates(receiver)
    }

    fn too_many(&self) -> ttrpc::Error {
        let refused = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        if refused > UPDATES_REFUSED_MAX {
            self.closing.close(Closed::here(format!(
                "the plugin floods: {refused} requests came while {UPDATES_IN_FLIGHT_MAX} were unanswered"
            )));
        }
        status(
            Code::RESOURCE_EXHAUSTED,
            format!("{UPDATES_IN_FLIGHT_MAX} requests of this plugin are unanswered; wait for an answer"),
        )
    }
}

#[async_trait]
impl RuntimeService for RuntimeServer {
    async fn register_plugin(
        &self,
        _: &TtrpcContext,
        request: RegisterPluginRequest,
    ) -> ttrpc::Result<Empty> {
        let Some(registration) = locked(&self.registration).take() else {
            return Err(status(Code::ALREADY_EXISTS, "this connection has registered a plugin".to_owned()));
        };
        let name = match &self.given {
            Some(name) => Ok(name.clone()),
            None => PluginName::new(&request.plugin_idx, &request.plugin_name),
        };
        let answer = match &name {
            Ok(_) => Ok(Empty::default()),
            Err(reason) => Err(status(Code::INVALID_ARGUMENT, reason.clone())),
        };
        let nri_version = Some(request.nri_version)
            .filter(|version| !version.is_empty() && version.len() <= NRI_VERSION_MAX_BYTES);
        // Nobody waits when the time to register is over; the connection ends then.
        let _ = registration.send(Registration { name, nri_version });
        answer
    }

    async fn update_containers(
        &self,
        _: &TtrpcContext,
        request: UpdateContainersRequest,
    ) -> ttrpc::Result<UpdateContainersResponse> {
        let Some(updates) = locked(&self.updates).clone() else {
            return Err(status(Code::FAILED_PRECONDITION, "the plugin is not configured yet".to_owned()));
        };
        let Ok(_permit) = self.in_flight.try_acquire() else { return Err(self.too_many()) };
        let (reply, answer) = oneshot::channel();
        // There is room for as many as may be in flight; when nobody takes requests any more, nobody answers.
        let _ = updates.send(UpdateRequest { request, reply }).await;
        match answer.await {
            Ok(Ok(failed)) => Ok(UpdateContainersResponse { failed, ..Default::default() }),
            Ok(Err(reason)) => Err(status(Code::UNKNOWN, reason)),
            Err(_) => {
                Err(status(Code::UNAVAILABLE, "the runtime takes no updates of this plugin".to_owned()))
            }
        }
    }
}

fn status(code: Code, text: String) -> ttrpc::Error {
    ttrpc::Error::RpcStatus(get_status(code, text))
}

/// Locks are held for single steps that do not panic half-way.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
