//! Starts processes in containers: the first one from an OCI runtime spec, and further ones in a container that runs.
//!
//! Owns the clone, name spaces, mounts, devices, terminal, user, limits, scheduling, capabilities, the system call filter, hooks,
//! network devices, the exec, and the removal of directories that a container could mount something in.
//! It never makes or removes cgroups ([`CgroupEntry`] says where the process belongs), never waits for an exit (whoever calls
//! it reaps), never blocks its caller on the child ([`pod_namespaces`] excepted), and never logs.
//!
//! ```text
//!  create ──▶ Launching ──try_reply──▶ [Environment ──proceed──▶] Ready ──release──▶ Running
//!  exec   ──▶ Launching ──try_reply──▶ Ready ───────────▶ Running        (and call_runtime: another runtime's program)
//!                           └────────▶ Failed ◀──────────────┘ (an exec that fails)
//! ```
//!
//! The caller must have one thread: the child is a fork that runs ordinary Rust. Nothing that is mounted is visible to the
//! host, and all of it ends with the processes.
//!
//! # Invariants
//! 1. A path that an image or a container can influence is only ever looked up by descriptor, inside the container's root.
//! 2. A process has exactly descriptors 0 to 2, default signals, and no privilege beyond its spec, when its program begins.
//! 3. What cannot be done as the spec says is an error, or a warning in [`Reply::Ready`]; it is never dropped silently.
//! 4. When the caller dies before the program runs, the child exits.
//! 5. For a container in a user name space the host's rights end before anything in its root is touched (`stage`).

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("mainstay-launch runs on Linux, on x86_64 and aarch64");

mod capabilities;
mod clone;
mod command;
mod control;
mod cwd;
mod devices;
mod error;
mod exec;
mod hooks;
mod init;
mod limits;
mod modules;
mod mounts;
mod namespaces;
mod net_devices;
mod pod;
mod process;
mod procfs;
mod removal;
mod rootfs;
mod runtime;
mod scheduling;
mod seccomp;
mod stage;
mod stdio;
mod support;
mod syscall;
mod sysctl;
mod terminal;
mod user;
mod user_namespace;

pub use clone::{CgroupEntry, LAUNCH_FAILED_STATUS};
pub use control::{FRAME_MAX_BYTES, Launching, Reply};
pub use error::{CommandFault, LaunchError, Result, Step};
pub use exec::{ExecRequest, exec};
pub use hooks::{
    HOOK_TIMEOUT_DEFAULT_MS, HOOK_TIMEOUT_MAX_S, HOOKS_MAX, HookPoint, HooksRequest, needs_environment,
    run_hooks,
};
pub use init::{GROUPS_ANNOTATION, GROUPS_STRICT, InitRequest, USER_ANNOTATION, create};
pub use limits::OomScorePolicy;
pub use mounts::image::{LAYER_OPTION, PART_OPTION};
pub use mounts::sources::HostMounts;
pub use net_devices::{Handover, NET_DEVICES_MAX, NetDevicesRequest, has_net_devices, move_net_devices};
pub use pod::{
    POD_NAMESPACES_TIMEOUT_MS, PodInit, PodNamespace, PodNamespaceRequest, PodNamespaces, PodPid,
    pod_namespaces,
};
pub use process::CallerEnd;
pub use removal::{Removal, remove_directory};
pub use rootfs::{ROOTFS_DIRECTORY, RootMount};
pub use runtime::{ContainerBundle, Preparation, RuntimeCall, call_runtime, mount_bundle, prepare_exec};
pub use seccomp::{check_seccomp, default_seccomp};
pub use stdio::{Io, Stdio};
pub use terminal::WindowSize;
pub use user::{USER_DATABASE_MAX_BYTES, USER_STRING_MAX_BYTES};
pub use user_namespace::user_namespace;
