//! The admin RPC of Mainstay: its protocol, the server that the daemon runs, and the client that the
//! `mainstay` command and tests use.
//!
//! The format on the socket is specified byte by byte in `PROTOCOL.md` beside this crate. The crate knows
//! no actor, store or shim: the server asks a [`Backend`]. It runs in whichever tokio runtime the caller
//! has, as long as that drives IO and time.
//!
//! ```text
//!             ┌────────────── Client ──────────────┐        ┌──────────── Server ────────────┐
//! call, open ─► Outgoing ─► writer ─────────────────► socket ─► FrameReader ─► Table ─► task ─► Backend
//! answers    ◄─ Pending ◄─ FrameReader ◄──────────── socket ◄─ writer ◄─ Outgoing ◄────┘
//!             └────────────────────────────────────┘        └────────────────────────────────┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`wire`] | the frames and their limits |
//! | [`limits`] | limits of the server |
//! | [`backend`] | the port: what the daemon can do |
//! | [`server`], [`client`] | the two ends |
//! | `frame`, `outgoing`, `flow` | reading, writing and flow control, the same at both ends |
//! | `answer` | answers that are larger than a frame |

pub mod backend;
pub mod client;
pub mod limits;
pub mod server;
pub mod wire;

mod answer;
mod flow;
mod frame;
mod outgoing;

pub use backend::{Backend, InputStream, ItemSink};
pub use client::{Client, InputSender, StreamHandle};
pub use limits::Limits;
pub use server::{BindError, Server, Socket, check_peer};
