//! Exec, attach and port-forward over SPDY/3.1 and WebSocket, as kubectl and crictl speak them.
//!
//! A [`Server`] gives out URLs, each good for one client and a short time, and serves the streams of whoever comes. What a stream
//! leads to is behind the traits of [`backend`]: this crate knows neither containers nor the interface by which URLs are asked for.
//!
//! ```text
//!   TCP, TLS ─► HTTP/1.1 ─► token ─► SPDY/3.1 ──────────┬─► session ─► a process
//!                               └──► WebSocket ─┬───────┘
//!                                               ├─► ports of the request ─┐
//!                                               └─► SPDY/3.1 inside ──────┴─► connections to a pod
//! ```
//!
//! | spoken | for a process | for ports |
//! |---|---|---|
//! | SPDY/3.1 | `v4.channel.k8s.io`, `v3…`, `v2…`, `channel.k8s.io` | `portforward.k8s.io` |
//! | WebSocket | `v5.channel.k8s.io` to `channel.k8s.io`, `v4.base64…`, `base64…`, or none | `SPDY/3.1+portforward.k8s.io`, `v4.channel.k8s.io`, `v4.base64…`, or none |
//!
//! Nothing grows with what a client sends or does not read: each queue has a limit, and is waited for (P11). Input is not trusted
//! (P12): frames, header blocks, messages and streams have limits, and what breaks a rule ends its own connection alone (P9).
//!
//! | module | holds |
//! |---|---|
//! | [`backend`] | what is behind a stream |
//! | [`server`] | URLs and connections |
//! | [`settings`], `tls`, `tokens`, `handshake` | who is let in, and what is spoken then |
//! | `session` | one client and one process |
//! | `remote_command`, `port_forward` | their streams on a connection |
//! | [`spdy`], `websocket` | the two protocols |
//! | `peer` | whether a client is still there |
//! | `resize`, `status` | sizes and outcomes as texts |

pub mod backend;
mod handshake;
mod peer;
mod port_forward;
mod remote_command;
mod resize;
pub mod server;
mod session;
pub mod settings;
pub mod spdy;
mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tls;
mod tokens;
mod websocket;

pub use port_forward::websocket::PORTS_MAX;
pub use server::{BindError, Server};
pub use session::FIRST_SIZE_MS;
pub use settings::{SettingsError, StreamingSettings, TlsSettings};
pub use tls::TlsError;
pub use tokens::IssueError;

#[cfg(test)]
mod tests;
