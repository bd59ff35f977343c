//! Containers made by another shim, one of containerd's or written to its interface, that stands behind this one.
//!
//! This shim starts it, is its client, its parent and, since it is a sub-reaper, the parent of whatever it leaves behind when it
//! dies. The daemon speaks with this shim alone, so what outlives the daemon does so here too: output, exits until they are
//! acknowledged, streams.
//!
//! ```text
//!  daemon ──▶ this shim ──Task API, sandbox API──▶ the other shim ──▶ containers
//!                 ▲  ▲ ◀──────── events ─────────────────┘  │             │
//!                 │  └─ the pipes, brought by a logger ◀─────┘             │
//!                 └──────────────── output, exits by pidfd ◀───────────────┘
//! ```
//!
//! Owns: the other shims of the pod, and which of them serves which container. Never: lets one of them hold up anything but its
//! own containers; believes that one is alive because it was.
//!
//! | module | holds |
//! |---|---|
//! | `home` | the paths |
//! | `launch`, `running`, `answer` | starting one |
//! | `external` | one of them: its connection, its life, its death |
//! | `client` | calls |
//! | `log` | what one logs |
//! | `events`, `exits`, `wait_status` | how a process's end becomes known |
//! | `streams`, `logger`, `fifo` | streams |
//! | `container`, `exec`, `control`, `metrics` | what is done with containers |
//! | `bundle`, `options` | what it is given to read |
//! | `end` | the time that steps have together |
//!
//! Invariants:
//! 1. An exit is delivered once, whichever way it comes first, and not before the process has been adopted.
//! 2. Every call has a limit but the one that waits for an end, which ends with the other shim.
//! 3. Everything that it makes is in the pod's cgroup or in the pod's directory, and goes with these.

mod answer;
mod bundle;
mod client;
mod container;
mod control;
mod end;
mod events;
mod exec;
mod exits;
mod external;
mod fifo;
mod home;
mod launch;
mod log;
mod logger;
mod metrics;
mod options;
mod running;
mod streams;
mod wait_status;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use mainstay_cgroups::{Cgroup, Controllers};
use mainstay_messages::ContainerId;
use mainstay_task_api::extension as wire;

use self::end::End;
use self::exits::Parked;
use self::external::{External, SANDBOX_START_MS};
use self::home::Home;
use self::launch::{Launch, SHIM_DELETE_MS};
use self::logger::Awaited;
use self::streams::Connected;
use crate::door::Door;
use crate::failure::Failure;
use crate::logger::Seldom;
use crate::pod::{POD_SHIM_GROUP, Pod};
use crate::shim::Shim;

pub(crate) use self::client::CallError;
pub(crate) use self::home::LOGGER_NAME;
pub(crate) use self::launch::LaunchShimError;
pub(crate) use self::logger::be_logger;
pub(crate) use self::options::{Output, Settings};

/// The other shims of a pod.
pub(crate) struct TaskShim {
    settings: Settings,
    home: Home,
    /// Where the other shims are.
    cgroup: Cgroup,
    externals: RefCell<Vec<Rc<External>>>,
    served: RefCell<BTreeMap<ContainerId, Served>>,
    parked: RefCell<Parked>,
    /// Exits that were told of nobody who could have ended.
    strays: Seldom,
    awaited: Rc<RefCell<Awaited>>,
    /// The last number that a file was named by.
    last_number: Cell<u64>,
    _loggers: Background,
    _events: ttrpc::r#async::Server,
}

/// A task that ends when this is dropped.
#[derive(Debug)]
struct Background(tokio::task::JoinHandle<()>);

impl Drop for Background {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A container of another shim.
struct Served {
    by: Rc<External>,
    /// Of its PID 1.
    streams: Option<Connected>,
}

impl std::fmt::Debug for TaskShim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskShim").field("program", &self.settings.program).finish_non_exhaustive()
    }
}

