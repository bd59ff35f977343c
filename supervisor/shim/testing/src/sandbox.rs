//! The sandbox API, which knows one sandbox and does nothing for it. Owns: its answers. Never: touches a container.

use std::time::SystemTime;

use mainstay_task_api::Message;
use mainstay_task_api::sandbox::{
    CreateSandboxRequest, CreateSandboxResponse, PingResponse, SandboxStatusResponse,
    ShutdownSandboxResponse, StartSandboxResponse, StopSandboxResponse,
};
use ttrpc::{Code, get_status};

use crate::container::stamp;
use crate::serve::{Answer, unimplemented};
use crate::task::Shim;

/// A call. Wait never answers: the sandbox ends with the shim.
pub async fn call(shim: &Shim, method: &str, payload: &[u8]) -> Answer {
    let bytes = match method {
        "CreateSandbox" => {
            CreateSandboxRequest::parse_from_bytes(payload)
                .map_err(|error| get_status(Code::INVALID_ARGUMENT, error))?;
            CreateSandboxResponse::new().write_to_bytes()
        }
        "StartSandbox" => StartSandboxResponse {
            pid: std::process::id(),
            created_at: stamp(SystemTime::now()),
            ..Default::default()
        }
        .write_to_bytes(),
        "StopSandbox" => StopSandboxResponse::new().write_to_bytes(),
        "WaitSandbox" => std::future::pending().await,
        "SandboxStatus" => SandboxStatusResponse {
            pid: std::process::id(),
            state: "SANDBOX_READY".into(),
            ..Default::default()
        }
        .write_to_bytes(),
        "PingSandbox" => PingResponse::new().write_to_bytes(),
        "ShutdownSandbox" => {
            shim.end();
            ShutdownSandboxResponse::new().write_to_bytes()
        }
        other => return Err(unimplemented("Sandbox", other)),
    };
    bytes.map_err(|error| get_status(Code::INTERNAL, error))
}
