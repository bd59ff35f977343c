//! Shims, in JSON.

use mainstay_messages::shim::{ShimProcess, ShimStatus};
use serde::Serialize;

/// The shim of a pod, with what stands behind it. What it does not say is null, and `error` says why.
#[derive(Debug, Serialize)]
pub struct ShimView<'a> {
    sandbox: &'a str,
    name: &'a str,
    handler: Option<&'a str>,
    version: Option<&'a str>,
    /// The version of Mainstay's protocol that is spoken with it.
    protocol: Option<u32>,
    containers: Option<u32>,
    #[serde(flatten)]
    process: ProcessView,
    backend: Option<BackendView<'a>>,
    error: Option<String>,
}

/// What makes the pod's containers behind the shim.
#[derive(Debug, Serialize)]
struct BackendView<'a> {
    program: &'a str,
    version: &'a str,
    protocol: &'a str,
    processes: Vec<ProcessView>,
}

/// A process.
#[derive(Debug, Serialize)]
struct ProcessView {
    pid: u32,
    private_bytes: Option<u64>,
    since: Option<String>,
}

impl<'a> From<&'a ShimStatus> for ShimView<'a> {
    fn from(ShimStatus { sandbox, name, handler, shim }: &'a ShimStatus) -> Self {
        let said = shim.said.as_ref().ok();
        let backend = said.and_then(|said| said.backend.as_ref()).map(|backend| BackendView {
            program: &backend.program,
            version: &backend.version,
            protocol: &backend.protocol,
            processes: backend.processes.iter().map(Into::into).collect(),
        });
        Self {
            sandbox: sandbox.as_str(),
            name,
            handler: handler.as_deref(),
            version: said.map(|said| said.version.as_str()),
            protocol: said.map(|said| said.protocol),
            containers: said.map(|said| said.containers),
            process: ProcessView::from(&shim.process),
            backend,
            error: shim.said.as_ref().err().map(ToString::to_string),
        }
    }
}

impl From<&ShimProcess> for ProcessView {
    fn from(process: &ShimProcess) -> Self {
        let ShimProcess { pid, private_bytes, since } = process;
        Self { pid: *pid, private_bytes: *private_bytes, since: since.map(|since| since.to_string()) }
    }
}
