//! What a plugin does wrong when it is told to, for tests of runtimes.
//!
//! Owns: the plan (which call meets which fault, how often), and the log of what the plugin was told. Never: part of a
//! plugin that is not under test.
//!
//! A plan is set from the program that the plugin is part of, or written in the configuration that the runtime
//! gives the plugin: one line `CALL=FAULT` or `CALL*TIMES=FAULT` each, where CALL is `RunPodSandbox` and the like, `Configure`, `Synchronize`
//! or `any`, and FAULT is one of
//!
//! | fault | |
//! |---|---|
//! | `refuse` or `refuse:TEXT` | answers with an error |
//! | `hang` | never answers |
//! | `late:MS` | answers after that time, rightly |
//! | `die` | closes the connection; a [`program`] ends, with status 1 |
//! | `garbage` | answers with bytes that are no answer |
//! | `noise` | sends bytes that are no frame |
//! | `flood:N` | asks for N updates at once, and then answers |
//! | `frames:N` | sends N answers that nobody asked for, and then answers |
//! | `unknown` | does not know the call |
//! | `panic` | panics |

mod attack;
mod plan;
mod program;

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainstay_nri_api::Event;
use mainstay_nri_api::mux::Closing;
use mainstay_nri_api::ttrpc::{self, Code, get_status};
use tokio::net::UnixStream;

use crate::service::{Asked, Way};
use crate::session::Runtime;

pub use plan::{Fault, PlanError};
pub use program::{Obedient, program};

/// The events that plugins before 0.12 hear of as changes of state, or not at all.
const YOUNG_CALLS: [Event; 11] = [
    Event::RUN_POD_SANDBOX,
    Event::POST_UPDATE_POD_SANDBOX,
    Event::STOP_POD_SANDBOX,
    Event::REMOVE_POD_SANDBOX,
    Event::POST_CREATE_CONTAINER,
    Event::START_CONTAINER,
    Event::POST_START_CONTAINER,
    Event::POST_UPDATE_CONTAINER,
    Event::REMOVE_CONTAINER,
    Event::UPDATE_POD_SANDBOX,
    Event::VALIDATE_CONTAINER_ADJUSTMENT,
];

/// What a plugin does wrong, and what it was told. Clones are the same.
#[derive(Clone, Default)]
pub struct Faults(Arc<Inner>);

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults").field("plan", &*self.plan()).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Inner {
    plan: Mutex<plan::Plan>,
    told: Mutex<Vec<Told>>,
    reach: Mutex<Reach>,
}

/// The connection, as far as faults strike there.
#[derive(Default)]
struct Reach {
    socket: Option<StdUnixStream>,
    runtime: Option<Runtime>,
    closing: Option<Closing>,
    ends_program: bool,
    speaks_old: bool,
}

/// One thing that a plugin was told, faults or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// `RunPodSandbox` and the like.
    pub call: &'static str,
    /// The id of the pod; empty where there is none.
    pub pod: String,
    /// The id of the container; empty where there is none.
    pub container: String,
    /// How it was said.
    pub way: Way,
}

impl Faults {
    /// From now on `call` (or `any`) meets this fault, so many times, or always.
    pub fn set(&self, call: &str, fault: Fault, times: Option<u32>) {
        self.plan().set(call, fault, times);
    }

    /// No faults any more. Calls that hang go on hanging.
    pub fn clear(&self) {
        *self.plan() = plan::Plan::default();
    }

    /// Speaks as plugins before 0.12 do: events come as changes of state.
    pub fn speak_old(&self) {
        self.reach().speaks_old = true;
    }

    /// What the plugin was told so far, in the order in which it came.
    pub fn told(&self) -> Vec<Told> {
        locked(&self.0.told).clone()
    }

    /// Takes the connection in hand.
    pub(crate) fn holds(&self, socket: &UnixStream) -> io::Result<()> {
        self.reach().socket = Some(socket.as_fd().try_clone_to_owned()?.into());
        Ok(())
    }

    /// Its session is over: what is held here would keep the connection open.
    pub(crate) fn lets_go(&self) {
        self.reach().socket = None;
    }

    pub(crate) fn reaches(&self, runtime: &Runtime, closing: &Closing) {
        let mut reach = self.reach();
        (reach.runtime, reach.closing) = (Some(runtime.clone()), Some(closing.clone()));
    }

    pub(crate) fn read_plan(&self, config: &str) -> ttrpc::Result<()> {
        self.plan()
            .read(config)
            .map_err(|error| ttrpc::Error::RpcStatus(get_status(Code::INVALID_ARGUMENT, error.to_string())))
    }

    /// Called before the plugin is.
    pub(crate) async fn strike(&self, asked: &Asked) -> ttrpc::Result<()> {
        let speaks_old = self.reach().speaks_old;
        if speaks_old && asked.way == Way::OwnCall && YOUNG_CALLS.iter().any(|e| e.name() == asked.call) {
            return Err(unknown(asked));
        }
        locked(&self.0.told).push(Told {
            call: asked.call,
            pod: asked.pod.clone(),
            container: asked.container.clone(),
            way: asked.way,
        });
        let fault = self.plan().next(asked.call);
        match fault {
            None => Ok(()),
            Some(fault) => self.commit(fault, asked).await,
        }
    }

    fn plan(&self) -> MutexGuard<'_, plan::Plan> {
        locked(&self.0.plan)
    }

    fn reach(&self) -> MutexGuard<'_, Reach> {
        locked(&self.0.reach)
    }
}

fn unknown(asked: &Asked) -> ttrpc::Error {
    ttrpc::Error::RpcStatus(get_status(Code::UNIMPLEMENTED, format!("{} is unknown", asked.call)))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
