//! Starting: a created PID 1 is let go, a registered exec is launched.
//!
//! Owns: what a start waits for, and that a failed one is an exit with a reason. Never: answers before the program
//! has been executed or has failed to be.

use std::rc::Rc;
use std::time::Duration;

use mainstay_task_api::convert::ProcessKey;
use mainstay_task_api::streams::Terminal;
use mainstay_task_api::task::{ExecProcessRequest, StartRequest};
use mainstay_task_api::{EXEC_OUTPUT_HOLD, EXEC_OUTPUT_HOLD_MAX_MS, PROCESS_TYPE_URL};
use oci_spec::runtime as oci;

use crate::container::{Container, Paused};
use crate::create::{stdin_mode, trim_memory};
use crate::failure::Failure;
use crate::output::{EXEC_OUTPUT_HOLD_DEFAULT_MS, Output, WithoutClient};
use crate::process::{Process, StreamNames};
use crate::shim::Shim;
use crate::stdin::Stdin;
use crate::task::{Ending, Input, Phase, Refusal};

/// How long the execution of a program may take, in milliseconds. It hangs when the file system of the program does.
pub(crate) const TASK_START_MS: u64 = 60_000;
/// How long a failed start waits for its process to be reaped, so that the exit is there when the caller looks, in
/// milliseconds.
pub(crate) const FAILED_START_REAP_MS: u64 = 5_000;

/// Registers an exec, so that its streams can be opened before it starts.
pub(crate) fn register_exec(shim: &Rc<Shim>, request: &ExecProcessRequest) -> Result<(), Failure> {
    let (container, key, program) = admit_exec(shim, request)?;
    let stdin = stdin_mode(&request.stdin)?;
    let terminal = if request.terminal { Terminal::Yes } else { Terminal::No };
    let names = StreamNames {
        stdin: request.stdin.clone(),
        stdout: request.stdout.clone(),
        stderr: request.stderr.clone(),
    };
    let hold = WithoutClient::Hold { limit: hold_limit(&request.stdout)? };
    let output = Output::new(shim.scratch.clone(), hold);
    let process = Process::new(key, names, terminal, output, Stdin::new(stdin));
    process.set_program(program);
    enter_exec(&container, process)
}

/// Reads what every exec says, and looks whether there may be one.
pub(crate) fn admit_exec(
    shim: &Rc<Shim>,
    request: &ExecProcessRequest,
) -> Result<(Rc<Container>, ProcessKey, oci::Process), Failure> {
    let key = ProcessKey::parse(&request.id, &request.exec_id)?;
    if key.exec.is_none() {
        return Err(no_exec_id());
    }
    let container = shim.container(&key.container)?;
    must_run(&container)?;
    shim.exits.borrow().admit()?;
    let program = program(request)?;
    Ok((container, key, program))
}

/// Enters an exec into the table.
pub(crate) fn enter_exec(container: &Container, process: Rc<Process>) -> Result<(), Failure> {
    let exec = process.key.exec.clone().ok_or_else(no_exec_id)?;
    container.add_exec(&exec, process)
}

fn no_exec_id() -> Failure {
    Failure::Invalid { field: "exec_id", value: "\"\"".to_owned(), expected: "an id for the exec" }
}

/// How long the output waits for a client: `stdout` of a request is `stream://hold/MILLISECONDS`, or anything else for the
/// usual time.
fn hold_limit(stdout: &str) -> Result<Duration, Failure> {
    let Some(text) = stdout.strip_prefix(EXEC_OUTPUT_HOLD) else {
        return Ok(Duration::from_millis(EXEC_OUTPUT_HOLD_DEFAULT_MS));
    };
    let limit = text.parse().ok().filter(|limit_ms| *limit_ms <= EXEC_OUTPUT_HOLD_MAX_MS);
    limit.map(Duration::from_millis).ok_or_else(|| Failure::Invalid {
        field: "stdout",
        value: format!("{stdout:?}"),
        expected: "\"stream://hold/\" and at most 86400000 milliseconds",
    })
}

/// Starts a process; answers with its id when its program has been executed.
pub(crate) async fn start(shim: Rc<Shim>, request: StartRequest) -> Result<u32, Failure> {
    let key = ProcessKey::parse(&request.id, &request.exec_id)?;
    let container = shim.container(&key.container)?;
    let process = container.process(&key)?;
    if key.exec.is_some() {
        must_run(&container)?;
    }
    process.apply(Input::StartAsked)?;
    let outcome = match &key.exec {
        None => container.backend.let_run(&shim, &container).await,
        Some(_) => container.backend.exec(&shim, &container, &process).await,
    };
    let outcome = match outcome {
        Err(failure) if process.identity().is_none() => Err(never_began(&shim, &process, failure)),
        outcome => outcome,
    };
    trim_memory();
    outcome.map(|()| process.pid_or_zero())
}

/// An exec for which no process could be made has ended all the same: its starter may wait for its exit.
fn never_began(shim: &Rc<Shim>, process: &Rc<Process>, failure: Failure) -> Failure {
    // A report of a failure is never refused.
    let _ = process.apply(Input::Failed { reason: failure.sentence() });
    shim.process_ended(process, Ending::NeverBegan);
    failure
}

/// An exec needs a PID 1 that runs. After its exit each is refused: a stream of execs must not hold it back.
fn must_run(container: &Container) -> Result<(), Failure> {
    let refusal = match container.init.phase() {
        Phase::Running if container.paused() == Paused::Yes => Refusal::Paused,
        Phase::Running => return Ok(()),
        Phase::Exited(_) => Refusal::HasExited,
        Phase::Preparing | Phase::Created | Phase::Starting => Refusal::NotRunning,
    };
    Err(Failure::Refused { process: container.init.key.clone(), refusal })
}

fn program(request: &ExecProcessRequest) -> Result<oci::Process, Failure> {
    let invalid = |value| Failure::Invalid {
        field: "spec",
        value,
        expected: "an OCI process as JSON in an Any of type runtime-spec/1/Process",
    };
    let any = request.spec.as_ref().ok_or_else(|| invalid("nothing".to_owned()))?;
    if any.type_url != PROCESS_TYPE_URL {
        return Err(invalid(format!("type {:?}", any.type_url)));
    }
    serde_json::from_slice(&any.value)
        .map_err(|error| invalid(format!("a process that cannot be read ({error})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_says_how_long_output_waits() {
        let usual = Duration::from_millis(EXEC_OUTPUT_HOLD_DEFAULT_MS);
        assert_eq!(hold_limit("stream://").expect("good"), usual);
        assert_eq!(hold_limit("").expect("good"), usual);
        assert_eq!(hold_limit("stream://hold/250").expect("good"), Duration::from_millis(250));
        for bad in ["stream://hold/", "stream://hold/-1", "stream://hold/86400001", "stream://hold/1s"] {
            assert!(matches!(hold_limit(bad), Err(Failure::Invalid { field: "stdout", .. })), "{bad}");
        }
    }
}
