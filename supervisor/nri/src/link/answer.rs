//! One call, and what became of it.
//!
//! Owns: the deadline of a call, and telling apart what the libraries mix: a plugin that says no, one that does not know the
//! call, one that is late, one that talks nonsense, one that is gone. Never: knows what is called.

use std::time::{Duration, Instant};

use mainstay_nri_api::mux::{Closed, Closing};
use mainstay_nri_api::ttrpc::context::{self, Context};
use mainstay_nri_api::ttrpc::{self, Code, Status};
use mainstay_nri_api::{Message, PluginClient};

use super::millis;

/// The longest request, in bytes. ttrpc takes 4 MiB with its own envelope around it.
pub(super) const REQUEST_MAX_BYTES: usize = (4 << 20) - 1024;

/// Why a call of a plugin gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It said no.
    #[error("{call} was refused: {reason}")]
    Refused {
        /// The call.
        call: &'static str,
        /// In the plugin's words.
        reason: String,
    },
    /// It does not know the call.
    #[error("{call} is unknown to the plugin")]
    Unknown {
        /// The call.
        call: &'static str,
    },
    /// It said nothing in time. It may still be at work.
    #[error("{call} was not answered within {after_ms} ms")]
    Late {
        /// The call.
        call: &'static str,
        /// The deadline.
        after_ms: u64,
    },
    /// What it said cannot be understood.
    #[error("the answer to {call} cannot be understood: {reason}")]
    Garbage {
        /// The call.
        call: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The connection has ended.
    #[error("{call} cannot be answered: {reason}")]
    Gone {
        /// The call.
        call: &'static str,
        /// Why it ended.
        reason: Closed,
    },
    /// The request is too long to be sent.
    #[error("{call} would have {bytes} bytes; at most {limit} can be sent")]
    TooLong {
        /// The call.
        call: &'static str,
        /// What it has.
        bytes: u64,
        /// What is possible.
        limit: usize,
    },
}

impl CallError {
    /// The call that this is about.
    pub fn call(&self) -> &'static str {
        match self {
            Self::Refused { call, .. }
            | Self::Unknown { call }
            | Self::Late { call, .. }
            | Self::Garbage { call, .. }
            | Self::Gone { call, .. }
            | Self::TooLong { call, .. } => call,
        }
    }
}

/// Makes one call.
pub(super) async fn call<Request, Answer, Rpc>(
    client: &PluginClient,
    closing: &Closing,
    what: &'static str,
    limit: Duration,
    request: &Request,
    rpc: impl FnOnce(PluginClient, Context) -> Rpc,
) -> Result<Answer, CallError>
where
    Request: Message,
    Rpc: Future<Output = ttrpc::Result<Answer>>,
{
    let bytes = request.compute_size();
    if bytes > REQUEST_MAX_BYTES as u64 {
        return Err(CallError::TooLong { call: what, bytes, limit: REQUEST_MAX_BYTES });
    }
    if let Some(reason) = closing.reason() {
        return Err(CallError::Gone { call: what, reason });
    }
    let started = Instant::now();
    let late = || CallError::Late { call: what, after_ms: millis(limit) };
    let answer = tokio::select! {
        // An answer that came just before the end, or at the deadline, counts.
        biased;
        answer = rpc(client.clone(), context::with_duration(limit)) => answer,
        () = tokio::time::sleep(limit) => return Err(late()),
        reason = closing.closed() => return Err(CallError::Gone { call: what, reason }),
    };
    match answer {
        Ok(answer) => Ok(answer),
        Err(ttrpc::Error::RpcStatus(status)) if status.code() == Code::DEADLINE_EXCEEDED => Err(late()),
        Err(ttrpc::Error::RpcStatus(status)) if is_unknown_call(&status) => {
            Err(CallError::Unknown { call: what })
        }
        Err(ttrpc::Error::RpcStatus(status)) => Err(refused(what, status)),
        Err(ttrpc::Error::Others(_)) if started.elapsed() >= limit => Err(late()),
        Err(ttrpc::Error::Others(reason)) => Err(CallError::Garbage { call: what, reason }),
        // It failed below ttrpc, or ttrpc has given up on the connection, of which nothing can come any more then.
        Err(error) => {
            closing.close(Closed::Failed { operation: "speaking on", reason: error.to_string() });
            let reason = closing.closed().await;
            Err(CallError::Gone { call: what, reason })
        }
    }
}

fn refused(call: &'static str, status: Status) -> CallError {
    let code = status.code.enum_value_or_default();
    let reason = match (status.message.is_empty(), code) {
        (true, code) => format!("{code:?}"),
        (false, Code::UNKNOWN) => status.message,
        (false, code) => format!("{} ({code:?})", status.message),
    };
    CallError::Refused { call, reason }
}

/// Whether the plugin does not know the call. ttrpc of Go says "unimplemented"; services that were generated for Rust say
/// "/SERVICE/METHOD is not supported" for a method that nobody wrote.
fn is_unknown_call(status: &Status) -> bool {
    match status.code() {
        Code::UNIMPLEMENTED => true,
        Code::NOT_FOUND => {
            status.message.starts_with("/nri.pkg.api.v1alpha1.Plugin/")
                && status.message.ends_with(" is not supported")
        }
        _ => false,
    }
}
