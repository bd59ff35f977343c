//! Exec, Attach and PortForward: the URLs of their streams.
//!
//! | module | holds |
//! |---|---|
//! | `process` | a process behind a stream |
//! | `port` | the ports of a pod behind a stream |
//!
//! Owns: the server of streams, and what is refused before a URL is given out. Never: touches a byte of a stream.

mod port;
mod process;

use std::sync::Arc;

use mainstay::{ContainerPhase, ContainerSnapshot, Error, Kind, SandboxPhase};
use mainstay_cri_api::{
    AttachRequest, AttachResponse, ExecRequest, ExecResponse, PortForwardRequest, PortForwardResponse,
};
use mainstay_cri_streaming::backend::Streams as Wanted;
use mainstay_cri_streaming::{IssueError, PORTS_MAX, Server, StreamingSettings, TlsSettings};
use mainstay_messages::error::chain;
use tokio::sync::OnceCell;

use self::port::PodPorts;
use self::process::{Attachment, Command};
use crate::failure::{Failure, Result};
use crate::filter;
use crate::node::Node;

/// The server of streams, from the first time on that it could be had.
#[derive(Debug, Default)]
pub(crate) struct Streams(OnceCell<Server>);

impl Streams {
    /// The server. One that could not be had is tried again.
    pub(crate) async fn server(&self, node: &Node) -> Result<&Server> {
        let bind = async {
            let settings = settings(&node.settings().streaming);
            let bound = Server::bind(&settings).await;
            bound.map_err(|error| Error::unavailable("the server of streams", chain(&error)))
        };
        Ok(self.0.get_or_try_init(|| bind).await?)
    }
}

fn settings(of: &mainstay::StreamingSettings) -> StreamingSettings {
    StreamingSettings {
        address: of.address,
        tls: of.tls.as_ref().map(|tls| TlsSettings {
            certificate: tls.certificate.clone(),
            key: tls.key.clone(),
            client_authorities: tls.client_authorities.clone(),
        }),
        token_lifetime_ms: of.token_lifetime_ms,
        idle_timeout_ms: of.idle_timeout_ms,
        ..StreamingSettings::default()
    }
}

/// `Exec`
pub(crate) async fn exec(node: Arc<Node>, request: ExecRequest) -> Result<ExecResponse> {
    let ExecRequest { container_id, cmd, tty, stdin, stdout, stderr } = request;
    let wanted = checked(Wanted { stdin, stdout, stderr, terminal: tty })?;
    if cmd.is_empty() {
        return Err(Failure::invalid("cmd", "[]", "a program, with its arguments"));
    }
    let container = running(&node, &container_id, "exec")?.record.id.clone();
    let command = Command { runtime: node.runtime.clone(), container, command: cmd, wanted };
    let url = node.streams.server(&node).await?.exec(Box::new(command), wanted).map_err(too_many)?;
    Ok(ExecResponse { url })
}

/// `Attach`
pub(crate) async fn attach(node: Arc<Node>, request: AttachRequest) -> Result<AttachResponse> {
    let AttachRequest { container_id, stdin, tty, stdout, stderr } = request;
    let wanted = checked(Wanted { stdin, stdout, stderr, terminal: tty })?;
    let container = running(&node, &container_id, "attach")?.record.id.clone();
    let attachment = Attachment { runtime: node.runtime.clone(), container, wanted };
    let url = node.streams.server(&node).await?.attach(Box::new(attachment), wanted).map_err(too_many)?;
    Ok(AttachResponse { url })
}

/// `PortForward`
pub(crate) async fn port_forward(
    node: Arc<Node>,
    request: PortForwardRequest,
) -> Result<PortForwardResponse> {
    let PortForwardRequest { pod_sandbox_id, port } = request;
    required("pod_sandbox_id", &pod_sandbox_id)?;
    if port.len() > PORTS_MAX {
        return Err(Failure::invalid(
            "port",
            format!("{} ports", port.len()),
            format!("at most {PORTS_MAX}"),
        ));
    }
    let number = |port: i32| u16::try_from(port).ok().filter(|port| *port > 0);
    let numbers = port.into_iter().map(|port| {
        number(port).ok_or_else(|| Failure::invalid("port", port.to_string(), "a number from 1 to 65535"))
    });
    let numbers = numbers.collect::<Result<Vec<_>>>()?;
    let pod = filter::pod(&node.runtime, &pod_sandbox_id)?;
    let record = &pod.record;
    if record.phase != SandboxPhase::Ready {
        return Err(wrong_phase(
            Kind::Sandbox,
            &record.id,
            record.phase,
            "port-forward",
            SandboxPhase::Ready,
        )
        .into());
    }
    let ports = PodPorts { runtime: node.runtime.clone(), sandbox: record.id.clone() };
    let server = node.streams.server(&node).await?;
    let url = server.port_forward(Arc::new(ports), numbers).map_err(too_many)?;
    Ok(PortForwardResponse { url })
}

/// What kubelet's own server refuses is refused here.
fn checked(wanted: Wanted) -> Result<Wanted> {
    if wanted.terminal && wanted.stderr {
        let expected = "false with tty: a terminal has one output";
        return Err(Failure::invalid("stderr", "true", expected));
    }
    if !wanted.stdin && !wanted.stdout && !wanted.stderr {
        let expected = "true for at least one of stdin, stdout and stderr";
        return Err(Failure::invalid("stdout", "false", expected));
    }
    Ok(wanted)
}

fn running(node: &Node, id: &str, operation: &str) -> Result<Arc<ContainerSnapshot>> {
    required("container_id", id)?;
    let container = filter::container(&node.runtime, id)?;
    let record = &container.record;
    // In its grace time it runs still.
    if !matches!(record.phase, ContainerPhase::Running | ContainerPhase::Stopping) {
        return Err(wrong_phase(
            Kind::Container,
            &record.id,
            record.phase,
            operation,
            ContainerPhase::Running,
        )
        .into());
    }
    Ok(container)
}

fn required(field: &'static str, id: &str) -> Result<()> {
    if id.is_empty() { Err(Failure::invalid(field, "\"\"", "an id")) } else { Ok(()) }
}

fn wrong_phase<P: ToString>(kind: Kind, id: impl ToString, phase: P, operation: &str, needed: P) -> Error {
    let (id, phase, needed) = (id.to_string(), phase.to_string(), needed.to_string());
    Error::WrongPhase { kind, id, phase, operation: operation.to_owned(), needed }
}

fn too_many(error: IssueError) -> Failure {
    let IssueError::TooMany { limit, .. } = error;
    Error::ResourceExhausted { what: "streams that wait for their clients".into(), limit: limit as u64 }
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_cannot_be_are_refused() {
        let of = |stdin, stdout, stderr, terminal| checked(Wanted { stdin, stdout, stderr, terminal });
        assert!(of(true, true, false, true).is_ok());
        assert!(of(false, false, true, false).is_ok());
        let terminal = of(false, true, true, true).expect_err("a terminal has one output").to_string();
        assert!(terminal.contains("stderr"), "{terminal}");
        assert!(of(false, false, false, true).is_err());
    }
}