impl TaskShim {
    /// Starts the other shim of a pod.
    pub(crate) async fn begin(
        shim: &Rc<Shim>,
        door: Door,
        settings: Settings,
        pod: &Pod,
    ) -> Result<Rc<Self>, Failure> {
        if !pod.request.uids.is_empty() {
            return Err(Failure::Unsupported { what: container::USER_NAMESPACE });
        }
        let path = pod.cgroup.child(POD_SHIM_GROUP).map_err(|_| Failure::Invalid {
            field: "cgroup",
            value: format!("{:?}", pod.cgroup),
            expected: "a path that is not nested so deep",
        })?;
        let cgroup = Cgroup::create(&shim.layout, &path, Controllers::NONE)?;
        let home = Home::make(&shim.arguments.directory)?;
        let events = events::serve(&home.events(), door).await?;
        let awaited = Rc::<RefCell<Awaited>>::default();
        let loggers = logger::receive(logger::bind(&home)?, awaited.clone());
        let loggers = Background(tokio::task::spawn_local(loggers));
        let backend = Rc::new(Self {
            settings,
            home,
            cgroup,
            externals: RefCell::default(),
            served: RefCell::default(),
            parked: RefCell::default(),
            strays: Seldom::default(),
            awaited,
            last_number: Cell::new(0),
            _loggers: loggers,
            _events: events,
        });
        backend.begin_pod(shim, pod).await.inspect_err(|_| backend.kill_group())?;
        Ok(backend)
    }

    async fn begin_pod(self: &Rc<Self>, shim: &Rc<Shim>, pod: &Pod) -> Result<(), Failure> {
        let id = shim.arguments.sandbox.as_str();
        bundle::write_pod(&self.home.bundle(), id)?;
        let end = End::in_ms(SANDBOX_START_MS);
        let external = self.start_for(shim, id, &self.home.bundle(), end).await?;
        if let Err(failure) = external.begin_sandbox(pod.network_path(), self, end).await {
            // It may keep what no cgroup holds, such as a virtual machine.
            external.end_wholly().await;
            self.clean_up(shim, id, &self.home.bundle(), Duration::from_millis(SHIM_DELETE_MS)).await;
            return Err(failure);
        }
        tokio::task::spawn_local(external::watch(self.clone(), shim.clone(), external));
        Ok(())
    }

    /// What stands behind this shim.
    pub(crate) fn info(&self) -> wire::BackendInfo {
        let living: Vec<_> = self.living().collect();
        wire::BackendInfo {
            program: self.settings.program.to_string_lossy().into_owned(),
            version: self.settings.version.clone(),
            protocol: living.first().map_or("", |external| external.protocol()).to_owned(),
            pids: living
                .iter()
                .filter_map(|external| external.pid())
                .map(|pid| pid.as_raw_pid().unsigned_abs())
                .collect(),
            ..Default::default()
        }
    }

    /// Has the program started for a container or the pod: another shim comes of it, or one that is there serves it too.
    async fn start_for(
        self: &Rc<Self>,
        shim: &Rc<Shim>,
        id: &str,
        bundle: &std::path::Path,
        end: End,
    ) -> Result<Rc<External>, Failure> {
        // Dropped again where a shim that is there answers.
        let log = log::follow(bundle)?;
        let launch =
            Launch { program: &self.settings.program, home: &self.home, id, bundle, cgroup: &self.cgroup };
        let answer = launch.start(shim, end).await?;
        let known = self.living().find(|external| external.socket == answer.socket);
        if let Some(external) = known {
            return Ok(external);
        }
        let connected = External::connect(&self.settings.program, id, answer, &self.cgroup, log, end).await;
        let external = match connected {
            Ok(external) => external,
            Err(failure) => {
                // It may have made something before.
                self.clean_up(shim, id, bundle, Duration::from_millis(SHIM_DELETE_MS)).await;
                return Err(failure);
            }
        };
        self.externals.borrow_mut().push(external.clone());
        if id != shim.arguments.sandbox.as_str() {
            tokio::task::spawn_local(external::watch(self.clone(), shim.clone(), external.clone()));
        }
        Ok(external)
    }

    fn living(&self) -> impl Iterator<Item = Rc<External>> {
        let living: Vec<_> =
            self.externals.borrow().iter().filter(|external| external.death().is_none()).cloned().collect();
        living.into_iter()
    }

    /// The shim that serves a container.
    fn external_of(&self, id: &ContainerId) -> Result<Rc<External>, Failure> {
        let found = self.served.borrow().get(id).map(|served| served.by.clone());
        found.ok_or_else(|| Failure::NotFound {
            process: mainstay_task_api::convert::ProcessKey { container: id.clone(), exec: None },
        })
    }

    /// A number for the name of a file.
    fn next_number(&self) -> u64 {
        self.last_number.set(self.last_number.get() + 1);
        self.last_number.get()
    }

    fn kill_group(&self) {
        if let Err(error) = self.cgroup.kill() {
            crate::logger::error!("killing {}: {}", self.cgroup.path(), crate::logger::Chain(&error));
        }
    }
}
