//! The connection with another shim.
//!
//! Owns: that it is the same user's, that every call has a deadline, that a call ends when the shim does, and the sentence for
//! what went wrong. Never: decides what to call.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use mainstay_task_api::sandbox::{WaitSandboxRequest, WaitSandboxResponse};
use mainstay_task_api::{Message, SANDBOX_SERVICE, TASK_V2_SERVICE, TASK_V3_SERVICE};
use rustix::process::geteuid;
use thiserror::Error;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::timeout;
use ttrpc::r#async::transport::Socket;

use super::answer::TaskVersion;
use super::launch::NAMESPACE;

/// The key of the metadata that names the namespace.
const NAMESPACE_KEY: &str = "containerd-namespace-ttrpc";
/// How long connecting may take, in milliseconds.
const SHIM_CONNECT_MS: u64 = 2_000;
/// How much later than ours the deadline of a call is that the wire carries, in milliseconds: the one that is heard is ours.
const GRACE_MS: u64 = 1_000;

/// How a call with a shim of others went wrong.
#[derive(Clone, Debug, Error)]
pub(crate) enum CallError {
    /// It said no.
    #[error("{shim}: {call}: {message}")]
    Refused {
        /// Which shim.
        shim: Rc<str>,
        /// What it was asked.
        call: &'static str,
        /// The status.
        code: ttrpc::Code,
        /// In its own words.
        message: String,
    },
    /// It said nothing.
    #[error("{shim}: {call} was not answered within {after_ms} ms")]
    Silent {
        /// Which shim.
        shim: Rc<str>,
        /// What it was asked.
        call: &'static str,
        /// The limit.
        after_ms: u64,
    },
    /// It said something that is no answer.
    #[error("{shim}: the answer to {call} cannot be understood: {reason}")]
    Nonsense {
        /// Which shim.
        shim: Rc<str>,
        /// What it was asked.
        call: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// It is gone, or cannot be talked to.
    #[error("{shim}: {reason}")]
    Gone {
        /// Which shim.
        shim: Rc<str>,
        /// What is known of that.
        reason: String,
    },
}

impl CallError {
    /// Whether it says that there is no such thing.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: ttrpc::Code::NOT_FOUND, .. })
    }

    /// Whether the shim does not offer the call.
    pub(crate) fn is_unimplemented(&self) -> bool {
        match self {
            Self::Refused { code: ttrpc::Code::UNIMPLEMENTED, .. } => true,
            // What servers of the ttrpc crate say.
            Self::Refused { code: ttrpc::Code::INVALID_ARGUMENT, message, .. } => {
                message.ends_with("does not exist")
            }
            _ => false,
        }
    }
}

/// The state of a shim, for the calls that wait for it.
pub(crate) type Death = Option<String>;

/// A connection. The calls of the Task API, and of the sandbox API, are made by their names: the versions differ in the name of the
/// service alone.
#[derive(Clone)]
pub(crate) struct Client {
    shim: Rc<str>,
    connection: ttrpc::r#async::Client,
    version: Rc<Cell<TaskVersion>>,
    death: watch::Receiver<Death>,
    /// Why nothing goes over it any more.
    broken: watch::Sender<Death>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("shim", &self.shim).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to a shim, and checks whose it is.
    pub(crate) async fn connect(
        shim: Rc<str>,
        socket: &Path,
        version: TaskVersion,
        death: watch::Receiver<Death>,
    ) -> Result<Self, CallError> {
        let gone = |reason: String| CallError::Gone { shim: shim.clone(), reason };
        let connected = timeout(Duration::from_millis(SHIM_CONNECT_MS), UnixStream::connect(socket)).await;
        let stream = match connected {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(gone(format!("{socket:?} cannot be connected to: {error}"))),
            Err(_) => {
                return Err(gone(format!("{socket:?} took no connection within {SHIM_CONNECT_MS} ms")));
            }
        };
        let peer = stream.peer_cred().map_err(|error| gone(error.to_string()))?.uid();
        let own = geteuid().as_raw();
        if peer != own {
            return Err(gone(format!("{socket:?} belongs to user {peer}, expected {own}")));
        }
        let connection = ttrpc::r#async::Client::new(Socket::new(stream));
        let (version, broken) = (Rc::new(Cell::new(version)), watch::Sender::new(None));
        Ok(Self { shim, connection, version, death, broken })
    }

    /// The version of the Task API that is spoken.
    pub(crate) fn version(&self) -> TaskVersion {
        self.version.get()
    }

