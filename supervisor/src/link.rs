//! The connection to one shim.
//!
//! Owns: connecting and connecting again, checking who is at the other end, the time-out of every call, and what
//! a shim's answer is called towards callers. Never: starts or ends a shim, or repeats a call by itself: only the
//! caller knows whether that is safe.
//!
//! ```text
//!            call                    no answer in time
//!   Apart ───────► Answering ◄──────────────────────────► Silent
//!     ▲  connect,      │             an answer              │   each call asks for a sign of life first,
//!     │  Info          │                                    │   and fails soon when there is none
//!     └────────────────┴────────────────────────────────────┘
//!                        the connection breaks
//! ```
//!
//! A shim whose socket is gone, or that speaks no protocol that this program speaks, is out of reach: each call says so at
//! once.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use mainstay_messages::{Error, ProcessIdentity, Result, SandboxId};
use mainstay_task_api::extension::{ExtensionClient, InfoRequest, InfoResponse};
use mainstay_task_api::task_v2::TaskClient;
use mainstay_task_api::{CALL_GRACE_MS, EXTENSION_PROTOCOL, Spoken};
use tokio::net::UnixStream;
use tokio::net::unix::UCred;
use ttrpc::Code;
use ttrpc::asynchronous::Client;
use ttrpc::asynchronous::transport::Socket;
use ttrpc::context::Context;

use crate::settings::Timeouts;

/// The version of this program, for messages.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The two services of one connection.
#[derive(Clone)]
pub(crate) struct Services {
    pub task: TaskClient,
    pub extension: ExtensionClient,
}

/// The connection to one shim.
pub(crate) struct Link {
    sandbox: SandboxId,
    socket: PathBuf,
    process: ProcessIdentity,
    timeouts: Timeouts,
    services: RefCell<Option<Services>>,
    pulse: Cell<Pulse>,
    /// The version that is spoken on the connection.
    protocol: Cell<u32>,
}

/// Whether the shim answered in time when it was last asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pulse {
    Answering,
    Silent,
}

/// What is asked, for messages, and how long it may take.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    what: String,
    limit_ms: u64,
}

/// Why a call gave no answer.
#[derive(Clone, Debug)]
pub(crate) enum CallError {
    /// The shim said no.
    Refused { what: String, code: Code, reason: String },
    /// It does not know this call: it is older.
    NoSuchCall { what: String },
    /// It said nothing in time.
    Silent { what: String, after_ms: u64 },
    /// There is no connection.
    Apart { shim: String, reason: String },
    /// There never will be one that is of use: its socket is gone, or it speaks no protocol of ours.
    OutOfReach { shim: String, reason: String },
}

impl Call {
    /// A call that may take so long.
    pub fn new(what: impl Into<String>, limit_ms: u64) -> Self {
        Self { what: what.into(), limit_ms }
    }
}

impl CallError {
    /// Whether the shim said that there is no such task or process.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: Code::NOT_FOUND, .. })
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Silent { what, after_ms } => Error::DeadlineExceeded { what, after_ms },
            CallError::Apart { shim, reason } => Error::Unavailable { what: shim, reason },
            CallError::OutOfReach { shim, reason } => Error::Unavailable {
                what: shim,
                reason: format!("{reason}; it and its containers can still be stopped and removed"),
            },
            CallError::NoSuchCall { what } => {
                let reason = "the shim is of an older version, which cannot do this".to_owned();
                Error::Unsupported { setting: what, reason }
            }
            CallError::Refused { what, code: Code::UNIMPLEMENTED, reason } => {
                Error::Unsupported { setting: what, reason }
            }
            CallError::Refused { what, code: Code::PERMISSION_DENIED, reason } => {
                Error::PermissionDenied { what, reason }
            }
            CallError::Refused { what, reason, .. } => Error::Unavailable { what, reason },
        }
    }
}

impl Link {
    /// Without effect; the first call connects.
    pub fn new(sandbox: SandboxId, socket: PathBuf, process: ProcessIdentity, timeouts: Timeouts) -> Self {
        Self {
            sandbox,
            socket,
            process,
            timeouts,
            services: RefCell::new(None),
            pulse: Cell::new(Pulse::Answering),
            protocol: Cell::new(EXTENSION_PROTOCOL),
        }
    }

    /// Calls the shim.
    pub async fn call<T>(
        &self,
        call: Call,
        rpc: impl AsyncFnOnce(&Services, Context) -> ttrpc::Result<T>,
    ) -> Result<T, CallError> {
        let services = self.services().await?;
        if self.pulse.get() == Pulse::Silent {
            // A shim that hangs costs each caller this long, and not the whole time of its call.
            let probe = Call::new(call.what.clone(), call.limit_ms.min(self.timeouts.probe_ms));
            self.answer(&services, probe, async |services, context| {
                services.extension.info(context, &InfoRequest::default()).await
            })
            .await?;
        }
        self.answer(&services, call, rpc).await
    }

    /// Has the shim say what it is, and which version of the protocol is spoken with it.
    pub async fn introduce(&self, limit_ms: u64) -> Result<(u32, InfoResponse), CallError> {
        let services = self.services().await?;
        let call = Call::new(format!("what the shim of pod {} says of itself", self.sandbox), limit_ms);
        let info = self.answer(&services, call, async |services, context| {
            services.extension.info(context, &InfoRequest::default()).await
        });
        Ok((self.protocol.get(), info.await?))
    }

