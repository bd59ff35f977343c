//! A containerd shim (v2) that fails as it is told to, for tests of who drives shims.
//!
//! Owns: the program `containerd-shim-fault-v2` ([`program`]), and the place that a test makes for it ([`Place`]). It speaks
//! the real protocol, its containers are real processes, and a call that it does not implement answers UNIMPLEMENTED: Pause,
//! Resume, Checkpoint, Update, Stats and ResizePty.
//!
//! Never: isolates. A container is `process.args` of its bundle as a child on the host, in the cgroup that the spec names.
//!
//! What it does is said by the file `plan` in the folder of the name that it was started by, which is read again for every
//! call: one line `KEY=VALUE` each.
//!
//! | key | value |
//! |---|---|
//! | `start` | `plain` (as without a line), `json`, `protobuf`, `rubbish`, `nothing`, `long`, `exit:STATUS`, `hang` |
//! | `params` | `required`: `start` wants a BootstrapParams that agrees with its flags, as the shims of containerd main do |
//! | `serve` | `die`: ends when `start` has answered; `deaf`: never answers anybody; `close`: closes each connection |
//! | `task` | `v2` (as without a line), `v3` |
//! | `sandbox` | `yes`: the sandbox API is there |
//! | `grouping` | `no`: a shim for each container, whatever the annotations say |
//! | `death` | `clean`: kills what it runs before it ends; without the line that is left behind |
//! | `exits` | `early`: the exit event is sent before Start answers, which waits for the exit; `twice`; `never`; `late`: when Delete has answered; `lies`: one with status 3 as well, before Start lets the process go |
//! | `stray` | a number: so many exit events of containers that nobody knows, with each Create |
//! | `delete` | `fail`, `hang`: what the command does |
//! | a method (`Create`, `Wait`, `StartSandbox` …) or `any` | a fault, below |
//!
//! | fault | |
//! |---|---|
//! | `refuse` or `refuse:TEXT` | answers with an error, and does nothing |
//! | `unknown` | answers UNIMPLEMENTED, and does nothing |
//! | `hang`, `die` | never answers, or ends, and does nothing |
//! | `hang-after`, `die-after` | the same when it is done |
//! | `late:MS` | answers so much later |
//! | `twice` | answers twice |
//! | `garbage` | answers with bytes that are no answer |
//! | `noise` | sends bytes that are no frame |
//! | `pid:N` | answers with that process id |
//!
//! What it was asked is in the file `calls` beside the plan, one line each: `start ID`, `delete ID`, `Create ID`, `Kill ID EXEC`.

mod arguments;
mod commands;
mod container;
mod control_groups;
mod events;
mod output;
mod place;
mod plan;
mod sandbox;
mod serve;
mod task;

pub use commands::program;
pub use place::{PROGRAM, Place};
