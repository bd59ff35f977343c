//! Whether the runtime and the network can do their work, and why not: kubelet schedules nothing on a node that says no, and shows the message.

use std::time::Duration;

use mainstay::{Network, Runtime};
use mainstay_cri_api::RuntimeCondition;
use mainstay_messages::{Error, Result};

/// How long the network may take to say whether it is ready, in milliseconds. kubelet asks every five seconds, and gives up after two minutes.
const NETWORK_ANSWER_MS: u64 = 5_000;

/// Whether pods and containers can be made.
pub(super) fn runtime(runtime: &Runtime) -> RuntimeCondition {
    condition("RuntimeReady", runtime.condition(), "StoreCannotBeWritten")
}

/// Whether pods can have a network.
pub(super) async fn network(runtime: &Runtime) -> RuntimeCondition {
    let limit = Duration::from_millis(NETWORK_ANSWER_MS);
    let (state, reason) = match tokio::time::timeout(limit, runtime.network_status(Network::Default)).await {
        Ok(state) => (state, "NetworkPluginNotReady"),
        Err(_) => {
            let what = "the network's answer whether it is ready".to_owned();
            (Err(Error::DeadlineExceeded { what, after_ms: NETWORK_ANSWER_MS }), "NetworkDoesNotAnswer")
        }
    };
    condition("NetworkReady", state, reason)
}

fn condition(name: &str, state: Result<()>, reason: &str) -> RuntimeCondition {
    let (reason, message) = match &state {
        Ok(()) => (String::new(), String::new()),
        Err(error) => (reason.to_owned(), error.to_string()),
    };
    RuntimeCondition { r#type: name.to_owned(), status: state.is_ok(), reason, message }
}
