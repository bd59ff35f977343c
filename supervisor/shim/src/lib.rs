//! The shim: one process per pod that parents its containers, keeps their output flowing and remembers their exits.
//!
//! It is the same binary as the program that embeds Mainstay, started again under the name [`SHIM_NAME`]: the program
//! calls [`run_if_shim`] first thing in `main`. It speaks the Task API and Mainstay's extension of it on one socket
//! and the stream protocol on another (crate `mainstay-task-api`), and outlives the daemon.
//!
//! Owns: the processes of one pod, from the clone to the exit record. Never: knows the store, CRI or images; starts a
//! thread; holds up one container for another.
//!
//! | module | holds |
//! |---|---|
//! | `start` | becoming a shim: sockets, sub-reaper, mount namespace, main loop |
//! | [`zygote`] | forking a shim instead of executing one |
//! | `shim` | what the shim knows, and what an exit sets off |
//! | `task` | the life of a process as decisions alone |
//! | `process`, `identity`, `container`, `pod` | one of each |
//! | `create`, `run`, `delete` | the operations that take time |
//! | `backend` | who makes the processes |
//! | `hooks`, `net_devices`, `errand` | what is done on the host for a container: hooks, and network devices that it is given |
//! | `containerd` | the shim under containerd instead of our supervisor |
//! | [`leftovers`] | what is cleared away when the supervisor was killed |
//! | `reaper`, `offspring`, `exits`, `exit_record` | exits: reaping, announcing, writing down |
//! | `output`, `stdin`, `streams`, `child_io`, `readiness` | pipes, logs, clients |
//! | `service`, `extension`, `door`, `sockets` | the wire |
//!
//! Invariants:
//! 1. One thread: the launcher forks, and a fork of a process with threads must not run Rust.
//! 2. An exit is recorded before it is announced, and announced until it is acknowledged.
//! 3. Nothing that a container or a client does can keep the shim from reaping.

mod arguments;
mod backend;
mod child_io;
mod container;
mod containerd;
mod create;
mod delete;
mod door;
mod errand;
mod exit_record;
mod exits;
mod extension;
mod failure;
pub mod faults;
mod hooks;
mod identity;
pub mod leftovers;
mod logger;
mod net_devices;
mod offspring;
mod output;
mod pod;
mod process;
mod readiness;
mod reaper;
mod run;
mod service;
mod shim;
mod sockets;
mod start;
mod stdin;
mod streams;
mod task;
pub mod zygote;

pub use containerd::CONTAINERD_SHIM_NAME;
pub use exit_record::{ExitRecord, ExitRecordError, bundle_path, exit_record_path, read_exit_record};
pub use pod::POD_GROUPS;
pub use start::{SHIM_NAME, run_if_shim};