    /// Waits until nothing goes over the connection any more; says why.
    pub(crate) async fn broken(&self) -> String {
        let mut broken = self.broken.subscribe();
        match broken.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            // The sender is in `self`.
            Err(_) => std::future::pending().await,
        }
    }

    /// Speaks the other version from now on.
    pub(crate) fn fall_back(&self) {
        self.version.set(match self.version.get() {
            TaskVersion::V2 => TaskVersion::V3,
            TaskVersion::V3 => TaskVersion::V2,
        });
    }

    /// A call of the Task API.
    pub(crate) async fn task<A: Message>(
        &self,
        call: &'static str,
        request: &impl Message,
        limit_ms: u64,
    ) -> Result<A, CallError> {
        self.limited(self.task_service(), call, request, limit_ms).await
    }

    /// A call of the Task API that may take as long as the shim lives.
    pub(crate) async fn task_without_limit<A: Message>(
        &self,
        call: &'static str,
        request: &impl Message,
    ) -> Result<A, CallError> {
        self.while_it_lives(self.task_service(), call, request, None).await
    }

    /// A call of the sandbox API.
    pub(crate) async fn sandbox<A: Message>(
        &self,
        call: &'static str,
        request: &impl Message,
        limit_ms: u64,
    ) -> Result<A, CallError> {
        self.limited(SANDBOX_SERVICE, call, request, limit_ms).await
    }

    /// Waits, by the sandbox API, for the end of the pod's machinery.
    pub(crate) async fn sandbox_end(&self, id: &str) -> Result<WaitSandboxResponse, CallError> {
        let request = WaitSandboxRequest { sandbox_id: id.to_owned(), ..Default::default() };
        self.while_it_lives(SANDBOX_SERVICE, "WaitSandbox", &request, None).await
    }

    fn task_service(&self) -> &'static str {
        match self.version.get() {
            TaskVersion::V2 => TASK_V2_SERVICE,
            TaskVersion::V3 => TASK_V3_SERVICE,
        }
    }

    async fn limited<A: Message>(
        &self,
        service: &'static str,
        call: &'static str,
        request: &impl Message,
        limit_ms: u64,
    ) -> Result<A, CallError> {
        let limit = Duration::from_millis(limit_ms);
        match timeout(limit, self.while_it_lives(service, call, request, Some(limit))).await {
            Ok(outcome) => outcome,
            Err(_) => Err(CallError::Silent { shim: self.shim.clone(), call, after_ms: limit_ms }),
        }
    }

    async fn while_it_lives<A: Message>(
        &self,
        service: &'static str,
        call: &'static str,
        request: &impl Message,
        limit: Option<Duration>,
    ) -> Result<A, CallError> {
        let mut death = self.death.clone();
        let died = async {
            match death.wait_for(Option::is_some).await {
                Ok(reason) => reason.clone().unwrap_or_default(),
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            reason = died => Err(CallError::Gone { shim: self.shim.clone(), reason }),
            outcome = self.send(service, call, request, limit) => outcome.map_err(|error| self.error(call, error)),
        }
    }

    async fn send<A: Message>(
        &self,
        service: &'static str,
        call: &'static str,
        request: &impl Message,
        limit: Option<Duration>,
    ) -> ttrpc::Result<A> {
        let others = |error: mainstay_task_api::MessageError| ttrpc::Error::Others(error.to_string());
        let metadata = HashMap::from([(NAMESPACE_KEY.to_owned(), vec![NAMESPACE.to_owned()])]);
        let on_wire = limit.map_or(0, |limit| limit.as_nanos() + u128::from(GRACE_MS) * 1_000_000);
        let request = ttrpc::Request {
            service: service.to_owned(),
            method: call.to_owned(),
            timeout_nano: i64::try_from(on_wire).unwrap_or(0),
            metadata: ttrpc::context::to_pb(metadata),
            payload: request.write_to_bytes().map_err(others)?,
            ..Default::default()
        };
        let answer = self.connection.request(request).await?;
        A::parse_from_bytes(&answer.payload).map_err(others)
    }

    fn error(&self, call: &'static str, error: ttrpc::Error) -> CallError {
        match error {
            ttrpc::Error::RpcStatus(status) => CallError::Refused {
                shim: self.shim.clone(),
                call,
                code: status.code(),
                message: status.message,
            },
            // What came cannot be understood; the connection is as good as before.
            ttrpc::Error::Others(reason) => CallError::Nonsense { shim: self.shim.clone(), call, reason },
            other => {
                let reason = format!("its connection broke during {call}: {other}");
                self.broken.send_if_modified(|broken| {
                    broken.is_none().then(|| *broken = Some(reason.clone())).is_some()
                });
                CallError::Gone { shim: self.shim.clone(), reason }
            }
        }
    }
}