    /// The version of the extension that is spoken, as far as it is known.
    pub fn protocol(&self) -> u32 {
        self.protocol.get()
    }

    /// Lets go of the connection: its shim is gone.
    pub fn close(&self) {
        self.services.borrow_mut().take();
    }

    async fn answer<T>(
        &self,
        services: &Services,
        call: Call,
        rpc: impl AsyncFnOnce(&Services, Context) -> ttrpc::Result<T>,
    ) -> Result<T, CallError> {
        let context = ttrpc::context::with_duration(Duration::from_millis(call.limit_ms + CALL_GRACE_MS));
        let limit = Duration::from_millis(call.limit_ms);
        let Ok(answer) = tokio::time::timeout(limit, rpc(services, context)).await else {
            self.pulse.set(Pulse::Silent);
            return Err(CallError::Silent { what: call.what, after_ms: call.limit_ms });
        };
        match answer {
            Ok(answer) => {
                self.pulse.set(Pulse::Answering);
                Ok(answer)
            }
            Err(ttrpc::Error::RpcStatus(status)) => {
                self.pulse.set(Pulse::Answering);
                if is_unknown_call(status.code(), &status.message) {
                    return Err(CallError::NoSuchCall { what: call.what });
                }
                Err(CallError::Refused { what: call.what, code: status.code(), reason: status.message })
            }
            Err(error) => {
                self.close();
                Err(self.apart(error))
            }
        }
    }

    async fn services(&self) -> Result<Services, CallError> {
        if let Some(services) = &*self.services.borrow() {
            return Ok(services.clone());
        }
        let services = self.connect().await?;
        Ok(self.services.borrow_mut().insert(services).clone())
    }

    /// Connects, and makes sure that the process at the other end is the one that was recorded (P10).
    async fn connect(&self) -> Result<Services, CallError> {
        let limit = Duration::from_millis(self.timeouts.connect_ms);
        let stream = match tokio::time::timeout(limit, UnixStream::connect(&self.socket)).await {
            Ok(Ok(stream)) => stream,
            // It was there before the shim was, and nobody ever makes it again.
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Err(self.out_of_reach(format!("its socket {} is gone", self.socket.display())));
            }
            Ok(Err(error)) => return Err(self.apart(error)),
            Err(_) => return Err(self.silent_at_connecting()),
        };
        let peer = stream.peer_cred().map_err(|error| self.apart(error))?;
        check_owner(peer).map_err(|reason| self.apart(reason))?;
        let client = Client::new(Socket::new(stream));
        let services =
            Services { task: TaskClient::new(client.clone()), extension: ExtensionClient::new(client) };
        let info = self.answer(&services, self.hello(), async |services, context| {
            services.extension.info(context, &InfoRequest::default()).await
        });
        let info = info.await?;
        self.check_identity(&info)?;
        let theirs = Spoken::said(info.protocol, info.oldest_protocol);
        let common = Spoken::OURS.common(theirs).map_err(|none| {
            self.out_of_reach(format!("{none} (it is of version {}, and this of {})", info.version, VERSION))
        })?;
        self.protocol.set(common);
        Ok(services)
    }

    /// The kernel names the process that began to listen, which is whoever started the shim; so it is the shim that
    /// says its number, on a socket that only root can have bound.
    fn check_identity(&self, info: &InfoResponse) -> Result<(), CallError> {
        if info.pid == self.process.pid && info.sandbox == self.sandbox.as_str() {
            return Ok(());
        }
        Err(self.apart(format!(
            "process {} of pod {:?} answers on its socket instead of process {}",
            info.pid, info.sandbox, self.process.pid
        )))
    }

    fn hello(&self) -> Call {
        Call::new(format!("a sign of life of the shim of pod {}", self.sandbox), self.timeouts.connect_ms)
    }

    fn silent_at_connecting(&self) -> CallError {
        self.pulse.set(Pulse::Silent);
        CallError::Silent {
            what: format!("the connection to the shim of pod {}", self.sandbox),
            after_ms: self.timeouts.connect_ms,
        }
    }

    fn out_of_reach(&self, reason: String) -> CallError {
        CallError::OutOfReach { shim: format!("the shim of pod {}", self.sandbox), reason }
    }

    fn apart(&self, reason: impl fmt::Display) -> CallError {
        CallError::Apart { shim: format!("the shim of pod {}", self.sandbox), reason: reason.to_string() }
    }
}

/// Whether a status is what ttrpc itself says where the service has no such method: `/SERVICE/METHOD does not exist`.
fn is_unknown_call(code: Code, message: &str) -> bool {
    code == Code::INVALID_ARGUMENT && message.starts_with('/') && message.ends_with(" does not exist")
}

/// Whoever listens must be of our own user, or it could be anybody who got hold of the directory.
fn check_owner(peer: UCred) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    if peer.uid() == own {
        return Ok(());
    }
    Err(format!("its socket belongs to user {} instead of {own}", peer.uid()))
}
