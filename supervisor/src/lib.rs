//! Owns the shim processes: launches them, finds them again, watches, kills and reaps them, and is the only client of
//! their sockets.
//!
//! ```text
//!  commands (messages::supervisor)                          facts (messages::router)
//!        │                                                        ▲
//!        ▼                                                        │ TaskExited, ShimDied
//!  ShimSupervisor ──── for each pod: Shim ─┬─ WatchedProcess      │  pidfd: end, kill, reap
//!   (the actor)                            ├─ Link                │  ttrpc: Task, Extension
//!                                          ├─ Ledger ─────────────┤  which exits are settled (pure)
//!                                          └─ exits::fetch ───────┘  the one loop that fetches them
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`supervisor`] | the actor |
//! | [`claim`] | what belongs to one runtime alone |
//! | [`settings`], [`paths`], [`host`] | what it works with: settings, names of files, what the machine can give |
//! | [`handlers`] | what runs the containers of which pods |
//! | [`oci`] | the OCI spec of a container (pure) |
//! | [`state`] | which exits are settled (pure) |
//! | [`identity`], [`find`] | which process a shim is |
//! | [`cdi`] | devices by their CDI names |
//! | `inventory` | what the machine holds of this runtime |
//! | [`rebuilt`] | what pods' directories tell a runtime whose store has lost them |
//! | [`open_files`] | how many files this program may have open, and how many what it starts |
//! | [`sealed`] | the copy of the program that shims are executed from |
//! | [`network`], [`netns`], `attach` | the networks of pods: the port to them, the names of namespaces, the steps |
//! | [`user_namespaces`] | which ids of the host pods with a user namespace have |
//! | `saga`, [`faults`] | steps with what undoes them, and where tests strike |
//! | `launch`, `adopt`, `stop`, `task`, `pod_limits` | what is done with a shim, command by command |
//! | `shim`, `exits`, `facts`, `link`, `watch` | one shim: its life, its exits and where they go, its connection, its process |
//! | [`usage`] | what pods and containers use, for many at once |
//! | `hooks` | what plugins are told, as steps of the sagas |
//! | `witness` | what became of a container whose shim does not speak for it |
//! | `spawn`, `zygote`, `files`, `volumes`, `cgroup`, `disks`, `peers`, `machine` | the work on the machine that blocks |
//!
//! Never: knows the store, the other actors, or CRI.

mod adopt;
mod attach;
pub mod cdi;
mod cgroup;
pub mod claim;
mod disks;
mod exits;
mod facts;
pub mod faults;
mod files;
pub mod find;
pub mod handlers;
mod hooks;
pub mod host;
pub mod identity;
mod inventory;
mod launch;
mod link;
pub mod lsm;
mod machine;
mod movement;
pub mod netns;
pub mod network;
pub mod oci;
pub mod open_files;
pub mod paths;
mod peers;
mod places;
mod pod_limits;
pub mod rebuilt;
mod relabel;
mod saga;
pub mod sealed;
pub mod settings;
mod shim;
mod shims;
mod spawn;
pub mod state;
mod stop;
pub mod supervisor;
mod task;
pub mod usage;
pub mod user_namespaces;
mod volumes;
mod watch;
mod witness;
mod zygote;

pub use claim::{CLAIM_WAIT_MS, Claim};
pub use exits::{EXIT_QUESTION_MS, RECEIPTS_GATHERED_MS, RECONNECT_MAX_MS, RECONNECT_MIN_MS};
pub use facts::RECEIPT_TIMEOUT_MS;
pub use mainstay_nri as nri;
pub use network::{NetworkThings, NoNetworks, PodNetworks, PodToAttach};
pub use settings::{Lifetime, OomScorePolicy, Program, SupervisorSettings, Timeouts};
pub use shim::SHIM_DEATH_DEADLINE_MS;
pub use shims::{BACKEND_PROCESSES_MAX, DESCRIBE_MS, LOOK_MS};
pub use stop::{SHIM_KILL_WAIT_MS, STOP_REPORTS_MS};
pub use supervisor::{LEAK_ENDED_MS, PluginCame, SUPERVISOR_MAILBOX_MAX, ShimSupervisor, WelcomePlugins};
pub use user_namespaces::UserNamespaces;
