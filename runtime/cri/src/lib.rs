//! The Container Runtime Interface of Kubernetes over a runtime of Mainstay, for kubelet and crictl.
//!
//! Owns: the socket ([`Server`]), and the translation between the messages of the interface and those of the embedding API. Never: has logic
//! that the embedding API lacks; what the interface needs and the core has not goes into the core.
//!
//! | module | holds |
//! |---|---|
//! | `server`, [`limits`] | the socket, who may connect, limits |
//! | `service` | the services: how calls are run and answered |
//! | `failure` | what goes wrong, as a status of gRPC |
//! | `node` | what all calls share; version, status, configuration |
//! | `pods`, `containers`, `exec` | the life of pods and containers, and commands in them |
//! | `filter`, `names`, `notes`, `times` | which pods and containers are meant; what they are called; what is kept for them; when |
//! | `streams` | exec, attach and port-forward: URLs, and what is behind them |
//! | `stats`, `pod_metrics`, `events` | what they use, and what happens to them |
//! | `resources`, `updates` | limits, and their changes while it runs |
//! | `images` | images |
//! | `checkpoint` | checkpoints, which there are none of |

mod checkpoint;
mod containers;
mod events;
mod exec;
mod failure;
mod filter;
mod images;
pub mod limits;
mod names;
mod node;
mod notes;
mod pod_metrics;
mod pods;
mod resources;
mod server;
mod service;
mod stats;
mod streams;
mod times;
mod updates;

pub use node::RUNTIME_NAME;
pub use server::Server;
